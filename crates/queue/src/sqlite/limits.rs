//! `limit`, `limits`, `slow_down`, and the balance of admitted and parked jobs that every other verb keeps.

use rusqlite::{Connection, Row, params};

use super::row::Columns;
use super::sql;
use super::writer::Tx;
use crate::error::{QueueError, Result};
use crate::job::JobState;
use crate::limit::{Balanced, Bound, Bounds, Bucket, Candidate, Gate, Gates, Limit, LimitState};
use crate::timestamp::Timestamp;

/// Sets or removes a limit; says whether more jobs are to be admitted or parked than one transaction should.
pub(super) fn limit(tx: &Tx<'_>, limit: &Limit) -> Result<bool> {
    let bound = Bound::Key(limit.key.clone());
    change(tx, &bound, limit.max_running, limit.per_minute)?;
    rebalance(tx, &bound)
}

/// Without any bound there is no limit.
pub(super) fn change(
    tx: &Tx<'_>,
    bound: &Bound,
    max_running: Option<u32>,
    per_minute: Option<f64>,
) -> Result<()> {
    let (scope, name) = (bound.scope(), bound.name());
    if max_running.is_none() && per_minute.is_none() {
        tx.run(sql!("limit_remove"), [scope, name]).map(drop)
    } else {
        tx.run(sql!("limit"), params![scope, name, max_running, per_minute, tx.now.as_ms()]).map(drop)
    }
}

/// Goes on where one transaction stopped.
pub(super) fn rebalance(tx: &Tx<'_>, bound: &Bound) -> Result<bool> {
    let balanced = balance(tx, Bounds::from([bound.clone()]))?;
    tx.ring(balanced.ring());
    Ok(balanced.is_partial())
}

pub(super) fn slow_down(tx: &Tx<'_>, key: &str) -> Result<Option<f64>> {
    let bound = Bound::Key(key.to_owned());
    let Some(bucket) = look(tx, &bound)? else { return Ok(None) };
    let slower = bucket.slower();
    store(tx, key, &slower)?;
    tx.touch([bound]);
    Ok(Some(slower.pace))
}

pub(super) fn limits(connection: &Connection) -> rusqlite::Result<Vec<LimitState>> {
    let now_ms = Timestamp::now().as_ms();
    let mut statement = connection.prepare_cached(sql!("limits"))?;
    let rows = statement.query_map([], |row| {
        let bucket = bucket(row, 1)?.at(now_ms);
        let jobs = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
        Ok(LimitState {
            limit: Limit { key: row.get(0)?, max_running: bucket.max_running, per_minute: bucket.per_minute },
            pace: bucket.pace,
            changed_at: Timestamp::from_ms(row.get(6)?),
            running: jobs(7)?,
            pending: jobs(8)?,
            parked: jobs(9)?,
        })
    })?;
    rows.collect()
}

/// What bounds a job.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounded {
    pub(super) limit_key: Option<String>,
    /// Its tenant, if that has a cap.
    pub(super) capped: Option<String>,
}

impl Bounded {
    pub(super) fn read(column: &mut Columns<'_, '_>) -> rusqlite::Result<Self> {
        Ok(Self { limit_key: column.next()?, capped: column.next()? })
    }

    pub(super) fn bounds(&self) -> impl Iterator<Item = Bound> {
        Bound::of_job(self.limit_key.clone(), self.capped.clone())
    }

    /// In which line the job has to be let in before it may run. `None`: in none.
    pub(super) fn parks_on(&self) -> Option<&'static str> {
        match self {
            Self { capped: Some(_), .. } => Some("tenant"),
            Self { limit_key: Some(_), .. } => Some("key"),
            Self { limit_key: None, capped: None } => None,
        }
    }

    /// Only what holds: a key without a limit lets everything in.
    pub(super) fn in_force(&self, tx: &Tx<'_>) -> Result<Self> {
        let limit_key = match &self.limit_key {
            Some(key) if self.capped.is_none() && !is_limited(tx, key)? => None,
            other => other.clone(),
        };
        Ok(Self { limit_key, capped: self.capped.clone() })
    }
}

fn is_limited(tx: &Tx<'_>, key: &str) -> Result<bool> {
    Ok(tx.first(sql!("limit_look"), ["key", key], |_| Ok(()))?.is_some())
}

/// Every bound with parked jobs.
pub(super) fn balance_parked(tx: &Tx<'_>) -> Result<Balanced> {
    let keys = tx.all(sql!("limit_parked"), [], |row| row.get(0).map(Bound::Key))?;
    let tenants = tx.all(sql!("cap_parked"), [], |row| row.get(0).map(Bound::Tenant))?;
    let balanced = balance(tx, keys.into_iter().chain(tenants).collect())?;
    tx.ring(balanced.ring());
    Ok(balanced)
}

/// The bounds of jobs that the operations of a transaction moved, once for all of them.
pub(super) fn balance_touched(tx: &Tx<'_>) -> Result<()> {
    let touched = tx.take_touched();
    if !touched.is_empty() {
        tx.ring(balance(tx, touched)?.ring());
    }
    Ok(())
}

