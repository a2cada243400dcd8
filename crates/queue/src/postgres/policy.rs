//! What an operator sets: `pause`, `resume`, the shares and caps of tenants; and `cancel_all`, `retry_all`.

use sqlx::postgres::PgRow;

use super::admin::{cancel_in, retry_in};
use super::connect::Database;
use super::failure::{Failure, Tried};
use super::limits::{balance, balance_and_commit, balance_the_rest, change};
use super::read::{big_number, instant, matching, optional_number, value};
use super::session::statement;
use super::sql;
use crate::bell::Ring;
use crate::error::{QueueError, Result};
use crate::job::JobId;
use crate::limit::{Balanced, Bound, Bounds, Pausable, Paused, TenantPolicy, TenantState};
use crate::queue::JobFilter;

/// As in cancel_all.sql and retry_all.sql.
const STEER_BATCH: usize = 500;

pub(super) async fn pause(database: &Database, what: &Pausable) -> Tried<bool> {
    let mut connection = database.connection().await?;
    let done = statement(sql!("pause")).bind(what.scope()).bind(what.name()).execute(&mut connection).await?;
    connection.commit().await?;
    Ok(done.rows_affected() == 1)
}

pub(super) async fn resume(database: &Database, what: &Pausable) -> Tried<(bool, Ring)> {
    let mut connection = database.connection().await?;
    let done =
        statement(sql!("resume")).bind(what.scope()).bind(what.name()).execute(&mut connection).await?;
    connection.commit().await?;
    let resumed = done.rows_affected() == 1;
    Ok((resumed, Ring { ready: resumed, ..Ring::default() }))
}

pub(super) async fn paused(database: &Database) -> Tried<Vec<Paused>> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("paused")).fetch_all(&mut connection).await?;
    let read = |row| {
        let what = Pausable::of(value(row, "scope")?, value(row, "name")?);
        Ok(Paused { what, paused_at: instant(row, "paused_at")? })
    };
    rows.iter().map(read).collect()
}

pub(super) async fn tenant(database: &Database, policy: &TenantPolicy) -> Result<Ring> {
    let bound = Bound::Tenant(policy.name.clone());
    let balanced = database.retrying(|| change_tenant(database, policy, &bound)).await?;
    balance_the_rest(database, &bound, balanced).await
}

async fn change_tenant(database: &Database, policy: &TenantPolicy, bound: &Bound) -> Tried<Balanced> {
    let mut tx = database.begin().await?;
    change(&mut tx, bound, policy.max_running, None).await?;
    if policy.is_default() {
        statement(sql!("tenant_forget")).bind(&policy.name).execute(&mut tx).await?;
    } else {
        statement(sql!("tenant")).bind(&policy.name).bind(policy.weight).execute(&mut tx).await?;
    }
    balance_and_commit(tx, bound).await
}

pub(super) async fn tenants(database: &Database) -> Tried<Vec<TenantState>> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("tenants")).fetch_all(&mut connection).await?;
    rows.iter().map(tenant_state).collect()
}

fn tenant_state(row: &PgRow) -> Tried<TenantState> {
    Ok(TenantState {
        policy: TenantPolicy {
            name: value(row, "name")?,
            weight: value(row, "weight")?,
            max_running: optional_number(row, "max_running")?,
        },
        running: big_number(row, "running")?,
        pending: big_number(row, "pending")?,
        parked: big_number(row, "parked")?,
    })
}

#[derive(Clone, Copy)]
pub(super) enum Steer {
    Cancel,
    Retry,
}

/// In bounded batches, each in a transaction of its own. Ids only rise, so a job that ends up matching again is not
/// steered twice.
pub(super) async fn steer_all(database: &Database, steer: Steer, filter: &JobFilter) -> Result<(u64, Ring)> {
    let (mut jobs, mut ring, mut after) = (0, Ring::default(), Some(0));
    while let Some(last) = after {
        let batch = database.retrying(|| steer_batch(database, steer, filter, last)).await?;
        jobs += batch.jobs;
        ring = ring.and(batch.ring);
        after = batch.last;
    }
    Ok((jobs, ring))
}

struct Steered {
    jobs: u64,
    ring: Ring,
    /// Where the next batch begins; `None` when there is none.
    last: Option<i64>,
}

async fn steer_batch(database: &Database, steer: Steer, filter: &JobFilter, after: i64) -> Tried<Steered> {
    let mut tx = database.begin().await?;
    let steering = match steer {
        Steer::Cancel => sql!("cancel_all"),
        Steer::Retry => sql!("retry_all"),
    };
    let ids = matching(&mut tx, steering, filter, after).await?;
    let (mut jobs, mut ring, mut bounds) = (0, Ring::default(), Bounds::new());
    for id in &ids {
        let steered = match steer {
            Steer::Cancel => cancel_in(&mut tx, JobId(*id), &mut bounds).await,
            Steer::Retry => retry_in(&mut tx, JobId(*id), &mut bounds).await,
        };
        match steered {
            Ok(rung) => {
                jobs += 1;
                ring = ring.and(rung);
            }
            // Steering one may have changed another.
            Err(Failure::Verb(QueueError::WrongState { .. } | QueueError::NotFound(_))) => {}
            Err(failure) => return Err(failure),
        }
    }
    ring = ring.and(balance(&mut tx, &bounds).await?);
    tx.commit().await?;
    let last = ids.last().copied().filter(|_| ids.len() == STEER_BATCH);
    Ok(Steered { jobs, ring, last })
}
