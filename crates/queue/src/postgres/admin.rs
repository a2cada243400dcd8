//! What people do to jobs: `cancel`, `retry`, `delete`, `clear`.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::postgres::PgRow;

use super::connect::Database;
use super::failure::{Failure, Tried};
use super::finish::{Ending, end};
use super::limits::{balance, note};
use super::read::{matching, parsed, value};
use super::session::{Session, close, statement};
use super::{events, graph, sql};
use crate::bell::Ring;
use crate::claim::AttemptOutcome;
use crate::error::{QueueError, Result};
use crate::job::{JobId, JobState};
use crate::limit::Bounds;
use crate::queue::JobFilter;
use crate::run::RunId;
use crate::settle::RunShare;

/// As in clear_live.sql and clear_ended.sql.
const CLEAR_BATCH: usize = 5_000;

pub(super) async fn cancel(database: &Database, id: JobId) -> Tried<Ring> {
    let mut tx = database.begin().await?;
    let outcome = cancel_and_balance(&mut tx, id).await;
    close(tx, outcome).await
}

async fn cancel_and_balance(connection: &mut Session<'_>, id: JobId) -> Tried<Ring> {
    let mut bounds = Bounds::new();
    let ring = cancel_in(connection, id, &mut bounds).await?;
    Ok(ring.and(balance(connection, &bounds).await?))
}

/// The caller balances the limits that this notes in `bounds`.
pub(super) async fn cancel_in(connection: &mut Session<'_>, id: JobId, bounds: &mut Bounds) -> Tried<Ring> {
    let Some(live) = live(connection, id).await? else {
        return Err(ended_or_absent(connection, id, "it has already ended").await?);
    };
    note(bounds, &live)?;
    let was_running = parsed::<JobState>(&live, "state")? == JobState::Running;
    if was_running {
        statement(sql!("attempt_add"))
            .bind(vec![id.0])
            .bind(AttemptOutcome::Cancelled.as_str())
            .bind(None::<String>)
            .execute(&mut *connection)
            .await?;
    }
    let ending = Ending::cancelled(id.0, &live)?;
    end(connection, &[ending], bounds).await?;
    let ring = graph::follow(connection, vec![(id.0, JobState::Cancelled)], bounds).await?;
    Ok(ring.and(Ring { revoked: was_running, told: true, ..Ring::default() }))
}

pub(super) async fn retry(database: &Database, id: JobId) -> Tried<Ring> {
    let mut tx = database.begin().await?;
    let outcome = retry_and_balance(&mut tx, id).await;
    close(tx, outcome).await
}

async fn retry_and_balance(connection: &mut Session<'_>, id: JobId) -> Tried<Ring> {
    let mut bounds = Bounds::new();
    let ring = retry_in(connection, id, &mut bounds).await?;
    Ok(ring.and(balance(connection, &bounds).await?))
}

/// Starts a job over, with all that needs it. The caller balances the limits that this notes in `bounds`.
pub(super) async fn retry_in(connection: &mut Session<'_>, id: JobId, bounds: &mut Bounds) -> Tried<Ring> {
    let Some(ended) = ended(connection, id).await? else {
        return Err(match live(connection, id).await? {
            Some(live) => wrong_state(id, parsed(&live, "state")?, "it has not ended yet; cancel it first"),
            None => QueueError::NotFound(id).into(),
        });
    };
    if !reopen(connection, id, &ended, JobState::Pending, bounds).await? {
        let hint = "another live job has its unique key; cancel or delete that one first";
        return Err(wrong_state(id, parsed(&ended, "state")?, hint));
    }
    let ring = Ring { ready: true, ..Ring::default() };
    if value::<Option<&str>>(&ended, "run")?.is_none() {
        return Ok(ring);
    }
    let (mut wave, mut affected) = (vec![id.0], BTreeSet::new());
    while !wave.is_empty() {
        let needing = graph::needing(connection, &wave).await?;
        wave.clear();
        for dependent in needing.into_iter().filter(|dependent| affected.insert(*dependent)) {
            let dependent = JobId(dependent);
            if let Some(row) = self::ended(connection, dependent).await?
                && reopen(connection, dependent, &row, JobState::Waiting, bounds).await?
            {
                wave.push(dependent.0);
            }
        }
    }
    Ok(ring.and(graph::recount(connection, affected.into_iter().collect(), bounds).await?))
}

