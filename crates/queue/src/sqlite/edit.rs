//! What people do to jobs: `cancel`, `retry`, `delete`, `clear`.

use std::time::Duration;

use rusqlite::params;

use super::events::told;
use super::finish::{Ending, Requeued, Standing, end, requeued};
use super::graph::restart_dependents;
use super::read::FilterValues;
use super::sql;
use super::writer::Tx;
use crate::bell::Ring;
use crate::claim::AttemptOutcome;
use crate::error::{QueueError, Result};
use crate::graph::NewRecord;
use crate::job::{Fence, JobId, JobState};
use crate::queue::JobFilter;
use crate::run::RunId;
use crate::settle::RunShare;

/// Jobs forgotten in one transaction of `clear`: enough to be fast, few enough that others get their turn.
const CLEAR_BATCH: u32 = 1_000;

pub(super) fn cancel(tx: &Tx<'_>, id: JobId) -> Result<()> {
    cancel_one(tx, id, end)
}

/// `end` says whether what waits for the job is told.
pub(super) fn cancel_one(
    tx: &Tx<'_>,
    id: JobId,
    end: fn(&Tx<'_>, JobId, &Standing, &Ending<'_>) -> Result<()>,
) -> Result<()> {
    let Some(job) = live(tx, id)? else { return Err(ended_or_absent(tx, id, "it has already ended")?) };
    if job.standing.state == JobState::Running {
        tx.run(
            sql!("attempt_add"),
            params![id.0, None::<u32>, tx.now.as_ms(), AttemptOutcome::Cancelled.as_str(), None::<&str>],
        )?;
        tx.ring(Ring { revoked: true, ..Ring::default() });
    }
    // The fence rises: whatever the claim still writes is refused.
    let fence = Fence(job.fence + 1);
    let last = Ending {
        fence: Some(fence),
        settled_fence: Some(fence),
        ..Ending::unclaimed(JobState::Cancelled, None)
    };
    end(tx, id, &job.standing, &last)
}

pub(super) fn retry(tx: &Tx<'_>, id: JobId) -> Result<()> {
    if let Some(job) = live(tx, id)? {
        let hint = "it has not ended yet; cancel it first".into();
        return Err(QueueError::WrongState { id, state: job.standing.state, hint });
    }
    let Some(job) = ended(tx, id)? else { return Err(QueueError::NotFound(id)) };
    if !reopen(tx, id, &job, JobState::Pending)? {
        let hint = "another live job has its unique key".into();
        return Err(QueueError::WrongState { id, state: job.state, hint });
    }
    restart_dependents(tx, id, |dependent| match ended(tx, dependent)? {
        Some(job) => reopen(tx, dependent, &job, JobState::Waiting),
        None => Ok(false),
    })
}

/// Takes a job from history back into the queue as a new generation. Not so if a live job has its unique key.
fn reopen(tx: &Tx<'_>, id: JobId, job: &Standing, state: JobState) -> Result<bool> {
    let again = match state {
        JobState::Waiting => Requeued { state, run_at: None, parked_on: None },
        _ => requeued(tx, Duration::ZERO, &job.bounded),
    };
    let state = again.state;
    let started = params![id.0, tx.line.now_us(), state.as_str(), again.parked_on, tx.now.as_ms()];
    if tx.run(sql!("retry"), started)? == 0 {
        return Ok(false);
    }
    tx.run(sql!("retry_remember"), [id.0])?;
    tx.run(sql!("ended_forget"), [id.0])?;
    tx.count(&job.lane, &job.kind, job.state, -1);
    tx.count(&job.lane, &job.kind, state, 1);
    if let Some(run) = &job.run {
        let share = RunShare::of(job.state, job.required);
        tx.run(sql!("run_reopen"), params![run, share.failed, share.cancelled, share.degraded])?;
        told(tx);
    }
    Ok(true)
}

pub(super) fn retry_run(tx: &Tx<'_>, run: &RunId, steps: &[String]) -> Result<u64> {
    if tx.first(sql!("get_run"), [run.as_str()], |_| Ok(()))?.is_none() {
        return Err(QueueError::NoSuchRun(run.clone()));
    }
    let steps = serde_json::to_string(steps).map_err(QueueError::unexpected)?;
    let mut restarted = 0;
    // One by one: starting a job over takes along what needs it, so the next may have started over already.
    for id in tx.all(sql!("retry_run"), params![run.as_str(), steps], |row| row.get(0).map(JobId))? {
        if ended(tx, id)?.is_some() {
            retry(tx, id)?;
            restarted += 1;
        }
    }
    Ok(restarted)
}

