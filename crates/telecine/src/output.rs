//! What reaches the terminal: data on stdout, talk on stderr, and nothing that could drive the terminal itself.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use indicatif::MultiProgress;
use serde::Serialize;
use telecine_media::MediaError;
use telecine_pipeline::Obstacle;
use telecine_queue::{AttemptOutcome, JobState, QueueError, RunState};

/// Whether a command that worked has good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    /// Not found, the wrong state, something pending: exit code 1.
    No,
    /// Something optional is missing: exit code 3.
    Partial,
    /// Somebody stopped it: exit code 130, as a shell tells of Ctrl-C.
    Interrupted,
}

/// Where a command's data goes.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
    pub(crate) colour: Colour,
}

/// A list as every `--json` prints it.
#[derive(Debug, Serialize)]
pub(crate) struct List<T, C = ()> {
    pub(crate) data: Vec<T>,
    pub(crate) next_cursor: Option<C>,
}

impl<T> List<T> {
    pub(crate) fn whole(data: Vec<T>) -> Self {
        Self { data, next_cursor: None }
    }
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, colour: Colour::of(&io::stdout()) }
    }

    pub(crate) fn print(&self, text: &str) -> Result<()> {
        let write = || {
            let mut stdout = io::stdout().lock();
            stdout.write_all(text.as_bytes())?;
            stdout.flush()
        };
        Ok(beside_bars(write)?)
    }

    pub(crate) fn print_json(&self, value: &impl Serialize) -> Result<()> {
        self.print(&(serde_json::to_string_pretty(value)? + "\n"))
    }

    /// Says why a command failed and gives its exit code.
    pub(crate) fn fail(&self, error: &anyhow::Error) -> ExitCode {
        if is_closed_pipe(error) {
            // Whoever read our output has seen enough, as `head` does.
            return ExitCode::SUCCESS;
        }
        say(format_args!("error: {}", explain(error)));
        for line in said_by_program(error) {
            say(format_args!("  | {line}"));
        }
        if let Some(next) = next_step(error) {
            say(format_args!("next: {next}"));
        }
        ExitCode::from(if is_negative(error) { 1 } else { 2 })
    }
}

/// Talks to the person at the terminal. A closed stderr must not stop the work.
pub(crate) fn say(message: impl Display) {
    let _ = writeln!(Talk, "{message}");
}

/// stderr, also while bars are drawn there: they step aside for what is to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Talk;

static BARS: Mutex<Option<MultiProgress>> = Mutex::new(None);

/// From now on bars are drawn on stderr, or no longer.
pub(crate) fn talk_beside(bars: Option<MultiProgress>) {
    *BARS.lock().unwrap_or_else(PoisonError::into_inner) = bars;
}

fn beside_bars<T>(write: impl FnOnce() -> T) -> T {
    let bars = BARS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bars {
        Some(bars) => bars.suspend(write),
        None => write(),
    }
}

