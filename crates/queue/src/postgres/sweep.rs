//! What nobody asks for: `promote`, `reap`, `prune`, and folding the counts.

use std::time::Duration;

use sqlx::postgres::PgRow;

use super::connect::{Database, ms};
use super::failure::Tried;
use super::finish::{Ending, Return, end, error_json, put_back};
use super::limits::{balance, balance_parked, note};
use super::read::{backoff, big_number, number, value};
use super::session::{Session, statement};
use super::{events, graph, sql};
use crate::backoff::Backoff;
use crate::bell::Ring;
use crate::claim::AttemptOutcome;
use crate::error::Result;
use crate::job::{JobError, JobState};
use crate::limit::Bounds;
use crate::queue::{Promoted, Reaped};
use crate::settle::{Loss, after_loss, overdue};

/// As in promote.sql and prune.sql.
const BATCH: u64 = 1_000;
/// Fewer changes than this are cheaper to add up than to fold.
const FOLD_FROM: i64 = 500;

pub(super) async fn promote(database: &Database) -> Result<Promoted> {
    let mut promoted = Promoted::default();
    loop {
        let (jobs, ready) = database.retrying(|| promote_batch(database)).await?;
        promoted.jobs += ready;
        if jobs < BATCH {
            break;
        }
    }
    let (next_in, any_parked) = database.retrying(|| next_due(database)).await?;
    promoted.next_in = next_in;
    if any_parked {
        let let_in = balance_parked(database).await?;
        promoted.jobs += let_in.admitted;
        promoted.next_in = [next_in, let_in.next_in].into_iter().flatten().min();
    }
    Ok(promoted)
}

pub(super) fn ring_of(promoted: &Promoted) -> Ring {
    Ring { ready: promoted.jobs > 0, ..Ring::default() }
}

/// How many jobs were due, and how many of them are ready.
async fn promote_batch(database: &Database) -> Tried<(u64, u64)> {
    let mut connection = database.connection().await?;
    let row = statement(sql!("promote")).fetch_one(&mut connection).await?;
    connection.commit().await?;
    Ok((big_number(&row, "jobs")?, big_number(&row, "ready")?))
}

async fn next_due(database: &Database) -> Tried<(Option<Duration>, bool)> {
    let mut connection = database.connection().await?;
    let row = statement(sql!("promote_next")).fetch_one(&mut connection).await?;
    let next_in_ms: Option<i64> = value(&row, "next_in_ms")?;
    let next_in = next_in_ms.map(|ms| Duration::from_millis(ms.unsigned_abs()));
    Ok((next_in, value(&row, "any_parked")?))
}

/// Runs a statement that answers with a number of jobs.
async fn count_of(database: &Database, sql: &'static str, older_than: Duration) -> Tried<u64> {
    let mut connection = database.connection().await?;
    let row = statement(sql).bind(ms(older_than)).fetch_one(&mut connection).await?;
    connection.commit().await?;
    big_number(&row, "jobs")
}

/// One transaction, so that no one sees a dead worker whose jobs are not free.
pub(super) async fn reap(database: &Database) -> Tried<(Reaped, Ring)> {
    let mut tx = database.begin().await?;
    let workers = statement(sql!("reap_workers")).fetch_all(&mut tx).await?.len() as u64;
    let mut reaped = Reaped { workers, ..Reaped::default() };
    let held = taken(statement(sql!("reap_held")).fetch_all(&mut tx).await?)?;
    let mut bounds = Bounds::new();
    let mut ring = free(&mut tx, &held, &mut reaped, &mut bounds).await?;
    let late = taken(statement(sql!("reap_overdue")).fetch_all(&mut tx).await?)?;
    ring = ring.and(fail_overdue(&mut tx, &late, &mut reaped, &mut bounds).await?);
    for job in held.iter().chain(&late) {
        bounds.extend(job.bounds.iter().cloned());
    }
    ring = ring.and(balance(&mut tx, &bounds).await?);
    tx.commit().await?;
    Ok((reaped, ring))
}

/// A running job that is taken from its worker. Its row is locked.
struct Taken {
    id: i64,
    fence: i64,
    settled_fence: i64,
    attempt: u32,
    max_attempts: u32,
    lost: u32,
    max_lost: u32,
    backoff: Backoff,
    bounds: Bounds,
}

fn taken(rows: Vec<PgRow>) -> Tried<Vec<Taken>> {
    let read = |row: &PgRow| {
        let mut bounds = Bounds::new();
        note(&mut bounds, row)?;
        Ok(Taken {
            id: value(row, "id")?,
            fence: value(row, "fence")?,
            settled_fence: value(row, "settled_fence")?,
            attempt: number(row, "attempt")?,
            max_attempts: number(row, "max_attempts")?,
            lost: number(row, "lost")?,
            max_lost: number(row, "max_lost")?,
            backoff: backoff(row)?,
            bounds,
        })
    };
    rows.iter().map(read).collect()
}

impl Taken {
    /// To history, as failed, settled by no claim: one that comes late is refused.
    fn ending(&self, error: &JobError) -> Ending {
        Ending {
            id: self.id,
            fence: self.fence,
            guarded: false,
            fence_after: self.fence,
            settled_after: self.settled_fence,
            state: JobState::Failed,
            result: None,
            error: Some(error_json(error)),
            attempt: self.attempt,
            lost: Some(self.lost),
            slot: None,
            in_run: true,
        }
    }
}

