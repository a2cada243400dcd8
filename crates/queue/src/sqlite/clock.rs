//! The host's boot time: it runs on through suspend, and nobody can set it. A wall clock that jumps changes no lease.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since the host booted.
pub(super) fn boottime_ms() -> i64 {
    boottime_us() / 1_000
}

fn boottime_us() -> i64 {
    let at = clock_gettime(ClockId::Boottime);
    at.tv_sec * 1_000_000 + at.tv_nsec / 1_000
}

/// A duration in whole milliseconds, at most so long that adding it to an instant overflows nothing.
pub(super) fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 2)
}

/// Which boot that is counted from. A lease of another boot has ended.
pub(super) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

/// A clock that all processes of one boot share and that nobody can set: the place of a new job in the line does not
/// jump with the wall clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineClock {
    boot_started_ms: i64,
}

impl LineClock {
    pub(super) fn new(boot_started_ms: i64) -> Self {
        Self { boot_started_ms }
    }

    /// Microseconds of UTC, as far as the first process of this boot knew.
    pub(super) fn now_us(self) -> i64 {
        self.boot_started_ms * 1_000 + boottime_us()
    }
}