impl Write for Talk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let bars = BARS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match bars {
            Some(bars) => bars.println(String::from_utf8_lossy(bytes).trim_end_matches('\n')),
            None => io::stderr().write_all(bytes),
        }
    }

    /// A message is one write: bars must not come between its parts.
    fn write_fmt(&mut self, message: std::fmt::Arguments<'_>) -> io::Result<()> {
        self.write_all(message.to_string().as_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Whether to paint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    On,
    Off,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Paint {
    Green,
    Red,
    Yellow,
    Cyan,
    Dim,
    Bold,
}

impl Colour {
    pub(crate) fn of(stream: &impl IsTerminal) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        if wanted && stream.is_terminal() { Self::On } else { Self::Off }
    }

    pub(crate) fn paint(self, paint: Paint, text: &str) -> String {
        let code = match paint {
            Paint::Green => 32,
            Paint::Red => 31,
            Paint::Yellow => 33,
            Paint::Cyan => 36,
            Paint::Dim => 2,
            Paint::Bold => 1,
        };
        match self {
            Self::On => format!("\x1b[{code}m{text}\x1b[0m"),
            Self::Off => text.to_owned(),
        }
    }
}

impl From<JobState> for Paint {
    fn from(state: JobState) -> Self {
        match state {
            JobState::Completed => Self::Green,
            JobState::Failed => Self::Red,
            JobState::Running => Self::Cyan,
            JobState::Scheduled | JobState::Parked | JobState::Waiting => Self::Yellow,
            JobState::Cancelled | JobState::Skipped => Self::Dim,
            JobState::Pending => Self::Bold,
        }
    }
}

impl From<RunState> for Paint {
    fn from(state: RunState) -> Self {
        match state {
            RunState::Succeeded => Self::Green,
            RunState::Partial => Self::Yellow,
            RunState::Failed | RunState::Cancelled => Self::Red,
            RunState::Queued | RunState::Running => Self::Cyan,
        }
    }
}

impl From<AttemptOutcome> for Paint {
    fn from(outcome: AttemptOutcome) -> Self {
        match outcome {
            AttemptOutcome::Completed => Self::Green,
            AttemptOutcome::Failed
            | AttemptOutcome::Lost
            | AttemptOutcome::Stranded
            | AttemptOutcome::Overdue => Self::Red,
            AttemptOutcome::Snoozed | AttemptOutcome::Released => Self::Yellow,
            AttemptOutcome::Cancelled => Self::Dim,
        }
    }
}

/// Text from a job made harmless: control characters, and those that turn the reading direction, are spelled out.
pub(crate) fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || turns {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The error with its causes on one line, harmless, line breaks of our own kept.
fn explain(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.lines().map(harmless).collect::<Vec<_>>().join("\n")
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

fn queue_error(error: &anyhow::Error) -> Option<&QueueError> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

/// An obstacle to a step is transparent: its own cause is what the chain shows, not the error that it is.
fn media_error(error: &anyhow::Error) -> Option<&MediaError> {
    error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(Obstacle::Media(error)) => Some(error),
        Some(Obstacle::NoProgram(_)) => None,
        None => cause.downcast_ref(),
    })
}

/// How much of what a failed program said is shown.
const SAID_LINES: usize = 8;

/// The last lines that a failed program wrote to its stderr. They may quote the input.
fn said_by_program(error: &anyhow::Error) -> Vec<String> {
    last_lines(media_error(error).map_or("", MediaError::stderr_tail), SAID_LINES)
}

/// The end of what a program said, made harmless.
pub(crate) fn last_lines(text: &str, most: usize) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(most)..].iter().copied().map(harmless).collect()
}

/// Whether the question was fine and the answer is no.
pub(crate) fn is_negative(error: &anyhow::Error) -> bool {
    if matches!(media_error(error), Some(MediaError::BadInput { .. })) {
        return true;
    }
    matches!(
        queue_error(error),
        Some(
            QueueError::NotFound(_)
                | QueueError::NoSuchRun(_)
                | QueueError::WrongState { .. }
                | QueueError::WrongRunState { .. }
                | QueueError::Stale { .. }
        )
    )
}

fn next_step(error: &anyhow::Error) -> Option<String> {
    if let Some(error) = media_error(error) {
        return Some(error.hint().into());
    }
    Some(match queue_error(error)? {
        QueueError::Unavailable { .. } => {
            "check that the database is up and that the URL is right (`telecine config show`), then try again"
                .into()
        }
        QueueError::Full { .. } => "free some space on the database's disk, then try again".into(),
        QueueError::KeyReused { .. } => {
            "use another --idempotency-key, or the content it was first used with".into()
        }
        QueueError::NoSuchRun(_) => "check the id: it starts with `run_`".into(),
        QueueError::Stale { .. } => "read the record again, then decide anew".into(),
        QueueError::NotFound(_) => "see which jobs there are: `telecine jobs ls`".into(),
        QueueError::WrongState { id, .. } => format!("look at it: `telecine jobs show {id}`"),
        QueueError::WorkerGone => "start the worker again".into(),
        QueueError::Unexpected { .. } => {
            "run the command again with `--log debug` and report what it says".into()
        }
        // These say their next step themselves.
        QueueError::Invalid { .. }
        | QueueError::WrongRunState { .. }
        | QueueError::Unsuitable { .. }
        | QueueError::Schema { .. } => {
            return None;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_a_job_cannot_drive_the_terminal() {
        assert_eq!(harmless("a\x1b[2Jb\u{9b}c\r\n\u{202e}d é"), "a\\u{1b}[2Jb\\u{9b}c\\r\\n\\u{202e}d é");
    }
}
