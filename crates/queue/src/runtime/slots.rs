//! Slots: the places in which jobs run, so many per lane.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Kinds;
use crate::error::{QueueError, Result};

/// How many jobs a worker runs side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slots {
    /// So many in every lane that its kinds belong to.
    Each(u32),
    PerLane(BTreeMap<String, u32>),
}

impl Slots {
    pub(super) fn per_lane(&self, kinds: &Kinds) -> Result<BTreeMap<String, u32>> {
        let lanes: BTreeMap<String, u32> = match self {
            Self::Each(slots) => kinds.lanes().map(|lane| (lane.to_owned(), *slots)).collect(),
            Self::PerLane(lanes) => lanes.clone(),
        };
        if lanes.values().all(|slots| *slots == 0) {
            return Err(QueueError::invalid("a worker needs at least one kind and one slot"));
        }
        Ok(lanes)
    }
}

#[derive(Debug)]
pub(super) struct SlotTable {
    /// Free slot numbers by lane, lowest last.
    free: Mutex<BTreeMap<String, Vec<u32>>>,
    total: usize,
    freed: Notify,
}

impl SlotTable {
    pub(super) fn new(lanes: &BTreeMap<String, u32>) -> Self {
        let mut next = 0;
        let mut free = BTreeMap::new();
        for (lane, slots) in lanes {
            free.insert(lane.clone(), (next..next + slots).rev().collect::<Vec<u32>>());
            next += slots;
        }
        Self { free: Mutex::new(free), total: next as usize, freed: Notify::new() }
    }

    /// Free slots by lane.
    pub(super) fn free(&self) -> BTreeMap<String, u32> {
        let free = self.lock();
        free.iter()
            .filter(|(_, slots)| !slots.is_empty())
            .map(|(lane, slots)| (lane.clone(), slots.len() as u32))
            .collect()
    }

    pub(super) fn take(&self, lane: &str) -> Option<u32> {
        self.lock().get_mut(lane)?.pop()
    }

    /// Frees the slots of a batch in one go: whoever waits for a free one finds all of them.
    pub(super) fn give_back<'a>(&self, leaving: impl Iterator<Item = (&'a str, u32)>) {
        let mut free = self.lock();
        for (lane, slot) in leaving {
            if let Some(slots) = free.get_mut(lane) {
                slots.push(slot);
            }
        }
        for slots in free.values_mut() {
            slots.sort_unstable_by(|a, b| b.cmp(a));
        }
        drop(free);
        self.freed.notify_waiters();
        self.freed.notify_one();
    }

    pub(super) fn busy(&self) -> usize {
        self.total - self.lock().values().map(Vec::len).sum::<usize>()
    }

    /// Returns once a slot was given back since the last call.
    pub(super) async fn wait_for_free(&self) {
        self.freed.notified().await;
    }

    pub(super) async fn wait_until_idle(&self) {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            if self.busy() == 0 {
                return;
            }
            freed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u32>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
