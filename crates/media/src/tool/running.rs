//! A child under watch.

use std::borrow::Cow;
use std::future::pending;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::group::{self, Group, LeaderExit};
use super::history::{ToolEnded, ToolHistory, ToolStarted};
use super::log::{LogLine, LogParser, LogReader};
use super::progress::{Line, Progress, ProgressParser};
use super::spawn::{self, Anchor};
use super::stderr::{Tail, each_line};
use super::{Confinement, Output, Started, Tool, ToolLimits, classify};
use crate::error::{At, InputProblem, Interruption, MediaError, Result};

/// After a child's group is dead its pipes close at once, unless somebody left the group and holds them.
const PIPES_CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// A child that is being watched. Dropping it kills the child's group.
#[derive(Debug)]
pub struct Running {
    group: Group,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    progress: watch::Receiver<Progress>,
    activity: Activity,
    watcher: Option<JoinHandle<Result<Finished>>>,
    step: Cow<'static, str>,
}

/// What a child that exited with 0 left, or a user's own program that exited by itself.
#[derive(Debug, Clone, Default)]
pub struct Finished {
    /// What was asked to be captured.
    pub stdout: Vec<u8>,
    /// Warnings, mostly; empty when all was well.
    pub stderr_tail: String,
    /// Other than 0 only of a user's own program.
    pub exit_code: i32,
    pub progress: Progress,
    pub wall: Duration,
    /// Of the child alone, in steps of the kernel's clock, which are of 10 ms.
    pub cpu: Duration,
}

/// Tells the watch that a child gets on, where its own progress does not: whoever moves its bytes calls
/// [`Activity::advanced`].
#[derive(Debug, Clone)]
pub struct Activity {
    started_at: Instant,
    advanced_ms: Arc<AtomicU64>,
}

