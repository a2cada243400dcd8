//! This process as a member of its group: which partitions are its own, and whether they are paused.
//!
//! Called back by the consumer within its own polls, so never beside the thread that takes records in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError as RdError;
use rdkafka::{Offset, TopicPartitionList};

use super::complaint::Complaints;
use super::{client, figures};

/// What the group has given to this process.
#[derive(Debug, Default)]
pub(super) struct Membership {
    topic: String,
    paused: AtomicBool,
    assigned: Mutex<BTreeSet<i32>>,
    /// Partitions that were taken away since somebody asked.
    lost: Mutex<BTreeSet<i32>>,
    pub(super) complaints: Complaints,
    /// Where to go on in each partition of which something is stored and not committed. librdkafka's own memory of it
    /// leaves out offsets that went back, as those of a topic that was made anew do.
    uncommitted: Mutex<BTreeMap<i32, i64>>,
}

impl Membership {
    pub(super) fn of(topic: String) -> Self {
        Self { topic, ..Self::default() }
    }

    /// A record is a run or a dead letter, whatever happens next.
    pub(super) fn stored(&self, partition: i32, offset: i64) {
        lock(&self.uncommitted).insert(partition, offset + 1);
    }

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

    fn places(&self) -> TopicPartitionList {
        let mut places = TopicPartitionList::new();
        for (partition, next) in lock(&self.uncommitted).iter() {
            let added = places.add_partition_offset(&self.topic, *partition, Offset::Offset(*next));
            debug_assert!(added.is_ok(), "an offset that was read");
        }
        places
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

/// Commits what is stored, and waits for the answer: of one that is not waited for, a refusal (during a rebalance, for
/// one) is told to nobody. `false`: it is still to be done.
pub(super) fn commit(consumer: &BaseConsumer<Membership>) -> bool {
    let membership = consumer.context();
    let places = membership.places();
    if places.count() == 0 {
        return true;
    }
    match consumer.commit(&places, CommitMode::Sync) {
        Ok(()) => {
            lock(&membership.uncommitted).clear();
            true
        }
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
        lock(&self.uncommitted).retain(|partition, _| !numbers.contains(partition));
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
