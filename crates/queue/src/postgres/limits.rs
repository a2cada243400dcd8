//! `limit`, `limits`, `slow_down`, and the balance of admitted and parked jobs that every other verb keeps.
//!
//! Counting under SKIP LOCKED would be write skew. So whoever moved jobs of a limit locks its row, the last lock it
//! takes, and counts in a second statement, which sees what the holders before it did. Of jobs, a balance takes only
//! those that nobody holds, so it waits for no one.
//!
//! Rows of limits are locked in one order, keys before tenants. A balance locks all that it can foresee at once; a tenant
//! that it comes across later it takes only if that needs no waiting, and leaves to the next `promote` otherwise. So it
//! does with a key that comes up in the line of a tenant before that is locked.

use std::collections::BTreeSet;

use sqlx::postgres::PgRow;

use super::connect::Database;
use super::failure::Tried;
use super::read::{big_number, instant, optional_number, value};
use super::session::{Session, statement};
use super::sql;
use crate::bell::Ring;
use crate::error::Result;
use crate::limit::{Balanced, Bound, Bounds, Bucket, Candidate, Gate, Gates, Limit, LimitState};

pub(super) async fn limit(database: &Database, limit: &Limit) -> Result<Ring> {
    let bound = Bound::Key(limit.key.clone());
    let change = || async {
        let mut tx = database.begin().await?;
        change(&mut tx, &bound, limit.max_running, limit.per_minute).await?;
        balance_and_commit(tx, &bound).await
    };
    let balanced = database.retrying(change).await?;
    balance_the_rest(database, &bound, balanced).await
}

/// Sets or removes a limit. Nobody looks at limits until the transaction ends.
pub(super) async fn change(
    connection: &mut Session<'_>,
    bound: &Bound,
    max_running: Option<u32>,
    per_minute: Option<f64>,
) -> Tried<()> {
    statement(sql!("limit_change")).execute(&mut *connection).await?;
    let (scope, name) = (bound.scope(), bound.name());
    if max_running.is_none() && per_minute.is_none() {
        statement(sql!("limit_remove")).bind(scope).bind(name).execute(connection).await?;
    } else {
        let max_running = max_running.map(|jobs| i32::try_from(jobs).unwrap_or(i32::MAX));
        let setting = statement(sql!("limit")).bind(scope).bind(name).bind(max_running).bind(per_minute);
        setting.execute(connection).await?;
    }
    Ok(())
}

pub(super) async fn balance_and_commit(mut tx: Session<'_>, bound: &Bound) -> Tried<Balanced> {
    let balanced = balance_bounds(&mut tx, &Bounds::from([bound.clone()])).await?;
    tx.commit().await?;
    Ok(balanced)
}

/// Goes on where one transaction stopped.
pub(super) async fn balance_the_rest(
    database: &Database,
    bound: &Bound,
    mut balanced: Balanced,
) -> Result<Ring> {
    let mut ring = balanced.ring();
    while balanced.is_partial() {
        balanced =
            database.retrying(|| async { balance_and_commit(database.begin().await?, bound).await }).await?;
        ring = ring.and(balanced.ring());
    }
    Ok(ring)
}

