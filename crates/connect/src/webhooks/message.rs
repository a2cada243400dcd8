//! What is sent: made once, when the event leaves the outbox, and the same bytes at every try.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use telecine_queue::{Event, JobId, MAX_JSON_BYTES, RunId, Timestamp};
use ulid::Ulid;

use super::endpoint::EndpointId;
use crate::told::{self, Shortened};

/// Of a test that somebody asked for.
pub(super) const PING: &str = "ping";

/// The payload of a delivery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Message {
    pub(super) to: Recipient,
    /// What `webhook-id` says: one event has one, whoever is told of it, however often.
    pub(super) id: String,
    #[serde(rename = "type")]
    pub(super) event: String,
    /// Which event of which run; a ping has neither.
    pub(super) run: Option<RunId>,
    pub(super) seq: Option<u64>,
    /// The delivery of the run's event before it to the same endpoint.
    pub(super) after: Option<JobId>,
    pub(super) traceparent: Option<String>,
    pub(super) body: String,
}

/// Who is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Recipient {
    Endpoint(EndpointId),
    /// The address that the run itself names.
    Url(String),
}

impl Recipient {
    /// By which it is told apart from others that are told of the same run.
    pub(super) fn key(&self) -> &str {
        match self {
            Self::Endpoint(id) => id.as_str(),
            Self::Url(_) => "run",
        }
    }
}

/// What is common to all deliveries of one event.
pub(super) struct Telling<'a> {
    pub(super) event: &'a Event,
    pub(super) document: &'a Value,
    pub(super) traceparent: Option<&'a str>,
}

impl Telling<'_> {
    /// The message, short enough for the queue: where the document of the run is too long, it comes without its lists
    /// of files, or with the essential alone, and says so.
    pub(super) fn to(&self, recipient: &Recipient, after: Option<JobId>) -> Message {
        let (full, without_files) =
            (|| -> Shortened { (self.document.clone(), &[]) }, || told::without_files(self.document));
        for shorten in [&full as &dyn Fn() -> Shortened, &without_files] {
            let message = self.message(recipient, after, shorten());
            if fits(&message) {
                return message;
            }
        }
        self.message(recipient, after, told::essential(self.document))
    }

    fn message(
        &self,
        recipient: &Recipient,
        after: Option<JobId>,
        (run, omitted): (Value, &[&str]),
    ) -> Message {
        let event = self.event;
        let id = event_id(&event.run, event.seq);
        let mut data = json!({
            "id": id, "run_id": event.run, "seq": event.seq, "details": event.body, "run": run,
        });
        if !omitted.is_empty() {
            data["omitted"] = json!(omitted);
        }
        Message {
            to: recipient.clone(),
            body: body(&event.name, event.at, &data),
            id,
            event: event.name.clone(),
            run: Some(event.run.clone()),
            seq: Some(event.seq),
            after,
            traceparent: self.traceparent.map(str::to_owned),
        }
    }
}

/// A test of an endpoint.
pub(super) fn ping(endpoint: &EndpointId) -> Message {
    let id = format!("evt_{}", Ulid::generate());
    Message {
        to: Recipient::Endpoint(endpoint.clone()),
        body: body(PING, Timestamp::now(), &json!({ "id": id, "endpoint": endpoint })),
        id,
        event: PING.into(),
        run: None,
        seq: None,
        after: None,
        traceparent: None,
    }
}

/// The name of an event, made of what it is: whoever tells of it again tells of the same.
pub(crate) fn event_id(run: &RunId, seq: u64) -> String {
    let ulid = run.as_str().trim_start_matches("run_");
    format!("evt_{ulid}_{seq}")
}

fn body(event: &str, at: Timestamp, data: &Value) -> String {
    json!({ "type": event, "timestamp": at, "data": data }).to_string()
}

fn fits(message: &Message) -> bool {
    serde_json::to_string(message).is_ok_and(|text| text.len() <= MAX_JSON_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event {
            run: "run_01J9Z3K5T8M2V4X6Y7A1B2C3D4".parse().unwrap(),
            seq: 7,
            name: "run.succeeded".into(),
            at: Timestamp::from_ms(1_700_000_000_000),
            body: json!({"generation": 1}),
        }
    }

    fn told(document: &Value) -> (Message, Value) {
        let event = event();
        let telling = Telling { event: &event, document, traceparent: None };
        let message = telling.to(&Recipient::Url("https://a.example/".into()), None);
        let body = serde_json::from_str(&message.body).unwrap();
        (message, body)
    }

    #[test]
    fn a_message_is_of_the_scheme_and_has_the_document_of_the_run() {
        let document = json!({"id": "run_01J9Z3K5T8M2V4X6Y7A1B2C3D4", "outputs": [{"files": [1]}]});

        let (message, body) = told(&document);

        assert_eq!(message.id, "evt_01J9Z3K5T8M2V4X6Y7A1B2C3D4_7");
        assert_eq!(body["type"], "run.succeeded");
        assert_eq!(body["timestamp"], "2023-11-14T22:13:20Z");
        assert_eq!(body["data"]["id"], message.id);
        assert_eq!((&body["data"]["seq"], &body["data"]["run"]), (&json!(7), &document));
        assert_eq!(body["data"].get("omitted"), None);
        assert_eq!(told(&document).0, message, "the same every time");
    }

    #[test]
    fn what_is_too_long_comes_without_files_and_says_so() {
        let files: Vec<Value> =
            (0..4_000).map(|n| json!({"path": format!("{n:05}.m4s"), "sha256": "0".repeat(64)})).collect();
        let document =
            json!({"id": "x", "status": "succeeded", "outputs": [{"name": "hls", "files": files}]});

        let (message, body) = told(&document);

        assert!(fits(&message));
        assert_eq!(body["data"]["omitted"], json!(["run.outputs.files"]));
        assert_eq!(body["data"]["run"]["outputs"], json!([{"name": "hls"}]));
    }

    #[test]
    fn what_is_too_long_even_so_comes_with_the_essential() {
        let document = json!({"id": "x", "status": "failed", "steps": ["s".repeat(300_000)], "outputs": []});

        let (message, body) = told(&document);

        assert!(fits(&message));
        assert_eq!(body["data"]["run"], json!({"id": "x", "status": "failed"}));
        assert!(body["data"]["omitted"].as_array().unwrap().contains(&json!("run.steps")));
    }
}
