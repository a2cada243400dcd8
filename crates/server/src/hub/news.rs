//! What is told, and how it is shown.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use telecine_pipeline::RunDocument;
use telecine_queue::{Event, FedEvent, RunId, Timestamp};
use utoipa::ToSchema;

use super::Glance;

/// Small: a client that stands still keeps a thousand of them.
#[derive(Debug)]
pub(crate) enum News {
    Told(Told),
    /// A run got on. Nothing that is stored, and nothing to resume by.
    Progressed {
        run: RunId,
        tenant: String,
        glance: Glance,
    },
}

/// An event of the feed, and when it was read.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) event: FedEvent,
    pub(crate) glance: Glance,
}

/// The data of an event.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunEvent)]
pub(crate) struct EventShown<'a> {
    /// The same wherever the event is told; null of `run.progress`, which is not stored.
    id: Option<String>,
    run_id: &'a RunId,
    /// 1, 2, 3, … of each run, without gaps; null of `run.progress`.
    seq: Option<u64>,
    #[serde(rename = "type")]
    #[schema(examples("run.succeeded"))]
    name: &'a str,
    at: Timestamp,
    /// What the event itself says.
    details: &'a Value,
    /// The run as it is now, which may be later than the event.
    #[schema(value_type = RunDocument)]
    run: &'a RawValue,
}

pub(crate) const PROGRESS: &str = "run.progress";

impl<'a> EventShown<'a> {
    pub(crate) fn text(event: &'a Event, run: &'a RawValue) -> String {
        let ulid = event.run.as_str().trim_start_matches("run_");
        let shown = Self {
            id: Some(format!("evt_{ulid}_{}", event.seq)),
            run_id: &event.run,
            seq: Some(event.seq),
            name: &event.name,
            at: event.at,
            details: &event.body,
            run,
        };
        serde_json::to_string(&shown).expect("an event is plain data")
    }

    pub(crate) fn progress_text(run_id: &'a RunId, run: &'a RawValue) -> String {
        let details = json!({});
        let shown = EventShown {
            id: None,
            run_id,
            seq: None,
            name: PROGRESS,
            at: Timestamp::now(),
            details: &details,
            run,
        };
        serde_json::to_string(&shown).expect("an event is plain data")
    }
}
