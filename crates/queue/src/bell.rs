//! The in-process half of a wake-up: counters that waiting workers watch.

use tokio::sync::watch;

use crate::queue::Wakes;

/// What a committed change may mean for someone who waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ring {
    pub(crate) ready: bool,
    pub(crate) scheduled: bool,
    pub(crate) revoked: bool,
    pub(crate) died: bool,
    pub(crate) told: bool,
}

impl Ring {
    pub(crate) const ALL: Self = Self { ready: true, scheduled: true, revoked: true, died: true, told: true };

    pub(crate) fn is_silent(self) -> bool {
        self == Self::default()
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            ready: self.ready || other.ready,
            scheduled: self.scheduled || other.scheduled,
            revoked: self.revoked || other.revoked,
            died: self.died || other.died,
            told: self.told || other.told,
        }
    }

    /// As a byte, to cross to another process.
    pub(crate) fn to_byte(self) -> u8 {
        u8::from(self.ready)
            | u8::from(self.scheduled) << 1
            | u8::from(self.revoked) << 2
            | u8::from(self.died) << 3
            | u8::from(self.told) << 4
    }

    pub(crate) fn from_byte(byte: u8) -> Self {
        Self {
            ready: byte & 1 != 0,
            scheduled: byte & 2 != 0,
            revoked: byte & 4 != 0,
            died: byte & 8 != 0,
            told: byte & 16 != 0,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Bell {
    wakes: watch::Sender<Wakes>,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { wakes: watch::Sender::new(Wakes::default()) }
    }

    pub(crate) fn listen(&self) -> watch::Receiver<Wakes> {
        self.wakes.subscribe()
    }

    pub(crate) fn is_heard(&self) -> bool {
        self.wakes.receiver_count() > 0
    }

    pub(crate) fn ring(&self, ring: Ring) {
        if ring.is_silent() {
            return;
        }
        self.wakes.send_modify(|wakes| {
            wakes.ready += u64::from(ring.ready);
            wakes.scheduled += u64::from(ring.scheduled);
            wakes.revoked += u64::from(ring.revoked);
            wakes.died += u64::from(ring.died);
            wakes.told += u64::from(ring.told);
        });
    }
}
