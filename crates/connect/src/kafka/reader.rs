//! The reader: one consumer, what was gathered from it, and whether anything may be taken in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaResult, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use telecine_queue::Backoff;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client::{reading, unusable};
use super::desk::Desk;
use super::incoming::Incoming;
use super::membership::{Membership, commit};
use super::{Kafka, KafkaError, KafkaOptions, figures, lag, unreadable};

/// How long a poll waits for a first record.
const POLL: Duration = Duration::from_millis(100);
/// What is gathered is kept in memory.
const GATHERED_BYTES: usize = 8 << 20;
/// After this long a part of the batch is tried again: repeating it settles what became of it.
const TAKE_WITHIN: Duration = Duration::from_secs(60);
/// When it is to stop, what is being stored has this long.
pub(super) const STOP_WITHIN: Duration = Duration::from_secs(10);
/// Who has read for so long has left behind whatever broke the reader before.
pub(super) const STEADY_AFTER: Duration = Duration::from_secs(10);
/// A batch that cannot be unpacked may have been damaged on its way: it is read again for so long.
const UNREADABLE_AFTER: Duration = Duration::from_secs(3);
/// So many records of it are passed over before others are looked at.
const PASSED_AT_ONCE: i64 = 100;
const SEEK_WITHIN: Duration = Duration::from_secs(5);
const COMMIT_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// While it is too deep, the backlog is looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(250);
pub(super) const AGAIN: Backoff = Backoff { base_ms: 500, factor: 2, cap_ms: 15_000 };

/// Why nothing is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Open,
    /// Too much waits for workers. To be looked at again then.
    Deep {
        look_at: Instant,
    },
    /// Something is away. To be tried again then.
    Failed {
        times: u32,
        again_at: Instant,
    },
}

/// Why a reader has ended.
pub(super) enum Ended {
    /// It was asked to.
    Stopped,
    /// Its consumer is of no use any more.
    Broken(String),
}

pub(super) struct Reader {
    consumer: BaseConsumer<Membership>,
    membership: Arc<Membership>,
    desk: Desk,
    kafka: Kafka,
    options: Arc<KafkaOptions>,
    gathered: Vec<Incoming>,
    /// Where to go on in each partition of which something was read.
    next: BTreeMap<i32, i64>,
    /// Since when there is something that cannot be unpacked.
    unreadable_since: Option<Instant>,
    /// How many are taken in at once: fewer after a time-out, so that something is done within the time.
    portion: usize,
    flow: Flow,
    /// A commit has failed and is tried again then, be there new records or not.
    commit_at: Option<Instant>,
    paused: watch::Sender<bool>,
    stop: CancellationToken,
    /// Ends the look at how far it is behind.
    _watched: DropGuard,
    runtime: Handle,
}

impl Reader {
    pub(super) fn new(
        kafka: &Kafka,
        stop: CancellationToken,
        paused: watch::Sender<bool>,
    ) -> Result<Self, KafkaError> {
        let topic = kafka.options.request_topic.clone();
        let membership = Membership::of(topic.clone());
        let consumer: BaseConsumer<Membership> =
            reading(&kafka.options).create_with_context(membership).map_err(unusable)?;
        consumer.subscribe(&[&topic]).map_err(unusable)?;
        let membership = Arc::clone(consumer.context());
        let (runtime, watched) = (Handle::current(), CancellationToken::new());
        runtime.spawn(lag::watch(kafka.broker.clone(), Arc::clone(&membership), topic, watched.clone()));
        Ok(Self {
            consumer,
            membership,
            desk: Desk::new(kafka),
            kafka: kafka.clone(),
            options: Arc::clone(&kafka.options),
            gathered: Vec::new(),
            next: BTreeMap::new(),
            unreadable_since: None,
            portion: kafka.options.batch,
            flow: Flow::Open,
            commit_at: None,
            paused,
            stop,
            _watched: watched.drop_guard(),
            runtime,
        })
    }

    /// Until it is asked to stop, or cannot go on.
    pub(super) fn work(&mut self) -> Ended {
        self.pause(false);
        let mut steady_at = Some(Instant::now() + STEADY_AFTER);
        while !self.stop.is_cancelled() {
            if let Some((code, reason)) = self.gather() {
                return Ended::Broken(format!("the consumer is beyond recovery: {code}: {reason}"));
            }
            if self.unreadable_since.take_if(|since| since.elapsed() >= UNREADABLE_AFTER).is_some() {
                self.pass_over_unreadable();
            }
            if steady_at.take_if(|at| *at <= Instant::now()).is_some() {
                self.kafka.broker.tell_intake_broken(false);
            }
            if self.commit_at.is_some_and(|at| at <= Instant::now()) {
                self.commit();
            }
            if !self.may_take() {
                continue;
            }
            if self.gathered.is_empty() {
                self.flow_on();
            } else {
                self.take_in();
            }
        }
        self.commit();
        Ended::Stopped
    }

