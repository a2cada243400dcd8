//! This process as a member of its group: which partitions are its own, and whether they are paused.
//!
//! Called back by the consumer within its own polls, so never beside the thread that takes records in.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::TopicPartitionList;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError as RdError, RDKafkaErrorCode};

use super::complaint::Complaints;
use super::{client, figures};

/// What the group has given to this process.
#[derive(Debug, Default)]
pub(super) struct Membership {
    paused: AtomicBool,
    assigned: Mutex<BTreeSet<i32>>,
    /// Partitions that were taken away since somebody asked.
    lost: Mutex<BTreeSet<i32>>,
    pub(super) complaints: Complaints,
}

impl Membership {
    pub(super) fn assigned(&self) -> BTreeSet<i32> {
        lock(&self.assigned).clone()
    }

    /// Partitions whose records are another's to take in, by now. Told once.
    pub(super) fn lost(&self) -> BTreeSet<i32> {
        std::mem::take(&mut *lock(&self.lost))
    }

    /// Stops or resumes all partitions, those included that come later.
    pub(super) fn pause(&self, consumer: &BaseConsumer<Self>, pause: bool) {
        if self.paused.swap(pause, Ordering::Relaxed) == pause {
            return;
        }
        match consumer.assignment() {
            Ok(partitions) => self.apply_pause(consumer, &partitions),
            Err(error) => tracing::warn!(%error, "the group's assignment is not known"),
        }
    }

    fn apply_pause(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        if partitions.count() == 0 {
            return;
        }
        let applied = match self.paused.load(Ordering::Relaxed) {
            true => consumer.pause(partitions),
            // Also what was never paused: a partition that comes back may still be.
            false => consumer.resume(partitions),
        };
        if let Err(error) = applied {
            tracing::warn!(%error, "partitions could not be paused or resumed");
        }
    }
}

/// Commits what was stored for it, and waits for the answer: of one that is not waited for, a refusal (during a rebalance,
/// for one) is told to nobody. `false`: it is still to be done.
pub(super) fn commit(consumer: &BaseConsumer<Membership>) -> bool {
    match consumer.commit_consumer_state(CommitMode::Sync) {
        Ok(()) | Err(RdError::ConsumerCommit(RDKafkaErrorCode::NoOffset)) => true,
        Err(error) => {
            figures::not_committed();
            tracing::info!(%error, "offsets were not committed; what is read again is known by its key");
            false
        }
    }
}

impl ClientContext for Membership {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.complaints.overhear(facility, message);
        client::log(level, facility, message);
    }

    fn error(&self, error: RdError, reason: &str) {
        self.complaints.hear(&error, reason);
    }
}

impl ConsumerContext for Membership {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Revoke(partitions) = rebalance else { return };
        // One that took too long was given to another already; then there is nothing to commit.
        if !consumer.assignment_lost() {
            commit(consumer);
        }
        let numbers = numbers(partitions);
        tracing::info!(partitions = ?numbers, "partitions go to others");
        for partition in partitions.elements() {
            figures::lag(partition.topic(), partition.partition(), 0);
        }
        lock(&self.assigned).retain(|partition| !numbers.contains(partition));
        lock(&self.lost).extend(numbers);
    }

    fn post_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(partitions) => {
                let numbers = numbers(partitions);
                tracing::info!(partitions = ?numbers, "partitions are read by this process");
                lock(&self.assigned).extend(numbers);
                self.apply_pause(consumer, partitions);
            }
            Rebalance::Revoke(_) => {}
            Rebalance::Error(error) => tracing::warn!(%error, "the group could not be rebalanced"),
        }
    }
}

fn numbers(partitions: &TopicPartitionList) -> BTreeSet<i32> {
    partitions.elements().iter().map(|place| place.partition()).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
