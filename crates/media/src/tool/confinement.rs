//! Through what a child is started.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::path_text;
use crate::error::{At, MediaError, Result};

/// How children are confined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confinement {
    /// The child is executed by a launcher, which confines itself first and must end in `exec`, so that the child keeps
    /// its process id, group and pipes. Its command line is `program args… RULES -- TOOL TOOL-ARGS…`, where `RULES` is
    /// [`Rules`] as one argument of JSON.
    Launcher { program: PathBuf, args: Vec<OsString> },
    /// The child can do whatever this process can, and outlives it when this process is killed. Only its limits hold.
    None,
}

/// What a child may do. Everything that is not named is refused by a launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The process that starts it, and must not be outlived.
    pub parent_pid: u32,
    /// What will be executed.
    #[serde(with = "path_text::one")]
    pub program: PathBuf,
    /// May be read and written.
    #[serde(with = "path_text::maybe")]
    pub scratch: Option<PathBuf>,
    /// May be read.
    #[serde(with = "path_text::many")]
    pub readable: Vec<PathBuf>,
    /// Names of the variables that the child gets to see.
    pub variables: Vec<String>,
    pub cpu_seconds: Option<u64>,
    pub file_size_bytes: Option<u64>,
    pub memory_bytes: u64,
    /// A program of the user's own, which may do more than a tool.
    #[serde(default)]
    pub user_program: Option<UserProgram>,
}

/// What a program of the user's own may do beyond a tool: start others, from the system's folders and these; and reach
/// the network, where it says that it needs to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserProgram {
    pub network: bool,
    /// Files and folders whose programs may be started. They may be read, too.
    pub executable: Vec<PathBuf>,
}

impl Confinement {
    /// The beginning of a command line; the tool's own arguments follow.
    pub(super) fn command(&self, rules: &Rules, step: &str) -> Result<Command> {
        match self {
            Self::None => Ok(Command::new(&rules.program)),
            Self::Launcher { program, args } => {
                let json = serde_json::to_string(rules).map_err(|error| {
                    MediaError::unexpected(At::new(
                        step.to_owned(),
                        format!("the rules cannot be passed on: {error}"),
                    ))
                })?;
                let mut command = Command::new(program);
                command.args(args).arg(json).arg("--").arg(&rules.program);
                Ok(command)
            }
        }
    }

    /// Whether this process sets the child's resource limits, because no launcher does.
    pub(super) fn leaves_limits_to_parent(&self) -> bool {
        match self {
            Self::None => true,
            Self::Launcher { .. } => false,
        }
    }
}