    /// Waits a moment for a record and takes along what is there already.
    /// Says what is fatal; from everything else the client recovers by itself.
    fn gather(&mut self) -> Option<(RDKafkaErrorCode, String)> {
        let has_more = self.flow == Flow::Open && !self.gathered.is_empty();
        let mut wait = if has_more { Duration::ZERO } else { POLL };
        let mut bytes: usize = self.gathered.iter().map(Incoming::kept_bytes).sum();
        while let Some(polled) = self.consumer.poll(wait) {
            match polled {
                Ok(record) => {
                    self.membership.complaints.forget();
                    let incoming = Incoming::of(&record);
                    self.next.insert(record.partition(), record.offset() + 1);
                    bytes += incoming.kept_bytes();
                    self.gathered.push(incoming);
                }
                Err(error) => {
                    let reason = self.membership.complaints.explain(&error);
                    tracing::warn!(reason, "records cannot be read for now");
                    if let Some(fatal) = self.consumer.client().fatal_error() {
                        return Some(fatal);
                    }
                    if unreadable::tells_of_it(&error) {
                        self.unreadable_since.get_or_insert_with(Instant::now);
                    }
                }
            }
            if self.gathered.len() >= self.options.batch || bytes >= GATHERED_BYTES {
                break;
            }
            wait = Duration::ZERO;
        }
        let lost = self.membership.lost();
        if !lost.is_empty() {
            self.gathered.retain(|incoming| !lost.contains(&incoming.record.partition()));
            self.next.retain(|partition, _| !lost.contains(partition));
        }
        None
    }

    /// In every partition that is ours: which one it is, nobody says.
    fn pass_over_unreadable(&mut self) {
        for partition in self.membership.assigned() {
            if let Err(error) = self.pass_over(partition) {
                tracing::warn!(%error, partition, "what cannot be unpacked could not be passed over");
            }
        }
    }

    fn pass_over(&mut self, partition: i32) -> KafkaResult<()> {
        let (topic, from) = (&self.options.request_topic, self.stands_at(partition)?);
        let end = unreadable::end_of_it(&self.options, partition, from, PASSED_AT_ONCE)?;
        if end == from {
            return Ok(());
        }
        self.consumer.seek(topic, partition, Offset::Offset(end), SEEK_WITHIN)?;
        self.next.insert(partition, end);
        self.gathered.extend((from..end).map(|offset| Incoming::unreadable(topic, partition, offset)));
        Ok(())
    }

    fn stands_at(&self, partition: i32) -> KafkaResult<i64> {
        if let Some(next) = self.next.get(&partition) {
            return Ok(*next);
        }
        let topic = &self.options.request_topic;
        let mut asked = TopicPartitionList::new();
        asked.add_partition(topic, partition);
        let committed = self.consumer.committed_offsets(asked, SEEK_WITHIN)?;
        match committed.elements().first().map(|place| place.offset()) {
            Some(Offset::Offset(next)) => Ok(next),
            _ => Ok(self.consumer.fetch_watermarks(topic, partition, SEEK_WITHIN)?.0),
        }
    }

    fn commit(&mut self) {
        let is_done = commit(&self.consumer);
        self.commit_at = (!is_done).then(|| Instant::now() + COMMIT_AGAIN_AFTER);
    }

    /// Whether it is time to take something, and the backlog lets it.
    fn may_take(&mut self) -> bool {
        let now = Instant::now();
        let is_early = match self.flow {
            Flow::Open => false,
            Flow::Deep { look_at } => now < look_at,
            Flow::Failed { again_at, .. } => now < again_at,
        };
        if is_early || (self.flow == Flow::Open && self.gathered.is_empty()) {
            return false;
        }
        let was_deep = matches!(self.flow, Flow::Deep { .. });
        let bound = if was_deep { self.options.max_backlog / 2 } else { self.options.max_backlog };
        match self.patiently(self.desk.has_waiting(bound)) {
            Some(Ok(false)) => return true,
            Some(Ok(true)) => {}
            Some(Err(error)) => {
                self.put_off(&error.to_string());
                return false;
            }
            None => {
                self.put_off("the database does not answer");
                return false;
            }
        }
        if !was_deep {
            tracing::info!(max_backlog = bound, "enough waits for workers; nothing is taken in for now");
        }
        self.flow = Flow::Deep { look_at: now + LOOK_EVERY };
        self.pause(true);
        false
    }

    fn take_in(&mut self) {
        let count = self.portion.min(self.gathered.len());
        match self.patiently(self.desk.take_in(&self.gathered[..count])) {
            Some(Ok(())) => {
                for Incoming { record, .. } in self.gathered.drain(..count) {
                    self.membership.stored(record.partition(), record.offset());
                }
                self.commit();
                self.portion = (self.portion * 2).min(self.options.batch);
                self.flow_on();
            }
            Some(Err(reason)) => self.put_off(&reason.to_string()),
            None => {
                self.portion = (count / 2).max(1);
                self.put_off("no answer in time");
            }
        }
    }

    /// On this thread, and not for ever: `None` is that it took too long.
    fn patiently<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let hurry = async {
            self.stop.cancelled().await;
            tokio::time::sleep(STOP_WITHIN).await;
        };
        self.runtime.block_on(async {
            tokio::select! {
                done = work => Some(done),
                () = tokio::time::sleep(TAKE_WITHIN) => None,
                () = hurry => None,
            }
        })
    }

    fn flow_on(&mut self) {
        if self.flow != Flow::Open {
            tracing::info!("records are taken in again");
        }
        self.flow = Flow::Open;
        self.pause(false);
    }

    fn pause(&self, pause: bool) {
        self.membership.pause(&self.consumer, pause);
        figures::paused(pause);
        self.paused.send_replace(pause);
    }

    fn put_off(&mut self, reason: &str) {
        let times = match self.flow {
            Flow::Failed { times, .. } => times + 1,
            Flow::Open | Flow::Deep { .. } => 1,
        };
        let delay = AGAIN.delay(times);
        tracing::warn!(reason, times, ?delay, "nothing can be taken in; trying again");
        self.flow = Flow::Failed { times, again_at: Instant::now() + delay };
        self.pause(true);
    }
}
