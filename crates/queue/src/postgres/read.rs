//! Reading: `get`, `list`, `attempts`, `counts`, runs and workers.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::de::DeserializeOwned;
use sqlx::postgres::PgRow;
use sqlx::{Column, ColumnIndex, Decode, Postgres, Row, Type};
use time::OffsetDateTime;

use super::connect::Database;
use super::failure::{Failure, Tried, unreadable};
use super::session::{Session, statement};
use super::sql;
use crate::backoff::Backoff;
use crate::claim::Attempt;
use crate::graph::Record;
use crate::job::{Fence, Job, JobId, JobState, MAX_PRIORITY};
use crate::queue::{Age, Count, JobFilter, Listed, Page};
use crate::run::{Run, RunId};
use crate::timestamp::Timestamp;
use crate::worker::{Worker, WorkerId};

pub(super) async fn get(database: &Database, id: JobId) -> Tried<Option<Job>> {
    let mut connection = database.connection().await?;
    let row = statement(sql!("get")).bind(id.0).fetch_optional(&mut connection).await?;
    row.as_ref().map(job).transpose()
}

pub(super) async fn list(database: &Database, filter: &JobFilter, page: Page) -> Tried<Listed> {
    let limit = page.limit.clamp(1, Page::MAX_LIMIT);
    let mut connection = database.connection().await?;
    let rows = statement(if filter.run.is_some() { sql!("list_of_run") } else { sql!("list") })
        .bind(page.before.map(|id| id.0))
        .bind(states(filter))
        .bind(filter.kind.as_deref())
        .bind(filter.lane.as_deref())
        .bind(filter.tenant.as_deref())
        .bind(filter.run.as_ref().map(RunId::as_str))
        // One more than the page holds tells whether there is another page.
        .bind(i64::from(limit) + 1)
        .bind(page.brief)
        .fetch_all(&mut connection)
        .await?;
    Ok(Listed::of(rows.iter().map(job).collect::<Tried<Vec<Job>>>()?, limit))
}

/// The ids of the next jobs after one that a filter matches, as a statement that takes its parts says.
pub(super) async fn matching(
    connection: &mut Session<'_>,
    sql: &'static str,
    filter: &JobFilter,
    after: i64,
) -> Tried<Vec<i64>> {
    let rows = statement(sql)
        .bind(after)
        .bind(states(filter))
        .bind(filter.kind.as_deref())
        .bind(filter.lane.as_deref())
        .bind(filter.tenant.as_deref())
        .bind(filter.run.as_ref().map(RunId::as_str))
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| value(row, "id")).collect()
}

/// The states of a filter as the SQL files take them: NULL for all.
fn states(filter: &JobFilter) -> Option<Vec<&'static str>> {
    (!filter.states.is_empty()).then(|| filter.states.iter().map(|state| state.as_str()).collect())
}

pub(super) async fn attempts(database: &Database, id: JobId) -> Tried<Vec<Attempt>> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("attempts")).bind(id.0).fetch_all(&mut connection).await?;
    rows.iter().map(|row| attempt(id, row)).collect()
}

fn attempt(job: JobId, row: &PgRow) -> Tried<Attempt> {
    Ok(Attempt {
        job,
        fence: Fence(value(row, "fence")?),
        generation: number(row, "generation")?,
        worker: value::<Option<i64>>(row, "worker")?.map(WorkerId),
        slot: optional_number(row, "slot")?,
        started_at: instant(row, "started_at")?,
        ended_at: instant(row, "ended_at")?,
        outcome: parsed(row, "outcome")?,
        error: optional_json(row, "error")?,
    })
}

pub(super) async fn counts(database: &Database) -> Tried<Vec<Count>> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("counts")).fetch_all(&mut connection).await?;
    let mut counts = rows.iter().map(count).collect::<Tried<Vec<Count>>>()?;
    // Here and not in SQL: the database would sort by its own collation.
    counts.sort();
    Ok(counts)
}