/// Takes a job from history back into the queue as a new generation. Not so if a live job has its unique key.
async fn reopen(
    connection: &mut Session<'_>,
    id: JobId,
    ended: &PgRow,
    state: JobState,
    bounds: &mut Bounds,
) -> Tried<bool> {
    if let Some(run) = value::<Option<&str>>(ended, "run")? {
        // Before the job: who finishes another job of this run waits here, and then sees that this one is live.
        statement(sql!("run_hold")).bind(run).fetch_optional(&mut *connection).await?;
    }
    let back =
        statement(sql!("retry")).bind(id.0).bind(state.as_str()).fetch_optional(&mut *connection).await?;
    let Some(back) = back else { return Ok(false) };
    note(bounds, &back)?;
    if let Some(run) = value::<Option<&str>>(ended, "run")? {
        let share = RunShare::of(parsed(ended, "state")?, value(ended, "required")?);
        statement(sql!("run_reopen"))
            .bind(run)
            .bind(share.failed)
            .bind(share.cancelled)
            .bind(share.degraded)
            .execute(connection)
            .await?;
    }
    Ok(true)
}

pub(super) async fn retry_run(database: &Database, run: &RunId, steps: &[String]) -> Tried<(u64, Ring)> {
    let mut tx = database.begin().await?;
    let outcome = restart_run(&mut tx, run, steps).await;
    close(tx, outcome).await
}

async fn restart_run(connection: &mut Session<'_>, run: &RunId, steps: &[String]) -> Tried<(u64, Ring)> {
    if statement(sql!("run_hold")).bind(run.as_str()).fetch_optional(&mut *connection).await?.is_none() {
        return Err(QueueError::NoSuchRun(run.clone()).into());
    }
    let rows =
        statement(sql!("retry_run")).bind(run.as_str()).bind(steps).fetch_all(&mut *connection).await?;
    let (mut restarted, mut ring, mut bounds) = (0, Ring::default(), Bounds::new());
    // One by one: starting a job over takes along what needs it, so the next may have started over already.
    for row in &rows {
        let id = JobId(value(row, "id")?);
        if ended(connection, id).await?.is_some() {
            ring = ring.and(retry_in(connection, id, &mut bounds).await?);
            restarted += 1;
        }
    }
    ring = ring.and(balance(connection, &bounds).await?);
    Ok((restarted, ring))
}

pub(super) async fn delete(database: &Database, id: JobId) -> Tried<Ring> {
    let mut tx = database.begin().await?;
    let outcome = forget(&mut tx, id).await;
    close(tx, outcome).await
}

async fn forget(connection: &mut Session<'_>, id: JobId) -> Tried<Ring> {
    let (mut bounds, mut ring) = (Bounds::new(), Ring::default());
    if let Some(live) = live(connection, id).await? {
        if parsed::<JobState>(&live, "state")? == JobState::Running {
            return Err(wrong_state(id, JobState::Running, "cancel it first"));
        }
        let (jobs, rung) = forget_live(connection, vec![id.0], &mut bounds).await?;
        ring = rung;
        if jobs == 0 {
            let state = parsed(&live, "state")?;
            return Err(wrong_state(id, state, "other jobs wait for it; cancel it instead"));
        }
    } else if forget_ended(connection, vec![id.0]).await? == 0 {
        return Err(QueueError::NotFound(id).into());
    }
    Ok(ring.and(balance(connection, &bounds).await?))
}

