//! From a record to what is asked for.

use rdkafka::message::{Message, OwnedMessage};
use serde::Serialize;
use serde_json::{Map, Value, json};
use telecine_pipeline::{Input, RunRequest, prefix_fault};

use super::cloud_event::{EventName, header_bytes, open};
use super::incoming::Incoming;
use super::refusal::Refusal;
use super::{Format, KafkaOptions};
use crate::traceparent::is_traceparent;
use crate::webhooks::short_hash;

/// As much as the API takes.
const LARGEST_VALUE: usize = 256 * 1024;
/// The queue's own bound.
const LONGEST_KEY: usize = 200;
const LONGEST_ID: usize = 100;

/// What a record asks for.
#[derive(Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) request: RunRequest,
    /// The same key is the same run, however often it is read.
    pub(super) key: String,
    pub(super) traceparent: Option<String>,
}

/// Refuses what is not as documented, whatever is installed or configured.
pub(super) fn read(incoming: &Incoming, options: &KafkaOptions) -> Result<Asked, Refusal> {
    let bytes = incoming.value_bytes;
    if bytes > LARGEST_VALUE {
        return Err(too_large(bytes));
    }
    let opened = open(incoming)?;
    let (request, id) = match options.format {
        Format::Telecine => (parsed(opened.body)?, None),
        Format::Optimize => {
            let request = OptimizeRequest::of(&opened.body)?;
            let id = request.id.as_ref().map(Name::text);
            (request.into_request(&options.recipe)?, id)
        }
    };
    let key = key(&incoming.record, opened.event.as_ref(), id)?;
    let traceparent = opened.traceparent.filter(|text| is_traceparent(text));
    Ok(Asked { request, key, traceparent })
}

pub(super) fn too_large(bytes: usize) -> Refusal {
    Refusal::new("too_large", format!("it has {bytes} bytes; at most {LARGEST_VALUE} are taken"))
}

/// Who waits for the result of a request, as far as that can be read.
pub(super) struct Addressee {
    /// As it was written.
    pub(super) id: Value,
    pub(super) user: Value,
    /// What results of it would be keyed by.
    pub(super) key: String,
}

pub(super) fn addressee(incoming: &Incoming, format: Format) -> Option<Addressee> {
    let body = open(incoming).ok()?.body;
    // Whatever is longer or something else was refused for it, and is not repeated.
    let short = |names: &[&str], most: usize| {
        let value = field(&body, names)?;
        let key = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        (1..=most).contains(&key.len()).then(|| (value.clone(), key))
    };
    let ((id, key), user) = match format {
        Format::Telecine => (short(&["external_id"], LONGEST_KEY)?, None),
        Format::Optimize => (short(MEDIA_ID, LONGEST_KEY)?, short(USER_ID, LONGEST_ID)),
    };
    Some(Addressee { id, user: user.map(|(user, _)| user).unwrap_or_default(), key })
}

fn parsed<T: serde::de::DeserializeOwned>(body: Value) -> Result<T, Refusal> {
    serde_path_to_error::deserialize(body).map_err(|error| {
        let path = error.path().to_string();
        Refusal::invalid(if path == "." { "" } else { &path }, error.into_inner().to_string())
    })
}

/// What its sender calls it, else its place. A place has its time in it: a topic that was deleted and made again counts
/// from nought, and its records are others.
fn key(record: &OwnedMessage, event: Option<&EventName>, id: Option<String>) -> Result<String, Refusal> {
    if let Some(key) = header_bytes(record, "idempotency-key") {
        let is_proper =
            |key: &&str| (1..=LONGEST_KEY).contains(&key.len()) && !key.chars().any(char::is_control);
        let key = std::str::from_utf8(key).ok().filter(is_proper);
        let wrong = || Refusal::invalid("idempotency-key", "1 to 200 bytes of UTF-8, no control characters");
        return key.map(str::to_owned).ok_or_else(wrong);
    }
    let at = record.timestamp().to_millis().unwrap_or(0);
    let name = match (event, id) {
        // Either may have any character that could stand between them.
        (Some(EventName { source, id }), _) => format!("event:{}", short_hash(&[source, id])),
        (None, Some(id)) => format!("request:{id}"),
        (None, None) => {
            format!("kafka:{}/{}/{}@{at}", record.topic(), record.partition(), record.offset())
        }
    };
    let is_proper = name.len() <= LONGEST_KEY && !name.chars().any(char::is_control);
    Ok(if is_proper { name } else { format!("kafka:{}", short_hash(&[&name])) })
}