fn count(row: &PgRow) -> Tried<Count> {
    Ok(Count {
        lane: value(row, "lane")?,
        kind: value(row, "kind")?,
        state: parsed(row, "state")?,
        jobs: big_number(row, "jobs")?,
    })
}

pub(super) async fn waiting(database: &Database, tenant: &str, except: &str, at_most: u64) -> Tried<u64> {
    let mut connection = database.connection().await?;
    let row = statement(sql!("waiting"))
        .bind(tenant)
        .bind(except)
        .bind(i64::try_from(at_most).unwrap_or(i64::MAX))
        .fetch_one(&mut connection)
        .await?;
    big_number(&row, "jobs")
}

pub(super) async fn waiting_ages(database: &Database) -> Tried<Vec<Age>> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("waiting_ages"))
        .bind(i32::from(MAX_PRIORITY))
        .bind(i64::from(Age::REACH))
        .fetch_all(&mut connection)
        .await?;
    let mut ages = rows.iter().map(age).collect::<Tried<Vec<Age>>>()?;
    ages.sort();
    Ok(ages)
}

fn age(row: &PgRow) -> Tried<Age> {
    Ok(Age {
        lane: value(row, "lane")?,
        kind: value(row, "kind")?,
        oldest_ready_at: instant(row, "oldest_ready_at")?,
    })
}

pub(super) async fn get_run(database: &Database, id: &RunId) -> Tried<Option<Run>> {
    let mut connection = database.connection().await?;
    let row = statement(sql!("get_run")).bind(id.as_str()).fetch_optional(&mut connection).await?;
    row.as_ref().map(run).transpose()
}

pub(super) fn run(row: &PgRow) -> Tried<Run> {
    Ok(Run {
        id: parsed(row, "id")?,
        tenant: value(row, "tenant")?,
        name: value(row, "name")?,
        external_id: value(row, "external_id")?,
        state: parsed(row, "state")?,
        generation: number(row, "generation")?,
        priority: value::<Option<i32>>(row, "priority")?
            .map(|priority| narrow("priority", priority))
            .transpose()?,
        meta: json(row, "meta")?,
        jobs_total: number(row, "jobs_total")?,
        jobs_left: number(row, "jobs_left")?,
        jobs_failed: number(row, "jobs_failed")?,
        jobs_cancelled: number(row, "jobs_cancelled")?,
        jobs_degraded: number(row, "jobs_degraded")?,
        created_at: instant(row, "created_at")?,
        started_at: optional_instant(row, "started_at")?,
        playable_at: optional_instant(row, "playable_at")?,
        finished_at: optional_instant(row, "finished_at")?,
    })
}

pub(super) async fn records(database: &Database, run: &RunId, kind: Option<&str>) -> Tried<Vec<Record>> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("records")).bind(run.as_str()).bind(kind).fetch_all(&mut connection).await?;
    rows.iter().map(record).collect()
}

pub(super) async fn records_named(
    database: &Database,
    run: &RunId,
    kind: &str,
    keys: &[String],
) -> Tried<Vec<Record>> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("records_named")).bind(run.as_str()).bind(kind).bind(keys);
    rows.fetch_all(&mut connection).await?.iter().map(record).collect()
}

fn record(row: &PgRow) -> Tried<Record> {
    Ok(Record {
        run: parsed(row, "run")?,
        kind: value(row, "type")?,
        key: value(row, "key")?,
        version: big_number(row, "version")?,
        json: json(row, "json")?,
    })
}

pub(super) async fn workers(database: &Database) -> Tried<Vec<Worker>> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("workers")).fetch_all(&mut connection).await?;
    rows.iter().map(worker).collect()
}

