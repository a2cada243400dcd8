//! What time does to jobs: `promote`, `reap`, `prune`.

use std::time::Duration;

use rusqlite::params;

use super::clock::{boot_id, boottime_ms, ms};
use super::finish::{Ending, Standing, end, error_json, requeued};
use super::limits::{Bounded, balance_parked};
use super::live::Live;
use super::row;
use super::sql;
use super::writer::Tx;
use crate::bell::Ring;
use crate::claim::AttemptOutcome;
use crate::error::Result;
use crate::job::{Job, JobError, JobId, JobState};
use crate::queue::{Promoted, Reaped};
use crate::run::RunId;
use crate::settle::{Loss, after_loss, overdue};
use crate::timestamp::Timestamp;
use crate::worker::WorkerId;

/// Jobs made ready in one transaction.
const PROMOTE_BATCH: u32 = 1_000;
const DAY: Duration = Duration::from_hours(24);

/// One batch; `next_in` of zero means that more are due.
pub(super) fn promote(tx: &Tx<'_>) -> Result<Promoted> {
    let due = tx.all(sql!("promote"), params![tx.now.as_ms(), PROMOTE_BATCH], |row| {
        let mut column = row::Columns::of(row);
        Ok((column.next::<String>()?, column.next::<String>()?, column.parsed::<JobState>()?))
    })?;
    let mut ready = 0;
    for (lane, kind, state) in &due {
        tx.count(lane, kind, JobState::Scheduled, -1);
        tx.count(lane, kind, *state, 1);
        ready += u64::from(*state == JobState::Pending);
    }
    tx.ring(Ring { ready: ready > 0, ..Ring::default() });
    let let_in = balance_parked(tx)?;
    let next_at: Option<i64> = tx.first(sql!("promote_next"), [], |row| row.get(0))?.flatten();
    let next_in = next_at.map(|at| Duration::from_millis((at - tx.now.as_ms()).max(0).unsigned_abs()));
    let rest_in = if let_in.is_partial() { Some(Duration::ZERO) } else { let_in.next_in };
    let next_in = [next_in, rest_in].into_iter().flatten().min();
    Ok(Promoted { jobs: ready + let_in.admitted, next_in })
}

pub(super) fn reap(tx: &Tx<'_>, live: &Live) -> Result<Reaped> {
    let mut reaped = Reaped { workers: bury_dead_workers(tx, live)?, ..Reaped::default() };
    for taken in tx.all(sql!("reap_held"), [], Taken::read)? {
        free_lost(tx, &taken, &mut reaped)?;
    }
    for taken in tx.all(sql!("reap_overdue"), [boottime_ms()], Taken::read)? {
        fail_overdue(tx, &taken)?;
        reaped.overdue += 1;
    }
    Ok(reaped)
}

/// A running job that is taken from its worker.
struct Taken {
    job: Job,
    bounded: Bounded,
}

impl Taken {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let job = row::job(row)?;
        let bounded = Bounded { limit_key: job.limit_key.clone(), capped: row.get(row::Columns::AFTER_JOB)? };
        Ok(Self { job, bounded })
    }
}

fn bury_dead_workers(tx: &Tx<'_>, live: &Live) -> Result<u64> {
    let (boot, now_ms) = (boot_id(), boottime_ms());
    let known = tx.all(sql!("reap_workers"), [], |row| {
        Ok((WorkerId(row.get(0)?), row.get::<_, String>(1)?, row.get::<_, i64>(2)?))
    })?;
    let mut dead = 0;
    for (id, its_boot, lease_until) in known {
        if its_boot != boot || lease_until < now_ms || live.has_died(id) {
            tx.run(sql!("worker_leave"), params![id.0, tx.now.as_ms()])?;
            live.bury(id);
            dead += 1;
        }
    }
    live.bury_unknown(|id| Ok(tx.first(sql!("worker_lives"), [id.0], |_| Ok(()))?.is_some()))?;
    Ok(dead)
}

