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
use rdkafka::error::{KafkaError as RdError, RDKafkaErrorCode};

use super::client::{Logged, looking, unusable};
use super::complaint::Complaint;
use super::{KafkaError, KafkaOptions};

/// For what the client has to say beside an answer. With no time at all it stops at the first line of its log.
const LISTEN: Duration = Duration::from_millis(10);

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
    /// Speaks with nobody yet.
    pub fn new(options: impl Into<Arc<KafkaOptions>>) -> Result<Self, KafkaError> {
        let options = options.into();
        let client = looking(&options).create_with_context(Logged::default()).map_err(unusable)?;
        Ok(Self { client: Arc::new(client), options, is_intake_broken: Arc::default() })
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
    pub async fn missing_topics(&self, within: Duration) -> Result<Vec<String>, KafkaError> {
        let mut missing = Vec::new();
        for topic in self.options.topics().map(str::to_owned) {
            match self.fault_of(topic.clone(), within).await? {
                None => {}
                Some(RDKafkaErrorCode::UnknownTopicOrPartition) => missing.push(topic),
                Some(RDKafkaErrorCode::TopicAuthorizationFailed) => {
                    return Err(KafkaError::Forbidden { brokers: self.options.brokers.clone(), topic });
                }
                Some(code) => return Err(KafkaError::Topic { topic, code }),
            }
        }
        Ok(missing)
    }

    /// What the cluster finds wrong with a topic.
    async fn fault_of(
        &self,
        topic: String,
        within: Duration,
    ) -> Result<Option<RDKafkaErrorCode>, KafkaError> {
        self.ask(move |client| {
            let metadata = client.fetch_metadata(Some(&topic), within)?;
            let found = metadata.topics().iter().find(|found| found.name() == topic);
            Ok(match found {
                Some(found) => found.error().map(RDKafkaErrorCode::from),
                None => Some(RDKafkaErrorCode::UnknownTopicOrPartition),
            })
        })
        .await
    }

    /// With as many partitions and replicas as the cluster gives by itself.
    async fn make(&self, topics: &[String], within: Duration) -> Result<(), KafkaError> {
        let admin = AdminClient::from_config_and_context(&looking(&self.options), Logged::default())
            .map_err(unusable)?;
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
        ask: impl FnOnce(&BaseConsumer<Logged>) -> Result<T, RdError> + Send + 'static,
    ) -> Result<T, KafkaError> {
        let client = Arc::clone(&self.client);
        let answer = tokio::task::spawn_blocking(move || {
            let answer = ask(&client);
            // What it has to say is kept until somebody looks.
            while client.poll(LISTEN).is_some() {}
            answer
        });
        match answer.await {
            Ok(Ok(answer)) => {
                self.client.context().complaints.forget();
                Ok(answer)
            }
            Ok(Err(error)) => Err(self.failure(&error)),
            Err(error) => Err(self.unreachable(error.to_string())),
        }
    }

    /// Why there was no answer, by what the client complained of meanwhile.
    fn failure(&self, error: &RdError) -> KafkaError {
        let brokers = self.options.brokers.clone();
        let complaints = &self.client.context().complaints;
        match complaints.last() {
            Some(Complaint { code: RDKafkaErrorCode::Authentication, reason, .. }) => {
                KafkaError::NotLetIn { brokers, reason }
            }
            Some(Complaint { code: RDKafkaErrorCode::SSL, reason, .. }) => {
                KafkaError::NoTls { brokers, reason }
            }
            _ => self.unreachable(complaints.explain(error)),
        }
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
