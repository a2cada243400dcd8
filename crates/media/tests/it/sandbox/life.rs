//! How a confined child lives and dies.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use telecine_media::{Confinement, Input, Output, Program, Running, Toolbox, sandbox};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_util::sync::CancellationToken;

use super::escape::hostile;
use super::{TESTBED, toolbox};

/// How long a condition may take on a busy machine before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether a process runs: it is there, and not a zombie that only waits for its parent.
fn runs(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// The children of a process that have become the program of that name.
fn children(parent: u32, program: &str) -> Vec<u32> {
    let is_child = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let executes = fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with(program));
        executes && status.lines().any(|line| line == format!("PPid:\t{parent}"))
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}

fn until<T>(what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = seen() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::yield_now();
    }
}

/// Starts a child that stays whatever happens, and says when it is there.
async fn staying(scratch: &Path, cancel: &CancellationToken) -> (Running, u32) {
    let tool = hostile("stay", "", scratch).stdin(Input::Null).stdout(Output::Pipe);
    let mut running = tool.start(cancel).unwrap();
    let mut line = String::new();
    BufReader::new(running.take_stdout().unwrap()).read_line(&mut line).await.unwrap();
    assert_eq!(line, "here\n");
    let scratch = fs::canonicalize(scratch).unwrap();
    let at_work = |pid: &u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == scratch);
    let name = Path::new(TESTBED).file_name().unwrap().to_str().unwrap();
    let pid = children(std::process::id(), name).into_iter().find(at_work).unwrap();
    (running, pid)
}

#[tokio::test]
async fn a_child_that_ignores_signals_is_gone_when_cancelled() {
    let (scratch, cancel) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let (running, pid) = staying(scratch.path(), &cancel).await;

    cancel.cancel();
    let error = running.finish().await.unwrap_err();

    assert_eq!(error.code(), "cancelled");
    until("the child's end", || (!runs(pid)).then_some(()));
}

#[tokio::test]
async fn a_child_has_no_rights_as_seen_from_outside() {
    let (scratch, cancel) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let (running, pid) = staying(scratch.path(), &cancel).await;

    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let fact = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        line.unwrap_or_default().trim().to_owned()
    };
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let dac_read_search = 1 << 2;
    let capabilities = u64::from_str_radix(&fact("CapPrm"), 16).unwrap();

    assert_eq!((fact("NoNewPrivs").as_str(), fact("Seccomp").as_str()), ("1", "2"));
    assert_eq!(capabilities & !dac_read_search, 0, "{capabilities:x}");
    assert_eq!(fact("CapEff"), fact("CapPrm"));
    assert_eq!(fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim(), "500");
    assert_eq!(fact("Umask"), "0077");
    assert_eq!(files.split_whitespace().collect::<Vec<_>>()[3..5], ["512", "512"]);
    assert!(limits.lines().any(|line| line.starts_with("Max core file size        0 ")), "{limits}");
    drop(running);
    until("the child's end", || (!runs(pid)).then_some(()));
}

/// The threads of a runtime come and go; the child must not go with the one that happened to start it.
#[test]
fn a_child_outlives_the_thread_that_asked_for_it() {
    let scratch = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    let path = scratch.path().to_owned();

    let asking = std::thread::spawn(move || {
        let _entered = handle.enter();
        let tool = hostile("wait, then write inside", "", &path).stdout(Output::Capture { max_bytes: 100 });
        // It waits for the end of its stdin, which comes after the end of this thread.
        tool.stdin(Input::Pipe).start(&CancellationToken::new()).unwrap()
    });
    let running = asking.join().unwrap();
    let finished = runtime.block_on(running.finish()).unwrap();

    assert_eq!(finished.stdout, b"open");
}

#[test]
fn no_child_is_left_two_seconds_after_its_parent_was_killed() {
    let scratch = tempfile::tempdir().unwrap();
    let mut parent = Command::new(TESTBED)
        .arg("parent")
        .arg(scratch.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let output = scratch.path().join("long.mkv");
    let encoder = until("the encode", || {
        assert!(parent.try_wait().unwrap().is_none(), "the parent ended by itself");
        let encoder = children(parent.id(), "ffmpeg").first().copied()?;
        output.exists().then_some(encoder)
    });

    parent.kill().unwrap();
    parent.wait().unwrap();
    let killed_at = Instant::now();
    until("the encoder's end", || (!runs(encoder)).then_some(()));
    let survived = killed_at.elapsed();

    assert!(survived < Duration::from_secs(2), "{survived:?}");
}

#[tokio::test]
async fn a_launcher_whose_parent_is_gone_starts_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    // The shell stands between: the launcher's parent is not who started it.
    let script = format!(r#""$0" {} "$@"; exit $?"#, sandbox::LAUNCH);
    let between = Confinement::Launcher {
        program: "/bin/sh".into(),
        args: ["-c", &script, TESTBED].map(Into::into).into(),
    };
    let tool = Toolbox::from_path(between).with(Program::Vips, TESTBED).tool(Program::Vips, "test").unwrap();

    let tool = tool.args(["escape", "write inside"]).scratch(scratch.path());
    let error = tool.start(&CancellationToken::new()).unwrap().finish().await.unwrap_err();

    assert!(error.stderr_tail().contains("which started it, is gone"), "{error} {}", error.stderr_tail());
    assert_eq!((error.code(), error.is_retryable()), ("io_failed", true));
}

#[tokio::test]
async fn what_cannot_be_started_is_told_apart_from_bad_input() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("tool");
    fs::write(&script, "#!/bin/sh\nexit 0\n").unwrap();
    let said = async |path: &Path| {
        let tool = toolbox().with(Program::Vips, path).tool(Program::Vips, "test").unwrap();
        let error = tool.start(&CancellationToken::new()).unwrap().finish().await.unwrap_err();
        (error.code(), error.stderr_tail().to_owned())
    };

    let (script_code, script_said) = said(&script).await;
    let (absent_code, absent_said) = said(&folder.path().join("absent")).await;

    assert_eq!((script_code, absent_code), ("io_failed", "io_failed"));
    assert!(script_said.contains("is a script"), "{script_said}");
    assert!(absent_said.contains("cannot be opened"), "{absent_said}");
}

#[tokio::test]
async fn a_kernel_that_cannot_confine_is_a_missing_capability_and_starts_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    for (feature, says) in [("landlock", "Linux 5.13"), ("seccomp", "CONFIG_SECCOMP_FILTER")] {
        let poor = Confinement::Launcher {
            program: TESTBED.into(),
            args: ["launch-without", feature].map(Into::into).into(),
        };
        let tool = Toolbox::from_path(poor).with(Program::Vips, TESTBED).tool(Program::Vips, "test").unwrap();

        let tool = tool.args(["escape", "wait, then write inside"]).scratch(scratch.path());
        let error = tool.start(&CancellationToken::new()).unwrap().finish().await.unwrap_err();

        assert_eq!((error.code(), error.is_retryable()), ("capability_missing", false), "{error}");
        assert!(error.to_string().contains(&format!("the kernel's {feature}")), "{error}");
        assert!(error.hint().contains(says) && error.hint().contains("--no-sandbox"), "{}", error.hint());
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}