pub(super) async fn slow_down(database: &Database, key: &str) -> Tried<(Option<f64>, Ring)> {
    let bound = Bound::Key(key.to_owned());
    let bounds = Bounds::from([bound.clone()]);
    let mut tx = database.begin().await?;
    lock(&mut tx, &bounds).await?;
    let Some(held) = look(&mut tx, &bounds).await?.pop() else { return Ok((None, Ring::default())) };
    let slower = held.bucket.slower();
    store(&mut tx, key, &slower).await?;
    let balanced = balance_and_commit(tx, &bound).await?;
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
pub(super) async fn limited(connection: &mut Session<'_>, keys: &BTreeSet<&str>) -> Tried<BTreeSet<String>> {
    if keys.is_empty() {
        return Ok(BTreeSet::new());
    }
    let keys: Vec<&str> = keys.iter().copied().collect();
    let rows = statement(sql!("limit_known")).bind(keys).fetch_all(connection).await?;
    rows.iter().map(|row| value(row, "key")).collect()
}

/// What bounds jobs.
pub(super) async fn bounds_of(connection: &mut Session<'_>, jobs: Vec<i64>) -> Tried<Bounds> {
    let rows = statement(sql!("limit_of")).bind(jobs).fetch_all(connection).await?;
    let mut bounds = Bounds::new();
    for row in &rows {
        note(&mut bounds, row)?;
    }
    Ok(bounds)
}

/// Notes what bounds the job of a row.
pub(super) fn note(bounds: &mut Bounds, row: &PgRow) -> Tried<()> {
    bounds.extend(Bound::of_job(value(row, "limit_key")?, value(row, "capped")?));
    Ok(())
}

/// Lets in or parks what these bounds say; the last thing before a verb commits.
pub(super) async fn balance(connection: &mut Session<'_>, bounds: &Bounds) -> Tried<Ring> {
    if bounds.is_empty() {
        return Ok(Ring::default());
    }
    Ok(balance_bounds(connection, bounds).await?.ring())
}

/// After a statement that committed by itself: it counts, whatever becomes of this. What is left undone, the next
/// `promote` does.
pub(super) async fn balance_after(database: &Database, bounds: &Bounds) -> Ring {
    if bounds.is_empty() {
        return Ring::default();
    }
    // Boxed, because those who call it are large enough without it.
    match Box::pin(database.retrying(|| balance_alone(database, bounds))).await {
        Ok(balanced) => balanced.ring(),
        Err(error) => {
            tracing::debug!(%error, "left it to the next promote to let jobs in");
            Ring { scheduled: true, ..Ring::default() }
        }
    }
}

/// Every bound with parked jobs.
pub(super) async fn balance_parked(database: &Database) -> Result<Balanced> {
    let mut all = Balanced::default();
    loop {
        let bounds = database.retrying(|| parked_bounds(database)).await?;
        if bounds.is_empty() {
            return Ok(all.then(Balanced::default()));
        }
        all = all.then(database.retrying(|| balance_alone(database, &bounds)).await?);
        if !all.is_partial() {
            return Ok(all);
        }
    }
}

async fn parked_bounds(database: &Database) -> Tried<Bounds> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("limit_parked")).fetch_all(&mut connection).await?;
    rows.iter().map(bound).collect()
}

async fn balance_alone(database: &Database, bounds: &Bounds) -> Tried<Balanced> {
    let mut tx = database.begin().await?;
    let balanced = balance_bounds(&mut tx, bounds).await?;
    tx.commit().await?;
    Ok(balanced)
}

async fn balance_bounds(connection: &mut Session<'_>, bounds: &Bounds) -> Tried<Balanced> {
    let mut gates = Gates::default();
    let asked = bounds;
    let mut bounds = asked.clone();
    widen(connection, &mut bounds).await?;
    let mut no_tenant_yet = names(&bounds).1.is_empty();
    lock(connection, &bounds).await?;
    insert(connection, &mut gates, bounds).await?;
    let parked = park(connection, &gates).await?;
    gates.note_parked(parked);
    look_into_lines(connection, &mut gates, asked).await?;
    loop {
        let called = call(connection, &gates).await?;
        if !gates.note_called(called) {
            break;
        }
        let next = next(connection, &gates).await?;
        let mut unknown = gates.unknown(&next);
        // The first of them are still in order, behind the keys.
        if std::mem::take(&mut no_tenant_yet) {
            lock(connection, &unknown).await?;
        } else {
            unknown = try_lock(connection, &unknown).await?;
        }
        insert(connection, &mut gates, unknown).await?;
        if gates.meet(&next) {
            continue;
        }
        let verdict = gates.decide(next);
        change_line(connection, sql!("limit_admit"), &verdict.admitted).await?;
        change_line(connection, sql!("limit_send_back"), &verdict.sent_back).await?;
        if gates.is_spent() {
            break;
        }
    }
    let standing_in = stand_in(connection, &gates).await?;
    gates.note_stand_ins(standing_in);
    for (key, bucket) in gates.spent() {
        store(connection, key, &bucket).await?;
    }
    Ok(gates.balanced())
}

