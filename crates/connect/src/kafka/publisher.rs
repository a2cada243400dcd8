//! Records leave: each is acknowledged by all replicas, or said not to be.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::error::RDKafkaErrorCode;
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

/// An idempotent producer, and the means to make another.
pub(super) struct Publisher {
    config: ClientConfig,
    complaints: Arc<Complaints>,
    producer: Mutex<Arc<FutureProducer<Logged>>>,
}

impl Publisher {
    pub(super) fn new(options: &KafkaOptions) -> Result<Self, KafkaError> {
        let config = writing(options, WITHIN_MS);
        let context = Logged::default();
        let complaints = Arc::clone(&context.complaints);
        let producer = config.create_with_context(context).map_err(unusable)?;
        Ok(Self { config, complaints, producer: Mutex::new(Arc::new(producer)) })
    }

    /// When it returns, the record is on all replicas that have to have it.
    pub(super) async fn send(&self, record: Outgoing<'_>) -> Result<(), NotSent> {
        let producer = Arc::clone(&self.producer.lock().unwrap_or_else(PoisonError::into_inner));
        let topic = record.topic;
        let mut sending = FutureRecord::<[u8], [u8]>::to(topic).headers(record.headers);
        sending.key = record.key;
        sending.payload = record.value;
        let Err((error, _)) = producer.send(sending, QUEUED_WITHIN).await else {
            self.complaints.forget();
            return Ok(());
        };
        figures::not_published(topic);
        self.replace_if_fatal(&producer);
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::InvalidMessageSize) => {
                Err(NotSent::TooLarge)
            }
            _ => Err(NotSent::Failed(self.complaints.explain(&error))),
        }
    }

    /// A producer that cannot tell any more whether a record would be there twice takes no others. Ours may be there twice:
    /// they have numbers to tell it by.
    fn replace_if_fatal(&self, failed: &Arc<FutureProducer<Logged>>) {
        let Some((code, reason)) = failed.client().fatal_error() else { return };
        let mut producer = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&producer, failed) {
            return;
        }
        tracing::warn!(%code, reason, "the producer is beyond recovery; another one takes its place");
        match self.config.create_with_context(Logged { complaints: Arc::clone(&self.complaints) }) {
            Ok(another) => *producer = Arc::new(another),
            Err(error) => tracing::error!(%error, "no producer can be made"),
        }
    }
}
