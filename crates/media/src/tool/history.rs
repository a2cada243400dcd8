//! Which programs were run, and how they ended: for whoever keeps it.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// Is told of every program that a toolbox starts. Must not wait.
pub trait ToolHistory: fmt::Debug + Send + Sync {
    /// A program was started; the answer names it when it ends.
    fn started(&self, started: ToolStarted) -> u64;

    /// The program has ended, by itself or not. Of one that is dropped while it runs nothing more is told.
    fn ended(&self, number: u64, ended: ToolEnded);
}

/// A command line, word by word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolStarted {
    /// What it was started for, as errors name it.
    pub step: String,
    /// The program first, by its path.
    pub argv: Vec<OsString>,
    /// Whether the program is a user's own.
    pub is_of_user: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolEnded {
    /// Of a program that ended by itself.
    pub exit_code: Option<i32>,
    /// That ended it, ours included.
    pub signal: Option<i32>,
    pub stderr_tail: String,
    pub wall: Duration,
}

impl ToolEnded {
    pub(super) fn of(status: ExitStatus, stderr_tail: String, wall: Duration) -> Self {
        Self { exit_code: status.code(), signal: status.signal(), stderr_tail, wall }
    }
}
