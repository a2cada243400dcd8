//! What can go wrong, grouped by what the caller can do about it.

use std::borrow::Cow;
use std::fmt;

use crate::capability::Piece;

pub type Result<T, E = MediaError> = std::result::Result<T, E>;

/// Every way that work on media can fail.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    /// Give up on this input and tell its owner: it fails in the same way each time.
    #[error("{at}: {problem}")]
    BadInput { problem: InputProblem, at: Box<At> },

    /// Try again, here or on another machine: the input is not to blame as far as can be seen.
    #[error("{at}: {cause}")]
    Interrupted { cause: Interruption, at: Box<At> },

    /// Install the pieces, or ask for something else.
    #[error("{at}: missing {}", names(pieces))]
    Missing { pieces: Vec<Piece>, at: Box<At> },

    /// Change the recipe: no input can satisfy it.
    #[error("recipe: {field}: {reason}")]
    BadRecipe { field: Cow<'static, str>, reason: String },

    /// Nothing: the caller asked for it.
    #[error("{step}: cancelled")]
    Cancelled { step: Cow<'static, str> },

    /// A bug of ours, or a program that behaves unlike any version we know.
    #[error("{at}: unexpected")]
    Unexpected { at: Box<At> },
}

/// Where a failure happened and what was seen there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// The step in the caller's words: `probe`, `encode_range`, …
    pub step: Cow<'static, str>,
    /// What was seen, in one line.
    pub detail: String,
    /// The last lines a program wrote to stderr; empty when none ran. Untrusted: it may quote the input.
    pub stderr_tail: String,
}

/// Why an input can never be processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InputProblem {
    /// There are no bytes.
    Empty,
    /// The content is of no type we know.
    Unrecognised,
    /// The type, the codec or its form is known, and not accepted.
    Unsupported,
    /// The file ends before its own structure says it does.
    Truncated,
    /// The content breaks the rules of its own type.
    Corrupt,
    /// More bytes, pixels, frames a second or output than the limits allow.
    TooLarge,
    /// It plays longer than the limits allow.
    TooLong,
    /// More streams than the limits allow.
    TooManyStreams,
    /// No stream of the kind that was asked for.
    NoSuchStream,
    /// It tries to make a program read other files or reach the network.
    Hostile,
}

/// Why an attempt ended that may go better next time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Interruption {
    /// Somebody else ended the program: the kernel for want of memory, or an administrator.
    Killed,
    OutOfMemory,
    /// It ran on without getting anywhere.
    Stalled,
    /// It passed its wall-clock or CPU limit.
    TimeLimit,
    DiskFull,
    /// It died of its own fault (a segmentation fault, an abort).
    Crashed,
    /// It said that it failed, in words we do not know.
    Failed,
    /// A file could not be read or written, or a program not be started.
    Io,
}

impl MediaError {
    pub(crate) fn bad_input(problem: InputProblem, at: At) -> Self {
        Self::BadInput { problem, at: Box::new(at) }
    }

    pub(crate) fn interrupted(cause: Interruption, at: At) -> Self {
        Self::Interrupted { cause, at: Box::new(at) }
    }

    pub(crate) fn missing(pieces: Vec<Piece>, at: At) -> Self {
        Self::Missing { pieces, at: Box::new(at) }
    }

    pub(crate) fn unexpected(at: At) -> Self {
        Self::Unexpected { at: Box::new(at) }
    }

    /// A failed read or write of ours: a full disk is told apart, because freeing space mends it.
    pub(crate) fn io(
        step: impl Into<Cow<'static, str>>,
        what: impl fmt::Display,
        error: &std::io::Error,
    ) -> Self {
        use std::io::ErrorKind::{OutOfMemory, QuotaExceeded, StorageFull};
        let cause = match error.kind() {
            StorageFull | QuotaExceeded => Interruption::DiskFull,
            OutOfMemory => Interruption::OutOfMemory,
            _ => Interruption::Io,
        };
        Self::interrupted(cause, At::new(step, format!("{what}: {error}")))
    }

