//! What the running kernel offers.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::raw;

/// A feature that the sandbox cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelFeature {
    Landlock,
    Seccomp,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Kernel {
    pub release: String,
    /// The version of Landlock's interface: 1 since Linux 5.13, 4 (TCP) since 6.7, 6 (signals) since 6.12.
    pub landlock_abi: Option<u32>,
    /// Whether system calls can be filtered, with every answer that the filter gives.
    pub seccomp: bool,
    /// Whether a cgroup v2 hierarchy is mounted.
    pub cgroup_v2: bool,
    /// Whether that hierarchy can bound memory; where version 1 is mounted beside it, that one does.
    pub cgroup_v2_memory: bool,
    /// Whether the number of a tool's threads is bounded: root is bound by no resource limit on them, only by a cgroup.
    pub bounds_threads: bool,
}

impl Kernel {
    pub fn detect() -> Self {
        let actions = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
        let cgroup = cgroup_v2_folder();
        let bounds_threads = !rustix::process::getuid().is_root() || is_bound_by_pids(cgroup.as_deref());
        Self {
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            landlock_abi: raw::landlock_abi(),
            seccomp: ["kill_process", "errno", "allow"]
                .iter()
                .all(|wanted| actions.split_whitespace().any(|action| action == *wanted)),
            cgroup_v2: cgroup.is_some(),
            cgroup_v2_memory: cgroup
                .and_then(|folder| std::fs::read_to_string(folder.join("cgroup.controllers")).ok())
                .is_some_and(|controllers| controllers.split_whitespace().any(|name| name == "memory")),
            bounds_threads,
        }
    }

    pub fn has(&self, feature: KernelFeature) -> bool {
        match feature {
            KernelFeature::Landlock => self.landlock_abi.is_some(),
            KernelFeature::Seccomp => self.seccomp,
        }
    }

    /// Doors that only the filter on system calls closes here, because this Landlock is too old to close them as well.
    pub fn locked_once(&self) -> Vec<&'static str> {
        let abi = self.landlock_abi.unwrap_or(0);
        let since = [
            (3, "truncating files outside"),
            (4, "TCP"),
            (5, "commands to devices"),
            (6, "signals and abstract sockets"),
        ];
        since.into_iter().filter(|(needed, _)| abi < *needed).map(|(_, door)| door).collect()
    }
}

/// Where it is mounted.
fn cgroup_v2_folder() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let folder = words.next()?;
        (words.next() == Some("cgroup2")).then(|| folder.into())
    })
}

/// Whether `pids.max` of this process's cgroup, or of one around it, is a number.
fn is_bound_by_pids(mounted: Option<&Path>) -> bool {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_line = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let folder = match controllers {
            "" => mounted?.to_owned(),
            _ if controllers.split(',').any(|name| name == "pids") => PathBuf::from("/sys/fs/cgroup/pids"),
            _ => return None,
        };
        Some((folder.join(group.trim_start_matches('/')), folder))
    };
    groups.lines().filter_map(of_line).any(|(group, top)| {
        let around = group.ancestors().take_while(|folder| folder.starts_with(&top));
        let is_number = |folder: &Path| {
            std::fs::read_to_string(folder.join("pids.max"))
                .is_ok_and(|most| most.trim().parse::<u64>().is_ok())
        };
        around.into_iter().any(is_number)
    })
}

impl KernelFeature {
    pub(crate) const ALL: [Self; 2] = [Self::Landlock, Self::Seccomp];

    pub fn name(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
        }
    }

    /// How to get it.
    pub fn next_step(self) -> &'static str {
        match self {
            Self::Landlock => {
                "run Linux 5.13 or later with `landlock` in its `lsm=` list (a container needs a seccomp profile that \
                 allows the landlock_* calls), or accept the risk with --no-sandbox"
            }
            Self::Seccomp => {
                "run a kernel with CONFIG_SECCOMP_FILTER on x86_64 or aarch64, or accept the risk with --no-sandbox"
            }
        }
    }
}

impl fmt::Display for KernelFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
