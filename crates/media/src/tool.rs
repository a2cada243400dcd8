//! The one way a program is started.
//!
//! A [`Toolbox`] knows where the programs are and how children are confined; a [`Tool`] is one command line with its
//! pipes and limits; [`Tool::start`] gives a [`Running`] child, and [`Running::finish`] what came of it. A child is the
//! leader of a process group of its own, and the group is killed when the leader ends, is cancelled, passes a limit, or
//! its `Running` is dropped.

mod classify;
mod confinement;
mod group;
mod history;
mod log;
mod path_text;
mod progress;
mod running;
mod spawn;
mod stderr;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::capability::Piece;
use crate::error::{At, MediaError, Result};

pub use confinement::{Confinement, Rules, UserProgram};
pub(crate) use group::{CPU_GRACE_SECONDS, memory_limits};
pub use history::{ToolEnded, ToolHistory, ToolStarted};
pub(crate) use log::{LogLine, LogReader, complains_of_input};
pub use progress::Progress;
pub use running::{Activity, Finished, Running};
pub(crate) use stderr::Lines;

/// The programs that are ever started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    Ffmpeg,
    Ffprobe,
    Vips,
    /// `telecine-vips`, which is ours and holds libvips.
    VipsHelper,
}

/// What a child may use of memory unless somebody says otherwise: far above what 8K pictures need.
pub const TOOL_MEMORY_BYTES: u64 = 4 << 30;

/// Where the programs are, how children are confined, and how much memory each may use.
#[derive(Debug, Clone)]
pub struct Toolbox {
    ffmpeg: Option<PathBuf>,
    ffprobe: Option<PathBuf>,
    vips: Option<PathBuf>,
    vips_helper: Option<PathBuf>,
    confinement: Confinement,
    memory_bytes: u64,
    history: Option<Arc<dyn ToolHistory>>,
}

/// One command line, its pipes and its limits.
#[derive(Debug)]
pub struct Tool {
    program: Started,
    path: PathBuf,
    step: Cow<'static, str>,
    args: Vec<OsString>,
    envs: Vec<(&'static str, OsString)>,
    scratch: Option<PathBuf>,
    readable: Vec<PathBuf>,
    stdin: Input,
    stdout: Output,
    progress_on_stderr: bool,
    log_reader: Option<Arc<dyn LogReader>>,
    limits: ToolLimits,
    /// Of the toolbox.
    memory_bytes: u64,
    confinement: Confinement,
    user_program: Option<UserProgram>,
    history: Option<Arc<dyn ToolHistory>>,
}

/// Whose program it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Started {
    Tool(Program),
    OfUser,
}

/// Where a child's stdin comes from.
#[derive(Debug, Default)]
pub enum Input {
    #[default]
    Null,
    /// From [`Running::take_stdin`].
    Pipe,
    /// From a file, or from the end of a `std::io::pipe` whose other end is another child's.
    From(OwnedFd),
}

/// Where a child's stdout goes.
#[derive(Debug, Default)]
pub enum Output {
    #[default]
    Null,
    /// Kept for [`Finished::stdout`]. A child that writes more is killed: its input made it babble.
    Capture { max_bytes: usize },
    /// FFmpeg's `-progress`, parsed; the argument is added.
    Progress,
    /// To [`Running::take_stdout`].
    Pipe,
    /// Into a file, or the end of a `std::io::pipe` whose other end is another child's.
    Into(OwnedFd),
}

/// How long, and how much. `None` is without limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolLimits {
    pub wall: Duration,
    /// Without an advance of the progress or of [`Activity`] for so long, the child is killed as stalled. Set it only
    /// where one of the two is fed.
    pub stall: Option<Duration>,
    pub cpu: Option<Duration>,
    /// The largest file the child may write.
    pub file_size_bytes: Option<u64>,
    /// Less memory than the toolbox gives each of its tools, which is bounded in any case.
    pub memory_bytes: Option<u64>,
}

impl Default for ToolLimits {
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(600),
            stall: None,
            cpu: None,
            file_size_bytes: None,
            memory_bytes: None,
        }
    }
}

impl ToolLimits {
    /// For work on that much media time: the larger of 10 minutes and 20 times it, and 60 s without an advance.
    pub fn for_media(duration: Duration) -> Self {
        let wall = Duration::from_secs(600).max(duration.saturating_mul(20));
        Self { wall, stall: Some(Duration::from_secs(60)), ..Self::default() }
    }
}

