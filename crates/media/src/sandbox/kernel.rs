//! What the running kernel offers.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::raw;

/// A feature that the sandbox cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
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
    pub cgroup_v2: bool,
}

impl Kernel {
    pub fn detect() -> Self {
        let actions = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
        Self {
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            landlock_abi: raw::landlock_abi(),
            seccomp: ["kill_process", "errno", "allow"]
                .iter()
                .all(|wanted| actions.split_whitespace().any(|action| action == *wanted)),
            cgroup_v2: Path::new("/sys/fs/cgroup/cgroup.controllers").exists(),
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