/// The names of keys, and those of tenants.
fn names(bounds: &Bounds) -> (Vec<&str>, Vec<&str>) {
    let (keys, tenants) = split(bounds.iter().map(|bound| (bound, 0)));
    (keys.names, tenants.names)
}

/// Bounds of one scope with a number of jobs for each, as statements take them.
#[derive(Default)]
struct Wanted<'a> {
    names: Vec<&'a str>,
    jobs: Vec<i64>,
}

/// Keys apart from tenants.
fn split<'a>(wanted: impl IntoIterator<Item = (&'a Bound, u64)>) -> (Wanted<'a>, Wanted<'a>) {
    let (mut keys, mut tenants) = (Wanted::default(), Wanted::default());
    for (bound, jobs) in wanted {
        let wanted = match bound {
            Bound::Key(_) => &mut keys,
            Bound::Tenant(_) => &mut tenants,
        };
        wanted.names.push(bound.name());
        wanted.jobs.push(jobs.cast_signed());
    }
    (keys, tenants)
}

/// Adds what a balance of tenants will come across, so that all of it is locked in order. Without any tenant there is
/// nothing to foresee.
async fn widen(connection: &mut Session<'_>, bounds: &mut Bounds) -> Tried<()> {
    let (keys, tenants) = names(bounds);
    if tenants.is_empty() {
        return Ok(());
    }
    let rows = statement(sql!("cap_widen")).bind(tenants).bind(keys).fetch_all(connection).await?;
    let more = rows.iter().map(bound).collect::<Tried<Vec<_>>>()?;
    bounds.extend(more);
    Ok(())
}

async fn lock(connection: &mut Session<'_>, bounds: &Bounds) -> Tried<()> {
    if !bounds.is_empty() {
        let (scopes, names) = scoped(bounds);
        statement(sql!("limit_lock")).bind(scopes).bind(names).fetch_all(connection).await?;
    }
    Ok(())
}

/// Says which tenants it got.
async fn try_lock(connection: &mut Session<'_>, bounds: &Bounds) -> Tried<Bounds> {
    if bounds.is_empty() {
        return Ok(Bounds::new());
    }
    let (_, tenants) = names(bounds);
    let rows = statement(sql!("limit_try_lock")).bind(tenants).fetch_all(connection).await?;
    rows.iter().map(bound).collect()
}

/// Counts the jobs of bounds whose rows are locked. What has no row lets everything in.
async fn insert(connection: &mut Session<'_>, gates: &mut Gates, bounds: Bounds) -> Tried<()> {
    let held = look(connection, &bounds).await?;
    for bound in bounds {
        gates.insert(bound, Gate::open());
    }
    for held in held {
        gates.insert(held.bound, Gate::of(held.bucket, held.pending, held.running));
    }
    Ok(())
}

/// A limit as it is now, with the number of its jobs that are let in.
struct Held {
    bound: Bound,
    bucket: Bucket,
    pending: u64,
    running: u64,
}

async fn look(connection: &mut Session<'_>, bounds: &Bounds) -> Tried<Vec<Held>> {
    if bounds.is_empty() {
        return Ok(Vec::new());
    }
    let (scopes, names) = scoped(bounds);
    let rows = statement(sql!("limit_look")).bind(scopes).bind(names).fetch_all(connection).await?;
    let read = |row: &PgRow| {
        let (pending, running) = (big_number(row, "pending")?, big_number(row, "running")?);
        Ok(Held { bound: bound(row)?, bucket: bucket(row)?, pending, running })
    };
    rows.iter().map(read).collect()
}

/// Parks pending jobs that are too many; says how many.
async fn park(connection: &mut Session<'_>, gates: &Gates) -> Tried<u64> {
    let (keys, tenants) = split(gates.over());
    let of_keys = move_jobs(connection, sql!("limit_park"), keys).await?;
    Ok(of_keys + move_jobs(connection, sql!("cap_park"), tenants).await?)
}

