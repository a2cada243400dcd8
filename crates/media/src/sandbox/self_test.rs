//! Whether the sandbox holds on this machine: a confined child tries to get out.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::process::{getppid, test_kill_process};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::ATTEMPT;
use crate::error::{At, MediaError, Result};
use crate::tool::{Confinement, Output, Program, ToolLimits, Toolbox};

const STEP: &str = "sandbox self-test";
const CANARY: &str = "canary";

/// What the child tried, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SelfTest {
    pub attempts: Vec<Attempt>,
}

/// One way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub name: String,
    /// Whether the way is closed.
    pub refused: bool,
    /// The error the child saw.
    pub seen: String,
}

impl SelfTest {
    pub fn holds(&self) -> bool {
        !self.attempts.is_empty() && self.attempts.iter().all(|attempt| attempt.refused)
    }
}

/// Starts `binary`, which must call [`attempt_escapes`] when its first argument is [`ATTEMPT`], confined to an empty
/// folder beside a canary and a listening socket.
pub async fn self_test(
    confinement: Confinement,
    binary: &Path,
    folder: &Path,
    cancel: &CancellationToken,
) -> Result<SelfTest> {
    let failed = |error: std::io::Error| MediaError::io(STEP, "it cannot be prepared", &error);
    let scratch = folder.join("scratch");
    std::fs::create_dir(&scratch).map_err(failed)?;
    std::fs::write(folder.join(CANARY), "not for tools").map_err(failed)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();

    // Vips, because its command line gets no arguments of ours.
    let tool = Toolbox::from_path(confinement)
        .with(Program::Vips, binary)
        .tool(Program::Vips, STEP)?
        .arg(ATTEMPT)
        .arg(folder)
        .arg(port.to_string())
        .scratch(scratch)
        .stdout(Output::Capture { max_bytes: 64 << 10 })
        .limits(ToolLimits { wall: Duration::from_secs(60), ..ToolLimits::default() });
    let finished = tool.start(cancel)?.finish().await?;
    let mut attempts: Vec<Attempt> = serde_json::from_slice(&finished.stdout).map_err(|error| {
        MediaError::unexpected(At::new(STEP, format!("the child's report is not as known: {error}")))
    })?;
    // What the child says is checked where this side can see it.
    if listener.accept().is_ok() {
        attempts.push(Attempt { name: "reach a listener".into(), refused: false, seen: "a visit".into() });
    }
    Ok(SelfTest { attempts })
}

/// The child's side: `FOLDER PORT`. Prints what came of each attempt.
pub fn attempt_escapes(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let (Some(folder), Some(port)) = (arguments.next(), arguments.next()) else {
        return ExitCode::FAILURE;
    };
    let folder = PathBuf::from(folder);
    let port = port.to_str().and_then(|port| port.parse().ok()).unwrap_or(0);
    let attempts = [
        attempt("read a file outside", std::fs::read(folder.join(CANARY))),
        attempt("write a file outside", std::fs::write(folder.join("left"), "here")),
        attempt("list a folder outside", std::fs::read_dir(&folder)),
        attempt("connect over TCP", TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))),
        attempt("start a process", Command::new("/bin/true").status()),
        attempt("signal its parent", signal_parent()),
    ];
    let Ok(report) = serde_json::to_vec(&attempts) else { return ExitCode::FAILURE };
    match std::io::stdout().write_all(&report) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn signal_parent() -> std::io::Result<()> {
    let parent = getppid().ok_or_else(|| std::io::Error::other("it has no parent"))?;
    Ok(test_kill_process(parent)?)
}

fn attempt<T>(name: &str, outcome: std::io::Result<T>) -> Attempt {
    let seen = outcome.as_ref().err().map_or_else(|| "it worked".into(), ToString::to_string);
    Attempt { name: name.into(), refused: outcome.is_err(), seen }
}
