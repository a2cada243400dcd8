//! The one way a program is started. `sh` stands in for FFmpeg where FFmpeg would have to misbehave.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process};
use telecine_media::{
    Confinement, Finished, Input, MediaError, Output, Program, Running, Tool, ToolLimits, Toolbox,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio_util::sync::CancellationToken;

use crate::clips::{self, VIDEO};

/// How long a condition may take on a busy machine before a test fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// The program is `vips` because its command line gets no arguments of ours.
fn sh(script: &str) -> Tool {
    let toolbox = Toolbox::from_path(Confinement::None).with(Program::Vips, "/bin/sh");
    toolbox.tool(Program::Vips, "test").unwrap().args(["-c", script])
}

async fn run(tool: Tool) -> Result<Finished, MediaError> {
    tool.start(&CancellationToken::new()).unwrap().finish().await
}

/// Starts a shell with a grandchild, and gives the ids of both.
async fn family(cancel: &CancellationToken, limits: ToolLimits) -> (Running, [Pid; 2]) {
    let tool = sh("sleep 1000 & echo $$ $!; wait").stdout(Output::Pipe).limits(limits);
    let mut running = tool.start(cancel).unwrap();
    let mut line = String::new();
    BufReader::new(running.take_stdout().unwrap()).read_line(&mut line).await.unwrap();
    let ids: Vec<Pid> =
        line.split_whitespace().map(|id| Pid::from_raw(id.parse().unwrap()).unwrap()).collect();
    (running, [ids[0], ids[1]])
}

/// Gone, or a zombie that only waits for its parent: not running in any case.
async fn until_dead(pids: &[Pid]) {
    let is_dead = |pid: &Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        test_kill_process(*pid).is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
    };
    let deadline = Instant::now() + PATIENCE;
    while !pids.iter().all(is_dead) {
        assert!(Instant::now() < deadline, "{pids:?} live on");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn cancelling_kills_the_whole_group() {
    let cancel = CancellationToken::new();
    let (running, pids) = family(&cancel, ToolLimits::default()).await;

    cancel.cancel();
    let error = running.finish().await.unwrap_err();

    assert_eq!((error.code(), error.is_retryable()), ("cancelled", false));
    until_dead(&pids).await;
}

#[tokio::test]
async fn dropping_kills_the_whole_group() {
    let (running, pids) = family(&CancellationToken::new(), ToolLimits::default()).await;

    drop(running);

    until_dead(&pids).await;
}

#[tokio::test]
async fn dropping_a_wait_kills_the_whole_group() {
    let (running, pids) = family(&CancellationToken::new(), ToolLimits::default()).await;

    let waited = tokio::time::timeout(Duration::from_millis(1), running.finish()).await;

    assert!(waited.is_err());
    until_dead(&pids).await;
}

#[tokio::test]
async fn a_child_that_leaves_children_behind_takes_them_with_it() {
    let tool = sh("sleep 1000 & echo $!").stdout(Output::Capture { max_bytes: 100 });

    let finished = run(tool).await.unwrap();

    let pid = String::from_utf8(finished.stdout).unwrap().trim().parse().unwrap();
    until_dead(&[Pid::from_raw(pid).unwrap()]).await;
}

#[tokio::test]
async fn a_cancelled_token_starts_nothing() {
    let cancel = CancellationToken::new();
    cancel.cancel();

    assert_eq!(sh("true").start(&cancel).unwrap_err().code(), "cancelled");
}

#[tokio::test]
async fn the_wall_limit_kills_the_whole_group() {
    let limits = ToolLimits { wall: Duration::from_millis(300), ..ToolLimits::default() };
    let (running, pids) = family(&CancellationToken::new(), limits).await;

    let error = running.finish().await.unwrap_err();

    assert_eq!((error.code(), error.is_retryable()), ("time_limit", true));
    until_dead(&pids).await;
}

#[tokio::test]
async fn progress_that_stands_still_is_a_stall() {
    let script = "while :; do echo frame=7; echo progress=continue; sleep 0.05; done";
    let limits = ToolLimits { stall: Some(Duration::from_millis(500)), ..ToolLimits::default() };
    // A launcher that never becomes FFmpeg, so that the arguments for FFmpeg reach nobody.
    let confinement =
        Confinement::Launcher { program: "/bin/sh".into(), args: ["-c", script].map(Into::into).into() };
    let tool = Toolbox::from_path(confinement).tool(Program::Ffmpeg, "test").unwrap();

    let error = run(tool.stdout(Output::Progress).limits(limits)).await.unwrap_err();

    assert_eq!((error.code(), error.is_retryable(), error.step()), ("stalled", true, "test"));
}

#[tokio::test]
async fn activity_that_is_reported_is_no_stall() {
    let limits = ToolLimits { stall: Some(Duration::from_secs(5)), ..ToolLimits::default() };
    let mut running = sh("cat").stdin(Input::Pipe).limits(limits).start(&CancellationToken::new()).unwrap();
    let (stdin, activity) = (running.take_stdin().unwrap(), running.activity());

    let feed = async {
        let started_at = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        while started_at.elapsed() < Duration::from_secs(6) {
            ticks.tick().await;
            activity.advanced();
        }
        drop(stdin);
    };
    let (finished, ()) = tokio::join!(running.finish(), feed);

    assert!(finished.unwrap().wall >= Duration::from_secs(5));
}

#[tokio::test]
async fn the_last_lines_of_stderr_come_with_the_error() {
    let script = "i=0; while [ $i -lt 5000 ]; do echo line $i >&2; i=$((i+1)); done; exit 3";

    let error = run(sh(script)).await.unwrap_err();

    assert_eq!((error.code(), error.is_retryable()), ("tool_failed", true));
    assert!(error.stderr_tail().ends_with("line 4998\nline 4999\n"), "{}", error.stderr_tail());
    assert!(error.stderr_tail().len() < 4096);
}

#[tokio::test]
async fn a_child_that_babbles_is_stopped() {
    let tool =
        sh("while :; do echo aaaaaaaaaaaaaaaaaaaaaaaa; done").stdout(Output::Capture { max_bytes: 10_000 });

    assert_eq!(run(tool).await.unwrap_err().code(), "input_hostile");
}

#[tokio::test]
async fn how_a_child_died_decides_whether_it_is_tried_again() {
    for (script, code, retryable) in [
        ("kill -9 $$", "killed", true),
        ("kill -SEGV $$", "tool_crashed", true),
        ("echo 'x.mp4: No space left on device' >&2; exit 1", "disk_full", true),
        ("echo 'Invalid data found when processing input' >&2; exit 1", "input_corrupt", false),
    ] {
        let error = run(sh(script)).await.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), (code, retryable), "{script}");
    }
}

