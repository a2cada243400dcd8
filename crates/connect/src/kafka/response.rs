//! What a result says, in the format that requests have.

use serde_json::{Map, Value, json};
use telecine_queue::Event;

use super::Format;
use crate::told::Shortened;
use crate::webhooks::event_id;

/// One event of a run, to be told.
pub(super) struct Result<'a> {
    pub(super) event: &'a Event,
    /// What the caller calls the run.
    pub(super) external_id: Option<&'a str>,
    /// The run's document, whole.
    pub(super) document: &'a Value,
}

/// Events that end a generation of a run.
pub(super) const ENDS: [&str; 4] = ["run.succeeded", "run.partial", "run.failed", "run.cancelled"];

impl Result<'_> {
    /// The name of the event, by which it is known when it comes again.
    pub(super) fn id(&self) -> String {
        event_id(&self.event.run, self.event.seq)
    }

    pub(super) fn body(&self, format: Format, (run, omitted): Shortened) -> Vec<u8> {
        let mut body = match format {
            Format::Telecine => self.in_our_format(),
            Format::Optimize => self.as_optimized(omitted.is_empty()),
        };
        body.insert("run".into(), run);
        if !omitted.is_empty() {
            body.insert("omitted".into(), json!(omitted));
        }
        Value::Object(body).to_string().into_bytes()
    }

    fn in_our_format(&self) -> Map<String, Value> {
        let Event { run, seq, name, at, .. } = self.event;
        fields(json!({
            "id": self.id(), "type": name, "run_id": run, "seq": seq, "timestamp": at,
            "success": self.succeeded(), "error": self.error(),
        }))
    }

    /// With each file of each output where there is room for them.
    fn as_optimized(&self, with_variants: bool) -> Map<String, Value> {
        let metadata = &self.document["metadata"];
        let or = |value: &Value, otherwise: Value| if value.is_null() { otherwise } else { value.clone() };
        let media = self.external_id.unwrap_or(self.event.run.as_str());
        let error = self.error().and_then(|error| error.get("message").cloned());
        let variants = if with_variants && self.succeeded() { self.variants() } else { Vec::new() };
        fields(json!({
            "mediaId": or(&metadata["mediaId"], media.into()), "userId": metadata["userId"],
            "type": metadata["type"], "success": self.succeeded(), "error": error, "variants": variants,
            "runId": self.event.run, "seq": self.event.seq,
        }))
    }

    fn variants(&self) -> Vec<Value> {
        let outputs = self.document["outputs"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ready = outputs.iter().filter(|output| output["status"] == "ready");
        let variants = ready.flat_map(|output| {
            let files = output["files"].as_array().map(Vec::as_slice).unwrap_or_default();
            files.iter().map(|file| {
                let key = file.get("published").unwrap_or(&file["key"]);
                let picture = picture(output, file);
                json!({
                    "name": output["name"], "kind": output["kind"], "path": file["path"], "key": key,
                    "bytes": file["bytes"], "sha256": file["sha256"],
                    "format": picture["format"], "width": picture["width"], "height": picture["height"],
                })
            })
        });
        variants.collect()
    }

    fn succeeded(&self) -> bool {
        matches!(self.event.name.as_str(), "run.succeeded" | "run.partial")
    }

    /// Of the run as it is; one that was started over since has none, and of a cancelled one it is the cancelling.
    fn error(&self) -> Option<Value> {
        if self.succeeded() {
            return None;
        }
        let known = self.document.get("error").filter(|error| error.is_object()).cloned();
        let (code, message) = match self.event.name.as_str() {
            "run.cancelled" => ("cancelled", "the run was cancelled"),
            _ => ("failed", "the run failed"),
        };
        Some(known.unwrap_or_else(|| json!({ "code": code, "message": message })))
    }
}

/// What is known of a file that is a picture: one of many, or the only one.
fn picture<'a>(output: &'a Value, file: &Value) -> &'a Value {
    let facts = &output["facts"];
    match facts["variants"].as_array() {
        Some(variants) => {
            variants.iter().find(|variant| variant["path"] == file["path"]).unwrap_or(&Value::Null)
        }
        None => facts,
    }
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