impl Running {
    /// The writing end of [`super::Input::Pipe`]. Dropping it is the child's end of file.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// The reading end of [`Output::Pipe`].
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
    }

    /// The latest progress, and a way to wait for the next.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    pub fn activity(&self) -> Activity {
        self.activity.clone()
    }

    /// Waits for the end as [`Running::finish`] does, and passes the progress on.
    pub async fn finish_watched(self, on_progress: &(dyn Fn(Progress) + Sync)) -> Result<Finished> {
        let mut progress = self.progress();
        let finish = self.finish();
        tokio::pin!(finish);
        loop {
            tokio::select! {
                biased;
                finished = &mut finish => return finished,
                changed = progress.changed() => match changed {
                    Ok(()) => on_progress(*progress.borrow_and_update()),
                    Err(_) => return finish.await,
                },
            }
        }
    }

    /// Waits for the end. Pipes that were not taken are closed.
    pub async fn finish(mut self) -> Result<Finished> {
        self.stdin = None;
        self.stdout = None;
        let Some(watcher) = self.watcher.as_mut() else {
            return Err(MediaError::unexpected(At::new(self.step.clone(), "the child has no watcher")));
        };
        let ended = watcher.await;
        self.watcher = None;
        ended.unwrap_or_else(|error| {
            Err(MediaError::unexpected(At::new(
                self.step.clone(),
                format!("the watch of a child ended: {error}"),
            )))
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(watcher) = &self.watcher {
            self.group.kill();
            watcher.abort();
        }
    }
}

impl Activity {
    fn new() -> Self {
        Self { started_at: Instant::now(), advanced_ms: Arc::default() }
    }

    pub fn advanced(&self) {
        self.advanced_ms.store(elapsed_ms(self.started_at), Ordering::Relaxed);
    }

    /// Ends when nothing has advanced for so long.
    async fn stalled(&self, patience: Option<Duration>) {
        let Some(patience) = patience else { return pending().await };
        loop {
            let advanced_at =
                self.started_at + Duration::from_millis(self.advanced_ms.load(Ordering::Relaxed));
            if advanced_at.elapsed() >= patience {
                return;
            }
            tokio::time::sleep_until((advanced_at + patience).into()).await;
        }
    }
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn start(tool: Tool, cancel: &CancellationToken) -> Result<Running> {
    if cancel.is_cancelled() {
        return Err(MediaError::Cancelled { step: tool.step });
    }
    let mut command = tool.command()?;
    let memory_bytes = tool.memory_bytes();
    let remembered = tool.history.clone().map(|history| (history, tool.argv()));
    let Tool { program, step, stdin, stdout, progress_on_stderr, log_reader, limits, confinement, .. } = tool;
    let collect = Collect::of(&stdout);
    command.stdin(stdin).stdout(stdout).stderr(std::process::Stdio::piped());
    let failed = |error: std::io::Error| {
        MediaError::io(step.clone(), format_args!("{program} cannot be started"), &error)
    };
    let (mut child, anchor) = match confinement {
        Confinement::Launcher { .. } => spawn::anchored(command),
        Confinement::None => spawn::here(command),
    }
    .map_err(failed)?;

    let leader = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or_else(|| {
        MediaError::unexpected(At::new(step.clone(), "a child that was just started has no id"))
    })?;
    let group = Group::of_leader(leader);
    // Nothing watches the child yet: if this fails, it must not stay behind.
    let exit = LeaderExit::of(leader).and_then(|exit| {
        if confinement.leaves_limits_to_parent() {
            group::limit(leader, &limits, memory_bytes)?;
        }
        Ok(exit)
    });
    let exit = exit.inspect_err(|_| group.kill()).map_err(failed)?;

    let activity = Activity::new();
    let (progress_sender, progress) = watch::channel(Progress::default());
    let reports = Reports { progress: progress_sender, activity: activity.clone() };
    let (stdin, mut stdout) = (child.stdin.take(), child.stdout.take());
    let collected = Collected::default();
    let mut readers = JoinSet::new();
    if let Some(stderr) = child.stderr.take() {
        let log = log_reader.map(|reader| Log { reader, activity: activity.clone() });
        let parser = match program {
            Started::OfUser => Some(ProgressParser::of_fractions()),
            Started::Tool(_) => progress_on_stderr.then(ProgressParser::default),
        };
        let reported = parser.map(|parser| (parser, reports.clone()));
        readers.spawn(collected.clone().read_stderr(stderr, reported, log));
    }
    match collect {
        Collect::Nothing => {}
        Collect::Progress => {
            if let Some(stdout) = stdout.take() {
                readers.spawn(read_progress(stdout, reports.clone()));
            }
        }
        Collect::Bytes { max } => {
            if let Some(stdout) = stdout.take() {
                readers.spawn(collected.clone().read_stdout(stdout, max));
            }
        }
    }

    let remembered = remembered.map(|(history, argv)| {
        let is_of_user = program == Started::OfUser;
        let number = history.started(ToolStarted { step: step.clone().into_owned(), argv, is_of_user });
        (history, number)
    });
    let watched = Watched {
        remembered,
        program,
        step: step.clone(),
        child,
        _anchor: anchor,
        exit,
        group: group.clone(),
        limits,
        cancel: cancel.clone(),
        activity: activity.clone(),
        readers,
        collected,
        progress: progress.clone(),
    };
    let name = program.span_name(&step);
    let span =
        tracing::info_span!("media.run", otel.name = %name, media.program = %program, media.step = %step);
    let watcher = tokio::spawn(watched.run().instrument(span));
    Ok(Running { group, stdin, stdout, progress, activity, watcher: Some(watcher), step })
}

/// What is done with stdout.
#[derive(Debug, Clone, Copy)]
enum Collect {
    Nothing,
    Progress,
    Bytes { max: usize },
}

impl Collect {
    fn of(output: &Output) -> Self {
        match output {
            Output::Null | Output::Pipe | Output::Into(_) => Self::Nothing,
            Output::Progress => Self::Progress,
            Output::Capture { max_bytes } => Self::Bytes { max: *max_bytes },
        }
    }
}

#[derive(Debug, Clone)]
struct Reports {
    progress: watch::Sender<Progress>,
    activity: Activity,
}

impl Reports {
    fn publish(&self, block: Progress) {
        let advanced = block.is_beyond(&self.progress.borrow());
        if advanced {
            self.activity.advanced();
        }
        self.progress.send_replace(block);
    }
}

async fn read_progress(stdout: ChildStdout, reports: Reports) {
    let mut parser = ProgressParser::default();
    each_line(stdout, |line| {
        if let Line::Block(block) = parser.line(line) {
            reports.publish(block);
        }
    })
    .await;
}

/// Somebody who reads a child's log. They are told of its end even when the reading is given up.
#[derive(Debug)]
struct Log {
    reader: Arc<dyn LogReader>,
    activity: Activity,
}

impl Log {
    /// What is to be kept of a line.
    fn take(&self, line: LogLine<'_>) -> Option<String> {
        if self.reader.line(line) {
            self.activity.advanced();
        }
        (!line.is_info).then(|| line.plain())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.reader.ended();
    }
}

/// What the readers have gathered so far.
#[derive(Debug, Clone, Default)]
struct Collected {
    tail: Arc<Mutex<Tail>>,
    stdout: Arc<Mutex<Vec<u8>>>,
    overflowed: CancellationToken,
}

impl Collected {
    async fn read_stderr(
        self,
        stderr: impl AsyncRead + Unpin,
        mut reported: Option<(ProgressParser, Reports)>,
        log: Option<Log>,
    ) {
        let mut levels = LogParser::default();
        each_line(stderr, |line| {
            let parsed = match &mut reported {
                Some((parser, _)) => parser.line(line),
                None => Line::NotProgress,
            };
            match (parsed, &reported) {
                (Line::Block(block), Some((_, reports))) => reports.publish(block),
                (Line::NotProgress, _) => match &log {
                    Some(log) => log.take(levels.line(line)).into_iter().for_each(|kept| self.keep(&kept)),
                    None => self.keep(line),
                },
                (Line::Part | Line::Block(_), _) => {}
            }
        })
        .await;
    }

    fn keep(&self, line: &str) {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    async fn read_stdout(self, stdout: ChildStdout, max_bytes: usize) {
        let mut bytes = Vec::new();
        let limit = u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1);
        let _ = stdout.take(limit).read_to_end(&mut bytes).await;
        if bytes.len() > max_bytes {
            self.overflowed.cancel();
        }
        *self.stdout.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
    }

    fn stderr_tail(&self) -> String {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).text()
    }

    fn take_stdout(&self) -> Vec<u8> {
        std::mem::take(&mut *self.stdout.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Watched {
    /// Who is told of the end, and by which number.
    remembered: Option<(Arc<dyn ToolHistory>, u64)>,
    program: Started,
    step: Cow<'static, str>,
    child: Child,
    _anchor: Anchor,
    exit: LeaderExit,
    group: Group,
    limits: ToolLimits,
    cancel: CancellationToken,
    activity: Activity,
    readers: JoinSet<()>,
    collected: Collected,
    progress: watch::Receiver<Progress>,
}

/// Why the watch is over.
#[derive(Debug)]
enum End {
    Exited,
    Cancelled,
    WallPassed,
    Stalled,
    Overflowed,
}

impl Watched {
    async fn run(mut self) -> Result<Finished> {
        let end = self.first_end().await;
        let cpu = self.child.id().map(group::cpu_of_ended).unwrap_or_default();
        self.group.kill();
        let status = self.child.wait().await;
        // Readers that do not come to an end are aborted with `self`; what they gathered is kept.
        let _ = tokio::time::timeout(PIPES_CLOSE_WITHIN, async {
            while self.readers.join_next().await.is_some() {}
        })
        .await;
        let end = if matches!(end, End::Exited) && self.collected.overflowed.is_cancelled() {
            End::Overflowed
        } else {
            end
        };
        let status = status
            .map_err(|error| MediaError::io(self.step.clone(), "the child cannot be awaited", &error))?;
        tracing::debug!(?end, %status, "ended");
        if let Some((history, number)) = &self.remembered {
            let wall = self.activity.started_at.elapsed();
            history.ended(*number, ToolEnded::of(status, self.collected.stderr_tail(), wall));
        }
        self.judge(end, status, cpu)
    }

    async fn first_end(&mut self) -> End {
        let wall_until = tokio::time::Instant::from_std(self.activity.started_at + self.limits.wall);
        tokio::select! {
            biased;
            () = self.exit.seen() => End::Exited,
            () = self.cancel.cancelled() => End::Cancelled,
            () = self.collected.overflowed.cancelled() => End::Overflowed,
            () = tokio::time::sleep_until(wall_until) => End::WallPassed,
            () = self.activity.stalled(self.limits.stall) => End::Stalled,
        }
    }

    fn judge(self, end: End, status: ExitStatus, cpu: Duration) -> Result<Finished> {
        let (stderr_tail, program, limits) = (self.collected.stderr_tail(), self.program, &self.limits);
        let stdout = self.collected.take_stdout();
        let stopped = |detail: String| At::new(self.step.clone(), detail).with_stderr(stderr_tail.clone());
        match end {
            End::Exited if status.success() || classify::is_said_by_user(program, status, &stderr_tail) => {
                Ok(Finished {
                    stdout,
                    exit_code: status.code().unwrap_or_default(),
                    progress: *self.progress.borrow(),
                    wall: self.activity.started_at.elapsed(),
                    cpu,
                    stderr_tail,
                })
            }
            End::Exited => Err(classify::failure(program, status, self.step, stderr_tail)),
            End::Cancelled => Err(MediaError::Cancelled { step: self.step }),
            End::WallPassed => Err(MediaError::interrupted(
                Interruption::TimeLimit,
                stopped(format!("{program} ran for longer than {:?}", limits.wall)),
            )),
            End::Stalled => Err(MediaError::interrupted(
                Interruption::Stalled,
                stopped(format!("{program} did not advance for {:?}", limits.stall.unwrap_or_default())),
            )),
            End::Overflowed => Err(MediaError::bad_input(
                InputProblem::Hostile,
                stopped(format!("{program} wrote more than it was allowed to")),
            )),
        }
    }
}