fn free_lost(tx: &Tx<'_>, taken: &Taken, reaped: &mut Reaped) -> Result<()> {
    let job = &taken.job;
    let (attempt, lost) = (job.attempt.saturating_sub(1), job.lost + 1);
    remember(tx, job, AttemptOutcome::Lost, None)?;
    match after_loss(lost, job.max_lost, &job.backoff) {
        Loss::Freed { delay } => {
            let again = requeued(tx, delay, &taken.bounded);
            let state = again.state.as_str();
            tx.run(
                sql!("reap_free"),
                params![job.id.0, state, again.run_at, attempt, lost, again.parked_on, tx.now.as_ms()],
            )?;
            tx.count(&job.lane, &job.kind, JobState::Running, -1);
            tx.count(&job.lane, &job.kind, again.state, 1);
            reaped.freed += 1;
        }
        Loss::Poison { error } => {
            fail(tx, taken, &error, attempt, 1)?;
            reaped.poisoned += 1;
        }
    }
    Ok(())
}

fn fail_overdue(tx: &Tx<'_>, taken: &Taken) -> Result<()> {
    let job = &taken.job;
    let error = overdue();
    remember(tx, job, AttemptOutcome::Overdue, Some(&error))?;
    tx.ring(Ring { revoked: true, ..Ring::default() });
    if job.attempt >= job.max_attempts {
        return fail(tx, taken, &error, job.attempt, 0);
    }
    let again = requeued(tx, job.backoff.delay(job.attempt), &taken.bounded);
    let (state, error) = (again.state.as_str(), error_json(&error));
    tx.run(
        sql!("finish_back"),
        params![job.id.0, state, again.run_at, job.attempt, error, again.parked_on, tx.now.as_ms()],
    )?;
    tx.count(&job.lane, &job.kind, JobState::Running, -1);
    tx.count(&job.lane, &job.kind, again.state, 1);
    Ok(())
}

fn remember(tx: &Tx<'_>, job: &Job, outcome: AttemptOutcome, error: Option<&JobError>) -> Result<()> {
    let error = error.map(error_json);
    tx.run(sql!("attempt_add"), params![job.id.0, job.slot, tx.now.as_ms(), outcome.as_str(), error])
        .map(drop)
}

/// Ends a job that no claim of its own has settled: a claim that comes late is refused.
fn fail(tx: &Tx<'_>, taken: &Taken, error: &JobError, attempt: u32, losses: i32) -> Result<()> {
    let job = &taken.job;
    let held = Standing {
        lane: job.lane.clone(),
        kind: job.kind.clone(),
        state: job.state,
        run: job.run.as_ref().map(ToString::to_string),
        required: job.required,
        bounded: taken.bounded.clone(),
    };
    let error = error_json(error);
    let last = Ending {
        slot: job.slot,
        attempt: Some(attempt),
        losses,
        ..Ending::unclaimed(JobState::Failed, Some(&error))
    };
    end(tx, job.id, &held, &last)
}

/// One batch; says how many jobs it forgot.
pub(super) fn prune(tx: &Tx<'_>, keep: Duration) -> Result<u64> {
    let before = tx.now.as_ms() - ms(keep);
    let old = tx.all(sql!("prune"), [before], |row| {
        let mut column = row::Columns::of(row);
        let (id, lane, kind) = (JobId(column.next()?), column.next::<String>()?, column.next::<String>()?);
        Ok((id, lane, kind, column.parsed::<JobState>()?))
    })?;
    for (id, lane, kind, state) in &old {
        tx.run(sql!("prune_attempts"), [id.0])?;
        tx.run(sql!("need_forget"), [id.0])?;
        tx.count(lane, kind, *state, -1);
    }
    tx.run(sql!("prune_workers"), [before])?;
    tx.run(sql!("prune_keys"), [tx.now.as_ms()])?;
    // Ids tell when they were made, by the clock of whoever pushed: a day's difference delays nothing but this.
    let made_before = RunId::made_at(Timestamp::from_ms(before).plus(DAY));
    tx.all(sql!("prune_runs"), params![before, made_before], |row| row.get::<_, String>(0))?;
    Ok(old.len() as u64)
}