/// Notes the keys of the jobs that wait in the lines of these tenants, as far as they have room.
async fn look_into_lines(connection: &mut Session<'_>, gates: &mut Gates, asked: &Bounds) -> Tried<()> {
    let free = gates.free().into_iter().filter(|(bound, _)| asked.contains(*bound));
    let (_, tenants) = split(free);
    if tenants.names.is_empty() {
        return Ok(());
    }
    let rows = statement(sql!("cap_keys")).bind(tenants.names).fetch_all(connection).await?;
    for row in &rows {
        gates.note_waiting(Bound::Tenant(value(row, "tenant")?), Bound::Key(value(row, "key")?));
    }
    Ok(())
}

/// Tenants with room call their best jobs to the lines of keys with room; says how many.
async fn call(connection: &mut Session<'_>, gates: &Gates) -> Tried<u64> {
    let calls = gates.calls();
    if calls.is_empty() {
        return Ok(0);
    }
    let (tenants, jobs): (Vec<&str>, Vec<i64>) =
        calls.iter().map(|call| (call.tenant, call.jobs.cast_signed())).unzip();
    let (mut callers, mut keys) = (Vec::new(), Wanted::default());
    for call in &calls {
        for (key, jobs) in &call.keys {
            callers.push(call.tenant);
            keys.names.push(key);
            keys.jobs.push(jobs.cast_signed());
        }
    }
    let calling = statement(sql!("cap_call")).bind(tenants).bind(jobs);
    let calling = calling.bind(callers).bind(keys.names).bind(keys.jobs);
    big_number(&calling.fetch_one(connection).await?, "jobs")
}

/// Where keys are full, a job of each tenant with room stands in the line for the others; says how many were called to.
async fn stand_in(connection: &mut Session<'_>, gates: &Gates) -> Tried<u64> {
    let (tenants, keys): (Vec<&str>, Vec<&str>) = gates.stand_ins().into_iter().unzip();
    if tenants.is_empty() || gates.is_spent() {
        return Ok(0);
    }
    let rest = gates.rest().cast_signed();
    let standing = statement(sql!("cap_stand_in")).bind(tenants).bind(keys).bind(rest);
    big_number(&standing.fetch_one(connection).await?, "jobs")
}

async fn move_jobs(connection: &mut Session<'_>, sql: &'static str, wanted: Wanted<'_>) -> Tried<u64> {
    if wanted.names.is_empty() {
        return Ok(0);
    }
    let row = statement(sql).bind(wanted.names).bind(wanted.jobs).fetch_one(connection).await?;
    big_number(&row, "jobs")
}

/// Who would be next, as far as there is room. Their rows are locked.
async fn next(connection: &mut Session<'_>, gates: &Gates) -> Tried<Vec<Candidate>> {
    let (keys, tenants) = split(gates.free());
    let mut next = Vec::new();
    for (sql, wanted) in [(sql!("limit_next"), keys), (sql!("cap_next"), tenants)] {
        if wanted.names.is_empty() {
            continue;
        }
        let rows = statement(sql).bind(wanted.names).bind(wanted.jobs).fetch_all(&mut *connection).await?;
        for row in &rows {
            next.push(candidate(row)?);
        }
    }
    Ok(next)
}

fn candidate(row: &PgRow) -> Tried<Candidate> {
    Ok(Candidate {
        id: value(row, "id")?,
        priority: value::<i32>(row, "priority")?.into(),
        fair_at: value(row, "fair_at")?,
        limit_key: value(row, "limit_key")?,
        capped: value(row, "capped")?,
    })
}

async fn change_line(connection: &mut Session<'_>, sql: &'static str, jobs: &[i64]) -> Tried<()> {
    if !jobs.is_empty() {
        statement(sql).bind(jobs).execute(connection).await?;
    }
    Ok(())
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

fn bound(row: &PgRow) -> Tried<Bound> {
    Ok(Bound::of(value(row, "scope")?, value(row, "key")?))
}

fn scoped(bounds: &Bounds) -> (Vec<&str>, Vec<&str>) {
    bounds.iter().map(|bound| (bound.scope(), bound.name())).unzip()
}
