//! Where records become runs: many in one transaction, and each of them once.

use futures_util::future::join_all;
use rdkafka::message::OwnedMessage;
use telecine_pipeline::{NoSubmission, Submission, submit_all};
use telecine_queue::{JobState, QueueError};

use super::publisher::NotSent;
use super::refusal::{Refusal, answer, place, put_away};
use super::request::{Asked, read};
use super::{Kafka, figures};
use crate::webhooks;

/// How a run says that it came this way.
pub(super) const CAME_BY: &str = "kafka";

/// Try again later: something that has nothing to do with the records is away.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Away(String);

pub(super) struct Desk {
    kafka: Kafka,
}

/// A record and why it is refused.
type Refused<'a> = (&'a OwnedMessage, Refusal);

impl Desk {
    pub(super) fn new(kafka: &Kafka) -> Self {
        Self { kafka: kafka.clone() }
    }

    /// Jobs that could run and wait for a worker. What is to be told to others is not work of ours.
    pub(super) async fn backlog(&self) -> Result<u64, QueueError> {
        let counts = self.kafka.shop.queue.counts().await?;
        let waits = |state| matches!(state, JobState::Pending | JobState::Parked);
        let waiting = counts.iter().filter(|count| waits(count.state) && count.kind != webhooks::KIND);
        Ok(waiting.map(|count| count.jobs).sum())
    }

    /// When it returns, each record is a run or a dead letter, whatever happens next. May be repeated after an error.
    pub(super) async fn take_in(&self, records: &[OwnedMessage]) -> Result<(), Away> {
        let (mut asked, mut refused) = (Vec::new(), Vec::new());
        for record in records {
            match self.submission(record).await? {
                Ok(Some(submission)) => asked.push((record, submission)),
                Ok(None) => figures::taken(0, 1),
                Err(refusal) => refused.push((record, refusal)),
            }
        }
        refused.extend(self.store(&asked).await?);
        // All on their way at once: a topic full of nonsense is not worth a wait for each.
        let refusing = refused.iter().map(|(record, refusal)| self.refuse(record, refusal));
        join_all(refusing).await.into_iter().collect()
    }

    /// What to store for a record; nothing where that was done before.
    async fn submission(&self, record: &OwnedMessage) -> Result<Result<Option<Submission>, Refusal>, Away> {
        let Asked { request, key, traceparent } = match read(record, &self.kafka.options) {
            Ok(asked) => asked,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let (tenant, shop) = (&self.kafka.options.tenant, &self.kafka.shop);
        let keyed_by = request.canonical();
        let refused = match request.into_submission(tenant, &self.kafka.recipes, shop).await {
            Ok(submission) => {
                let came_by = Some(CAME_BY.to_owned());
                let submission =
                    Submission { idempotency_key: Some(key), traceparent, came_by, ..submission };
                return Ok(Ok(Some(submission)));
            }
            Err(refused) => refused,
        };
        // What made a run before may be impossible by now: its input has expired, its recipe is another.
        let is_known = match &refused {
            NoSubmission::Impossible(_) => {
                let known = shop.queue.known_push(tenant, &key, &keyed_by).await;
                match known {
                    Ok(known) => known.is_some(),
                    Err(QueueError::KeyReused { .. }) => false,
                    Err(error) => return Err(Away(error.to_string())),
                }
            }
            NoSubmission::Malformed(_) | NoSubmission::Unavailable(_) => false,
        };
        if is_known {
            return Ok(Ok(None));
        }
        Ok(Err(Refusal::of_submission(refused).map_err(Away)?))
    }

    /// All in one transaction. Where one of them is refused nothing is stored: then halves are tried, each in its turn, so
    /// that one bad record of a batch costs a few transactions and the others keep their order.
    async fn store<'a>(&self, asked: &[(&'a OwnedMessage, Submission)]) -> Result<Vec<Refused<'a>>, Away> {
        let (mut refused, mut parts) = (Vec::new(), vec![asked]);
        while let Some(part) = parts.pop() {
            let submissions: Vec<Submission> =
                part.iter().map(|(_, submission)| submission.clone()).collect();
            let error = match submit_all(self.kafka.shop.queue.as_ref(), submissions).await {
                Ok(submitted) => {
                    let known = submitted.iter().filter(|it| it.replayed).count();
                    figures::taken(submitted.len() - known, known);
                    continue;
                }
                Err(error) => error,
            };
            let Some(refusal) = Refusal::of_queue(&error) else { return Err(Away(error.to_string())) };
            match part {
                [(record, _)] => refused.push((*record, refusal)),
                _ => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
        }
        Ok(refused)
    }

    async fn refuse(&self, record: &OwnedMessage, refusal: &Refusal) -> Result<(), Away> {
        let (publisher, options) = (&self.kafka.publisher, &self.kafka.options);
        let not_sent = |topic: &str, error: NotSent| Away(format!("topic `{topic}`: {error}"));
        let topic = &options.dead_letter_topic;
        put_away(publisher, topic, record, refusal).await.map_err(|error| not_sent(topic, error))?;
        let topic = &options.response_topic;
        answer(publisher, options, record, refusal).await.map_err(|error| not_sent(topic, error))?;
        figures::refused();
        let (code, detail) = (&refusal.code, &refusal.detail);
        tracing::warn!(code, detail, place = place(record), "a record went to the dead-letter topic");
        Ok(())
    }
}