/// In bounded batches, each in a transaction of its own, so that nobody waits for a million rows.
pub(super) async fn clear(database: &Database, filter: &JobFilter) -> Result<(u64, Ring)> {
    let (mut cleared, mut ring) = (0, Ring::default());
    // Again from the start while there is progress: a job that others waited for can go once they are gone.
    loop {
        let (live, rung) = clear_all(database, filter, false).await?;
        (cleared, ring) = (cleared + live, ring.and(rung));
        if live == 0 {
            let (ended, rung) = clear_all(database, filter, true).await?;
            return Ok((cleared + ended, ring.and(rung)));
        }
    }
}

async fn clear_all(database: &Database, filter: &JobFilter, history: bool) -> Result<(u64, Ring)> {
    let (mut cleared, mut ring, mut after) = (0, Ring::default(), 0);
    loop {
        let batch = database.retrying(|| clear_batch(database, filter, history, after)).await?;
        (cleared, ring) = (cleared + batch.jobs, ring.and(batch.ring));
        match batch.last {
            Some(last) => after = last,
            None => return Ok((cleared, ring)),
        }
    }
}

struct Cleared {
    jobs: u64,
    ring: Ring,
    /// Where the next batch begins; `None` when there is none.
    last: Option<i64>,
}

async fn clear_batch(database: &Database, filter: &JobFilter, history: bool, after: i64) -> Tried<Cleared> {
    let mut tx = database.begin().await?;
    let clearing = if history { sql!("clear_ended") } else { sql!("clear_live") };
    let ids = matching(&mut tx, clearing, filter, after).await?;
    let last = ids.last().copied().filter(|_| ids.len() == CLEAR_BATCH);
    let mut bounds = Bounds::new();
    let (jobs, ring) = match history {
        true => (forget_ended(&mut tx, ids).await?, Ring::default()),
        false => forget_live(&mut tx, ids, &mut bounds).await?,
    };
    let ring = ring.and(balance(&mut tx, &bounds).await?);
    tx.commit().await?;
    Ok(Cleared { jobs, ring, last })
}

/// Forgets live jobs; the runs they belonged to go on without them, or end.
async fn forget_live(connection: &mut Session<'_>, ids: Vec<i64>, bounds: &mut Bounds) -> Tried<(u64, Ring)> {
    let rows = statement(sql!("delete_live")).bind(ids).fetch_all(&mut *connection).await?;
    let mut runs: BTreeMap<&str, i64> = BTreeMap::new();
    for row in &rows {
        note(bounds, row)?;
        if let Some(run) = value::<Option<&str>>(row, "run")? {
            *runs.entry(run).or_default() += 1;
        }
    }
    let ring = if runs.is_empty() { Ring::default() } else { events::ring() };
    if !runs.is_empty() {
        let (runs, jobs): (Vec<&str>, Vec<i64>) = runs.into_iter().unzip();
        statement(sql!("run_shrink")).bind(runs).bind(jobs).execute(connection).await?;
    }
    Ok((rows.len() as u64, ring))
}

async fn forget_ended(connection: &mut Session<'_>, ids: Vec<i64>) -> Tried<u64> {
    Ok(statement(sql!("delete_ended")).bind(ids).fetch_all(connection).await?.len() as u64)
}

async fn live(connection: &mut Session<'_>, id: JobId) -> Tried<Option<PgRow>> {
    Ok(statement(sql!("live")).bind(id.0).fetch_optional(connection).await?)
}

async fn ended(connection: &mut Session<'_>, id: JobId) -> Tried<Option<PgRow>> {
    Ok(statement(sql!("ended")).bind(id.0).fetch_optional(connection).await?)
}

async fn ended_or_absent(connection: &mut Session<'_>, id: JobId, hint: &str) -> Tried<Failure> {
    Ok(match ended(connection, id).await? {
        Some(row) => wrong_state(id, parsed(&row, "state")?, hint),
        None => QueueError::NotFound(id).into(),
    })
}

fn wrong_state(id: JobId, state: JobState, hint: &str) -> Failure {
    QueueError::WrongState { id, state, hint: hint.into() }.into()
}
