//! Intake: the thread that owns the consumer.
//!
//! ```text
//!   poll, poll, … ──► gathered ──► desk: runs and dead letters ──► offsets stored and committed
//! ```
//! While it must not take anything (the backlog is too deep, the database or the brokers are away), partitions are paused,
//! what was gathered stays gathered, and polling goes on. What was gathered of a partition that goes to another member is
//! dropped: it was not committed, so the other one reads it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::Offset;
use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{Message, OwnedMessage};
use telecine_queue::Backoff;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client::{reading, unusable};
use super::desk::Desk;
use super::lag;
use super::membership::{Membership, commit};
use super::{Kafka, KafkaError, KafkaOptions, figures};

/// How long a poll waits for a first record.
const POLL: Duration = Duration::from_millis(100);
/// What is gathered is kept in memory.
const GATHERED_BYTES: usize = 8 << 20;
/// After this long a batch is tried again: repeating it settles what became of it.
const TAKE_WITHIN: Duration = Duration::from_secs(60);
/// When it is to stop, it has this long.
const STOP_WITHIN: Duration = Duration::from_secs(10);
const COMMIT_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// While it is too deep, the backlog is looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const AGAIN: Backoff = Backoff { base_ms: 500, factor: 2, cap_ms: 15_000 };

/// Requests are being taken in. Dropping it stops it without waiting for it.
#[derive(Debug)]
pub struct Intake {
    stop: CancellationToken,
    ended: oneshot::Receiver<()>,
    paused: watch::Receiver<bool>,
}

impl Intake {
    pub(super) fn start(kafka: &Kafka) -> Result<Self, KafkaError> {
        let stop = CancellationToken::new();
        let (tell_end, ended) = oneshot::channel();
        let (tell_pause, paused) = watch::channel(false);
        let reader = Reader::new(kafka, stop.clone(), tell_pause)?;
        let kafka = kafka.clone();
        std::thread::Builder::new().name("kafka-intake".into()).spawn(move || {
            reader.read_on(&kafka);
            let _ = tell_end.send(());
        })?;
        Ok(Self { stop, ended, paused })
    }

    /// Whether nothing is taken in for now: too much waits for workers, or something is away.
    pub fn paused(&self) -> watch::Receiver<bool> {
        self.paused.clone()
    }

    /// Takes no more, finishes what is being stored, commits, and leaves the group.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let _ = (&mut self.ended).await;
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

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

struct Reader {
    consumer: BaseConsumer<Membership>,
    membership: Arc<Membership>,
    desk: Desk,
    options: Arc<KafkaOptions>,
    gathered: Vec<OwnedMessage>,
    flow: Flow,
    /// A commit has failed and is tried again then, be there new records or not.
    commit_at: Option<Instant>,
    paused: watch::Sender<bool>,
    stop: CancellationToken,
    /// Ends the look at how far it is behind.
    _watched: DropGuard,
    runtime: Handle,
}

/// Why a reader has ended.
enum Ended {
    /// It was asked to.
    Stopped,
    /// Its consumer is of no use any more.
    Fatal,
}

impl Reader {
    fn new(kafka: &Kafka, stop: CancellationToken, paused: watch::Sender<bool>) -> Result<Self, KafkaError> {
        let consumer: BaseConsumer<Membership> =
            reading(&kafka.options).create_with_context(Membership::default()).map_err(unusable)?;
        consumer.subscribe(&[&kafka.options.request_topic]).map_err(unusable)?;
        let membership = Arc::clone(consumer.context());
        let (runtime, watched) = (Handle::current(), CancellationToken::new());
        let topic = kafka.options.request_topic.clone();
        runtime.spawn(lag::watch(kafka.broker.clone(), Arc::clone(&membership), topic, watched.clone()));
        Ok(Self {
            consumer,
            membership,
            desk: Desk::new(kafka),
            options: Arc::clone(&kafka.options),
            gathered: Vec::new(),
            flow: Flow::Open,
            commit_at: None,
            paused,
            stop,
            _watched: watched.drop_guard(),
            runtime,
        })
    }

    /// For as long as nobody asks to stop, also with another consumer.
    fn read_on(mut self, kafka: &Kafka) {
        let (runtime, stop, paused) = (self.runtime.clone(), self.stop.clone(), self.paused.clone());
        let _entered = runtime.enter();
        while let Ended::Fatal = self.work() {
            drop(self);
            self = match Self::new(kafka, stop.clone(), paused.clone()) {
                Ok(another) => another,
                Err(error) => return tracing::error!(%error, "nothing is taken in any more"),
            };
        }
    }

    fn work(&mut self) -> Ended {
        while !self.stop.is_cancelled() {
            if let Some((code, reason)) = self.gather() {
                tracing::error!(%code, reason, "the consumer is beyond recovery; another one takes its place");
                return Ended::Fatal;
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
        let mut bytes: usize = self.gathered.iter().filter_map(OwnedMessage::payload).map(<[u8]>::len).sum();
        let mut wait = POLL;
        while let Some(polled) = self.consumer.poll(wait) {
            match polled {
                Ok(record) => {
                    self.membership.complaints.forget();
                    bytes += record.payload_len();
                    self.gathered.push(record.detach());
                }
                Err(error) => {
                    let reason = self.membership.complaints.explain(&error);
                    tracing::warn!(reason, "records cannot be read for now");
                    if let Some(fatal) = self.consumer.client().fatal_error() {
                        return Some(fatal);
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
            self.gathered.retain(|record| !lost.contains(&record.partition()));
        }
        None
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
        let backlog = match self.patiently(self.desk.backlog()) {
            Some(Ok(backlog)) => backlog,
            Some(Err(error)) => {
                self.put_off(&error.to_string());
                return false;
            }
            None => {
                self.put_off("the database does not answer");
                return false;
            }
        };
        let was_deep = matches!(self.flow, Flow::Deep { .. });
        let bound = if was_deep { self.options.max_backlog / 2 } else { self.options.max_backlog };
        if backlog <= bound {
            return true;
        }
        if !was_deep {
            tracing::info!(
                backlog,
                max_backlog = bound,
                "enough waits for workers; nothing is taken in for now"
            );
        }
        self.flow = Flow::Deep { look_at: now + LOOK_EVERY };
        self.pause(true);
        false
    }

    fn take_in(&mut self) {
        match self.patiently(self.desk.take_in(&self.gathered)) {
            Some(Ok(())) => {
                self.store_offsets();
                self.commit();
                self.gathered.clear();
                self.flow_on();
            }
            Some(Err(reason)) => self.put_off(&reason.to_string()),
            None => self.put_off("no answer in time"),
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

    /// Behind the last of each partition. Those that were lost meanwhile are refused, which is as it should be.
    fn store_offsets(&self) {
        let mut behind = std::collections::BTreeMap::new();
        for record in &self.gathered {
            let next = behind.entry(record.partition()).or_insert(0);
            *next = record.offset().max(*next - 1) + 1;
        }
        let mut places = TopicPartitionList::with_capacity(behind.len());
        for (partition, next) in behind {
            let added =
                places.add_partition_offset(&self.options.request_topic, partition, Offset::Offset(next));
            debug_assert!(added.is_ok(), "an offset that was read");
        }
        if let Err(error) = self.consumer.store_offsets(&places) {
            tracing::debug!(%error, "offsets of partitions that are not ours any more");
        }
    }
}
