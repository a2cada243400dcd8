//! Cores and memory.

use super::Check;

pub(super) const GIB: u64 = 1 << 30;
/// Of memory that is free to use: one 1080p ladder takes about half of it.
const MEMORY_WANTED: u64 = GIB;

pub(super) fn checks() -> Vec<Check> {
    vec![cores(), memory()]
}

fn cores() -> Check {
    match std::thread::available_parallelism() {
        Ok(cores) => Check::ok("cores", format!("{cores} for this process")),
        Err(error) => {
            Check::warn("cores", error.to_string(), "set slots explicitly: `telecine worker --slots cpu=N`")
        }
    }
}

fn memory() -> Check {
    let Some((available, total)) = memory_bytes() else {
        return Check::warn("memory", "/proc/meminfo does not say", "mount /proc");
    };
    let detail = format!("{} available of {}", gib(available), gib(total));
    if available < MEMORY_WANTED {
        return Check::warn("memory", detail, "use fewer slots, or a machine with more memory");
    }
    Check::ok("memory", detail)
}

fn memory_bytes() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    Some((of("MemAvailable:")?, of("MemTotal:")?))
}

pub(super) fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / GIB as f64)
}