#[tokio::test]
async fn resource_limits_hold() {
    let folder = tempfile::tempdir().unwrap();
    // The first line is read only after the limits are set.
    let limited = |script: &str, limits: ToolLimits| {
        let tool = sh(&format!("read go; {script}")).stdin(Input::Pipe).scratch(folder.path()).limits(limits);
        let mut running = tool.start(&CancellationToken::new()).unwrap();
        let mut stdin = running.take_stdin().unwrap();
        async move {
            stdin.write_all(b"go\n").await.unwrap();
            running.finish().await.unwrap_err()
        }
    };

    let large = limited(
        "exec head -c 100000 /dev/zero > large",
        ToolLimits { file_size_bytes: Some(5000), ..ToolLimits::default() },
    );
    assert_eq!(large.await.code(), "input_too_large");
    assert!(std::fs::metadata(folder.path().join("large")).unwrap().len() <= 5000);

    let busy = limited(
        "while :; do :; done",
        ToolLimits { cpu: Some(Duration::from_secs(1)), ..ToolLimits::default() },
    );
    assert_eq!(busy.await.code(), "time_limit");
}

#[tokio::test]
async fn a_child_sees_an_empty_environment_and_its_scratch_folder() {
    let folder = tempfile::tempdir().unwrap();
    let tool =
        sh("env; pwd").env("TZ", "UTC").scratch(folder.path()).stdout(Output::Capture { max_bytes: 10_000 });

    let text = String::from_utf8(run(tool).await.unwrap().stdout).unwrap();

    assert!(text.ends_with(&format!("{}\n", folder.path().display())), "{text}");
    let names: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let allowed = ["LC_ALL", "HOME", "TMPDIR", "VIPS_BLOCK_UNTRUSTED", "TZ", "PWD", "OLDPWD", "SHLVL", "_"];
    assert!(names.iter().all(|name| allowed.contains(name)), "{names:?}");
}

