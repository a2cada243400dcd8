//! Slots: the places in which jobs run, so many per lane.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Kinds;
use crate::error::{QueueError, Result};
use crate::figures;

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
    table: Mutex<Table>,
    lanes: BTreeMap<String, u32>,
    total: usize,
    freed: Notify,
}

#[derive(Debug)]
struct Table {
    /// Free slot numbers by lane, lowest last.
    free: BTreeMap<String, Vec<u32>>,
    /// How many are neither free nor busy, because a pull is under way to fill them.
    reserved: usize,
}

/// Slots that a pull is to fill, lowest last.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    slots: BTreeMap<String, Vec<u32>>,
}

impl Reserved {
    fn count(&self) -> usize {
        self.slots.values().map(Vec::len).sum()
    }

    /// How many there are by lane, of the lanes that have any.
    pub(super) fn lanes(&self) -> BTreeMap<String, u32> {
        let left = self.slots.iter().filter(|(_, slots)| !slots.is_empty());
        left.map(|(lane, slots)| (lane.clone(), slots.len() as u32)).collect()
    }
}

impl SlotTable {
    pub(super) fn new(lanes: &BTreeMap<String, u32>) -> Self {
        let mut next = 0;
        let mut free = BTreeMap::new();
        for (lane, slots) in lanes {
            free.insert(lane.clone(), (next..next + slots).rev().collect::<Vec<u32>>());
            next += slots;
        }
        let table = Mutex::new(Table { free, reserved: 0 });
        Self { table, lanes: lanes.clone(), total: next as usize, freed: Notify::new() }
    }

    /// How many slots of the lanes that are wanted are free.
    pub(super) fn free(&self, wanted: impl Fn(&str) -> bool) -> usize {
        self.lock().free.iter().filter(|(lane, _)| wanted(lane)).map(|(_, slots)| slots.len()).sum()
    }

    /// The free slots of the lanes that are wanted, up to so many of each.
    pub(super) fn reserve(&self, wanted: impl Fn(&str) -> bool, most: usize) -> Reserved {
        let mut table = self.lock();
        let lanes = table.free.iter_mut().filter(|(lane, slots)| wanted(lane) && !slots.is_empty());
        let lowest = |slots: &mut Vec<u32>| slots.split_off(slots.len().saturating_sub(most));
        let slots = lanes.map(|(lane, slots)| (lane.clone(), lowest(slots))).collect();
        let reserved = Reserved { slots };
        table.reserved += reserved.count();
        reserved
    }

    /// A reserved slot that is busy from now on.
    pub(super) fn take(&self, reserved: &mut Reserved, lane: &str) -> Option<u32> {
        let slot = reserved.slots.get_mut(lane)?.pop()?;
        self.lock().reserved -= 1;
        Some(slot)
    }

    /// What is left of a reservation is free again.
    pub(super) fn put_back(&self, reserved: Reserved) {
        let mut table = self.lock();
        table.reserved -= reserved.count();
        for (lane, mut slots) in reserved.slots {
            let free = table.free.entry(lane).or_default();
            free.append(&mut slots);
            free.sort_unstable_by(|a, b| b.cmp(a));
        }
    }

    /// Frees the slots of a batch in one go: whoever waits for a free one finds all of them.
    pub(super) fn give_back<'a>(&self, leaving: impl Iterator<Item = (&'a str, u32)>) {
        let mut table = self.lock();
        for (lane, slot) in leaving {
            if let Some(slots) = table.free.get_mut(lane) {
                slots.push(slot);
            }
        }
        for slots in table.free.values_mut() {
            slots.sort_unstable_by(|a, b| b.cmp(a));
        }
        drop(table);
        self.freed.notify_waiters();
        self.freed.notify_one();
    }

    pub(super) fn busy(&self) -> usize {
        let table = self.lock();
        self.total - table.reserved - table.free.values().map(Vec::len).sum::<usize>()
    }

    /// Says how busy each lane is to whoever counts. Slots that a pull is to fill are taken for busy.
    pub(super) fn tell(&self) {
        let table = self.lock();
        for (lane, total) in &self.lanes {
            let free = table.free.get(lane).map_or(0, Vec::len) as u32;
            figures::slots(lane, *total, total.saturating_sub(free));
        }
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

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
