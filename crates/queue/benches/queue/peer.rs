//! A yardstick: graphile-worker from npm in its fastest documented settings, on the same server.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::figure::repository;

/// No-op jobs per second, if node and npm are here and the package can be installed.
pub(crate) fn drain(url: &str) -> Option<f64> {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    if !INSTALLED.get_or_init(install) {
        return None;
    }
    eprintln!("  graphile-worker");
    let ran = Command::new("node").arg("drain.mjs").arg(url).current_dir(folder()).output().ok()?;
    let rate = String::from_utf8_lossy(&ran.stdout).trim().parse().ok();
    if rate.is_none() {
        eprintln!("  graphile-worker failed: {}", String::from_utf8_lossy(&ran.stderr));
    }
    rate
}

fn install() -> bool {
    let quiet = |command: &mut Command| {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()
    };
    if folder().join("node_modules/graphile-worker").exists() {
        return true;
    }
    let done = quiet(Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(folder()));
    let installed = done.is_ok_and(|status| status.success());
    if !installed {
        eprintln!("  left out: graphile-worker cannot be installed (npm ci in {})", folder().display());
    }
    installed
}

fn folder() -> PathBuf {
    repository().join("bench/peers/graphile-worker")
}
