//! Records leave: each is acknowledged by all replicas, or said not to be.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError as RdError, RDKafkaErrorCode};
use rdkafka::message::OwnedHeaders;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};

use super::client::{Logged, unusable, writing};
use super::complaint::Complaints;
use super::{KafkaError, KafkaOptions, figures};

/// Less than a relay waits for a sink: what became of a record is known before it is sent again.
const WITHIN_MS: u32 = 15_000;
/// For a place in librdkafka's own queue.
const QUEUED_WITHIN: Duration = Duration::from_secs(2);

/// What is sent.
pub(super) struct Outgoing<'a> {
    pub(super) topic: &'a str,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) headers: OwnedHeaders,
}

/// Why a record was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotSent {
    /// Send less.
    #[error("the record is larger than the brokers take")]
    TooLarge,
    /// Try again.
    #[error("{0}")]
    Failed(String),
}

/// Sends records, as many as there are in one batch.
pub(super) struct Publisher {
    together: Line,
    /// Each in a batch of its own.
    alone: Line,
}

impl Publisher {
    pub(super) fn new(options: &KafkaOptions) -> Result<Self, KafkaError> {
        let config = writing(options, WITHIN_MS);
        let mut alone = config.clone();
        alone.set("batch.num.messages", "1");
        let publisher = Self { together: Line::new(config), alone: Line::new(alone) };
        publisher.together.producer().map_err(unusable)?;
        Ok(publisher)
    }

    /// When it returns, the record is on all replicas that have to have it.
    pub(super) async fn send(&self, record: Outgoing<'_>) -> Result<(), NotSent> {
        let sent = match self.together.send(&record).await {
            // Brokers measure batches and say it of each record in one. Whether it is true of this one is seen when it is
            // alone.
            Err(NotSent::TooLarge) => self.alone.send(&record).await,
            sent => sent,
        };
        sent.inspect_err(|_| figures::not_published(record.topic))
    }
}

/// An idempotent producer, once it is needed, and the means to make another.
struct Line {
    config: ClientConfig,
    complaints: Arc<Complaints>,
    producer: Mutex<Option<Arc<FutureProducer<Logged>>>>,
}

impl Line {
    fn new(config: ClientConfig) -> Self {
        Self { config, complaints: Arc::default(), producer: Mutex::new(None) }
    }

    fn producer(&self) -> Result<Arc<FutureProducer<Logged>>, RdError> {
        let mut producer = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = &*producer {
            return Ok(Arc::clone(producer));
        }
        let made =
            Arc::new(self.config.create_with_context(Logged { complaints: Arc::clone(&self.complaints) })?);
        *producer = Some(Arc::clone(&made));
        Ok(made)
    }

    async fn send(&self, record: &Outgoing<'_>) -> Result<(), NotSent> {
        let producer = self.producer().map_err(|error| NotSent::Failed(error.to_string()))?;
        let mut sending = FutureRecord::<[u8], [u8]>::to(record.topic).headers(record.headers.clone());
        sending.key = record.key;
        sending.payload = record.value;
        let Err((error, _)) = producer.send(sending, QUEUED_WITHIN).await else {
            self.complaints.forget();
            return Ok(());
        };
        self.forget_if_fatal(&producer);
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::InvalidMessageSize) => {
                Err(NotSent::TooLarge)
            }
            _ => Err(NotSent::Failed(self.complaints.explain(&error))),
        }
    }

    /// A producer that cannot tell any more whether a record would be there twice takes no others. Ours may be there twice:
    /// they have numbers to tell it by.
    fn forget_if_fatal(&self, failed: &Arc<FutureProducer<Logged>>) {
        let Some((code, reason)) = failed.client().fatal_error() else { return };
        let mut producer = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if producer.take_if(|current| Arc::ptr_eq(current, failed)).is_some() {
            tracing::warn!(%code, reason, "the producer is beyond recovery; another one takes its place");
        }
    }
}
