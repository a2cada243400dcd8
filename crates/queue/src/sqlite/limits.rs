//! `limit`, `limits`, `slow_down`, and the balance of admitted and parked jobs that every other verb keeps.

use std::time::Duration;

use rusqlite::{Connection, Row, params};

use super::sql;
use super::writer::Tx;
use crate::bell::Ring;
use crate::error::Result;
use crate::job::JobState;
use crate::limit::{BALANCE_BATCH, Bucket, Limit, LimitState};
use crate::timestamp::Timestamp;

/// Sets or removes a limit; says whether more jobs are to be admitted or parked than one transaction should.
pub(super) fn limit(tx: &Tx<'_>, limit: &Limit) -> Result<bool> {
    if limit.is_none() {
        tx.run(sql!("limit_remove"), [&limit.key])?;
    } else {
        tx.run(sql!("limit"), params![limit.key, limit.max_running, limit.per_minute, tx.now.as_ms()])?;
    }
    rebalance(tx, &limit.key)
}

/// Goes on where one transaction stopped.
pub(super) fn rebalance(tx: &Tx<'_>, key: &str) -> Result<bool> {
    let balanced = balance(tx, key)?;
    tx.ring(Ring { scheduled: balanced.next_in.is_some(), ..Ring::default() });
    Ok(balanced.moved >= u64::from(BALANCE_BATCH))
}

pub(super) fn slow_down(tx: &Tx<'_>, key: &str) -> Result<Option<f64>> {
    let Some(bucket) = look(tx, key)? else { return Ok(None) };
    let slower = bucket.slower();
    store(tx, key, &slower)?;
    tx.touch(Some(key));
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

pub(super) fn is_limited(tx: &Tx<'_>, key: &str) -> Result<bool> {
    Ok(tx.first(sql!("limit_look"), [key], |_| Ok(()))?.is_some())
}

/// What a balance did, and when time alone may allow more.
#[derive(Default)]
pub(super) struct Balanced {
    moved: u64,
    pub(super) admitted: u64,
    pub(super) next_in: Option<Duration>,
}

impl Balanced {
    fn and(self, other: &Self) -> Self {
        Self {
            moved: self.moved.max(other.moved),
            admitted: self.admitted + other.admitted,
            next_in: [self.next_in, other.next_in].into_iter().flatten().min(),
        }
    }
}

/// Every key with parked jobs. `next_in` of zero means that one transaction was not enough.
pub(super) fn balance_parked(tx: &Tx<'_>) -> Result<Balanced> {
    let mut all = Balanced::default();
    for key in tx.all(sql!("limit_parked"), [], |row| row.get::<_, String>(0))? {
        all = all.and(&balance(tx, &key)?);
    }
    if all.moved >= u64::from(BALANCE_BATCH) {
        all.next_in = Some(Duration::ZERO);
    }
    Ok(all)
}

/// The keys that the operations of a transaction touched, once for all of them.
pub(super) fn balance_touched(tx: &Tx<'_>) -> Result<()> {
    for key in tx.take_touched() {
        let balanced = balance(tx, &key)?;
        // Somebody has to be there when the next token is.
        tx.ring(Ring { scheduled: balanced.next_in.is_some(), ..Ring::default() });
    }
    Ok(())
}

/// Lets the next parked jobs of a key in, or parks the pending ones that are too many. A key without a limit lets
/// everything in.
fn balance(tx: &Tx<'_>, key: &str) -> Result<Balanced> {
    let Some(bucket) = look(tx, key)? else {
        let admitted = admit(tx, key, BALANCE_BATCH)?;
        return Ok(Balanced { moved: admitted, admitted, next_in: None });
    };
    let (pending, running) = tx
        .first(sql!("limit_admitted"), [key], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?
        .unwrap_or_default();
    let room = bucket.room(pending.unsigned_abs(), running.unsigned_abs());
    let batch = u32::try_from(room.unsigned_abs()).unwrap_or(u32::MAX).min(BALANCE_BATCH);
    if room < 0 {
        let parked = park(tx, key, batch)?;
        return Ok(Balanced { moved: parked, admitted: 0, next_in: bucket.next_in() });
    }
    let admitted = if room > 0 { admit(tx, key, batch)? } else { 0 };
    let bucket = bucket.spent(admitted);
    if admitted > 0 && bucket.per_minute.is_some() {
        store(tx, key, &bucket)?;
    }
    // Fewer than there was room for: nobody is left to wait for a token.
    let next_in = bucket.next_in().filter(|_| admitted == u64::from(batch));
    Ok(Balanced { moved: admitted, admitted, next_in })
}

fn admit(tx: &Tx<'_>, key: &str, jobs: u32) -> Result<u64> {
    let admitted = move_jobs(tx, sql!("limit_admit"), key, jobs, (JobState::Parked, JobState::Pending))?;
    tx.ring(Ring { ready: admitted > 0, ..Ring::default() });
    Ok(admitted)
}

fn park(tx: &Tx<'_>, key: &str, jobs: u32) -> Result<u64> {
    move_jobs(tx, sql!("limit_park"), key, jobs, (JobState::Pending, JobState::Parked))
}

fn move_jobs(
    tx: &Tx<'_>,
    sql: &'static str,
    key: &str,
    jobs: u32,
    (from, to): (JobState, JobState),
) -> Result<u64> {
    let moved =
        tx.all(sql, params![key, jobs], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    for (lane, kind) in &moved {
        tx.count(lane, kind, from, -1);
        tx.count(lane, kind, to, 1);
    }
    Ok(moved.len() as u64)
}

/// A limit's bucket as it is now.
fn look(tx: &Tx<'_>, key: &str) -> Result<Option<Bucket>> {
    let found = tx.first(sql!("limit_look"), [key], |row| bucket(row, 0))?;
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
