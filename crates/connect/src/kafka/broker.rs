//! Looks at the cluster: whether it answers, which topics it has, how far the group is.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdkafka::Offset;
use rdkafka::TopicPartitionList;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaResult, RDKafkaErrorCode};

use super::client::{Logged, looking, unusable};
use super::{KafkaError, KafkaOptions};

impl ConsumerContext for Logged {}

/// A client that asks and takes no part in anything.
#[derive(Clone)]
pub struct Broker {
    client: Arc<BaseConsumer<Logged>>,
    options: Arc<KafkaOptions>,
    /// Nobody reads for now, though somebody is to.
    is_intake_broken: Arc<AtomicBool>,
}

/// Of a partition of the request topic.
pub(super) type Lags = BTreeMap<i32, i64>;

impl Broker {
    pub(super) fn new(options: &Arc<KafkaOptions>) -> Result<Self, KafkaError> {
        let client = looking(options).create_with_context(Logged).map_err(unusable)?;
        Ok(Self { client: Arc::new(client), options: Arc::clone(options), is_intake_broken: Arc::default() })
    }

    /// Whether requests can come and results can go.
    pub async fn check(&self, within: Duration) -> Result<(), KafkaError> {
        if self.is_intake_broken.load(Ordering::Relaxed) {
            return Err(KafkaError::IntakeBroken);
        }
        let missing = self.missing_topics(within).await?;
        if missing.is_empty() { Ok(()) } else { Err(KafkaError::NoTopic { topics: missing }) }
    }

    pub(super) fn tell_intake_broken(&self, is_broken: bool) {
        self.is_intake_broken.store(is_broken, Ordering::Relaxed);
    }

    /// Refuses when no broker answers in time, or when a topic is missing that may not be made.
    pub async fn require_topics(&self, within: Duration) -> Result<(), KafkaError> {
        let missing = self.missing_topics(within).await?;
        if missing.is_empty() {
            return Ok(());
        }
        if !self.options.create_topics {
            return Err(KafkaError::NoTopic { topics: missing });
        }
        self.make(&missing, within).await
    }

    /// The topics that the cluster does not have.
    async fn missing_topics(&self, within: Duration) -> Result<Vec<String>, KafkaError> {
        let options = Arc::clone(&self.options);
        let look = move |client: &BaseConsumer<Logged>| {
            let topics = options.topics().into_iter().map(|topic| {
                let metadata = client.fetch_metadata(Some(topic), within)?;
                let found = metadata.topics().iter().find(|found| found.name() == topic);
                let error = match found {
                    Some(found) => found.error().map(RDKafkaErrorCode::from),
                    None => Some(RDKafkaErrorCode::UnknownTopicOrPartition),
                };
                Ok((topic.to_owned(), error))
            });
            topics.collect::<KafkaResult<Vec<_>>>()
        };
        let mut missing = Vec::new();
        for (topic, error) in self.ask(look).await? {
            match error {
                None => {}
                Some(RDKafkaErrorCode::UnknownTopicOrPartition) => missing.push(topic),
                Some(code) => return Err(KafkaError::Topic { topic, code }),
            }
        }
        Ok(missing)
    }

    /// With as many partitions and replicas as the cluster gives by itself.
    async fn make(&self, topics: &[String], within: Duration) -> Result<(), KafkaError> {
        let admin =
            AdminClient::from_config_and_context(&looking(&self.options), Logged).map_err(unusable)?;
        let new = topics.iter().map(|topic| NewTopic::new(topic, -1, TopicReplication::Fixed(-1)));
        let new: Vec<NewTopic<'_>> = new.collect();
        let patience = AdminOptions::new().request_timeout(Some(within)).operation_timeout(Some(within));
        let made = admin.create_topics(&new, &patience).await;
        let made = made.map_err(|error| self.unreachable(error.to_string()))?;
        for outcome in made {
            match outcome {
                // Another process was first.
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((topic, error)) => return Err(KafkaError::NotMade { topic, reason: error.to_string() }),
            }
        }
        Ok(())
    }

    /// How many records of each of these partitions the group has not committed.
    pub(super) async fn lags(&self, partitions: Vec<i32>, within: Duration) -> Result<Lags, KafkaError> {
        let topic = self.options.request_topic.clone();
        self.ask(move |client| {
            let mut asked = TopicPartitionList::new();
            for partition in partitions {
                asked.add_partition(&topic, partition);
            }
            let committed = client.committed_offsets(asked, within)?;
            let mut lags = Lags::new();
            for place in committed.elements() {
                let partition = place.partition();
                // Of others it is known all the same.
                let Ok((low, high)) = client.fetch_watermarks(&topic, partition, within) else { continue };
                let next = match place.offset() {
                    Offset::Offset(next) => next.max(low),
                    // Nothing was committed yet: the group will begin with the oldest.
                    _ => low,
                };
                lags.insert(partition, (high - next).max(0));
            }
            Ok(lags)
        })
        .await
    }

    /// On a thread that may block.
    async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&BaseConsumer<Logged>) -> KafkaResult<T> + Send + 'static,
    ) -> Result<T, KafkaError> {
        let client = Arc::clone(&self.client);
        let answer = tokio::task::spawn_blocking(move || {
            let answer = ask(&client);
            // What it has to say is kept until somebody looks.
            while client.poll(Duration::ZERO).is_some() {}
            answer
        });
        let answer = answer.await.map_err(|error| self.unreachable(error.to_string()))?;
        answer.map_err(|error| self.unreachable(error.to_string()))
    }

    fn unreachable(&self, reason: String) -> KafkaError {
        KafkaError::Unreachable { brokers: self.options.brokers.clone(), reason }
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("options", &self.options).finish_non_exhaustive()
    }
}