    /// A stable word for APIs, logs and tests.
    pub fn code(&self) -> &'static str {
        match self {
            Self::BadInput { problem, .. } => problem.code(),
            Self::Interrupted { cause, .. } => cause.code(),
            Self::Missing { .. } => "capability_missing",
            Self::BadRecipe { .. } => "recipe_invalid",
            Self::Cancelled { .. } => "cancelled",
            Self::Unexpected { .. } => "unexpected",
        }
    }

    /// Whether the same work on the same input may succeed next time.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Interrupted { .. })
    }

    /// What to do next, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::BadInput { problem, .. } => problem.hint(),
            Self::Interrupted { cause, .. } => cause.hint(),
            Self::Missing { pieces, .. } => match pieces.as_slice() {
                [Piece::Kernel(feature)] => feature.next_step(),
                _ => "install the missing pieces, or choose another codec or output",
            },
            Self::BadRecipe { .. } => "correct the recipe",
            Self::Cancelled { .. } => "nothing is wrong; submit it again if it is wanted after all",
            Self::Unexpected { .. } => "report it with what the program said and the programs' versions",
        }
    }

    pub fn step(&self) -> &str {
        match self {
            Self::BadRecipe { .. } => "recipe",
            Self::Cancelled { step } => step,
            Self::BadInput { at, .. }
            | Self::Interrupted { at, .. }
            | Self::Missing { at, .. }
            | Self::Unexpected { at } => &at.step,
        }
    }

    /// The last lines that the failed program wrote to stderr; empty when there are none.
    pub fn stderr_tail(&self) -> &str {
        match self {
            Self::BadRecipe { .. } | Self::Cancelled { .. } => "",
            Self::BadInput { at, .. }
            | Self::Interrupted { at, .. }
            | Self::Missing { at, .. }
            | Self::Unexpected { at } => &at.stderr_tail,
        }
    }
}

impl At {
    pub(crate) fn new(step: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Self {
        Self { step: step.into(), detail: detail.into(), stderr_tail: String::new() }
    }

    pub(crate) fn with_stderr(mut self, stderr_tail: impl Into<String>) -> Self {
        self.stderr_tail = stderr_tail.into();
        self
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.detail)
    }
}

impl InputProblem {
    pub fn code(self) -> &'static str {
        match self {
            Self::Empty => "input_empty",
            Self::Unrecognised => "input_unrecognised",
            Self::Unsupported => "input_unsupported",
            Self::Truncated => "input_truncated",
            Self::Corrupt => "input_corrupt",
            Self::TooLarge => "input_too_large",
            Self::TooLong => "input_too_long",
            Self::TooManyStreams => "input_too_many_streams",
            Self::NoSuchStream => "input_no_such_stream",
            Self::Hostile => "input_hostile",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Empty => "upload the file again: nothing of it arrived",
            Self::Unrecognised => "upload a video, a sound or a picture in a common format",
            Self::Unsupported => "convert it to a common format such as MP4, MP3 or JPEG first",
            Self::Truncated => "upload the file again: its end is missing",
            Self::Corrupt => "check that the file plays where it comes from, and export it again",
            Self::TooLarge => "make it smaller, or raise the limit",
            Self::TooLong => "cut it shorter, or raise the limit",
            Self::TooManyStreams => "remove streams that are not needed, or raise the limit",
            Self::NoSuchStream => "ask for outputs that this input can give",
            Self::Hostile => "do not process this file: it names other files or addresses",
        }
    }
}

impl Interruption {
    pub fn code(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::OutOfMemory => "out_of_memory",
            Self::Stalled => "stalled",
            Self::TimeLimit => "time_limit",
            Self::DiskFull => "disk_full",
            Self::Crashed => "tool_crashed",
            Self::Failed => "tool_failed",
            Self::Io => "io_failed",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Killed => "look for the kernel's out-of-memory killer in the system log; use fewer slots",
            Self::OutOfMemory => "give each tool more memory, use fewer slots, or a machine with more of it",
            Self::Stalled => "see what the program said last; the storage may hang",
            Self::TimeLimit => "the machine may be overloaded; use fewer slots or raise the limit",
            Self::DiskFull => "free some space in the scratch folder",
            Self::Crashed => "if it happens again, report it to the program's makers with the input",
            Self::Failed => "see what the program said; if it happens again, report that with its version",
            Self::Io => "check that the file is there and that the folders may be read and written",
        }
    }
}

impl fmt::Display for InputProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

fn names(pieces: &[Piece]) -> String {
    pieces.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
