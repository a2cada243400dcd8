//! A child's process group, which is killed once and never after its id may belong to somebody else.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, kill_process_group, prlimit, waitid,
};
use tokio::signal::unix::{SignalKind, signal};

use super::ToolLimits;

/// A soft limit on CPU time sends SIGXCPU; this much later the kernel kills for good.
pub(crate) const CPU_GRACE_SECONDS: u64 = 5;

/// Killing it is safe from any thread: the id is forgotten before the leader is reaped, and until then the kernel
/// gives it to nobody else.
#[derive(Debug, Clone)]
pub(super) struct Group(Arc<Mutex<Option<Pid>>>);

impl Group {
    pub(super) fn of_leader(leader: Pid) -> Self {
        Self(Arc::new(Mutex::new(Some(leader))))
    }

    /// Kills every member. The leader must be reaped only afterwards; later calls do nothing.
    pub(super) fn kill(&self) {
        let leader = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(leader) = leader {
            // An error says that no member is left.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// Sees that a leader has exited without reaping it: the moment at which the rest of its group can safely be killed.
///
/// A pidfd would say the same, but tokio takes foreign descriptors only by `unsafe` since 1.54.
#[derive(Debug)]
pub(super) struct LeaderExit {
    leader: Pid,
    any_child_changed: tokio::signal::unix::Signal,
}

impl LeaderExit {
    pub(super) fn of(leader: Pid) -> std::io::Result<Self> {
        Ok(Self { leader, any_child_changed: signal(SignalKind::child())? })
    }

    pub(super) async fn seen(&mut self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error says that there is no such child any more.
        while let Ok(None) = waitid(WaitId::Pid(self.leader), options) {
            self.any_child_changed.recv().await;
        }
    }
}

/// The CPU time of a child that has exited and was not reaped yet: all its threads, user and system.
pub(super) fn cpu_of_ended(id: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The name in parentheses may hold anything; the 12th and 13th field behind it are ticks, of which Linux counts
    // 100 a second for user space on every architecture we run on.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Address space beyond the memory: libraries, and what is set aside and never written to, such as 64 MiB for each
/// thread that allocates. Hundreds of threads fit.
const RESERVED_MAX_BYTES: u64 = 12 << 30;

/// What bounds the memory of a child, by the kernel's own count.
///
/// The first counts whatever it may write to and shares with nobody: its heap, its buffers, the stacks of its threads
/// (Linux 4.7). That bounds every decoder. A program that was taken over could hide memory from that count, by taking
/// back the right to write after it has written, and meets the second one, on all of its address space.
pub(crate) fn memory_limits(memory_bytes: u64) -> [(Resource, u64); 2] {
    [(Resource::Data, memory_bytes), (Resource::As, memory_bytes.saturating_add(RESERVED_MAX_BYTES))]
}

/// Sets the limits of a child that was just started. A launcher sets them before the tool begins; this comes some
/// microseconds after it, which matters to nobody who is not confined anyway.
pub(super) fn limit(leader: Pid, limits: &ToolLimits, memory_bytes: u64) -> std::io::Result<()> {
    let cpu = limits.cpu.map(|cpu| cpu.as_secs().max(1));
    let of = |current: Option<u64>, maximum: Option<u64>| Rlimit { current, maximum };
    if let Some(seconds) = cpu {
        prlimit(Some(leader), Resource::Cpu, of(cpu, Some(seconds + CPU_GRACE_SECONDS)))?;
    }
    if let Some(bytes) = limits.file_size_bytes {
        prlimit(Some(leader), Resource::Fsize, of(Some(bytes), Some(bytes)))?;
    }
    for (resource, bytes) in memory_limits(memory_bytes) {
        prlimit(Some(leader), resource, of(Some(bytes), Some(bytes)))?;
    }
    prlimit(Some(leader), Resource::Core, of(Some(0), Some(0)))?;
    Ok(())
}
