//! Where records become runs: many in one transaction, and each of them once.

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use telecine_pipeline::{NoSubmission, Submission, submit_all};
use telecine_queue::{JobState, QueueError, RunFilter, RunPage};

use super::incoming::Incoming;
use super::publisher::NotSent;
use super::refusal::{KEY_REUSED, Refusal, answer, place, put_away};
use super::request::{Addressee, Asked, addressee, read};
use super::{Kafka, figures};
use crate::webhooks;

/// How a run says that it came this way.
pub(super) const CAME_BY: &str = "kafka";

/// Requests that are looked into at the same time: an upload's store may take its time for each.
const CHECKED_AT_ONCE: usize = 32;

/// Try again later: something that has nothing to do with the records is away.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Away(String);

impl From<QueueError> for Away {
    fn from(error: QueueError) -> Self {
        Self(error.to_string())
    }
}

pub(super) struct Desk {
    kafka: Kafka,
}

/// What is to be stored, nothing where that was done before, or why it cannot be.
type Checked = Result<Option<Submission>, Refusal>;
/// A record and why it is refused.
type Refused<'a> = (&'a Incoming, Refusal);

impl Desk {
    pub(super) fn new(kafka: &Kafka) -> Self {
        Self { kafka: kafka.clone() }
    }

    /// Whether more than so many of the tenant's jobs wait for a worker; what is to be told to others is not work of ours. What
    /// other tenants wait for is theirs, for between them the queue is fair. Where requests are nobody's, all count.
    pub(super) async fn has_waiting(&self, bound: u64) -> Result<bool, QueueError> {
        let (queue, tenant) = (&self.kafka.shop.queue, &self.kafka.options.tenant);
        let waits = |state| matches!(state, JobState::Pending | JobState::Parked);
        let counts = queue.counts().await?;
        let of_all = counts.iter().filter(|count| waits(count.state) && count.kind != webhooks::KIND);
        // Of all tenants it is quickly known.
        let are_many = of_all.map(|count| count.jobs).sum::<u64>() > bound;
        if !are_many || tenant.is_empty() {
            return Ok(are_many);
        }
        Ok(queue.waiting(tenant, webhooks::KIND, bound + 1).await? > bound)
    }

    /// When it returns, each record is a run or a dead letter, whatever happens next. May be repeated after an error.
    pub(super) async fn take_in(&self, incoming: &[Incoming]) -> Result<(), Away> {
        let open = incoming.iter().filter(|it| !it.is_done.get());
        let checked = stream::iter(open.map(|it| self.checked(it))).buffered(CHECKED_AT_ONCE);
        let (mut asked, mut refused) = (Vec::new(), Vec::new());
        for (it, outcome) in checked.try_collect::<Vec<_>>().await? {
            match outcome {
                Ok(Some(submission)) => asked.push((it, submission)),
                Ok(None) => {
                    figures::taken(0, 1);
                    it.is_done.set(true);
                }
                Err(refusal) => refused.push((it, refusal)),
            }
        }
        refused.extend(self.store(&asked).await?);
        // All on their way at once: a topic full of nonsense is not worth a wait for each.
        let refusing = refused.iter().map(|(it, refusal)| self.refuse(it, refusal));
        join_all(refusing).await.into_iter().collect()
    }

