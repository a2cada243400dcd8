//! `push`: jobs that stand alone in one statement; keys, runs and unique jobs in one transaction.

use std::collections::BTreeMap;

use super::connect::{Database, ms};
use super::events;
use super::failure::{Failure, Tried, unreadable};
use super::graph::note_needs;
use super::insert::{Backlogs, JobRow, Stored, cost_us, insert_plain, insert_unique, rows_of};
use super::limits::{balance, balance_after, limited};
use super::read::value;
use super::session::{Session, close, statement};
use super::sql;
use crate::bell::Ring;
use crate::error::QueueError;
use crate::job::JobId;
use crate::limit::Bounds;
use crate::push::{KEEP_KEYS, Push, Pushed};
use crate::run::RunId;

pub(super) async fn push(database: &Database, pushes: &[Push]) -> Tried<(Vec<Pushed>, Ring)> {
    pushes.iter().try_for_each(Push::check)?;
    if pushes.is_empty() {
        return Ok((Vec::new(), Ring::default()));
    }
    if pushes.iter().all(is_plain) {
        return store_plain_alone(database, pushes, false).await;
    }
    let mut tx = database.begin().await?;
    let outcome = store_and_balance(&mut tx, pushes).await;
    close(tx, outcome).await
}

async fn store_and_balance(connection: &mut Session<'_>, pushes: &[Push]) -> Tried<(Vec<Pushed>, Ring)> {
    let mut bounds = Bounds::new();
    let (pushed, ring) = store(connection, pushes, &mut bounds).await?;
    Ok((pushed, ring.and(balance(connection, &bounds).await?)))
}

/// Inside the caller's transaction, under a savepoint: a refused push leaves nothing in it.
pub(super) async fn push_in(connection: &mut Session<'_>, pushes: &[Push]) -> Tried<Vec<Pushed>> {
    pushes.iter().try_for_each(Push::check)?;
    if pushes.is_empty() {
        return Ok(Vec::new());
    }
    save(connection).await?;
    match store_and_notify(connection, pushes).await {
        Ok(pushed) => {
            sqlx::raw_sql(sql!("push_in_release")).execute(connection.raw()).await?;
            Ok(pushed)
        }
        Err(failure) => {
            sqlx::raw_sql(sql!("push_in_undo")).execute(connection.raw()).await?;
            sqlx::raw_sql(sql!("push_in_release")).execute(connection.raw()).await?;
            Err(failure)
        }
    }
}

async fn save(connection: &mut Session<'_>) -> Tried<()> {
    let saved =
        sqlx::raw_sql(sql!("push_in_savepoint")).execute(connection.raw()).await.map_err(Failure::from);
    match saved {
        Err(failure) if failure.is_outside_transaction() => {
            Err(QueueError::invalid("push_in needs a connection inside a transaction: begin one first")
                .into())
        }
        other => other.map(|_| ()),
    }
}

async fn store_and_notify(connection: &mut Session<'_>, pushes: &[Push]) -> Tried<Vec<Pushed>> {
    let mut bounds = Bounds::new();
    let (pushed, ring) = match pushes.iter().all(is_plain) {
        true => store_plain(connection, pushes, false, &mut bounds).await?,
        false => store(connection, pushes, &mut bounds).await?,
    };
    // Their limits are not locked for as long as the caller's transaction takes: the jobs are let in by the next
    // `promote`, for which this rings.
    let ring = ring.and(Ring { scheduled: !bounds.is_empty(), ..Ring::default() });
    if !ring.is_silent() {
        statement(sql!("notify")).bind(ring.to_byte().to_string()).execute(connection).await?;
    }
    Ok(pushed)
}

/// Nothing of it can collide with anything.
pub(super) fn is_plain(push: &Push) -> bool {
    push.idempotency_key.is_none()
        && push.run.is_none()
        && push.jobs.iter().all(|job| job.unique_key.is_none() && job.limit_key.is_none())
}

pub(super) async fn store_plain_alone(
    database: &Database,
    pushes: &[Push],
    tell: bool,
) -> Tried<(Vec<Pushed>, Ring)> {
    let mut bounds = Bounds::new();
    let mut connection = database.connection().await?;
    let outcome = store_plain(&mut connection, pushes, tell, &mut bounds).await;
    let (pushed, ring) = close(connection, outcome).await?;
    Ok((pushed, ring.and(balance_after(database, &bounds).await)))
}

