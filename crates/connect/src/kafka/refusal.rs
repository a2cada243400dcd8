//! Records that can never become a run: they go to the dead-letter topic as they came, with what is wrong with them.

use rdkafka::message::{Header, Headers, Message, OwnedHeaders, OwnedMessage};
use serde_json::json;
use telecine_pipeline::{NoSubmission, RequestFault};
use telecine_queue::QueueError;

use super::incoming::Incoming;
use super::publisher::{NotSent, Outgoing, Publisher};
use super::request::Addressee;
use super::{Format, KafkaOptions};

/// Of what is wrong, so much is told.
const LONGEST_DETAIL: usize = 2_000;
/// How the headers begin that a dead letter has of us.
const OURS: [&str; 3] = ["telecine-problem", "telecine-source-", "telecine-value-omitted-"];
pub(super) const KEY_REUSED: &str = "key_reused";
/// A fault that is not the record's: whoever configures the store mends it.
const OF_OUR_OWN: &str = "storage_invalid";

/// Why a record does not become a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Stable.
    pub(super) code: String,
    pub(super) detail: String,
    pub(super) errors: Vec<RequestFault>,
}

impl Refusal {
    pub(super) fn new(code: &str, detail: impl Into<String>) -> Self {
        Self { code: code.into(), detail: detail.into(), errors: Vec::new() }
    }

    pub(super) fn invalid(path: &str, message: impl Into<String>) -> Self {
        let fault = RequestFault { path: path.into(), code: "invalid".into(), message: message.into() };
        Self::with_faults("invalid_request", vec![fault])
    }

    fn with_faults(code: &str, errors: Vec<RequestFault>) -> Self {
        let told: Vec<String> = errors
            .iter()
            .map(|fault| match fault.path.as_str() {
                "" => fault.message.clone(),
                path => format!("{path}: {}", fault.message),
            })
            .collect();
        Self { code: code.into(), detail: told.join("\n"), errors }
    }

    /// The error is what is away: then it is not the record's fault.
    pub(super) fn of_submission(refused: NoSubmission) -> Result<Self, String> {
        match refused {
            NoSubmission::Malformed(faults) => Ok(Self::with_faults("invalid_request", faults)),
            NoSubmission::Impossible(faults) => {
                if let Some(fault) = faults.iter().find(|fault| fault.code == OF_OUR_OWN) {
                    return Err(fault.message.clone());
                }
                // Where there is one fault, its own code says more.
                let code = match &faults[..] {
                    [only] if only.code != "invalid" => only.code.clone(),
                    _ => "unprocessable".to_owned(),
                };
                Ok(Self::with_faults(&code, faults))
            }
            NoSubmission::Unavailable(failed) => Err(failed.message),
        }
    }

    /// `None`: it is not the record's fault.
    pub(super) fn of_queue(error: &QueueError) -> Option<Self> {
        match error {
            QueueError::KeyReused { .. } => Some(Self::new(KEY_REUSED, error.to_string())),
            QueueError::Invalid { reason } => Some(Self::new("unprocessable", reason)),
            _ => None,
        }
    }

    /// As a problem of the API would be told.
    fn problem(&self) -> String {
        let errors: Vec<_> = self
            .errors
            .iter()
            .map(
                |fault| json!({"path": fault.path, "code": fault.code, "message": shortened(&fault.message)}),
            )
            .take(20)
            .collect();
        json!({ "code": self.code, "detail": shortened(&self.detail), "errors": errors }).to_string()
    }

    /// What is wrong and where it was: added to what the record came with. Without details where there is no room for them.
    fn headers(&self, record: &OwnedMessage, original: OwnedHeaders, with_details: bool) -> OwnedHeaders {
        let (detail, problem) = (shortened(&self.detail), self.problem());
        let (partition, offset) = (record.partition().to_string(), record.offset().to_string());
        let timestamp = record.timestamp().to_millis().unwrap_or(0).to_string();
        let told = [
            ("telecine-problem-code", self.code.as_str()),
            ("telecine-source-topic", record.topic()),
            ("telecine-source-partition", &partition),
            ("telecine-source-offset", &offset),
            ("telecine-source-timestamp-ms", &timestamp),
        ];
        let headers = with(original, &told);
        let details = [("telecine-problem-detail", detail.as_str()), ("telecine-problem", &problem)];
        if with_details { with(headers, &details) } else { headers }
    }
}

fn with(headers: OwnedHeaders, told: &[(&str, &str)]) -> OwnedHeaders {
    told.iter().fold(headers, |headers, (key, value)| headers.insert(Header { key, value: Some(*value) }))
}

/// The headers that a record came with, but for those of the dead letter that it may have been before; where they cannot be
/// looked at, all of them.
fn originals(record: &OwnedMessage, are_readable: bool) -> OwnedHeaders {
    let Some(headers) = record.headers() else { return OwnedHeaders::new() };
    if !are_readable {
        return headers.clone();
    }
    let is_ours = |name: &str| OURS.iter().any(|prefix| name.starts_with(prefix));
    headers.iter().filter(|header| !is_ours(header.key)).fold(OwnedHeaders::new(), OwnedHeaders::insert)
}

