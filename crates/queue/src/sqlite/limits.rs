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
fn balance(tx: &Tx<'_>, bounds: Bounds) -> Result<Balanced> {
    let mut gates = Gates::default();
    for bound in bounds {
        insert(tx, &mut gates, bound)?;
    }
    let mut parked = 0;
    for (bound, jobs) in gates.over() {
        parked += park(tx, bound, jobs)?;
    }
    gates.note_parked(parked);
    look_into_lines(tx, &mut gates)?;
    while gates.note_called(call(tx, &gates)?) {
        let next = next(tx, &gates)?;
        for tenant in gates.unknown(&next) {
            insert(tx, &mut gates, tenant)?;
        }
        if gates.meet(&next) {
            continue;
        }
        let verdict = gates.decide(next);
        admit(tx, &verdict.admitted)?;
        change_line(tx, sql!("limit_send_back"), &verdict.sent_back)?;
        if gates.is_spent() {
            break;
        }
    }
    let standing_in = stand_in(tx, &gates)?;
    gates.note_stand_ins(standing_in);
    for (key, bucket) in gates.spent() {
        store(tx, key, &bucket)?;
    }
    Ok(gates.balanced())
}

fn insert(tx: &Tx<'_>, gates: &mut Gates, bound: Bound) -> Result<()> {
    let gate = gate(tx, &bound)?;
    gates.insert(bound, gate);
    Ok(())
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

/// Notes the keys of the jobs that wait in the lines of tenants with room, and how much room those have.
fn look_into_lines(tx: &Tx<'_>, gates: &mut Gates) -> Result<()> {
    let tenants = gates.free().into_iter().filter(|(bound, _)| matches!(bound, Bound::Tenant(_)));
    let tenants: Vec<Bound> = tenants.map(|(tenant, _)| tenant.clone()).collect();
    for tenant in tenants {
        for key in tx.all(sql!("cap_keys"), [tenant.name()], |row| row.get(0).map(Bound::Key))? {
            if !gates.holds(&key) {
                insert(tx, gates, key.clone())?;
            }
            gates.note_waiting(tenant.clone(), key);
        }
    }
    Ok(())
}

/// Tenants with room call their best jobs to the lines of keys with room; says how many.
fn call(tx: &Tx<'_>, gates: &Gates) -> Result<u64> {
    let mut called = 0;
    for call in gates.calls() {
        let mut line = tx.all(sql!("cap_next"), params![call.tenant, call.jobs.cast_signed()], candidate)?;
        for (key, jobs) in &call.keys {
            let of_key = params![call.tenant, key, jobs.cast_signed()];
            line.extend(tx.all(sql!("cap_next_of_key"), of_key, candidate)?);
        }
        let best = call.best(line);
        change_line(tx, sql!("cap_call"), &best)?;
        called += best.len() as u64;
    }
    Ok(called)
}

/// Where keys are full, a job of each tenant with room stands in the line for the others; says how many were called to.
fn stand_in(tx: &Tx<'_>, gates: &Gates) -> Result<u64> {
    let (mut called, rest) = (0, gates.rest());
    for (tenant, key) in gates.stand_ins() {
        if called >= rest {
            break;
        }
        called += tx.run(sql!("cap_stand_in"), [tenant, key])? as u64;
    }
    Ok(called)
}

fn change_line(tx: &Tx<'_>, sql: &'static str, jobs: &[i64]) -> Result<()> {
    if !jobs.is_empty() {
        tx.run(sql, [list(jobs)?])?;
    }
    Ok(())
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
        let admitted = params![list(jobs)?, tx.now.as_ms()];
        move_jobs(tx, sql!("limit_admit"), admitted, (JobState::Parked, JobState::Pending))?;
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
