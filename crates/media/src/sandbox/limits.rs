//! Resource limits, which a child cannot raise again: the filter refuses to set any.

use rustix::io::Result;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::tool::{CPU_GRACE_SECONDS, Rules, memory_limits};

/// How many descriptors a tool may have. The first number that it can never have is the one it is executed by.
pub(super) const FILES: u64 = 512;

/// Threads that may begin after a tool has: far more than decoders and encoders of a machine of any size have. The
/// kernel counts all of a user's, so those that there are come on top.
const THREADS: u64 = 4096;

/// Makes room for the one descriptor that is above the tool's own limit.
pub(super) fn allow_one_file_more() -> Result<()> {
    let now = getrlimit(Resource::Nofile);
    let wanted = Some(FILES + 1);
    if now.current.is_none_or(|current| current > FILES) {
        return Ok(());
    }
    setrlimit(Resource::Nofile, Rlimit { current: wanted, maximum: now.maximum.max(wanted) })
}

pub(super) fn set(rules: &Rules) -> Result<()> {
    if let Some(seconds) = rules.cpu_seconds {
        // SIGXCPU first, which is told apart from other ends, then SIGKILL.
        lower(Resource::Cpu, seconds, seconds.saturating_add(CPU_GRACE_SECONDS))?;
    }
    if let Some(bytes) = rules.file_size_bytes {
        lower(Resource::Fsize, bytes, bytes)?;
    }
    for (resource, bytes) in memory_limits(rules.memory_bytes) {
        lower(resource, bytes, bytes)?;
    }
    // The kernel does not bind root by it, which `doctor` tells.
    if let Some(threads) = threads_now() {
        lower(Resource::Nproc, threads + THREADS, threads + THREADS)?;
    }
    lower(Resource::Core, 0, 0)?;
    lower(Resource::Msgqueue, 0, 0)?;
    lower(Resource::Nofile, FILES, FILES)
}

/// Of all users together, which is no less than those of this one: `0.20 0.18 0.12 1/80 11206`.
fn threads_now() -> Option<u64> {
    let load = std::fs::read_to_string("/proc/loadavg").ok()?;
    load.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// Never above what this process was given itself.
fn lower(resource: Resource, current: u64, maximum: u64) -> Result<()> {
    let given = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = Rlimit { current: Some(current.min(given)), maximum: Some(maximum.min(given)) };
    setrlimit(resource, limit)
}
