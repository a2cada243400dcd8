//! The sink: each end of a run becomes a record of the response topic.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rdkafka::message::{Header, OwnedHeaders};
use serde_json::Value;
use telecine_pipeline::RunMeta;
use telecine_queue::{Backoff, Event, Queue, QueueError, Run, Sink, SinkError};

use super::desk::CAME_BY;
use super::publisher::{NotSent, Outgoing, Publisher};
use super::response::{ENDS, Result as RunResult};
use super::{Kafka, KafkaOptions, Results};
use crate::told::{self, Shortened};
use crate::traceparent::is_traceparent;

/// What the outbox knows the sink of those runs by that are nobody's.
const SINK: &str = "kafka";

/// Brokers that are back find what waited for them soon, however long they were away.
const AGAIN_AFTER: Duration = Duration::from_secs(3);
/// Less than a relay waits, whose patience does not know of [`AGAIN_AFTER`].
const SENT_WITHIN: Duration = Duration::from_secs(18);
/// For an earlier result of the same key, which is mostly on its way. Then others are let past.
const TURN_WITHIN: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Backoff = Backoff { base_ms: 10, factor: 2, cap_ms: 200 };

/// What the outbox knows a tenant's sink by: processes for several tenants may share a database.
pub fn sink_of(tenant: &str) -> String {
    if tenant.is_empty() { SINK.to_owned() } else { format!("{SINK}:{tenant}") }
}

/// Whether a name is one that [`sink_of`] gives.
pub fn is_sink(name: &str) -> bool {
    name.strip_prefix(SINK).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

pub(super) struct KafkaSink {
    name: String,
    queue: Arc<dyn Queue>,
    publisher: Arc<Publisher>,
    options: Arc<KafkaOptions>,
}

#[async_trait]
impl Sink for KafkaSink {
    fn name(&self) -> &str {
        &self.name
    }

    async fn deliver(&self, events: &[Event]) -> Result<(), SinkError> {
        let ends: Vec<&Event> = events.iter().filter(|event| ENDS.contains(&event.name.as_str())).collect();
        let Some(first) = ends.first() else { return Ok(()) };
        let run = self.queue.get_run(&first.run).await.map_err(SinkError::new)?;
        let Some(run) = run else { return Ok(()) };
        let meta = RunMeta::of(&run).ok();
        if !self.tells_of(&run, meta.as_ref()) {
            return Ok(());
        }
        if run.external_id.is_some() && !self.is_turn_of(first).await.map_err(SinkError::new)? {
            return Err(not_yet("an earlier result of the same key was not taken yet"));
        }
        let telling = self.tell_all(&run, meta.as_ref(), &ends);
        let told = tokio::time::timeout(SENT_WITHIN, telling).await;
        told.unwrap_or_else(|_| Err(not_yet(format!("no answer of the brokers within {SENT_WITHIN:?}"))))
    }
}

impl KafkaSink {
    pub(super) fn new(kafka: &Kafka) -> Self {
        Self {
            name: sink_of(&kafka.options.tenant),
            queue: Arc::clone(&kafka.shop.queue),
            publisher: Arc::clone(&kafka.publisher),
            options: Arc::clone(&kafka.options),
        }
    }

    /// Other tenants' runs are nobody's business here, and could pass for this one's.
    fn tells_of(&self, run: &Run, meta: Option<&RunMeta>) -> bool {
        let is_asked_for = match self.options.results {
            Results::All => true,
            Results::Kafka => meta.is_some_and(|meta| meta.came_by.as_deref() == Some(CAME_BY)),
        };
        run.tenant == self.options.tenant && is_asked_for
    }

    /// Results of one key are told in the order of their ends, be they of one run or of several. Waits a moment for its turn.
    async fn is_turn_of(&self, end: &Event) -> Result<bool, QueueError> {
        let deadline = Instant::now() + TURN_WITHIN;
        for look in 1.. {
            if !self.queue.outbox_ahead(&self.name, end, &ENDS).await? {
                return Ok(true);
            }
            let delay = LOOK_AGAIN.delay(look);
            if Instant::now() + delay > deadline {
                break;
            }
            tokio::time::sleep(delay).await;
        }
        Ok(false)
    }

    /// One after the other: one that the brokers do not take must not be overtaken.
    async fn tell_all(&self, run: &Run, meta: Option<&RunMeta>, ends: &[&Event]) -> Result<(), SinkError> {
        let document = self.document(run, meta.is_some()).await.map_err(SinkError::new)?;
        let traceparent =
            meta.and_then(|meta| meta.traceparent.as_deref()).filter(|text| is_traceparent(text));
        for event in ends {
            let result = RunResult { event, external_id: run.external_id.as_deref(), document: &document };
            let told = self.tell(&result, traceparent).await;
            told.map_err(|error| not_yet(format!("topic `{}`: {error}", self.options.response_topic)))?;
        }
        Ok(())
    }

    async fn document(&self, run: &Run, is_of_recipe: bool) -> Result<Value, QueueError> {
        told::document(self.queue.as_ref(), run, is_of_recipe).await
    }

    /// With as much of the run's document as the brokers take.
    async fn tell(&self, result: &RunResult<'_>, traceparent: Option<&str>) -> Result<(), NotSent> {
        let document = result.document;
        let (whole, without_files, essential) = (
            || -> Shortened { (document.clone(), &[]) },
            || told::without_files(document),
            || told::essential(document),
        );
        for shorten in [&whole as &(dyn Fn() -> Shortened + Sync), &without_files, &essential] {
            let body = result.body(self.options.format, shorten());
            let record = Outgoing {
                topic: &self.options.response_topic,
                key: Some(result.external_id.unwrap_or(result.event.run.as_str()).as_bytes()),
                value: Some(&body),
                headers: headers(result, traceparent),
            };
            match self.publisher.send(record).await {
                Err(NotSent::TooLarge) => {
                    tracing::warn!(run.id = %result.event.run, bytes = body.len(), "a result is too large for the brokers; it is told in short");
                }
                sent => return sent,
            }
        }
        Err(NotSent::TooLarge)
    }
}

fn not_yet(reason: impl Into<String>) -> SinkError {
    SinkError { reason: reason.into(), retry_after: Some(AGAIN_AFTER) }
}

/// Those of a CloudEvent, and ours.
fn headers(result: &RunResult<'_>, traceparent: Option<&str>) -> OwnedHeaders {
    let Event { run, seq, name, at, .. } = result.event;
    let (id, seq, at) = (result.id(), seq.to_string(), at.to_string());
    let told = [
        ("content-type", "application/json"),
        ("ce_specversion", "1.0"),
        ("ce_id", &id),
        ("ce_source", "telecine"),
        ("ce_type", name),
        ("ce_time", &at),
        ("telecine-run", run.as_str()),
        ("telecine-seq", &seq),
    ];
    let told = told.into_iter().chain(traceparent.map(|text| ("traceparent", text)));
    told.fold(OwnedHeaders::new(), |headers, (key, value)| headers.insert(Header { key, value: Some(value) }))
}