/// Sends a record to the dead-letter topic. Of one that is too large even for that, the value is left out, then key and
/// headers, and in the end all but where it is: a record that nobody can put away would stop its partition.
pub(super) async fn put_away(
    publisher: &Publisher,
    topic: &str,
    incoming: &Incoming,
    refusal: &Refusal,
) -> Result<(), NotSent> {
    let (record, omitted) = (&incoming.record, incoming.value_bytes.to_string());
    let omitting = |headers| with(headers, &[("telecine-value-omitted-bytes", &omitted)]);
    let whole = refusal.headers(record, originals(record, incoming.has_readable_headers), true);
    let forms = [
        (record.key(), record.payload(), whole.clone()),
        (record.key(), None, omitting(whole)),
        (None, None, omitting(refusal.headers(record, OwnedHeaders::new(), true))),
        (None, None, omitting(refusal.headers(record, OwnedHeaders::new(), false))),
    ];
    // Of what was not kept there is no whole.
    let is_whole = record.payload().map_or(0, <[u8]>::len) == incoming.value_bytes;
    for (key, value, headers) in forms.into_iter().skip(usize::from(!is_whole)) {
        match publisher.send(Outgoing { topic, key, value, headers }).await {
            Err(NotSent::TooLarge) => {}
            sent => return sent,
        }
    }
    Err(NotSent::TooLarge)
}

/// Tells whoever waits for a result that there will be none. What is wrong is in the dead-letter topic in any case: an answer
/// for which there is no room is given up.
pub(super) async fn answer(
    publisher: &Publisher,
    options: &KafkaOptions,
    addressee: &Addressee,
    record: &OwnedMessage,
    refusal: &Refusal,
) -> Result<(), NotSent> {
    let (topic, place) = (options.response_topic.as_str(), place(record));
    let told = [
        ("content-type", "application/json"),
        ("ce_specversion", "1.0"),
        ("ce_id", place.as_str()),
        ("ce_source", "telecine"),
        ("ce_type", "request.refused"),
    ];
    for message in [shortened(&refusal.detail), refusal.code.clone()] {
        let error = json!({ "code": refusal.code, "message": message, "retryable": false });
        let body = match options.format {
            Format::Telecine => json!({
                "type": "request.refused", "external_id": addressee.id, "success": false, "error": error,
                "run": null,
            }),
            Format::Optimize => json!({
                "mediaId": addressee.id, "userId": addressee.user, "success": false, "error": message,
                "variants": [], "run": null,
            }),
        };
        let (key, value, headers) =
            (addressee.key.as_bytes(), body.to_string(), with(OwnedHeaders::new(), &told));
        let answer = Outgoing { topic, key: Some(key), value: Some(value.as_bytes()), headers };
        match publisher.send(answer).await {
            Err(NotSent::TooLarge) => {}
            sent => return sent,
        }
    }
    tracing::warn!(place, topic, "an answer is larger than the brokers take; it is given up");
    Ok(())
}

/// Where a record was.
pub(super) fn place(record: &OwnedMessage) -> String {
    format!("{}/{}/{}", record.topic(), record.partition(), record.offset())
}

fn shortened(text: &str) -> String {
    text.chars().take(LONGEST_DETAIL).collect()
}

#[cfg(test)]
mod tests {
    use rdkafka::message::Timestamp;

    use super::*;

    fn impossible(code: &str) -> NoSubmission {
        let (path, message) = ("input.upload".into(), "why".into());
        NoSubmission::Impossible(vec![RequestFault { path, code: code.into(), message }])
    }

    #[test]
    fn a_letter_that_comes_back_has_our_headers_once() {
        let told = [("origin", "test"), ("telecine-problem-code", "old"), ("telecine-source-offset", "1")];
        let (topic, at) = ("requests".to_owned(), Timestamp::NotAvailable);
        let headers = Some(with(OwnedHeaders::new(), &told));
        let record = OwnedMessage::new(None, None, topic, at, 0, 7, headers);

        let headers = Refusal::new("empty", "why").headers(&record, originals(&record, true), true);
        let named = |name: &str| headers.iter().filter(|it| it.key == name).map(|it| it.value).collect();
        let (codes, origins): (Vec<_>, Vec<_>) = (named("telecine-problem-code"), named("origin"));
        assert_eq!((codes, origins), (vec![Some(&b"empty"[..])], vec![Some(&b"test"[..])]));
    }

    #[test]
    fn what_is_wrong_with_our_store_is_no_fault_of_a_record() {
        assert_eq!(Refusal::of_submission(impossible("storage_invalid")), Err("why".into()));
        let refusal = Refusal::of_submission(impossible("input_not_found")).expect("the record's fault");
        assert_eq!(
            (refusal.code.as_str(), refusal.detail.as_str()),
            ("input_not_found", "input.upload: why")
        );
    }
}
