//! What can go wrong, grouped by what the caller can do about it.

use crate::job::{JobId, JobState};
use crate::run::{RunId, RunState};

pub type Result<T, E = QueueError> = std::result::Result<T, E>;

/// Every way a verb of the queue can fail.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// Try again later: the database cannot be reached, is restarting, or is locked by another process.
    #[error("the database is not available: {reason}")]
    Unavailable { reason: String },

    /// Free some space, then go on: the database could not write. Nothing of the call was kept.
    #[error("the database's disk is full: {reason}")]
    Full { reason: String },

    /// Change the request: it can never be accepted as it is.
    #[error("{reason}")]
    Invalid { reason: String },

    /// Use another key, or send the body that the key was first used with.
    #[error("idempotency key `{key}` was already used with another body")]
    KeyReused { key: String },

    /// No live job and no job in history has this id.
    #[error("there is no job {0}")]
    NotFound(JobId),

    /// The verb does not apply to a job in this state.
    #[error("job {id} is {state}: {hint}")]
    WrongState { id: JobId, state: JobState, hint: String },

    /// Read the record or entry again and decide anew: somebody else has written it.
    #[error("`{key}` is at version {found}, not {expected}")]
    Stale { key: String, expected: u64, found: u64 },

    /// There is no run with this id.
    #[error("there is no run {0}")]
    NoSuchRun(RunId),

    /// The verb does not apply to a run in this state, or not yet.
    #[error("run {id} is {state}: {hint}")]
    WrongRunState { id: RunId, state: RunState, hint: String },

    /// This worker was declared dead; register again under a new id.
    #[error("this worker's lease ran out and it was declared dead")]
    WorkerGone,

    /// Choose another database, or change its settings: this one cannot keep our promises.
    #[error("{reason}; {next_step}")]
    Unsuitable { reason: String, next_step: String },

    /// Upgrade one side: the database's schema and this program do not fit each other.
    #[error("{reason}; {next_step}")]
    Schema { reason: String, next_step: String },

    /// A bug in the queue, or a database that was changed by other hands.
    #[error("unexpected answer from the database: {reason}")]
    Unexpected { reason: String },
}

impl QueueError {
    /// Whether the same call may succeed later without anyone changing anything about it.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Full { .. })
    }

    /// The same answer for others whose call failed in the same statement.
    pub(crate) fn same_fate(&self) -> Self {
        match self {
            Self::Full { reason } => Self::Full { reason: reason.clone() },
            Self::Unsuitable { reason, next_step } => {
                Self::Unsuitable { reason: reason.clone(), next_step: next_step.clone() }
            }
            Self::Unavailable { reason } => Self::Unavailable { reason: reason.clone() },
            other => Self::Unexpected { reason: other.to_string() },
        }
    }

    /// Of a run that cannot be forgotten before everyone who was to hear of it has.
    pub(crate) fn untold(id: &RunId, state: RunState, sink: &str) -> Self {
        let hint =
            format!("sink `{sink}` has not been sent all its events; try again later, or remove the sink");
        Self::WrongRunState { id: id.clone(), state, hint }
    }

    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid { reason: reason.into() }
    }

    pub(crate) fn unexpected(reason: impl ToString) -> Self {
        Self::Unexpected { reason: reason.to_string() }
    }
}
