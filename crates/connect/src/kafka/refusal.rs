//! Records that can never become a run: they go to the dead-letter topic as they came, with what is wrong with them.

use rdkafka::message::{Header, Headers, Message, OwnedHeaders, OwnedMessage};
use serde_json::json;
use telecine_pipeline::{NoSubmission, RequestFault};
use telecine_queue::QueueError;

use super::publisher::{NotSent, Outgoing, Publisher};
use super::request::addressee;
use super::{Format, KafkaOptions};

/// Of what is wrong, so much is told.
const LONGEST_DETAIL: usize = 2_000;

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
        let told: Vec<String> =
            errors.iter().map(|fault| format!("{}: {}", fault.path, fault.message)).collect();
        Self { code: code.into(), detail: told.join("\n"), errors }
    }

    /// The error is what is away: then it is not the record's fault.
    pub(super) fn of_submission(refused: NoSubmission) -> Result<Self, String> {
        match refused {
            NoSubmission::Malformed(faults) => Ok(Self::with_faults("invalid_request", faults)),
            NoSubmission::Impossible(faults) => {
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
            QueueError::KeyReused { .. } => Some(Self::new("key_reused", error.to_string())),
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

    /// What the dead letter says beside what the record said.
    fn headers(&self, record: &OwnedMessage, original: Option<&OwnedHeaders>) -> OwnedHeaders {
        let detail = shortened(&self.detail);
        let (partition, offset) = (record.partition().to_string(), record.offset().to_string());
        let timestamp = record.timestamp().to_millis().unwrap_or(0).to_string();
        let (problem, mut headers) = (self.problem(), OwnedHeaders::new());
        for header in original.into_iter().flat_map(Headers::iter) {
            headers = headers.insert(header);
        }
        let told = [
            ("telecine-problem-code", self.code.as_str()),
            ("telecine-problem-detail", &detail),
            ("telecine-problem", &problem),
            ("telecine-source-topic", record.topic()),
            ("telecine-source-partition", &partition),
            ("telecine-source-offset", &offset),
            ("telecine-source-timestamp-ms", &timestamp),
        ];
        told.into_iter()
            .fold(headers, |headers, (key, value)| headers.insert(Header { key, value: Some(value) }))
    }
}

/// Sends a record to the dead-letter topic. Of one that is too large even for that, the value is left out, and in the end
/// all but where it is: a record that nobody can put away would stop its partition.
pub(super) async fn put_away(
    publisher: &Publisher,
    topic: &str,
    record: &OwnedMessage,
    refusal: &Refusal,
) -> Result<(), NotSent> {
    let omitted = record.payload().map_or(0, <[u8]>::len).to_string();
    let omitting = |headers: OwnedHeaders| {
        headers.insert(Header { key: "telecine-value-omitted-bytes", value: Some(&omitted) })
    };
    let whole = refusal.headers(record, record.headers());
    let attempts = [
        (record.key(), record.payload(), whole.clone()),
        (record.key(), None, omitting(whole)),
        (None, None, omitting(refusal.headers(record, None))),
    ];
    for (key, value, headers) in attempts {
        match publisher.send(Outgoing { topic, key, value, headers }).await {
            Err(NotSent::TooLarge) => {}
            sent => return sent,
        }
    }
    Err(NotSent::TooLarge)
}

/// Tells whoever waits for a result that there will be none: a request that says whose it is gets one all the same. Where
/// a key was used for something else, that has or will have its own.
pub(super) async fn answer(
    publisher: &Publisher,
    options: &KafkaOptions,
    record: &OwnedMessage,
    refusal: &Refusal,
) -> Result<(), NotSent> {
    let addressee = addressee(record, options.format).filter(|_| refusal.code != "key_reused");
    let Some(addressee) = addressee else { return Ok(()) };
    let error = json!({ "code": refusal.code, "message": shortened(&refusal.detail), "retryable": false });
    let body = match options.format {
        Format::Telecine => json!({
            "type": "request.refused", "external_id": addressee.id, "success": false, "error": error, "run": null,
        }),
        Format::Optimize => json!({
            "mediaId": addressee.id, "userId": addressee.user, "success": false, "error": error["message"],
            "variants": [], "run": null,
        }),
    };
    let (key, value, place) = (addressee.key, body.to_string(), place(record));
    let told = [
        ("content-type", "application/json"),
        ("ce_specversion", "1.0"),
        ("ce_id", &place),
        ("ce_source", "telecine"),
        ("ce_type", "request.refused"),
    ];
    let headers = told.into_iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
        headers.insert(Header { key, value: Some(value) })
    });
    let (topic, key, value) = (&options.response_topic, Some(key.as_bytes()), Some(value.as_bytes()));
    publisher.send(Outgoing { topic, key, value, headers }).await
}

/// Where a record was.
pub(super) fn place(record: &OwnedMessage) -> String {
    format!("{}/{}/{}", record.topic(), record.partition(), record.offset())
}

fn shortened(text: &str) -> String {
    text.chars().take(LONGEST_DETAIL).collect()
}
