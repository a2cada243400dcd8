//! Intake: the thread that reads, for as long as nobody asks it to stop.
//!
//! ```text
//!   poll, poll, … ──► gathered ──► desk: runs and dead letters ──► offsets committed
//! ```
//! While it must not take anything (the backlog is too deep, the database or the brokers are away), partitions are paused,
//! what was gathered stays gathered, and polling goes on. What was gathered of a partition that goes to another member is
//! dropped: it was not committed, so the other one reads it.
//!
//! A reader that breaks, by a panic or because its consumer is beyond recovery, is followed by another after a pause; until
//! that one has read for a while, the process is not ready.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::reader::{AGAIN, Ended, Reader, STEADY_AFTER, STOP_WITHIN};
use super::{Kafka, KafkaError, figures};

/// To commit and to leave the group, behind [`STOP_WITHIN`]. librdkafka waits for minutes for a broker that hangs.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

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
        let reading =
            Reading { kafka: kafka.clone(), stop: stop.clone(), tell_pause, runtime: Handle::current() };
        // Here, so that whoever starts it hears what is wrong with the configuration.
        let first = reading.reader()?;
        std::thread::Builder::new().name("kafka-intake".into()).spawn(move || {
            reading.read_on(first);
            let _ = tell_end.send(());
        })?;
        Ok(Self { stop, ended, paused })
    }

    /// Whether nothing is taken in for now: too much waits for workers, or something is away.
    pub fn paused(&self) -> watch::Receiver<bool> {
        self.paused.clone()
    }

    /// Takes no more, finishes what is being stored, commits, and leaves the group. With brokers that hang it is left behind:
    /// what is not committed is read again, and known by its key.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if tokio::time::timeout(STOP_WITHIN + LEAVE_WITHIN, &mut self.ended).await.is_err() {
            tracing::warn!("brokers do not answer; the group is left without a word");
        }
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What all readers of one intake have in common.
struct Reading {
    kafka: Kafka,
    stop: CancellationToken,
    tell_pause: watch::Sender<bool>,
    runtime: Handle,
}

impl Reading {
    fn reader(&self) -> Result<Reader, KafkaError> {
        Reader::new(&self.kafka, self.stop.clone(), self.tell_pause.clone())
    }

    /// One reader after the other.
    fn read_on(&self, first: Reader) {
        let _entered = self.runtime.enter();
        let mut reader = Ok::<_, KafkaError>(first);
        let mut times = 0;
        loop {
            let began = Instant::now();
            let reason = match reader.map(until_its_end) {
                Ok(Ended::Stopped) => return,
                Ok(Ended::Broken(reason)) => reason,
                Err(error) => error.to_string(),
            };
            times = if began.elapsed() < STEADY_AFTER { times + 1 } else { 1 };
            let delay = AGAIN.delay(times);
            tracing::error!(reason, times, ?delay, "intake broke; it starts anew");
            self.kafka.broker.tell_intake_broken(true);
            figures::paused(true);
            self.tell_pause.send_replace(true);
            let stopped = tokio::time::timeout(delay, self.stop.cancelled());
            if self.runtime.block_on(stopped).is_ok() {
                return;
            }
            reader = self.reader();
        }
    }
}

fn until_its_end(mut reader: Reader) -> Ended {
    // It is not used again: what a panic leaves half done goes with it.
    let ended = catch_unwind(AssertUnwindSafe(|| reader.work()));
    ended.unwrap_or_else(|_| Ended::Broken("it panicked".into()))
}
