//! How an attempt of a job fails: one shape for media, store and queue, told to the queue and kept for the user.

use std::time::Duration;

use telecine_media::MediaError;
use telecine_queue::{Failure, Job, JobContext, JobError, QueueError};

use crate::blobs::{FetchError, StoreError};
use crate::log::ToolRuns;
use crate::planned::{CannotPlan, Obstacle};
use crate::records::{FailureRecord, record};

/// Why an attempt did not succeed, with what its user should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub code: String,
    pub message: String,
    pub hint: String,
    pub stderr_tail: String,
    pub retryable: bool,
    /// Nothing went wrong: the same is to be tried after this long, at no cost.
    pub(crate) not_before: Option<Duration>,
}

pub(crate) type Attempted<T> = Result<T, Failed>;

impl Failed {
    pub fn for_good(code: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
            hint: hint.into(),
            stderr_tail: String::new(),
            retryable: false,
            not_before: None,
        }
    }

    pub fn for_now(code: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { retryable: true, ..Self::for_good(code, message, hint) }
    }

    /// It is somebody else's turn.
    pub(crate) fn not_yet(delay: Duration) -> Self {
        Self {
            not_before: Some(delay),
            ..Self::for_now("not_yet", "somebody else is at it", "it goes on by itself")
        }
    }

    /// Something in us is wrong: no attempt mends it.
    pub fn unexpected(message: impl Into<String>) -> Self {
        Self::for_good("unexpected", message, "report it with the log of the worker")
    }

    /// Keeps the details with the run and says to the queue what becomes of the job.
    pub(crate) fn settle(self, job: &Job, context: &JobContext) -> Failure {
        self.settle_after(None, job, context)
    }

    /// The same after an attempt that started programs: one of them may be the reason.
    pub(crate) fn settle_after(self, tools: Option<&ToolRuns>, job: &Job, context: &JobContext) -> Failure {
        if let Some(delay) = self.not_before {
            return Failure::Snooze(delay);
        }
        let ended = tools.and_then(|tools| tools.failed_with(&self.stderr_tail));
        let (exit_code, signal) = ended.unwrap_or_default();
        let step = job.step.clone().unwrap_or_else(|| job.kind.clone());
        // Servers and files have a say in it.
        let message = printable(&self.message);
        let error = JobError::new(self.code.clone(), format!("{step}: {message}"));
        let retryable = self.retryable;
        let details = FailureRecord {
            step,
            code: self.code,
            message,
            hint: self.hint,
            stderr_tail: printable(&self.stderr_tail),
            retryable,
            attempt: job.attempt,
            exit_code,
            signal,
        };
        context.record(record(job.id.to_string(), &details));
        if retryable { Failure::Retry(error) } else { Failure::ForGood(error) }
    }
}

/// Postgres stores no NUL, and a terminal should obey nobody's escape sequences.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

impl From<MediaError> for Failed {
    fn from(error: MediaError) -> Self {
        Self {
            code: error.code().to_owned(),
            message: error.to_string(),
            hint: raisable(error.code()).unwrap_or(error.hint()).to_owned(),
            stderr_tail: error.stderr_tail().to_owned(),
            // A cancelled attempt is settled by whoever cancelled it; where nobody did, it may run again.
            retryable: error.is_retryable() || matches!(error, MediaError::Cancelled { .. }),
            not_before: None,
        }
    }
}

/// The settings that let larger inputs in: the engine itself knows no configuration.
fn raisable(code: &str) -> Option<&'static str> {
    match code {
        "input_too_large" => {
            Some("make it smaller, or raise max_input_mb, max_video_size, max_video_fps or max_image_pixels")
        }
        "input_too_long" => Some("cut it shorter, or raise max_duration_s"),
        _ => None,
    }
}

