//! What people do to jobs: `cancel`, `retry`, `delete`, `clear`.

use rusqlite::params;

use super::clock::steady_us;
use super::events::told;
use super::finish::{Ending, Standing, end};
use super::read::FilterValues;
use super::sql;
use super::writer::Tx;
use crate::bell::Ring;
use crate::error::{QueueError, Result};
use crate::job::{AttemptOutcome, Fence, JobId, JobState};
use crate::queue::JobFilter;

/// Jobs forgotten in one transaction of `clear`: enough to be fast, few enough that others get their turn.
const CLEAR_BATCH: u32 = 1_000;

pub(super) fn cancel(tx: &Tx<'_>, id: JobId) -> Result<()> {
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
        state: JobState::Cancelled,
        fence,
        settled_fence: Some(fence),
        slot: None,
        attempt: job.attempt,
        lost: job.lost,
        error: None,
        result: None,
    };
    end(tx, id, &job.standing, &last)
}

pub(super) fn retry(tx: &Tx<'_>, id: JobId) -> Result<()> {
    if let Some(job) = live(tx, id)? {
        let hint = "it has not ended yet; cancel it first".into();
        return Err(QueueError::WrongState { id, state: job.standing.state, hint });
    }
    let Some(job) = ended(tx, id)? else { return Err(QueueError::NotFound(id)) };
    tx.run(sql!("retry_remember"), [id.0])?;
    if tx.run(sql!("retry"), params![id.0, steady_us()])? == 0 {
        let hint = "another live job has its unique key".into();
        return Err(QueueError::WrongState { id, state: job.state, hint });
    }
    tx.run(sql!("ended_forget"), [id.0])?;
    tx.count(&job.lane, &job.kind, job.state, -1);
    tx.count(&job.lane, &job.kind, JobState::Pending, 1);
    tx.ring(Ring { ready: true, ..Ring::default() });
    if let Some(run) = &job.run {
        let (failed, cancelled) = (job.state == JobState::Failed, job.state == JobState::Cancelled);
        tx.run(sql!("run_reopen"), params![run, failed, cancelled])?;
        told(tx);
    }
    Ok(())
}

pub(super) fn delete(tx: &Tx<'_>, id: JobId) -> Result<()> {
    match live(tx, id)? {
        Some(job) if job.standing.state == JobState::Running => {
            Err(QueueError::WrongState { id, state: JobState::Running, hint: "cancel it first".into() })
        }
        Some(job) => forget_live(tx, id, &job.standing),
        None => forget_ended(tx, id),
    }
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
    tx.run(sql!("prune_attempts"), [id.0])?;
    tx.count(&job.lane, &job.kind, job.state, -1);
    if let Some(run) = &job.run {
        tx.run(sql!("run_settle"), params![run, false, false, 1, tx.now.as_ms()])?;
        told(tx);
    }
    Ok(())
}

fn forget_ended(tx: &Tx<'_>, id: JobId) -> Result<()> {
    let Some(job) = ended(tx, id)? else { return Err(QueueError::NotFound(id)) };
    tx.run(sql!("ended_forget"), [id.0])?;
    tx.run(sql!("prune_attempts"), [id.0])?;
    tx.count(&job.lane, &job.kind, job.state, -1);
    Ok(())
}

struct Live {
    standing: Standing,
    fence: i64,
    attempt: u32,
    lost: u32,
}

fn live(tx: &Tx<'_>, id: JobId) -> Result<Option<Live>> {
    tx.first(sql!("live"), [id.0], |row| {
        Ok(Live {
            standing: Standing::read(row)?,
            fence: row.get(4)?,
            attempt: row.get(5)?,
            lost: row.get(6)?,
        })
    })
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