/// Fields of the plain media worker's request by all their spellings, the one that counts first.
const USER_ID: &[&str] = &["userId", "user_id"];
const MEDIA_ID: &[&str] = &["mediaId", "media_id"];
const MEDIA_TYPE: &[&str] = &["type", "mediaType", "media_type"];
/// Who names the request itself means that; an `id` beside it is something else's.
const REQUEST_ID: &[&str] = &["requestId", "request_id", "id"];

fn field<'a>(body: &'a Value, names: &[&str]) -> Option<&'a Value> {
    names.iter().find_map(|name| body.get(name).filter(|value| !value.is_null()))
}

/// The request of the plain media worker. The contract is not ours: what else it has is left alone.
#[derive(Debug)]
struct OptimizeRequest {
    bucket: String,
    key: String,
    user_id: Name,
    media_id: Name,
    media_type: Option<String>,
    id: Option<Name>,
}

impl OptimizeRequest {
    fn of(body: &Value) -> Result<Self, Refusal> {
        let missing = |names: &[&str]| Refusal::invalid(names[0], "it is missing");
        let text = |names: &[&str]| match field(body, names) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(Refusal::invalid(names[0], "it must be a text")),
        };
        let name = |names: &[&str]| match field(body, names) {
            None => Ok(None),
            Some(value) => Name::of(value)
                .map(Some)
                .ok_or_else(|| Refusal::invalid(names[0], "it must be a text or a whole number")),
        };
        Ok(Self {
            bucket: text(&["bucket"])?.ok_or_else(|| missing(&["bucket"]))?,
            key: text(&["key"])?.ok_or_else(|| missing(&["key"]))?,
            user_id: name(USER_ID)?.ok_or_else(|| missing(USER_ID))?,
            media_id: name(MEDIA_ID)?.ok_or_else(|| missing(MEDIA_ID))?,
            media_type: text(MEDIA_TYPE)?,
            id: name(REQUEST_ID)?.filter(|id| !id.text().is_empty()),
        })
    }

    fn into_request(self, recipe: &str) -> Result<RunRequest, Refusal> {
        let (user, media) = (self.user_id.part("userId")?, self.media_id.part("mediaId")?);
        if self.bucket.is_empty() || self.bucket.contains('/') {
            return Err(Refusal::invalid("bucket", "the name of a bucket"));
        }
        let input = Input::S3(format!("s3://{}/{}", self.bucket, self.key));
        let mut metadata = Map::new();
        metadata.insert("userId".into(), json!(self.user_id));
        metadata.insert("mediaId".into(), json!(self.media_id));
        if let Some(media_type) = self.media_type {
            metadata.insert("type".into(), media_type.into());
        }
        let publish_to = Some(format!("{user}/{{media}}/{media}"));
        let request = RunRequest::new(recipe, input);
        Ok(RunRequest { external_id: Some(media), metadata, publish_to, ..request })
    }
}

/// An id as others have them. It is given back as it came.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
enum Name {
    Text(String),
    Number(u64),
}

impl Name {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self::Text(text.clone())),
            Value::Number(number) => number.as_u64().map(Self::Number),
            _ => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
        }
    }

    /// As a part of the prefix that outputs are published under.
    fn part(&self, field: &str) -> Result<String, Refusal> {
        let text = self.text();
        let is_part = text.len() <= LONGEST_ID && !text.contains(['/', '{']) && prefix_fault(&text).is_none();
        let message = "1 to 100 letters, digits and . _ = @ -, the first of which is no dot";
        is_part.then_some(text).ok_or_else(|| Refusal::invalid(field, message))
    }
}
