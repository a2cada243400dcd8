//! What an operator sets: `pause`, `resume`, the shares and caps of tenants; and `cancel_all`, `retry_all`.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::edit;
use super::limits::{change, rebalance};
use super::read::FilterValues;
use super::sql;
use super::writer::Tx;
use crate::bell::Ring;
use crate::error::{QueueError, Result};
use crate::job::JobId;
use crate::limit::{Bound, Pausable, Paused, TenantPolicy, TenantState};
use crate::queue::JobFilter;
use crate::timestamp::Timestamp;
use crate::worker::Pull;

/// Jobs steered in one transaction of `cancel_all` and `retry_all`.
const STEER_BATCH: u32 = 500;

pub(super) fn pause(tx: &Tx<'_>, what: &Pausable) -> Result<bool> {
    Ok(tx.run(sql!("pause"), params![what.scope(), what.name(), tx.now.as_ms()])? == 1)
}

pub(super) fn resume(tx: &Tx<'_>, what: &Pausable) -> Result<bool> {
    let resumed = tx.run(sql!("resume"), params![what.scope(), what.name()])? == 1;
    tx.ring(Ring { ready: resumed, ..Ring::default() });
    Ok(resumed)
}

pub(super) fn paused(connection: &Connection) -> rusqlite::Result<Vec<Paused>> {
    let mut statement = connection.prepare_cached(sql!("paused"))?;
    let rows = statement.query_map([], |row| {
        let scope: String = row.get(0)?;
        Ok(Paused { what: Pausable::of(&scope, row.get(1)?), paused_at: Timestamp::from_ms(row.get(2)?) })
    })?;
    rows.collect()
}

/// Takes paused lanes and kinds out of what a worker asks for.
pub(super) fn without_paused(tx: &Tx<'_>, pull: &Pull) -> Result<(BTreeMap<String, u32>, Vec<String>)> {
    let (mut lanes, mut kinds) = (pull.lanes.clone(), pull.kinds.clone());
    let paused =
        tx.all(sql!("paused"), [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    for (scope, name) in paused {
        match Pausable::of(&scope, name) {
            Pausable::Lane(name) => drop(lanes.remove(&name)),
            Pausable::Kind(name) => kinds.retain(|kind| *kind != name),
        }
    }
    if kinds.is_empty() {
        lanes.clear();
    }
    Ok((lanes, kinds))
}

/// Says whether more jobs are to be admitted or parked than one transaction should.
pub(super) fn tenant(tx: &Tx<'_>, policy: &TenantPolicy) -> Result<bool> {
    if policy.is_default() {
        tx.run(sql!("tenant_forget"), [&policy.name])?;
    } else {
        tx.run(sql!("tenant"), params![policy.name, policy.weight])?;
    }
    let bound = Bound::Tenant(policy.name.clone());
    change(tx, &bound, policy.max_running, None)?;
    rebalance(tx, &bound)
}

pub(super) fn tenants(connection: &Connection) -> rusqlite::Result<Vec<TenantState>> {
    let mut statement = connection.prepare_cached(sql!("tenants"))?;
    let rows = statement.query_map([], |row| {
        let jobs = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
        let policy = TenantPolicy { name: row.get(0)?, weight: row.get(1)?, max_running: row.get(2)? };
        Ok(TenantState { policy, running: jobs(3)?, pending: jobs(4)?, parked: jobs(5)? })
    })?;
    rows.collect()
}

/// One batch of jobs that were steered.
pub(super) struct Steered {
    pub(super) jobs: u64,
    /// Where the next batch begins; `None` when there is none.
    pub(super) last: Option<JobId>,
}

pub(super) fn cancel_all(tx: &Tx<'_>, filter: &JobFilter, after: JobId) -> Result<Steered> {
    steer(tx, sql!("cancel_all"), filter, after, edit::cancel)
}

pub(super) fn retry_all(tx: &Tx<'_>, filter: &JobFilter, after: JobId) -> Result<Steered> {
    steer(tx, sql!("retry_all"), filter, after, edit::retry)
}

/// Ids only rise, so a job that ends up matching again is not steered twice.
fn steer(
    tx: &Tx<'_>,
    matching: &'static str,
    filter: &JobFilter,
    after: JobId,
    verb: fn(&Tx<'_>, JobId) -> Result<()>,
) -> Result<Steered> {
    let values = FilterValues::of(filter);
    let (states, kind, lane, tenant, run) = values.parts();
    let matching =
        tx.all(matching, params![states, kind, lane, tenant, run, after.0, STEER_BATCH], |row| {
            row.get(0).map(JobId)
        })?;
    let mut jobs = 0;
    for id in &matching {
        match verb(tx, *id) {
            Ok(()) => jobs += 1,
            // Steering one may have changed another.
            Err(QueueError::WrongState { .. } | QueueError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let last = matching.last().copied().filter(|_| matching.len() == STEER_BATCH as usize);
    Ok(Steered { jobs, last })
}