impl Toolbox {
    /// Looks the programs up in `PATH` once (ours beside this one first): children are started by absolute path, in an empty environment.
    pub fn from_path(confinement: Confinement) -> Self {
        let find = |program: Program| find_in_path(program.name());
        Self {
            ffmpeg: find(Program::Ffmpeg),
            ffprobe: find(Program::Ffprobe),
            vips: find(Program::Vips),
            vips_helper: find_beside_us(Program::VipsHelper.name()).or_else(|| find(Program::VipsHelper)),
            confinement,
            memory_bytes: TOOL_MEMORY_BYTES,
            history: None,
        }
    }

    /// Uses this file as that program.
    pub fn with(mut self, program: Program, path: impl Into<PathBuf>) -> Self {
        *self.slot(program) = Some(path.into());
        self
    }

    /// As if that program were not installed.
    pub fn without(mut self, program: Program) -> Self {
        *self.slot(program) = None;
        self
    }

    /// Gives each tool so much memory instead of [`TOOL_MEMORY_BYTES`]. A tool that wants more is refused it by the
    /// kernel, and ends as `out_of_memory`.
    pub fn with_memory_bytes(mut self, memory_bytes: u64) -> Self {
        self.memory_bytes = memory_bytes;
        self
    }

    /// Tells somebody of every program that is started with it.
    pub fn remembered_by(mut self, history: Arc<dyn ToolHistory>) -> Self {
        self.history = Some(history);
        self
    }

    pub fn has(&self, program: Program) -> bool {
        self.path(program).is_some()
    }

    pub fn path(&self, program: Program) -> Option<&Path> {
        match program {
            Program::Ffmpeg => self.ffmpeg.as_deref(),
            Program::Ffprobe => self.ffprobe.as_deref(),
            Program::Vips => self.vips.as_deref(),
            Program::VipsHelper => self.vips_helper.as_deref(),
        }
    }

    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// A command line of that program for a step, which errors will name.
    pub fn tool(&self, program: Program, step: impl Into<Cow<'static, str>>) -> Result<Tool> {
        let step = step.into();
        let Some(path) = self.path(program) else {
            return Err(MediaError::missing(
                vec![Piece::Program(program)],
                At::new(step, format!("{program} is not installed")),
            ));
        };
        Ok(self.started(Started::Tool(program), path, step).args(program.quiet_args()))
    }

    /// A command line of a program that is the user's own. It is confined as tools are, but for what `may` says; its exit
    /// code is its caller's to judge ([`Finished::exit_code`]), and lines such as `progress: 0.42` on its stderr are its
    /// progress ([`Progress::fraction`]).
    pub fn user_program(&self, path: &Path, may: UserProgram, step: impl Into<Cow<'static, str>>) -> Tool {
        Tool { user_program: Some(may), ..self.started(Started::OfUser, path, step.into()) }
    }

    fn started(&self, program: Started, path: &Path, step: Cow<'static, str>) -> Tool {
        Tool {
            program,
            path: path.to_owned(),
            step,
            args: Vec::new(),
            envs: Vec::new(),
            scratch: None,
            readable: Vec::new(),
            stdin: Input::Null,
            stdout: Output::Null,
            progress_on_stderr: false,
            log_reader: None,
            limits: ToolLimits::default(),
            memory_bytes: self.memory_bytes,
            confinement: self.confinement.clone(),
            user_program: None,
            history: self.history.clone(),
        }
    }

    fn slot(&mut self, program: Program) -> &mut Option<PathBuf> {
        match program {
            Program::Ffmpeg => &mut self.ffmpeg,
            Program::Ffprobe => &mut self.ffprobe,
            Program::Vips => &mut self.vips,
            Program::VipsHelper => &mut self.vips_helper,
        }
    }
}

/// Programs of ours are installed in one folder; Cargo puts tests and benchmarks into a folder `deps` below it.
fn find_beside_us(name: &str) -> Option<PathBuf> {
    let us = std::env::current_exe().ok()?;
    let folder = us.parent()?;
    let folder = if folder.ends_with("deps") { folder.parent()? } else { folder };
    Some(folder.join(name)).filter(|file| file.is_file())
}

fn find_in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let candidates = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    candidates.map(|folder| folder.join(name)).find(|file| file.is_file())
}

impl Program {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ffmpeg => "ffmpeg",
            Self::Ffprobe => "ffprobe",
            Self::Vips => "vips",
            Self::VipsHelper => "telecine-vips",
        }
    }

    fn quiet_args(self) -> &'static [&'static str] {
        match self {
            Self::Ffmpeg => &["-hide_banner", "-nostdin", "-nostats", "-v", "warning"],
            Self::Ffprobe => &["-hide_banner", "-v", "warning"],
            Self::Vips | Self::VipsHelper => &[],
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Started {
    /// What traces call it. A user's program is one kind of thing, whatever its step is called.
    fn span_name(self, step: &str) -> Cow<'_, str> {
        match self {
            Self::Tool(_) => format!("media.{step}").into(),
            Self::OfUser => "media.exec".into(),
        }
    }
}

impl fmt::Display for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool(program) => program.fmt(f),
            Self::OfUser => f.write_str("the program"),
        }
    }
}

