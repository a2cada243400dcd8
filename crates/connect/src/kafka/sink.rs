//! The sink: each end of a run becomes a record of the response topic.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::message::{Header, OwnedHeaders};
use serde_json::Value;
use telecine_pipeline::RunMeta;
use telecine_queue::{Event, Queue, QueueError, Run, Sink, SinkError};

use super::desk::CAME_BY;
use super::publisher::{NotSent, Outgoing, Publisher};
use super::response::{Result as RunResult, outcome};
use super::{Kafka, KafkaOptions, Results};
use crate::told::{self, Shortened};
use crate::traceparent::is_traceparent;

/// What the outbox knows it by.
pub const SINK: &str = "kafka";

/// Brokers that are back find what waited for them soon, however long they were away.
const AGAIN_AFTER: Duration = Duration::from_secs(3);

pub(super) struct KafkaSink {
    queue: Arc<dyn Queue>,
    publisher: Arc<Publisher>,
    options: Arc<KafkaOptions>,
}

#[async_trait]
impl Sink for KafkaSink {
    fn name(&self) -> &str {
        SINK
    }

    async fn deliver(&self, events: &[Event]) -> Result<(), SinkError> {
        let ends: Vec<&Event> = events.iter().filter(|event| outcome(&event.name).is_some()).collect();
        let Some(first) = ends.first() else { return Ok(()) };
        let run = self.queue.get_run(&first.run).await.map_err(SinkError::new)?;
        let Some(run) = run else { return Ok(()) };
        let meta = RunMeta::of(&run).ok();
        if !self.tells_of(meta.as_ref()) {
            return Ok(());
        }
        let document = self.document(&run, meta.is_some()).await.map_err(SinkError::new)?;
        let traceparent = meta.and_then(|meta| meta.traceparent).filter(|text| is_traceparent(text));
        // One after the other: one that the brokers do not take must not be overtaken.
        for event in ends {
            let result = RunResult { event, external_id: run.external_id.as_deref(), document: &document };
            self.tell(&result, traceparent.as_deref()).await.map_err(|error| SinkError {
                reason: format!("topic `{}`: {error}", self.options.response_topic),
                retry_after: Some(AGAIN_AFTER),
            })?;
        }
        Ok(())
    }
}

impl KafkaSink {
    pub(super) fn new(kafka: &Kafka) -> Self {
        Self {
            queue: Arc::clone(&kafka.shop.queue),
            publisher: Arc::clone(&kafka.publisher),
            options: Arc::clone(&kafka.options),
        }
    }

    fn tells_of(&self, meta: Option<&RunMeta>) -> bool {
        match self.options.results {
            Results::All => true,
            Results::Kafka => meta.is_some_and(|meta| meta.came_by.as_deref() == Some(CAME_BY)),
        }
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