impl From<CannotPlan> for Failed {
    fn from(error: CannotPlan) -> Self {
        let (step, failed) = match error {
            CannotPlan::Step { step, source: Obstacle::Media(error) } => (step, Self::from(error)),
            CannotPlan::Step { step, source: Obstacle::NoProgram(error) } => (step, Self::from(error)),
            CannotPlan::NoStepFits { .. } => {
                let hint = "use a recipe for such inputs; `telecine recipes show` says what each takes";
                return Self::for_good("unsupported_format", error.to_string(), hint);
            }
        };
        Self { message: format!("step `{step}`: {}", failed.message), ..failed }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self {
            code: error.code().to_owned(),
            message: error.to_string(),
            hint: error.hint().to_owned(),
            stderr_tail: String::new(),
            retryable: error.is_retryable(),
            not_before: None,
        }
    }
}

impl From<FetchError> for Failed {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Store(error) => error.into(),
            FetchError::Scratch(error) => scratch_failed("a blob cannot be written", &error),
            FetchError::TooLarge { .. } => {
                Self::for_good("limit_size", error.to_string(), "raise max_input_mb, or send a smaller file")
            }
        }
    }
}

/// Another try helps where the database was away or somebody was faster; what it refuses, it refuses again.
impl From<QueueError> for Failed {
    fn from(error: QueueError) -> Self {
        let message = error.to_string();
        let (code, hint) = match error {
            QueueError::Unavailable { .. } => {
                return Self::for_now("database_unavailable", message, "check the database");
            }
            QueueError::Full { .. } => {
                return Self::for_now("database_full", message, "free some space on the database's disk");
            }
            QueueError::Stale { .. } => {
                return Self::for_now("record_conflict", message, "it is tried again by itself");
            }
            QueueError::WorkerGone => {
                return Self::for_now("worker_lost", message, "it is tried again by itself");
            }
            QueueError::KeyReused { .. } => ("key_reused", "use another idempotency key"),
            QueueError::NotFound(_) => ("job_not_found", "see `telecine jobs ls`"),
            QueueError::WrongState { .. } => ("job_wrong_state", "see `telecine jobs show`"),
            QueueError::NoSuchRun(_) => ("run_not_found", "see `telecine runs ls`"),
            QueueError::WrongRunState { .. } => ("run_wrong_state", "see `telecine runs show`"),
            QueueError::Unsuitable { .. } => ("database_unsuitable", "see `telecine doctor`"),
            QueueError::Schema { .. } => {
                ("database_schema", "run `telecine migrate`, or upgrade this program")
            }
            QueueError::Invalid { .. } => ("invalid_request", "report it with the log of the worker"),
            QueueError::Unexpected { .. } => return Self::unexpected(message),
        };
        Self::for_good(code, message, hint)
    }
}

/// A failed read or write in the scratch folder.
pub(crate) fn scratch_failed(what: &str, error: &std::io::Error) -> Failed {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    let message = format!("{what}: {error}");
    match error.kind() {
        StorageFull | QuotaExceeded => {
            Failed::for_now("disk_full", message, "free some space in the scratch folder")
        }
        _ => Failed::for_now("io_failed", message, "check the scratch folder and its permissions"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_database_refuses_is_not_tried_again() {
        let reason = || "why".to_owned();
        for (error, code, retryable) in [
            (QueueError::Unavailable { reason: reason() }, "database_unavailable", true),
            (QueueError::Full { reason: reason() }, "database_full", true),
            (QueueError::Stale { key: reason(), expected: 1, found: 2 }, "record_conflict", true),
            (QueueError::Invalid { reason: reason() }, "invalid_request", false),
            (QueueError::NoSuchRun(telecine_queue::RunId::new()), "run_not_found", false),
            (QueueError::Unexpected { reason: reason() }, "unexpected", false),
        ] {
            let failed = Failed::from(error);

            assert_eq!((failed.code.as_str(), failed.retryable), (code, retryable));
            assert!(!failed.hint.is_empty());
        }
    }
}
