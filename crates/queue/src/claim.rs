//! Claims as values: the right to finish a job, how it was used, and what is remembered of it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use crate::error::Result;
use crate::graph::{NewRecord, Spawn};
use crate::job::{Fence, Job, JobError, JobId};
use crate::timestamp::Timestamp;
use crate::worker::WorkerId;

/// Proof that this process may still finish one claim of one job.
///
/// Not `Clone`: [`Finish::new`] consumes it, so one claim has one outcome.
#[derive(Debug)]
pub struct Claim {
    /// As it was claimed.
    pub(crate) job: Arc<Job>,
    pub(crate) slot: Option<u32>,
    since: Instant,
}

impl Claim {
    pub(crate) fn of(job: &Arc<Job>) -> Self {
        Self { job: Arc::clone(job), slot: None, since: Instant::now() }
    }

    /// A claim whose holder is somewhere else and has kept what it was given: `job` as it is now, and fence, attempt and
    /// losses as they were when it was claimed. Whether the claim still holds is for `finish` to say, as of any other.
    pub fn kept_elsewhere(mut job: Job, fence: Fence, attempt: u32, lost: u32) -> Self {
        (job.fence, job.attempt, job.lost) = (fence, attempt, lost);
        let held = job.claimed_at.map_or(Duration::ZERO, |at| Timestamp::now().since(at));
        let since = Instant::now().checked_sub(held).unwrap_or_else(Instant::now);
        Self { since, ..Self::of(&Arc::new(job)) }
    }

    /// Remembers which slot runs the job, for the timeline.
    #[must_use]
    pub fn in_slot(mut self, slot: u32) -> Self {
        self.slot = Some(slot);
        self
    }

    /// Whether the job belongs to a run: settling it may end the run, and others may wait for it.
    pub(crate) fn in_run(&self) -> bool {
        self.job.run.is_some()
    }

    /// Whether nothing hangs on the job: no run, no limit, no tenant with a name, which may have a cap.
    pub(crate) fn stands_alone(&self) -> bool {
        !self.in_run() && self.job.limit_key.is_none() && self.job.tenant.is_empty()
    }

    pub fn job(&self) -> JobId {
        self.job.id
    }

    pub fn fence(&self) -> Fence {
        self.job.fence
    }

    pub(crate) fn held_for(&self) -> Duration {
        self.since.elapsed()
    }
}

/// How a claim ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Complete {
        result: Value,
    },
    /// Try again after the job's backoff, until its attempts are spent.
    Fail {
        error: JobError,
    },
    /// No attempt can mend this (bad input, say).
    FailForGood {
        error: JobError,
    },
    /// Not now: try again after this long, at no cost of an attempt.
    Snooze {
        delay: Duration,
    },
    /// Give the job back as it was, at once and at no cost: the worker is leaving.
    Release,
}

/// A claim with its outcome. Sending it twice has the effect of sending it once.
#[derive(Debug)]
pub struct Finish {
    pub(crate) claim: Claim,
    pub(crate) outcome: Outcome,
    pub(crate) spawn: Spawn,
    pub(crate) records: Vec<NewRecord>,
    pub(crate) playable: bool,
}

impl Finish {
    pub fn job(&self) -> JobId {
        self.claim.job()
    }

    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }
}

/// What became of a [`Finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It counts, whether this call stored it or an earlier one whose answer was lost.
    Accepted,
    /// The job was cancelled, deleted, or belongs to another claim: whatever this claim made is to be dropped.
    Refused,
}

/// One attempt of a job, for the timeline and the log.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Attempt {
    pub job: JobId,
    pub fence: Fence,
    pub generation: u32,
    pub worker: Option<WorkerId>,
    pub slot: Option<u32>,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub outcome: AttemptOutcome,
    pub error: Option<JobError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    Completed,
    Failed,
    Snoozed,
    Released,
    /// Its worker died or fell silent.
    Lost,
    Cancelled,
    /// It ran past its deadline and its worker did not stop it.
    Overdue,
    /// It was claimed, but the answer never reached the worker.
    Stranded,
}

impl AttemptOutcome {
    pub const ALL: [Self; 8] = [
        Self::Completed,
        Self::Failed,
        Self::Snoozed,
        Self::Released,
        Self::Lost,
        Self::Cancelled,
        Self::Overdue,
        Self::Stranded,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Snoozed => "snoozed",
            Self::Released => "released",
            Self::Lost => "lost",
            Self::Cancelled => "cancelled",
            Self::Overdue => "overdue",
            Self::Stranded => "stranded",
        }
    }
}

impl fmt::Display for AttemptOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for AttemptOutcome {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.as_str() == text)
            .ok_or_else(|| format!("`{text}` is not an outcome"))
    }
}
