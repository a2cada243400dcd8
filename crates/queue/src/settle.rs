//! What an outcome means for a job: decided here once, applied by each database.

use std::time::Duration;

use serde_json::Value;

use crate::backoff::Backoff;
use crate::claim::{AttemptOutcome, Claim, Finish, Outcome};
use crate::error::Result;
use crate::graph::{NewRecord, Spawn};
use crate::job::{JobError, JobState, check_json};

/// Where a finished claim leaves its job.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict<'a> {
    /// To history, for good.
    Done { state: JobState, result: Option<&'a Value>, error: Option<&'a JobError> },
    /// Back into the queue; `delay` of zero means ready at once. `attempt` is what the row's count becomes.
    Back { delay: Duration, attempt: u32, outcome: AttemptOutcome, error: Option<&'a JobError> },
}

impl Finish {
    pub fn new(claim: Claim, outcome: Outcome) -> Self {
        Self {
            claim,
            outcome: storable(outcome),
            spawn: Spawn::default(),
            records: Vec::new(),
            playable: false,
        }
    }

    /// Adds jobs to the run in the transaction that completes this one; nothing if it does not complete.
    #[must_use]
    pub fn spawning(mut self, spawn: Spawn) -> Self {
        self.refuse_unless(spawn.check(), "spawn_refused");
        self.spawn = spawn;
        self
    }

    /// Writes records of the run in the same transaction, if the outcome is accepted.
    #[must_use]
    pub fn recording(mut self, records: Vec<NewRecord>) -> Self {
        self.refuse_unless(records.iter().try_for_each(NewRecord::check), "record_refused");
        self.records = records;
        self
    }

    /// The run can be played from now on, if the outcome is accepted.
    #[must_use]
    pub fn playable(mut self, playable: bool) -> Self {
        self.playable = playable;
        self
    }

    /// What no database would take must not make `finish` fail for ever: it fails the job instead.
    fn refuse_unless(&mut self, checked: Result<()>, code: &str) {
        if let Err(refusal) = checked {
            self.outcome = Outcome::FailForGood { error: JobError::new(code, refusal.to_string()) };
        }
    }

    /// What to add to the run, if the job completes.
    pub(crate) fn spawned(&self) -> Option<&Spawn> {
        let completes = matches!(self.outcome, Outcome::Complete { .. });
        (completes && self.claim.in_run() && !self.spawn.is_empty()).then_some(&self.spawn)
    }

    /// The result of a job that completes with nothing else hanging on it.
    pub(crate) fn plain_result(&self) -> Option<&Value> {
        match &self.outcome {
            Outcome::Complete { result } if self.claim.stands_alone() => Some(result),
            _ => None,
        }
    }

    pub(crate) fn verdict(&self) -> Verdict<'_> {
        let job = &self.claim.job;
        let uncounted = job.attempt.saturating_sub(1);
        match &self.outcome {
            Outcome::Complete { result } => {
                Verdict::Done { state: JobState::Completed, result: Some(result), error: None }
            }
            Outcome::Fail { error } if job.attempt < job.max_attempts => Verdict::Back {
                delay: job.backoff.delay(job.attempt),
                attempt: job.attempt,
                outcome: AttemptOutcome::Failed,
                error: Some(error),
            },
            Outcome::Fail { error } | Outcome::FailForGood { error } => {
                Verdict::Done { state: JobState::Failed, result: None, error: Some(error) }
            }
            Outcome::Snooze { delay } => Verdict::Back {
                delay: *delay,
                attempt: uncounted,
                outcome: AttemptOutcome::Snoozed,
                error: None,
            },
            Outcome::Release => Verdict::Back {
                delay: Duration::ZERO,
                attempt: uncounted,
                outcome: AttemptOutcome::Released,
                error: None,
            },
        }
    }
}

/// A result that no database would take must not make `finish` fail for ever: it fails the job instead.
fn storable(outcome: Outcome) -> Outcome {
    let Outcome::Complete { result } = &outcome else { return outcome };
    match check_json("the job's result", result) {
        Ok(()) => outcome,
        Err(refusal) => {
            Outcome::FailForGood { error: JobError::new("result_not_storable", refusal.to_string()) }
        }
    }
}

/// What becomes of a job whose worker died under it.
#[derive(Debug, PartialEq)]
pub(crate) enum Loss {
    /// It runs again. The first loss costs no delay: it is most likely the machine's fault.
    Freed { delay: Duration },
    /// It has taken as many workers with it as it may.
    Poison { error: JobError },
}

/// `lost` counts this loss.
pub(crate) fn after_loss(lost: u32, max_lost: u32, backoff: &Backoff) -> Loss {
    if lost >= max_lost {
        let message = format!("{lost} workers died while they ran this job; it is not tried again");
        return Loss::Poison { error: JobError::new("poison", message) };
    }
    let delay = if lost <= 1 { Duration::ZERO } else { backoff.delay(lost - 1) };
    Loss::Freed { delay }
}

/// The error of an attempt that ran past its deadline without its worker stopping it.
pub(crate) fn overdue() -> JobError {
    JobError::new("timeout", "the attempt ran past its deadline and its worker did not stop it")
}

/// What an ended job means for its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunShare {
    pub(crate) failed: bool,
    pub(crate) cancelled: bool,
    pub(crate) degraded: bool,
}

impl RunShare {
    pub(crate) fn of(state: JobState, required: bool) -> Self {
        let missing = matches!(state, JobState::Failed | JobState::Skipped);
        Self {
            failed: missing && required,
            cancelled: state == JobState::Cancelled,
            degraded: missing && !required,
        }
    }
}
