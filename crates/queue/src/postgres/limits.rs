//! `limit`, `limits`, `slow_down`, and the balance of admitted and parked jobs that every other verb keeps.
//!
//! Counting under SKIP LOCKED would be write skew. So whoever moved jobs of a limit locks its row, the last lock it
//! takes, and counts in a second statement, which sees what the holders before it did. Of jobs, a balance takes only
//! those that nobody holds, so it waits for no one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sqlx::postgres::PgRow;

use super::connect::Database;
use super::failure::Tried;
use super::read::{big_number, instant, optional_number, value};
use super::session::{Session, statement};
use super::sql;
use crate::bell::Ring;
use crate::error::Result;
use crate::limit::{BALANCE_BATCH, Bucket, Limit, LimitState};

/// Keys of limits whose jobs were moved.
pub(super) type Keys = BTreeSet<String>;

pub(super) async fn limit(database: &Database, limit: &Limit) -> Result<Ring> {
    let (mut more, mut ring) = database.retrying(|| change(database, limit)).await?;
    let keys = Keys::from([limit.key.clone()]);
    while more {
        let balanced = database.retrying(|| balance_alone(database, &keys)).await?;
        more = balanced.is_partial();
        ring = ring.and(balanced.ring());
    }
    Ok(ring)
}

/// Says whether more jobs are to be admitted or parked than one transaction should.
async fn change(database: &Database, limit: &Limit) -> Tried<(bool, Ring)> {
    let mut tx = database.begin().await?;
    statement(sql!("limit_change")).execute(&mut tx).await?;
    if limit.is_none() {
        statement(sql!("limit_remove")).bind(&limit.key).execute(&mut tx).await?;
    } else {
        statement(sql!("limit"))
            .bind(&limit.key)
            .bind(limit.max_running.map(|jobs| i32::try_from(jobs).unwrap_or(i32::MAX)))
            .bind(limit.per_minute)
            .execute(&mut tx)
            .await?;
    }
    let balanced = balance_keys(&mut tx, &Keys::from([limit.key.clone()])).await?;
    tx.commit().await?;
    Ok((balanced.is_partial(), balanced.ring()))
}

pub(super) async fn slow_down(database: &Database, key: &str) -> Tried<(Option<f64>, Ring)> {
    let keys = Keys::from([key.to_owned()]);
    let mut tx = database.begin().await?;
    let Some(held) = look(&mut tx, &keys).await?.remove(key) else { return Ok((None, Ring::default())) };
    let slower = held.bucket.slower();
    store(&mut tx, key, &slower).await?;
    let balanced = balance_keys(&mut tx, &keys).await?;
    tx.commit().await?;
    Ok((Some(slower.pace), balanced.ring()))
}

pub(super) async fn limits(database: &Database) -> Tried<Vec<LimitState>> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("limits")).fetch_all(&mut connection).await?;
    rows.iter().map(limit_state).collect()
}

fn limit_state(row: &PgRow) -> Tried<LimitState> {
    let bucket = bucket(row)?;
    Ok(LimitState {
        limit: Limit {
            key: value(row, "key")?,
            max_running: bucket.max_running,
            per_minute: bucket.per_minute,
        },
        pace: bucket.pace,
        running: big_number(row, "running")?,
        pending: big_number(row, "pending")?,
        parked: big_number(row, "parked")?,
        changed_at: instant(row, "changed_at")?,
    })
}

/// Which of the keys are limited. None of them changes that before this transaction ends.
pub(super) async fn limited(connection: &mut Session<'_>, keys: &Keys) -> Tried<Keys> {
    if keys.is_empty() {
        return Ok(Keys::new());
    }
    let rows = statement(sql!("limit_known")).bind(list(keys)).fetch_all(connection).await?;
    rows.iter().map(|row| value(row, "key")).collect()
}

/// The keys that jobs count against.
pub(super) async fn keys_of(connection: &mut Session<'_>, jobs: Vec<i64>) -> Tried<Keys> {
    let rows = statement(sql!("limit_of")).bind(jobs).fetch_all(connection).await?;
    rows.iter().map(|row| value(row, "key")).collect()
}

/// Lets in or parks what the limits of these keys say; the last thing before a verb commits.
pub(super) async fn balance(connection: &mut Session<'_>, keys: &Keys) -> Tried<Ring> {
    if keys.is_empty() {
        return Ok(Ring::default());
    }
    Ok(balance_keys(connection, keys).await?.ring())
}

/// Every key with parked jobs.
pub(super) async fn balance_parked(database: &Database) -> Result<Balanced> {
    let mut all = Balanced::default();
    loop {
        let keys = database.retrying(|| parked_keys(database)).await?;
        if keys.is_empty() {
            return Ok(all);
        }
        let batch = database.retrying(|| balance_alone(database, &keys)).await?;
        all.admitted += batch.admitted;
        all.next_in = batch.next_in;
        if !batch.is_partial() {
            return Ok(all);
        }
    }
}