/// Lets the next parked jobs in, or parks the pending ones that are too many.
fn balance(tx: &Tx<'_>, mut bounds: Bounds) -> Result<Balanced> {
    let mut gates = Gates::default();
    let tenants: Vec<Bound> =
        bounds.iter().filter(|bound| matches!(bound, Bound::Tenant(_))).cloned().collect();
    for tenant in &tenants {
        bounds.extend(keys_of(tx, tenant)?.into_iter().map(Bound::Key));
    }
    for bound in bounds {
        let gate = gate(tx, &bound)?;
        gates.insert(bound, gate);
    }
    let (mut parked, mut called) = (0, 0);
    for (bound, jobs) in gates.over() {
        parked += park(tx, bound, jobs)?;
    }
    for (bound, jobs) in gates.free() {
        called += call(tx, bound, jobs)?;
    }
    gates.note_parked(parked);
    gates.note_called(called);
    while !gates.is_spent() {
        let next = next(tx, &gates)?;
        for tenant in gates.unknown(&next) {
            let gate = gate(tx, &tenant)?;
            gates.insert(tenant, gate);
        }
        let verdict = gates.decide(next);
        admit(tx, &verdict.admitted)?;
        if verdict.sent_back.is_empty() {
            break;
        }
        tx.run(sql!("limit_send_back"), [list(&verdict.sent_back)?])?;
    }
    for (key, bucket) in gates.spent() {
        store(tx, key, &bucket)?;
    }
    Ok(gates.balanced())
}

fn gate(tx: &Tx<'_>, bound: &Bound) -> Result<Gate> {
    let Some(bucket) = look(tx, bound)? else { return Ok(Gate::open()) };
    let counting = match bound {
        Bound::Key(_) => sql!("limit_admitted"),
        Bound::Tenant(_) => sql!("cap_admitted"),
    };
    let jobs = |row: &Row<'_>, column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    let admitted = tx.first(counting, [bound.name()], |row| Ok((jobs(row, 0)?, jobs(row, 1)?)))?;
    let (pending, running) = admitted.unwrap_or_default();
    Ok(Gate::of(bucket, pending, running))
}

fn keys_of(tx: &Tx<'_>, tenant: &Bound) -> Result<Vec<String>> {
    tx.all(sql!("cap_keys"), [tenant.name()], |row| row.get(0))
}

/// A tenant with room calls as many of its jobs to the line of each key they wait for.
fn call(tx: &Tx<'_>, bound: &Bound, jobs: u64) -> Result<u64> {
    let Bound::Tenant(tenant) = bound else { return Ok(0) };
    let mut called = 0;
    for key in keys_of(tx, bound)? {
        called += tx.run(sql!("cap_call"), params![tenant, key, jobs.cast_signed()])?;
    }
    Ok(called as u64)
}

/// Who would be next, as far as there is room.
fn next(tx: &Tx<'_>, gates: &Gates) -> Result<Vec<Candidate>> {
    let mut next = Vec::new();
    for (bound, jobs) in gates.free() {
        let line = match bound {
            Bound::Key(_) => sql!("limit_next"),
            Bound::Tenant(_) => sql!("cap_next"),
        };
        next.extend(tx.all(line, params![bound.name(), jobs.cast_signed()], candidate)?);
    }
    Ok(next)
}

fn candidate(row: &Row<'_>) -> rusqlite::Result<Candidate> {
    let mut column = Columns::of(row);
    Ok(Candidate {
        id: column.next()?,
        priority: column.next()?,
        fair_at: column.next()?,
        limit_key: column.next()?,
        capped: column.next()?,
    })
}

fn admit(tx: &Tx<'_>, jobs: &[i64]) -> Result<()> {
    if !jobs.is_empty() {
        move_jobs(tx, sql!("limit_admit"), [list(jobs)?], (JobState::Parked, JobState::Pending))?;
    }
    Ok(())
}

fn park(tx: &Tx<'_>, bound: &Bound, jobs: u64) -> Result<u64> {
    let parking = match bound {
        Bound::Key(_) => sql!("limit_park"),
        Bound::Tenant(_) => sql!("cap_park"),
    };
    move_jobs(tx, parking, params![bound.name(), jobs.cast_signed()], (JobState::Pending, JobState::Parked))
}

fn move_jobs(
    tx: &Tx<'_>,
    sql: &'static str,
    params: impl rusqlite::Params,
    (from, to): (JobState, JobState),
) -> Result<u64> {
    let moved = tx.all(sql, params, |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    for (lane, kind) in &moved {
        tx.count(lane, kind, from, -1);
        tx.count(lane, kind, to, 1);
    }
    Ok(moved.len() as u64)
}

fn list(ids: &[i64]) -> Result<String> {
    serde_json::to_string(ids).map_err(QueueError::unexpected)
}

/// A limit's bucket as it is now. `None`: there is no limit.
fn look(tx: &Tx<'_>, bound: &Bound) -> Result<Option<Bucket>> {
    let found = tx.first(sql!("limit_look"), [bound.scope(), bound.name()], |row| bucket(row, 0))?;
    Ok(found.map(|bucket| bucket.at(tx.now.as_ms())))
}

fn store(tx: &Tx<'_>, key: &str, bucket: &Bucket) -> Result<()> {
    tx.run(sql!("limit_spend"), params![key, bucket.pace, bucket.tokens, bucket.refilled_at_ms]).map(drop)
}

fn bucket(row: &Row<'_>, first: usize) -> rusqlite::Result<Bucket> {
    Ok(Bucket {
        max_running: row.get(first)?,
        per_minute: row.get(first + 1)?,
        pace: row.get(first + 2)?,
        tokens: row.get(first + 3)?,
        refilled_at_ms: row.get(first + 4)?,
    })
}