fn worker(row: &PgRow) -> Tried<Worker> {
    Ok(Worker {
        id: WorkerId(value(row, "id")?),
        name: value(row, "name")?,
        host: value(row, "host")?,
        pid: narrow("pid", value::<i64>(row, "pid")?)?,
        slots: json::<BTreeMap<String, u32>>(row, "slots")?,
        kinds: json::<Vec<String>>(row, "kinds")?,
        running: narrow("running", value::<i64>(row, "running")?)?,
        draining: value(row, "draining")?,
        alive: value(row, "alive")?,
        started_at: instant(row, "started_at")?,
        seen_at: instant(row, "seen_at")?,
    })
}

/// A job out of a row of `get.sql` or `list.sql`.
fn job(row: &PgRow) -> Tried<Job> {
    let mut column = Columns { row, at: 0 };
    let claimable = claimable(&mut column)?;
    Ok(Job {
        state: column.parsed()?,
        worker: column.next::<Option<i64>>()?.map(WorkerId),
        slot: column.maybe_narrow::<i32, _>()?,
        progress: column.next()?,
        result: column.maybe_json()?,
        finished_at: column.maybe_instant()?,
        needs_left: column.narrow::<i32, _>()?,
        ..claimable
    })
}

/// A job out of a row of `pull.sql`, and its place in the line.
pub(super) fn claimed_job(row: &PgRow, worker: WorkerId) -> Tried<(Job, i64)> {
    let mut column = Columns { row, at: 0 };
    let mut job = claimable(&mut column)?;
    job.worker = Some(worker);
    Ok((job, column.next()?))
}

/// What a claim does not leave the same for every job; the rest as a claim leaves it, but for the worker.
fn claimable(column: &mut Columns<'_>) -> Tried<Job> {
    Ok(Job {
        id: JobId(column.next()?),
        tenant: column.next()?,
        run: column.maybe_parsed()?,
        step: column.next()?,
        kind: column.next()?,
        lane: column.next()?,
        priority: column.narrow::<i32, _>()?,
        payload: column.json()?,
        run_at: column.maybe_instant()?,
        generation: column.narrow::<i32, _>()?,
        attempt: column.narrow::<i32, _>()?,
        max_attempts: column.narrow::<i32, _>()?,
        lost: column.narrow::<i32, _>()?,
        max_lost: column.narrow::<i32, _>()?,
        backoff: Backoff {
            base_ms: column.narrow::<i64, _>()?,
            factor: column.narrow::<i64, _>()?,
            cap_ms: column.narrow::<i64, _>()?,
        },
        timeout_ms: column.maybe_narrow::<i64, _>()?,
        unique_key: column.next()?,
        limit_key: column.next()?,
        fence: Fence(column.next()?),
        checkpoint: column.maybe_json()?,
        error: column.maybe_json()?,
        created_at: column.next::<OffsetDateTime>()?.into(),
        claimed_at: column.maybe_instant()?,
        required: column.next()?,
        state: JobState::Running,
        worker: None,
        slot: None,
        progress: None,
        result: None,
        finished_at: None,
        needs_left: 0,
    })
}

/// Reads the columns of a row from left to right: of many rows, looking each up by its name costs as much as decoding it.
struct Columns<'r> {
    row: &'r PgRow,
    at: usize,
}