/// Stores pushes in one statement. If it is to `tell` other processes, that is done by its commit. The caller balances
/// the bounds that this notes: caps of tenants.
async fn store_plain(
    connection: &mut Session<'_>,
    pushes: &[Push],
    tell: bool,
    bounds: &mut Bounds,
) -> Tried<(Vec<Pushed>, Ring)> {
    let mut backlogs = Backlogs::of(connection, pushes).await?;
    let rows: Vec<JobRow<'_>> = pushes.iter().flat_map(|push| rows_of(push, None, &mut backlogs)).collect();
    let later = pushes.iter().flat_map(|push| &push.jobs).any(|job| job.run_at.is_some());
    let tell = tell.then_some(Ring { ready: true, scheduled: later, ..Ring::default() });
    let (ids, ring) = insert_plain(connection, &rows, tell, bounds).await?;
    let mut ids = ids.into_iter();
    let pushed = pushes
        .iter()
        .map(|push| Pushed { run: None, jobs: ids.by_ref().take(push.jobs.len()).collect(), replayed: false })
        .collect();
    Ok((pushed, ring))
}

/// What becomes of one push of a call.
enum Fate {
    /// It is stored, with this run if it has one.
    New(Option<RunId>),
    /// Its key was used before, for this.
    Known(Pushed),
    /// Its key is also that of an earlier push of the same call.
    Repeats(usize),
}

/// The caller balances the bounds that this notes.
pub(super) async fn store(
    connection: &mut Session<'_>,
    pushes: &[Push],
    bounds: &mut Bounds,
) -> Tried<(Vec<Pushed>, Ring)> {
    let fates = take_keys(connection, pushes).await?;
    let mut backlogs = Backlogs::of(connection, pushes).await?;
    let rows: Vec<JobRow<'_>> = pushes
        .iter()
        .zip(&fates)
        .flat_map(|(push, fate)| match fate {
            Fate::New(run) => rows_of(push, run.as_ref(), &mut backlogs),
            Fate::Known(_) | Fate::Repeats(_) => Vec::new(),
        })
        .collect();
    let limited = limited(connection, &rows.iter().filter_map(JobRow::limit_key).collect()).await?;
    let (stored, ring) = insert_unique(connection, &rows, &limited, bounds).await?;
    let mut stored = stored.into_iter();
    let (mut pushed, mut runs, mut keys): (Vec<Pushed>, Vec<_>, Vec<_>) =
        (Vec::new(), Vec::new(), Vec::new());
    for (push, fate) in pushes.iter().zip(fates) {
        pushed.push(match fate {
            Fate::New(run) => {
                let jobs: Vec<Stored> = stored.by_ref().take(push.jobs.len()).collect();
                if let Some(run) = &run {
                    runs.push((run.clone(), push, jobs.iter().filter(|job| job.is_new).count()));
                }
                keys.extend(push.idempotency_key.as_deref().map(|_| pushed.len()));
                Pushed { run, jobs: jobs.into_iter().map(|job| job.id).collect(), replayed: false }
            }
            Fate::Known(known) => known,
            Fate::Repeats(earlier) => Pushed { replayed: true, ..pushed[earlier].clone() },
        });
    }
    insert_runs(connection, &runs).await?;
    for (push, pushed) in pushes.iter().zip(&pushed).filter(|(_, pushed)| !pushed.replayed) {
        note_needs(connection, &push.jobs, &pushed.jobs).await?;
    }
    let ring = if runs.is_empty() { ring } else { ring.and(events::ring()) };
    fill_keys(connection, keys.into_iter().map(|nth| (&pushes[nth], &pushed[nth]))).await?;
    Ok((pushed, ring))
}

/// Takes the idempotency keys before anything else, so that of two pushes with the same key one waits for the
/// other.
async fn take_keys(connection: &mut Session<'_>, pushes: &[Push]) -> Tried<Vec<Fate>> {
    let mut first_use = FirstUse::new();
    let mut fates = Vec::with_capacity(pushes.len());
    for (nth, push) in pushes.iter().enumerate() {
        let Some(key) = push.idempotency_key.as_deref() else {
            fates.push(new(push));
            continue;
        };
        let hash = push.body_hash();
        match first_use.get(&(push.tenant.as_str(), key)) {
            Some((_, other)) if *other != hash => {
                return Err(QueueError::KeyReused { key: key.into() }.into());
            }
            Some((earlier, _)) => fates.push(Fate::Repeats(*earlier)),
            None => {
                first_use.insert((&push.tenant, key), (nth, hash));
                fates.push(new(push));
            }
        }
    }
    if !first_use.is_empty() {
        for (nth, known) in known_keys(connection, &first_use).await? {
            fates[nth] = Fate::Known(known);
        }
    }
    Ok(fates)
}

fn new(push: &Push) -> Fate {
    Fate::New(push.run.as_ref().map(|_| RunId::new()))
}

type FirstUse<'a> = BTreeMap<(&'a str, &'a str), (usize, Vec<u8>)>;