#[tokio::test]
async fn ffmpeg_tells_its_progress_in_typed_values() {
    let folder = tempfile::tempdir().unwrap();
    let tool = clips::toolbox().tool(Program::Ffmpeg, "encode").unwrap();
    let tool =
        tool.args(VIDEO).args(["-c:v", "mpeg4", "out.mp4"]).scratch(folder.path()).stdout(Output::Progress);

    let finished = run(tool).await.unwrap();

    assert_eq!((finished.progress.frame, finished.progress.ended), (50, true));
    assert_eq!(finished.progress.total_size, std::fs::metadata(folder.path().join("out.mp4")).unwrap().len());
    assert!(finished.progress.out_time_us > 1_900_000, "{:?}", finished.progress);
    assert_eq!(finished.stderr_tail, "");
}

/// Raw frames from one child to another without passing through this process, with progress beside them.
#[tokio::test]
async fn children_can_be_joined_by_a_pipe() {
    let (reader, writer) = std::io::pipe().unwrap();
    let cancel = CancellationToken::new();
    let toolbox = clips::toolbox();
    let decode = toolbox
        .tool(Program::Ffmpeg, "decode")
        .unwrap()
        .args(VIDEO)
        .args(["-f", "rawvideo", "-pix_fmt", "yuv420p", "pipe:1"])
        .stdout(Output::Into(writer.into()))
        .progress_on_stderr()
        .start(&cancel)
        .unwrap();
    let mut count = toolbox
        .tool(Program::Ffmpeg, "count")
        .unwrap()
        .args(["-f", "rawvideo", "-video_size", "320x180", "-pix_fmt", "yuv420p", "-i", "pipe:0"])
        .args(["-f", "rawvideo", "pipe:1"])
        .stdin(Input::From(reader.into()))
        .stdout(Output::Pipe)
        .progress_on_stderr()
        .start(&cancel)
        .unwrap();

    let mut bytes = Vec::new();
    let read = count.take_stdout().unwrap().read_to_end(&mut bytes).await.unwrap();
    let (decoded, counted) = tokio::try_join!(decode.finish(), count.finish()).unwrap();

    assert_eq!(read, 50 * 320 * 180 * 3 / 2);
    assert_eq!((decoded.progress.frame, counted.progress.frame), (50, 50));
    assert_eq!((decoded.stderr_tail, counted.stderr_tail), (String::new(), String::new()));
}

#[tokio::test]
async fn a_launcher_is_given_the_rules_and_then_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"printf '%s\n' "$1" > rules.json; [ "$2" = -- ] || exit 9; shift 2; exec "$@""#;
    let confinement = Confinement::Launcher {
        program: "/bin/sh".into(),
        args: ["-c", script, "launcher"].map(Into::into).into(),
    };
    let toolbox = Toolbox::from_path(confinement).with(Program::Vips, "/bin/echo");
    let tool = toolbox.tool(Program::Vips, "test").unwrap().args(["hello", "there"]).scratch(folder.path());
    let tool = tool
        .readable("/srv/in.mp4")
        .stdout(Output::Capture { max_bytes: 100 })
        .limits(ToolLimits { file_size_bytes: Some(7), ..ToolLimits::default() });

    let finished = run(tool).await.unwrap();

    assert_eq!(finished.stdout, b"hello there\n");
    let rules: telecine_media::Rules =
        serde_json::from_slice(&std::fs::read(folder.path().join("rules.json")).unwrap()).unwrap();
    assert_eq!(
        (rules.program.as_path(), rules.scratch.as_deref()),
        (Path::new("/bin/echo"), Some(folder.path()))
    );
    assert_eq!((rules.readable, rules.file_size_bytes), (vec!["/srv/in.mp4".into()], Some(7)));
}