impl Tool {
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Adds a variable to the otherwise empty environment.
    pub fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.envs.push((name, value.into()));
        self
    }

    /// The folder the child works in: its working directory, and the only place it may write to when confined.
    pub fn scratch(mut self, folder: impl Into<PathBuf>) -> Self {
        self.scratch = Some(folder.into());
        self
    }

    /// A file or folder outside the scratch folder that the child may read when confined.
    pub fn readable(mut self, path: impl Into<PathBuf>) -> Self {
        self.readable.push(path.into());
        self
    }

    pub fn stdin(mut self, stdin: Input) -> Self {
        self.stdin = stdin;
        self
    }

    pub fn stdout(mut self, stdout: Output) -> Self {
        self.stdout = stdout;
        self
    }

    /// FFmpeg's `-progress` among the log lines, for when stdout carries media; the argument is added.
    pub fn progress_on_stderr(mut self) -> Self {
        self.progress_on_stderr = true;
        self
    }

    /// Lets somebody read FFmpeg's log, down to what is said for information; the argument is added.
    pub(crate) fn log_reader(mut self, reader: Arc<dyn LogReader>) -> Self {
        self.log_reader = Some(reader);
        self.args(["-v", "repeat+level+info"])
    }

    pub fn limits(mut self, limits: ToolLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Starts the child. Must be called on a tokio runtime; cancelling the token kills the child's group.
    pub fn start(self, cancel: &CancellationToken) -> Result<Running> {
        running::start(self, cancel)
    }

    fn command(&self) -> Result<tokio::process::Command> {
        let environment = self.environment();
        let rules = Rules {
            parent_pid: std::process::id(),
            program: self.path.clone(),
            scratch: self.scratch.clone(),
            readable: self.readable.clone(),
            variables: environment.iter().map(|(name, _)| (*name).to_owned()).collect(),
            cpu_seconds: self.limits.cpu.map(|cpu| cpu.as_secs().max(1)),
            file_size_bytes: self.limits.file_size_bytes,
            memory_bytes: self.memory_bytes(),
            user_program: self.user_program.clone(),
        };
        let mut command = self.confinement.command(&rules, &self.step)?;
        command.args(self.all_args()).env_clear().envs(environment).process_group(0);
        command.current_dir(self.scratch.as_deref().unwrap_or(Path::new("/")));
        Ok(command)
    }

    /// As the program sees them.
    fn all_args(&self) -> impl Iterator<Item = &OsStr> {
        let progress: &[&str] = match &self.stdout {
            Output::Progress => &["-progress", "pipe:1"],
            _ if self.progress_on_stderr => &["-progress", "pipe:2"],
            _ => &[],
        };
        progress.iter().map(OsStr::new).chain(self.args.iter().map(OsString::as_os_str))
    }

    fn argv(&self) -> Vec<OsString> {
        std::iter::once(self.path.as_os_str()).chain(self.all_args()).map(OsStr::to_owned).collect()
    }

    fn memory_bytes(&self) -> u64 {
        self.limits.memory_bytes.map_or(self.memory_bytes, |bytes| bytes.min(self.memory_bytes))
    }

    fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut envs: Vec<(&'static str, OsString)> = match self.program {
            Started::Tool(_) => vec![("LC_ALL", "C".into())],
            Started::OfUser => vec![("LANG", "C.UTF-8".into())],
        };
        if let Some(scratch) = &self.scratch {
            envs.push(("HOME", scratch.into()));
            envs.push(("TMPDIR", scratch.into()));
        }
        if matches!(self.program, Started::Tool(Program::Vips | Program::VipsHelper)) {
            envs.push(("VIPS_BLOCK_UNTRUSTED", "1".into()));
        }
        envs.extend(self.envs.iter().cloned());
        envs
    }
}

impl From<Input> for Stdio {
    fn from(input: Input) -> Self {
        match input {
            Input::Null => Stdio::null(),
            Input::Pipe => Stdio::piped(),
            Input::From(fd) => fd.into(),
        }
    }
}

impl From<Output> for Stdio {
    fn from(output: Output) -> Self {
        match output {
            Output::Null => Stdio::null(),
            Output::Capture { .. } | Output::Progress | Output::Pipe => Stdio::piped(),
            Output::Into(fd) => fd.into(),
        }
    }
}