impl<'r> Columns<'r> {
    /// Unchecked: that a column has its type is told by its statement, once, and not by each row.
    fn next<T: Decode<'r, Postgres> + Type<Postgres>>(&mut self) -> Tried<T> {
        self.at += 1;
        Ok(self.row.try_get_unchecked(self.at - 1)?)
    }

    fn narrow<W, N>(&mut self) -> Tried<N>
    where
        W: Decode<'r, Postgres> + Type<Postgres>,
        N: TryFrom<W, Error: std::fmt::Display>,
    {
        let wide = self.next::<W>()?;
        N::try_from(wide).map_err(|why| self.unreadable(why))
    }

    fn maybe_narrow<W, N>(&mut self) -> Tried<Option<N>>
    where
        W: Decode<'r, Postgres> + Type<Postgres>,
        Option<W>: Decode<'r, Postgres> + Type<Postgres>,
        N: TryFrom<W, Error: std::fmt::Display>,
    {
        let wide = self.next::<Option<W>>()?;
        wide.map(|wide| N::try_from(wide).map_err(|why| self.unreadable(why))).transpose()
    }

    fn parsed<T: FromStr<Err = String>>(&mut self) -> Tried<T> {
        self.next::<&str>()?.parse().map_err(|why| self.unreadable(why))
    }

    fn maybe_parsed<T: FromStr<Err = String>>(&mut self) -> Tried<Option<T>> {
        let text: Option<&str> = self.next()?;
        text.map(|text| text.parse().map_err(|why| self.unreadable(why))).transpose()
    }

    fn json<T: DeserializeOwned>(&mut self) -> Tried<T> {
        serde_json::from_str(self.next()?).map_err(|why| self.unreadable(why))
    }

    fn maybe_json<T: DeserializeOwned>(&mut self) -> Tried<Option<T>> {
        let text: Option<&str> = self.next()?;
        text.map(|text| serde_json::from_str(text).map_err(|why| self.unreadable(why))).transpose()
    }

    fn maybe_instant(&mut self) -> Tried<Option<Timestamp>> {
        Ok(self.next::<Option<OffsetDateTime>>()?.map(Timestamp::from))
    }

    /// The column that was read last.
    fn unreadable(&self, why: impl std::fmt::Display) -> Failure {
        let name = self.row.columns().get(self.at - 1).map_or("a column", Column::name);
        unreadable(name, why)
    }
}

pub(super) fn backoff(row: &PgRow) -> Tried<Backoff> {
    Ok(Backoff {
        base_ms: narrow("backoff_base_ms", value::<i64>(row, "backoff_base_ms")?)?,
        factor: narrow("backoff_factor", value::<i64>(row, "backoff_factor")?)?,
        cap_ms: narrow("backoff_cap_ms", value::<i64>(row, "backoff_cap_ms")?)?,
    })
}

pub(super) fn value<'r, T>(row: &'r PgRow, column: &str) -> Tried<T>
where
    T: Decode<'r, Postgres> + Type<Postgres>,
    for<'a> &'a str: ColumnIndex<PgRow>,
{
    Ok(row.try_get(column)?)
}

pub(super) fn number(row: &PgRow, column: &str) -> Tried<u32> {
    narrow(column, value::<i32>(row, column)?)
}

pub(super) fn big_number(row: &PgRow, column: &str) -> Tried<u64> {
    narrow(column, value::<i64>(row, column)?)
}

pub(super) fn parsed<T: FromStr<Err = String>>(row: &PgRow, column: &str) -> Tried<T> {
    value::<&str>(row, column)?.parse().map_err(|why| unreadable(column, why))
}

pub(super) fn optional_number(row: &PgRow, column: &str) -> Tried<Option<u32>> {
    value::<Option<i32>>(row, column)?.map(|number| narrow(column, number)).transpose()
}

fn narrow<W, N: TryFrom<W>>(what: &str, wide: W) -> Tried<N>
where
    N::Error: std::fmt::Display,
{
    N::try_from(wide).map_err(|why| unreadable(what, why))
}

pub(super) fn json<T: DeserializeOwned>(row: &PgRow, column: &str) -> Tried<T> {
    serde_json::from_str(value(row, column)?).map_err(|why| unreadable(column, why))
}

fn optional_json<T: DeserializeOwned>(row: &PgRow, column: &str) -> Tried<Option<T>> {
    let text: Option<&str> = value(row, column)?;
    text.map(|text| serde_json::from_str(text).map_err(|why| unreadable(column, why))).transpose()
}

pub(super) fn instant(row: &PgRow, column: &str) -> Tried<Timestamp> {
    Ok(value::<OffsetDateTime>(row, column)?.into())
}

pub(super) fn optional_instant(row: &PgRow, column: &str) -> Tried<Option<Timestamp>> {
    Ok(value::<Option<OffsetDateTime>>(row, column)?.map(Timestamp::from))
}
