//! What is told, with the run's document drawn once for all who hear of it.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use telecine_pipeline::{RunDocument, describe};
use telecine_queue::{Event, FedEvent, FeedCursor, Queue, QueueError, RunId, Timestamp};
use tokio::sync::OnceCell;
use utoipa::ToSchema;

/// The text of a run's document. `None`: the run was deleted.
pub(crate) type RunText = Option<Arc<RawValue>>;

#[derive(Debug)]
pub(crate) enum News {
    Told(Told),
    Progressed(Progressed),
}

/// An event of the feed.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) cursor: FeedCursor,
    pub(crate) tenant: String,
    pub(crate) event: Event,
    /// Shared by the events of the run that were read together: the document is the same for all of them.
    document: Arc<OnceCell<RunText>>,
}

/// A run that got on. Nothing that is stored, and nothing to resume by.
#[derive(Debug)]
pub(crate) struct Progressed {
    pub(crate) run: RunId,
    pub(crate) tenant: String,
    document: OnceCell<RunText>,
}

impl Told {
    pub(super) fn all_of(events: Vec<FedEvent>) -> Vec<Self> {
        let mut documents: HashMap<RunId, Arc<OnceCell<RunText>>> = HashMap::new();
        let mut told = Vec::with_capacity(events.len());
        for FedEvent { cursor, tenant, event } in events {
            let document = Arc::clone(documents.entry(event.run.clone()).or_default());
            told.push(Self { cursor, tenant, event, document });
        }
        told
    }

    pub(crate) async fn document(&self, queue: &dyn Queue) -> Result<RunText, QueueError> {
        self.document.get_or_try_init(|| drawn(queue, &self.event.run)).await.cloned()
    }
}

impl Progressed {
    pub(super) fn new(run: RunId, tenant: String) -> Self {
        Self { run, tenant, document: OnceCell::new() }
    }

    pub(crate) async fn document(&self, queue: &dyn Queue) -> Result<RunText, QueueError> {
        self.document.get_or_try_init(|| drawn(queue, &self.run)).await.cloned()
    }
}

/// Documents for one client that reads for itself, each drawn once for what it reads together.
#[derive(Debug, Default)]
pub(crate) struct Documents(HashMap<RunId, RunText>);

impl Documents {
    pub(crate) async fn of(&mut self, queue: &dyn Queue, run: &RunId) -> Result<RunText, QueueError> {
        if let Some(known) = self.0.get(run) {
            return Ok(known.clone());
        }
        let document = drawn(queue, run).await?;
        self.0.insert(run.clone(), document.clone());
        Ok(document)
    }

    /// What is drawn from here on is as it is from here on.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

async fn drawn(queue: &dyn Queue, run: &RunId) -> Result<RunText, QueueError> {
    let document = describe(queue, run).await?;
    let text = document.map(|document| serde_json::value::to_raw_value(&document)).transpose();
    let text = text.map_err(|error| QueueError::Unexpected { reason: error.to_string() })?;
    Ok(text.map(Arc::from))
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
