//! The host's boot time: it runs on through suspend, and nobody can set it. A wall clock that jumps changes no lease.

use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

use crate::timestamp::Timestamp;

/// Milliseconds since the host booted.
pub(super) fn boottime_ms() -> i64 {
    let at = clock_gettime(ClockId::Boottime);
    at.tv_sec * 1_000 + at.tv_nsec / 1_000_000
}

/// Which boot that is counted from. A lease of another boot has ended.
pub(super) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

/// Microseconds of UTC as they were when this process started, carried on by the boot time: the place of a new job
/// in the line does not jump with the wall clock.
pub(super) fn steady_us() -> i64 {
    static WALL_AT_BOOT_MS: OnceLock<i64> = OnceLock::new();
    let at_boot = WALL_AT_BOOT_MS.get_or_init(|| Timestamp::now().as_ms() - boottime_ms());
    (at_boot + boottime_ms()) * 1_000
}
