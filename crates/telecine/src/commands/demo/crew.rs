//! The demo's worker processes. None of them outlives the demo, even if that is killed itself.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::output::{harmless, say};

/// Short, so that the demo need not wait half a minute for a lease to run out.
const SETTINGS: [(&str, &str); 5] = [
    ("TELECINE_LEASE_MS", "1500"),
    ("TELECINE_BEAT_MS", "300"),
    ("TELECINE_SWEEP_MS", "300"),
    ("TELECINE_POLL_MS", "200"),
    ("TELECINE_DRAIN_MS", "5000"),
];
const LEAVE_WITHIN: Duration = Duration::from_secs(8);
const LAST_WORDS: usize = 5;

pub(super) struct Crew {
    program: PathBuf,
    database: String,
    folder: PathBuf,
    members: Vec<Member>,
}

struct Member {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Crew {
    pub(super) fn new(database: &str, folder: &Path) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let database = match database.strip_prefix("sqlite:") {
            // The workers run in another folder.
            Some(path) => {
                let path = path.strip_prefix("//").unwrap_or(path);
                format!("sqlite:{}", std::path::absolute(path)?.display())
            }
            None => database.to_owned(),
        };
        Ok(Self { program, database, folder: folder.to_owned(), members: Vec::new() })
    }

    /// Starts a worker and gives its process id.
    pub(super) fn start(&mut self, name: &'static str, concurrency: u32) -> Result<u32> {
        let log = self.folder.join(format!("{name}.log"));
        let mut command = Command::new(&self.program);
        for (variable, _) in std::env::vars_os() {
            if variable.to_str().is_some_and(|variable| variable.starts_with("TELECINE_")) {
                command.env_remove(variable);
            }
        }
        let child = command
            .args([
                "worker",
                "--leave-with-parent",
                "--name",
                name,
                "--concurrency",
                &concurrency.to_string(),
            ])
            // Not a flag: a URL may carry a password, and everybody can read a process's arguments.
            .env("TELECINE_DATABASE", &self.database)
            .envs(SETTINGS)
            // A folder without a telecine.toml.
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).context("cannot write the worker's log")?)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a worker process")?;
        let pid = child.id().context("the worker process has ended at once")?;
        self.members.push(Member { name, child, log });
        Ok(pid)
    }

    pub(super) fn has_exited(&mut self, name: &str) -> Result<Option<ExitStatus>> {
        match self.members.iter_mut().find(|member| member.name == name) {
            Some(member) => Ok(member.child.try_wait()?),
            None => Ok(None),
        }
    }

    /// SIGKILL: the process gets no chance to say goodbye.
    pub(super) fn kill(&mut self, name: &str) {
        for member in self.members.iter_mut().filter(|member| member.name == name) {
            let _ = member.child.start_kill();
        }
    }

    /// Lets the workers drain, as SIGTERM does in a deployment.
    pub(super) async fn dismiss_all(&mut self) {
        for member in &self.members {
            let pid = member.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
            if let Some(pid) = pid {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        for member in &mut self.members {
            let _ = tokio::time::timeout(LEAVE_WITHIN, member.child.wait()).await;
        }
        self.kill_all().await;
    }

    pub(super) async fn kill_all(&mut self) {
        for mut member in self.members.drain(..) {
            // Also waits, so that no zombie is left behind.
            let _ = member.child.kill().await;
        }
    }

    /// The ends of the workers' logs, for whoever has to find out why the demo failed.
    pub(super) fn tell_last_words(&self) {
        for member in &self.members {
            let log = std::fs::read_to_string(&member.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(LAST_WORDS)..] {
                say(format_args!("worker {}: {}", member.name, harmless(line)));
            }
        }
    }
}