/// Being killed costs no attempt, but is counted.
async fn free(
    connection: &mut Session<'_>,
    held: &[Taken],
    reaped: &mut Reaped,
    bounds: &mut Bounds,
) -> Tried<Ring> {
    if held.is_empty() {
        return Ok(Ring::default());
    }
    let (mut freed, mut delays, mut poisoned, mut ring) =
        (Vec::new(), Vec::new(), Vec::new(), Ring::default());
    for job in held {
        let lost = job.lost + 1;
        match after_loss(lost, job.max_lost, &job.backoff) {
            Loss::Freed { delay } => {
                freed.push(job.id);
                delays.push(ms(delay));
                ring =
                    ring.and(Ring { ready: delay.is_zero(), scheduled: !delay.is_zero(), ..Ring::default() });
            }
            Loss::Poison { error } => poisoned.push(Ending {
                attempt: job.attempt.saturating_sub(1),
                lost: Some(lost),
                ..job.ending(&error)
            }),
        }
    }
    (reaped.freed, reaped.poisoned) = (freed.len() as u64, poisoned.len() as u64);
    statement(sql!("attempt_add"))
        .bind(held.iter().map(|job| job.id).collect::<Vec<_>>())
        .bind(AttemptOutcome::Lost.as_str())
        .bind(None::<String>)
        .execute(&mut *connection)
        .await?;
    statement(sql!("reap_free")).bind(freed).bind(delays).execute(&mut *connection).await?;
    end(connection, &poisoned, bounds).await?;
    ring = ring.and(told_of(&poisoned));
    let ended = poisoned.iter().map(|ending| (ending.id, ending.state)).collect();
    Ok(ring.and(graph::follow(connection, ended, bounds).await?))
}

/// Jobs that ended may have ended their runs.
fn told_of(endings: &[Ending]) -> Ring {
    if endings.is_empty() { Ring::default() } else { events::ring() }
}

/// The worker lives but did not stop the attempt in time: a failure like any other.
async fn fail_overdue(
    connection: &mut Session<'_>,
    late: &[Taken],
    reaped: &mut Reaped,
    bounds: &mut Bounds,
) -> Tried<Ring> {
    let error = overdue();
    let (again, over): (Vec<&Taken>, Vec<&Taken>) =
        late.iter().partition(|job| job.attempt < job.max_attempts);
    let returns: Vec<Return> = again
        .into_iter()
        .map(|job| Return {
            id: job.id,
            fence: job.fence,
            delay: job.backoff.delay(job.attempt),
            attempt: job.attempt,
            outcome: AttemptOutcome::Overdue,
            error: Some(error_json(&error)),
            slot: None,
        })
        .collect();
    statement(sql!("attempt_add"))
        .bind(over.iter().map(|job| job.id).collect::<Vec<_>>())
        .bind(AttemptOutcome::Overdue.as_str())
        .bind(error_json(&error))
        .execute(&mut *connection)
        .await?;
    let endings: Vec<Ending> = over.into_iter().map(|job| job.ending(&error)).collect();
    end(connection, &endings, bounds).await?;
    let ended = endings.iter().map(|ending| (ending.id, ending.state)).collect();
    let followed = graph::follow(connection, ended, bounds).await?;
    let (_, ring) = put_back(connection, &returns, bounds).await?;
    let ring = ring.and(followed).and(told_of(&endings));
    reaped.overdue = late.len() as u64;
    Ok(ring.and(Ring { revoked: !late.is_empty(), ..Ring::default() }))
}

/// Folds the counts when enough has changed and no other process did within the last second.
pub(super) async fn fold_if_due(database: &Database) -> Tried<()> {
    fold_from(database, FOLD_FROM).await
}

async fn fold_from(database: &Database, changes: i64) -> Tried<()> {
    let mut connection = database.connection().await?;
    let turn = statement(sql!("fold_turn")).bind(changes).fetch_optional(&mut connection).await?;
    if turn.is_some() {
        statement(sql!("fold")).execute(&mut connection).await?;
    }
    connection.commit().await
}

pub(super) async fn prune(database: &Database, keep: Duration) -> Result<u64> {
    let mut pruned = 0;
    loop {
        let jobs = database.retrying(|| count_of(database, sql!("prune"), keep)).await?;
        pruned += jobs;
        if jobs < BATCH {
            break;
        }
    }
    database.retrying(|| prune_the_rest(database, keep)).await?;
    database.retrying(|| fold_from(database, 1)).await?;
    Ok(pruned)
}

async fn prune_the_rest(database: &Database, keep: Duration) -> Tried<()> {
    let mut tx = database.begin().await?;
    let held = statement(sql!("prune_runs_hold")).bind(ms(keep)).fetch_all(&mut tx).await?;
    let held = held.iter().map(|row| value(row, "id")).collect::<Tried<Vec<String>>>()?;
    statement(sql!("prune_runs")).bind(held).execute(&mut tx).await?;
    tx.commit().await?;
    let mut connection = database.connection().await?;
    statement(sql!("prune_workers")).bind(ms(keep)).execute(&mut connection).await?;
    statement(sql!("prune_keys")).execute(&mut connection).await?;
    connection.commit().await
}