pub(super) fn put_record(tx: &Tx<'_>, run: &RunId, record: &NewRecord, expected: Option<u64>) -> Result<u64> {
    let at = params![run.as_str(), record.kind, record.key];
    let found: Option<i64> = tx.first(sql!("record_version"), at, |row| row.get(0))?;
    let found = found.map_or(0, i64::unsigned_abs);
    if let Some(expected) = expected.filter(|expected| *expected != found) {
        return Err(QueueError::Stale { key: record.key.clone(), expected, found });
    }
    super::graph::put_record(tx, run.as_str(), record)?.ok_or_else(|| QueueError::NoSuchRun(run.clone()))
}

pub(super) fn delete(tx: &Tx<'_>, id: JobId) -> Result<()> {
    match live(tx, id)? {
        Some(job) if job.standing.state == JobState::Running => {
            Err(QueueError::WrongState { id, state: JobState::Running, hint: "cancel it first".into() })
        }
        Some(job) if is_needed(tx, id)? => {
            let hint = "other jobs wait for it; cancel it instead".into();
            Err(QueueError::WrongState { id, state: job.standing.state, hint })
        }
        Some(job) => forget_live(tx, id, &job.standing),
        None => forget_ended(tx, id),
    }
}

fn is_needed(tx: &Tx<'_>, id: JobId) -> Result<bool> {
    Ok(tx.first(sql!("need_holds"), [id.0], |_| Ok(()))?.is_some())
}

pub(super) fn clear(tx: &Tx<'_>, filter: &JobFilter) -> Result<u64> {
    let values = FilterValues::of(filter);
    let (states, kind, lane, tenant, run) = values.parts();
    let matching = params![states, kind, lane, tenant, run, CLEAR_BATCH];
    let ids = tx.all(sql!("clear_live"), matching, |row| row.get(0).map(JobId))?;
    for id in &ids {
        delete(tx, *id)?;
    }
    let ended = tx.all(sql!("clear_ended"), matching, |row| row.get(0).map(JobId))?;
    for id in &ended {
        forget_ended(tx, *id)?;
    }
    Ok((ids.len() + ended.len()) as u64)
}

fn forget_live(tx: &Tx<'_>, id: JobId, job: &Standing) -> Result<()> {
    tx.run(sql!("finish_forget"), [id.0])?;
    tx.touch(job.bounded.bounds());
    tx.run(sql!("prune_attempts"), [id.0])?;
    tx.run(sql!("need_forget"), [id.0])?;
    tx.count(&job.lane, &job.kind, job.state, -1);
    if let Some(run) = &job.run {
        tx.run(sql!("run_settle"), params![run, false, false, 1, tx.now.as_ms(), false])?;
        told(tx);
    }
    Ok(())
}

pub(super) fn forget_ended(tx: &Tx<'_>, id: JobId) -> Result<()> {
    let Some(job) = ended(tx, id)? else { return Err(QueueError::NotFound(id)) };
    tx.run(sql!("ended_forget"), [id.0])?;
    tx.run(sql!("prune_attempts"), [id.0])?;
    tx.run(sql!("need_forget"), [id.0])?;
    tx.count(&job.lane, &job.kind, job.state, -1);
    Ok(())
}

struct Live {
    standing: Standing,
    fence: i64,
}

fn live(tx: &Tx<'_>, id: JobId) -> Result<Option<Live>> {
    tx.first(sql!("live"), [id.0], |row| Ok(Live { standing: Standing::read(row)?, fence: row.get(7)? }))
}

fn ended(tx: &Tx<'_>, id: JobId) -> Result<Option<Standing>> {
    tx.first(sql!("ended"), [id.0], Standing::read)
}

fn ended_or_absent(tx: &Tx<'_>, id: JobId, hint: &str) -> Result<QueueError> {
    Ok(match ended(tx, id)? {
        Some(job) => QueueError::WrongState { id, state: job.state, hint: hint.into() },
        None => QueueError::NotFound(id),
    })
}
