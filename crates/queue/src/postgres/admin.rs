//! What people do to jobs: `cancel`, `retry`, `delete`, `clear`.

use std::collections::BTreeMap;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::connect::{Database, statement};
use super::failure::{Failure, Tried};
use super::finish::{Ending, end};
use super::read::{number, parsed, states, value};
use super::sql;
use crate::bell::Ring;
use crate::error::{QueueError, Result};
use crate::job::{AttemptOutcome, JobId, JobState};
use crate::queue::JobFilter;
use crate::run::RunId;

/// As in clear_live.sql and clear_ended.sql.
const CLEAR_BATCH: usize = 5_000;

pub(super) async fn cancel(database: &Database, id: JobId) -> Tried<Ring> {
    let mut tx = database.begin().await?;
    let Some(live) = live(&mut tx, id).await? else {
        return Err(ended_or_absent(&mut tx, id, "it has already ended").await?);
    };
    let was_running = parsed::<JobState>(&live, "state")? == JobState::Running;
    if was_running {
        statement(sql!("attempt_add"))
            .bind(vec![id.0])
            .bind(AttemptOutcome::Cancelled.as_str())
            .bind(None::<String>)
            .execute(&mut *tx)
            .await?;
    }
    let fence: i64 = value(&live, "fence")?;
    // The fence rises: whatever the claim still writes is refused.
    let ending = Ending {
        id: id.0,
        fence,
        guarded: false,
        fence_after: fence + 1,
        settled_after: fence + 1,
        state: JobState::Cancelled,
        result: None,
        error: None,
        attempt: number(&live, "attempt")?,
        lost: number(&live, "lost")?,
        slot: None,
        in_run: true,
    };
    end(&mut tx, &[ending]).await?;
    tx.commit().await?;
    Ok(Ring { revoked: was_running, told: true, ..Ring::default() })
}

pub(super) async fn retry(database: &Database, id: JobId) -> Tried<Ring> {
    let mut tx = database.begin().await?;
    let Some(ended) = statement(sql!("ended")).bind(id.0).fetch_optional(&mut *tx).await? else {
        return Err(match live(&mut tx, id).await? {
            Some(live) => wrong_state(id, parsed(&live, "state")?, "it has not ended yet; cancel it first"),
            None => QueueError::NotFound(id).into(),
        });
    };
    let state: JobState = parsed(&ended, "state")?;
    if statement(sql!("retry")).bind(id.0).fetch_optional(&mut *tx).await?.is_none() {
        return Err(wrong_state(
            id,
            state,
            "another live job has its unique key; cancel or delete that one first",
        ));
    }
    if let Some(run) = value::<Option<&str>>(&ended, "run")? {
        statement(sql!("run_reopen")).bind(run).bind(state.as_str()).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(Ring { ready: true, told: true, ..Ring::default() })
}

pub(super) async fn delete(database: &Database, id: JobId) -> Tried<()> {
    let mut tx = database.begin().await?;
    if let Some(live) = live(&mut tx, id).await? {
        if parsed::<JobState>(&live, "state")? == JobState::Running {
            return Err(wrong_state(id, JobState::Running, "cancel it first"));
        }
        forget_live(&mut tx, vec![id.0]).await?;
    } else if forget_ended(&mut tx, vec![id.0]).await? == 0 {
        return Err(QueueError::NotFound(id).into());
    }
    tx.commit().await?;
    Ok(())
}

/// In bounded batches, each in a transaction of its own, so that nobody waits for a million rows.
pub(super) async fn clear(database: &Database, filter: &JobFilter) -> Result<u64> {
    let mut cleared = 0;
    for history in [false, true] {
        let mut after = 0;
        loop {
            let batch = database.retrying(|| clear_batch(database, filter, history, after)).await?;
            cleared += batch.jobs;
            match batch.last {
                Some(last) => after = last,
                None => break,
            }
        }
    }
    Ok(cleared)
}

struct Cleared {
    jobs: u64,
    /// Where the next batch begins; `None` when there is none.
    last: Option<i64>,
}

async fn clear_batch(database: &Database, filter: &JobFilter, history: bool, after: i64) -> Tried<Cleared> {
    let mut tx = database.begin().await?;
    let rows = statement(if history { sql!("clear_ended") } else { sql!("clear_live") })
        .bind(after)
        .bind(states(filter))
        .bind(filter.kind.as_deref())
        .bind(filter.lane.as_deref())
        .bind(filter.tenant.as_deref())
        .bind(filter.run.as_ref().map(RunId::as_str))
        .fetch_all(&mut *tx)
        .await?;
    let ids = rows.iter().map(|row| Ok(row.try_get("id")?)).collect::<Tried<Vec<i64>>>()?;
    let last = ids.last().copied().filter(|_| ids.len() == CLEAR_BATCH);
    let jobs = if history { forget_ended(&mut tx, ids).await? } else { forget_live(&mut tx, ids).await? };
    tx.commit().await?;
    Ok(Cleared { jobs, last })
}

/// Forgets live jobs; the runs they belonged to go on without them.
async fn forget_live(connection: &mut PgConnection, ids: Vec<i64>) -> Tried<u64> {
    let rows = statement(sql!("delete_live")).bind(ids).fetch_all(&mut *connection).await?;
    let mut runs: BTreeMap<&str, i64> = BTreeMap::new();
    for row in &rows {
        if let Some(run) = value::<Option<&str>>(row, "run")? {
            *runs.entry(run).or_default() += 1;
        }
    }
    if !runs.is_empty() {
        let (runs, jobs): (Vec<&str>, Vec<i64>) = runs.into_iter().unzip();
        statement(sql!("run_shrink")).bind(runs).bind(jobs).execute(connection).await?;
    }
    Ok(rows.len() as u64)
}

async fn forget_ended(connection: &mut PgConnection, ids: Vec<i64>) -> Tried<u64> {
    Ok(statement(sql!("delete_ended")).bind(ids).fetch_all(connection).await?.len() as u64)
}

async fn live(connection: &mut PgConnection, id: JobId) -> Tried<Option<PgRow>> {
    Ok(statement(sql!("live")).bind(id.0).fetch_optional(connection).await?)
}

async fn ended_or_absent(connection: &mut PgConnection, id: JobId, hint: &str) -> Tried<Failure> {
    let ended = statement(sql!("ended")).bind(id.0).fetch_optional(connection).await?;
    Ok(match ended {
        Some(row) => wrong_state(id, parsed(&row, "state")?, hint),
        None => QueueError::NotFound(id).into(),
    })
}

fn wrong_state(id: JobId, state: JobState, hint: &str) -> Failure {
    QueueError::WrongState { id, state, hint: hint.into() }.into()
}
