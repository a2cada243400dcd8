//! CloudEvents around requests: as headers (binary mode) or as the document itself (structured mode).

use std::panic::{AssertUnwindSafe, catch_unwind};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rdkafka::message::{Header, Headers, Message, OwnedMessage};
use serde_json::Value;

use super::incoming::Incoming;
use super::refusal::Refusal;

const STRUCTURED: &str = "application/cloudevents+json";
const BATCHED: &str = "application/cloudevents-batch+json";

/// The body of a record, and what its envelope says.
#[derive(Debug, PartialEq)]
pub(super) struct Opened {
    pub(super) body: Value,
    /// Whoever sent it says that it is one and the same by this.
    pub(super) event: Option<EventName>,
    pub(super) traceparent: Option<String>,
}

/// An id is its source's own.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EventName {
    pub(super) source: String,
    pub(super) id: String,
}

/// A header by its name, as text.
pub(super) fn header<'a>(record: &'a OwnedMessage, name: &str) -> Option<&'a str> {
    std::str::from_utf8(header_bytes(record, name)?).ok()
}

/// A header by its name: the last of that name, as Kafka has it.
pub(super) fn header_bytes<'a>(record: &'a OwnedMessage, name: &str) -> Option<&'a [u8]> {
    record.headers()?.iter().filter(|header| header.key.eq_ignore_ascii_case(name)).last()?.value
}

/// How large headers are. `None`: one has a name that is no UTF-8, as Kafka allows; when it meets that, the client panics.
pub(super) fn headers_bytes(headers: &impl Headers) -> Option<usize> {
    let bytes = |header: Header<'_, &[u8]>| header.key.len() + header.value.map_or(0, <[u8]>::len);
    catch_unwind(AssertUnwindSafe(|| headers.iter().map(bytes).sum())).ok()
}

/// Takes the envelope off, if there is one.
pub(super) fn open(incoming: &Incoming) -> Result<Opened, Refusal> {
    if !incoming.has_readable_headers {
        return Err(Refusal::new("bad_header", "the name of a header is not UTF-8"));
    }
    let record = &incoming.record;
    let bytes = record.payload().filter(|bytes| !bytes.is_empty());
    let bytes = bytes.ok_or_else(|| Refusal::new("empty", "the record has no value"))?;
    let body: Value = serde_json::from_slice(bytes)
        .map_err(|error| Refusal::new("not_json", format!("the value is not JSON: {error}")))?;
    let content_type = header(record, "content-type").unwrap_or_default().to_ascii_lowercase();
    if content_type.starts_with(BATCHED) {
        return Err(Refusal::new("not_one_event", "a record is one event; batches are not taken"));
    }
    let traceparent = header(record, "traceparent").or_else(|| header(record, "ce_traceparent"));
    let traceparent = traceparent.map(str::to_owned);
    if content_type.starts_with(STRUCTURED) {
        return structured(body, traceparent);
    }
    // An empty id says nothing: all events without one would be the same.
    let event = header(record, "ce_id").filter(|id| !id.is_empty()).map(|id| EventName {
        source: header(record, "ce_source").unwrap_or_default().to_owned(),
        id: id.to_owned(),
    });
    Ok(Opened { body, event, traceparent })
}

fn structured(mut envelope: Value, traceparent: Option<String>) -> Result<Opened, Refusal> {
    let data = envelope.get_mut("data").map(Value::take);
    let text = |name: &str| envelope.get(name).and_then(Value::as_str).map(str::to_owned);
    let required = |name: &str| {
        text(name).filter(|text| !text.is_empty()).ok_or_else(|| {
            let detail = format!("the CloudEvent has no `{name}` that is a text with something in it");
            Refusal::new("not_a_cloud_event", detail)
        })
    };
    let version = required("specversion")?;
    if !version.starts_with("1.") {
        let detail = format!("CloudEvents of version {version} are not known; 1.0 is");
        return Err(Refusal::new("not_a_cloud_event", detail));
    }
    let event = EventName { source: required("source")?, id: required("id")? };
    let traceparent = text("traceparent").or(traceparent);
    let body = match (data, text("data_base64")) {
        (Some(data), None) => data,
        (None, Some(encoded)) => decoded(&encoded)?,
        (None, None) | (Some(_), Some(_)) => {
            let detail = "the CloudEvent must have either `data` or `data_base64`";
            return Err(Refusal::new("not_a_cloud_event", detail));
        }
    };
    Ok(Opened { body, event: Some(event), traceparent })
}

fn decoded(encoded: &str) -> Result<Value, Refusal> {
    let wrong = |reason: String| Refusal::new("not_json", format!("`data_base64` is not JSON: {reason}"));
    let bytes = STANDARD.decode(encoded).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))
}