/// Takes the keys that are free; says what the others were used for.
async fn known_keys(connection: &mut Session<'_>, wanted: &FirstUse<'_>) -> Tried<Vec<(usize, Pushed)>> {
    let (tenants, keys): (Vec<&str>, Vec<&str>) = wanted.keys().copied().unzip();
    let hashes: Vec<&[u8]> = wanted.values().map(|(_, hash)| hash.as_slice()).collect();
    let taken = statement(sql!("push_keys"))
        .bind(&tenants)
        .bind(&keys)
        .bind(hashes)
        .bind(ms(KEEP_KEYS))
        .fetch_all(&mut *connection)
        .await?;
    let mut others = wanted.clone();
    for row in &taken {
        others.remove(&(value::<&str>(row, "tenant")?, value::<&str>(row, "key")?));
    }
    if others.is_empty() {
        return Ok(Vec::new());
    }
    used_keys(connection, &others).await
}

/// What a key was used for, outside of any push.
pub(super) async fn known_push(
    database: &Database,
    tenant: &str,
    key: &str,
    hash: &[u8],
) -> Tried<Option<Pushed>> {
    let wanted = FirstUse::from([((tenant, key), (0, hash.to_vec()))]);
    let mut connection = database.connection().await?;
    Ok(used_keys(&mut connection, &wanted).await?.pop().map(|(_, pushed)| pushed))
}

async fn used_keys(connection: &mut Session<'_>, wanted: &FirstUse<'_>) -> Tried<Vec<(usize, Pushed)>> {
    let (tenants, keys): (Vec<&str>, Vec<&str>) = wanted.keys().copied().unzip();
    let rows = statement(sql!("push_known_keys")).bind(tenants).bind(keys).fetch_all(connection).await?;
    let mut known = Vec::with_capacity(rows.len());
    for row in &rows {
        let key = value::<&str>(row, "key")?;
        let Some((nth, hash)) = wanted.get(&(value::<&str>(row, "tenant")?, key)) else { continue };
        if value::<&[u8]>(row, "body_hash")? != hash.as_slice() {
            return Err(QueueError::KeyReused { key: key.into() }.into());
        }
        let run = value::<Option<&str>>(row, "run")?.map(str::parse).transpose();
        let jobs: Vec<i64> = value(row, "jobs")?;
        known.push((
            *nth,
            Pushed {
                run: run.map_err(|why| unreadable("run", why))?,
                jobs: jobs.into_iter().map(JobId).collect(),
                replayed: true,
            },
        ));
    }
    Ok(known)
}

async fn fill_keys<'a>(
    connection: &mut Session<'_>,
    made: impl Iterator<Item = (&'a Push, &'a Pushed)>,
) -> Tried<()> {
    let made: Vec<_> = made.collect();
    if made.is_empty() {
        return Ok(());
    }
    let each = made.iter();
    statement(sql!("push_fill_keys"))
        .bind(each.clone().map(|(push, _)| push.tenant.as_str()).collect::<Vec<_>>())
        .bind(each.clone().map(|(push, _)| push.idempotency_key.as_deref()).collect::<Vec<_>>())
        .bind(each.clone().map(|(_, pushed)| pushed.run.as_ref().map(RunId::as_str)).collect::<Vec<_>>())
        .bind(each.map(|(_, pushed)| array(&pushed.jobs)).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

/// Ids as the text of an array, since arrays of different lengths cannot be bound as one.
fn array(ids: &[JobId]) -> String {
    let ids: Vec<String> = ids.iter().map(JobId::to_string).collect();
    format!("{{{}}}", ids.join(","))
}

async fn insert_runs(connection: &mut Session<'_>, runs: &[(RunId, &Push, usize)]) -> Tried<()> {
    let new = || runs.iter().filter_map(|(id, push, jobs)| Some((id, push, push.run.as_ref()?, *jobs)));
    if runs.is_empty() {
        return Ok(());
    }
    statement(sql!("push_runs"))
        .bind(new().map(|(id, ..)| id.as_str()).collect::<Vec<_>>())
        .bind(new().map(|(_, push, ..)| push.tenant.as_str()).collect::<Vec<_>>())
        .bind(new().map(|(_, _, run, _)| run.name.as_str()).collect::<Vec<_>>())
        .bind(new().map(|(_, _, run, _)| run.external_id.as_deref()).collect::<Vec<_>>())
        .bind(new().map(|(_, _, run, _)| run.meta.to_string()).collect::<Vec<_>>())
        .bind(new().map(|(.., jobs)| i32::try_from(jobs).unwrap_or(i32::MAX)).collect::<Vec<_>>())
        .bind(new().map(|(_, push, ..)| cost_us(&push.jobs)).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}