    async fn checked<'a>(&self, it: &'a Incoming) -> Result<(&'a Incoming, Checked), Away> {
        let checked = match it.put_away.get().or(it.refused.as_ref()) {
            Some(refusal) => Err(refusal.clone()),
            None => self.submission(it).await?,
        };
        Ok((it, checked))
    }

    /// What to store for a record; nothing where that was done before.
    async fn submission(&self, it: &Incoming) -> Result<Checked, Away> {
        let Asked { request, key, traceparent } = match read(it, &self.kafka.options) {
            Ok(asked) => asked,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let (tenant, shop) = (&self.kafka.options.tenant, &self.kafka.shop);
        match request.into_submission(tenant, &self.kafka.recipes, shop).await {
            Ok(submission) => {
                let (idempotency_key, came_by) = (Some(key), Some(CAME_BY.to_owned()));
                Ok(Ok(Some(Submission { idempotency_key, traceparent, came_by, ..submission })))
            }
            // What made a run before may be impossible by now: its input has expired, its recipe is another.
            Err(NoSubmission::Impossible(_)) if self.is_known(it).await? => Ok(Ok(None)),
            Err(refused) => Ok(Err(Refusal::of_submission(refused).map_err(Away)?)),
        }
    }

    /// Read once more, so that those that are taken need not be kept for it.
    async fn is_known(&self, it: &Incoming) -> Result<bool, Away> {
        let Ok(Asked { request, key, .. }) = read(it, &self.kafka.options) else { return Ok(false) };
        let (tenant, queue) = (&self.kafka.options.tenant, &self.kafka.shop.queue);
        match queue.known_push(tenant, &key, &request.canonical()).await {
            Ok(known) => Ok(known.is_some()),
            Err(QueueError::KeyReused { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// All in one transaction. Where one of them is refused nothing is stored: then halves are tried, each in its turn, so
    /// that one bad record of a batch costs a few transactions and the others keep their order.
    async fn store<'a>(&self, asked: &[(&'a Incoming, Submission)]) -> Result<Vec<Refused<'a>>, Away> {
        let (mut refused, mut parts) = (Vec::new(), vec![asked]);
        while let Some(part) = parts.pop() {
            let submissions: Vec<Submission> =
                part.iter().map(|(_, submission)| submission.clone()).collect();
            let error = match submit_all(self.kafka.shop.queue.as_ref(), submissions).await {
                Ok(submitted) => {
                    let known = submitted.iter().filter(|it| it.replayed).count();
                    figures::taken(submitted.len() - known, known);
                    part.iter().for_each(|(it, _)| it.is_done.set(true));
                    continue;
                }
                Err(error) => error,
            };
            let Some(refusal) = Refusal::of_queue(&error) else { return Err(error.into()) };
            match part {
                [(it, _)] => refused.push((*it, refusal)),
                _ => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
        }
        Ok(refused)
    }

    async fn refuse(&self, it: &Incoming, refusal: &Refusal) -> Result<(), Away> {
        let (publisher, options, record) = (&self.kafka.publisher, &self.kafka.options, &it.record);
        let not_sent = |topic: &str, error: NotSent| Away(format!("topic `{topic}`: {error}"));
        if it.put_away.get().is_none() {
            let topic = &options.dead_letter_topic;
            put_away(publisher, topic, it, refusal).await.map_err(|error| not_sent(topic, error))?;
            figures::refused();
            let (code, detail) = (&refusal.code, &refusal.detail);
            tracing::warn!(code, detail, place = place(record), "a record went to the dead-letter topic");
            it.put_away.get_or_init(|| refusal.clone());
        }
        if let Some(addressee) = self.addressee(it, refusal).await? {
            let topic = &options.response_topic;
            let answered = answer(publisher, options, &addressee, record, refusal).await;
            answered.map_err(|error| not_sent(topic, error))?;
        }
        it.is_done.set(true);
        Ok(())
    }

    /// Who is to hear that there will be no run: nobody, where the key was used for a request of the same id, whose run has
    /// or will have a result of its own.
    async fn addressee(&self, it: &Incoming, refusal: &Refusal) -> Result<Option<Addressee>, Away> {
        let options = &self.kafka.options;
        let Some(addressee) = addressee(it, options.format) else { return Ok(None) };
        if refusal.code != KEY_REUSED {
            return Ok(Some(addressee));
        }
        let filter = RunFilter {
            tenant: Some(options.tenant.clone()),
            external_id: Some(addressee.key.clone()),
            ..RunFilter::default()
        };
        let runs = self.kafka.shop.queue.list_runs(&filter, RunPage::first(1)).await?;
        Ok(runs.data.is_empty().then_some(addressee))
    }
}