async fn parked_keys(database: &Database) -> Tried<Keys> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("limit_parked")).fetch_all(&mut connection).await?;
    rows.iter().map(|row| value(row, "key")).collect()
}

async fn balance_alone(database: &Database, keys: &Keys) -> Tried<Balanced> {
    let mut tx = database.begin().await?;
    let balanced = balance_keys(&mut tx, keys).await?;
    tx.commit().await?;
    Ok(balanced)
}

/// What a balance did, and when time alone may allow more.
#[derive(Default)]
pub(super) struct Balanced {
    /// The most that were moved of one key.
    moved: u64,
    pub(super) admitted: u64,
    pub(super) next_in: Option<Duration>,
}

impl Balanced {
    /// One transaction was not enough.
    fn is_partial(&self) -> bool {
        self.moved >= u64::from(BALANCE_BATCH)
    }

    /// Somebody has to be there when the next token is.
    fn ring(&self) -> Ring {
        Ring { ready: self.admitted > 0, scheduled: self.next_in.is_some(), ..Ring::default() }
    }
}

/// A limit's bucket as it is now, with the number of its jobs that are let in.
struct Held {
    bucket: Bucket,
    room: i64,
}

async fn balance_keys(connection: &mut Session<'_>, keys: &Keys) -> Tried<Balanced> {
    let held = look(connection, keys).await?;
    let batch = i64::from(BALANCE_BATCH);
    // A key without a limit lets everything in.
    let room = |key: &String| held.get(key).map_or(batch, |held| held.room).clamp(-batch, batch);
    let rooms: Vec<(&str, i64)> = keys.iter().map(|key| (key.as_str(), room(key))).collect();
    let over: Vec<(&str, i64)> =
        rooms.iter().filter(|(_, room)| *room < 0).map(|(key, room)| (*key, -room)).collect();
    let free: Vec<(&str, i64)> = rooms.iter().filter(|(_, room)| *room > 0).copied().collect();
    let parked = move_jobs(connection, sql!("limit_park"), &over).await?;
    let admitted = move_jobs(connection, sql!("limit_admit"), &free).await?;
    let mut next_in = None;
    for (key, room) in rooms {
        let Some(Held { bucket, .. }) = held.get(key) else { continue };
        let let_in = admitted.get(key).copied().unwrap_or(0);
        let bucket = bucket.spent(let_in);
        if let_in > 0 && bucket.per_minute.is_some() {
            store(connection, key, &bucket).await?;
        }
        // Fewer than there was room for: nobody is left to wait for a token.
        if room < 0 || let_in == room.unsigned_abs() {
            next_in = [next_in, bucket.next_in()].into_iter().flatten().min();
        }
    }
    let moved = parked.values().chain(admitted.values()).copied().max().unwrap_or(0);
    Ok(Balanced { moved, admitted: admitted.values().sum(), next_in })
}

async fn look(connection: &mut Session<'_>, keys: &Keys) -> Tried<BTreeMap<String, Held>> {
    let locked = statement(sql!("limit_lock")).bind(list(keys)).fetch_all(&mut *connection).await?;
    if locked.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows = statement(sql!("limit_look")).bind(list(keys)).fetch_all(connection).await?;
    rows.iter()
        .map(|row| {
            let bucket = bucket(row)?;
            let room = bucket.room(big_number(row, "pending")?, big_number(row, "running")?);
            Ok((value(row, "key")?, Held { bucket, room }))
        })
        .collect()
}

async fn move_jobs(
    connection: &mut Session<'_>,
    sql: &'static str,
    jobs: &[(&str, i64)],
) -> Tried<BTreeMap<String, u64>> {
    if jobs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let (keys, jobs): (Vec<&str>, Vec<i64>) = jobs.iter().copied().unzip();
    let rows = statement(sql).bind(keys).bind(jobs).fetch_all(connection).await?;
    rows.iter().map(|row| Ok((value(row, "key")?, big_number(row, "jobs")?))).collect()
}

async fn store(connection: &mut Session<'_>, key: &str, bucket: &Bucket) -> Tried<()> {
    statement(sql!("limit_spend"))
        .bind(key)
        .bind(bucket.pace)
        .bind(bucket.tokens)
        .bind(bucket.refilled_at_ms)
        .execute(connection)
        .await?;
    Ok(())
}

fn bucket(row: &PgRow) -> Tried<Bucket> {
    let stored = Bucket {
        max_running: optional_number(row, "max_running")?,
        per_minute: value(row, "per_minute")?,
        pace: value(row, "pace")?,
        tokens: value(row, "tokens")?,
        refilled_at_ms: value(row, "refilled_at_ms")?,
    };
    Ok(stored.at(value(row, "now_ms")?))
}

fn list(keys: &Keys) -> Vec<&str> {
    keys.iter().map(String::as_str).collect()
}
