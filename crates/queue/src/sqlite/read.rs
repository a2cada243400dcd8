//! What only looks: `get`, `list`, `attempts`, `counts`.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};

use super::row::{self, Columns};
use super::sql;
use crate::claim::Attempt;
use crate::graph::Record;
use crate::job::{Job, JobId, MAX_PRIORITY};
use crate::queue::{Age, Count, JobFilter, Listed, Page};
use crate::run::{Run, RunId};
use crate::timestamp::Timestamp;

pub(super) fn get(connection: &Connection, id: JobId) -> rusqlite::Result<Option<Job>> {
    connection.prepare_cached(sql!("get"))?.query_row([id.0], row::job).optional()
}

pub(super) fn attempts(connection: &Connection, id: JobId) -> rusqlite::Result<Vec<Attempt>> {
    connection.prepare_cached(sql!("attempts"))?.query_map([id.0], row::attempt)?.collect()
}

pub(super) fn list(connection: &Connection, filter: &JobFilter, page: Page) -> rusqlite::Result<Listed> {
    let values = FilterValues::of(filter);
    let (states, kind, lane, tenant, run) = values.parts();
    let before = page.before.map_or(i64::MAX, |id| id.0);
    let limit = page.limit.clamp(1, Page::MAX_LIMIT);
    // One more than asked for tells whether there is another page.
    let data = connection
        .prepare_cached(if run.is_some() { sql!("list_of_run") } else { sql!("list") })?
        .query_map(params![before, states, kind, lane, tenant, run, limit + 1, page.brief], row::job)?
        .collect::<rusqlite::Result<Vec<Job>>>()?;
    Ok(Listed::of(data, limit))
}

pub(super) fn counts(connection: &Connection) -> rusqlite::Result<Vec<Count>> {
    let mut statement = connection.prepare_cached(sql!("counts"))?;
    let rows = statement.query_map([], |row| {
        let mut column = Columns::of(row);
        let (lane, kind, state) = (column.next()?, column.next()?, column.parsed()?);
        Ok(Count { lane, kind, state, jobs: u64::try_from(column.next::<i64>()?).unwrap_or(0) })
    })?;
    rows.collect()
}

pub(super) fn waiting(
    connection: &Connection,
    tenant: &str,
    except: &str,
    at_most: u64,
) -> rusqlite::Result<u64> {
    let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(sql!("waiting"))?;
    let jobs: i64 = statement.query_row(params![tenant, except, at_most], |row| row.get(0))?;
    Ok(u64::try_from(jobs).unwrap_or(0))
}

/// Line by line, all of them at one instant.
pub(super) fn waiting_ages(connection: &Connection) -> rusqlite::Result<Vec<Age>> {
    let reading = connection.unchecked_transaction()?;
    let mut oldest: BTreeMap<(String, String), i64> = BTreeMap::new();
    let mut lanes = reading.prepare_cached(sql!("waiting_lanes"))?;
    for lane in lanes.query_map([], |row| row.get::<_, String>(0))? {
        let (lane, mut above) = (lane?, i64::from(MAX_PRIORITY) + 1);
        let mut next = reading.prepare_cached(sql!("waiting_next"))?;
        while let Some(priority) =
            next.query_row(params![lane, above], |row| row.get::<_, i64>(0)).optional()?
        {
            let mut line = reading.prepare_cached(sql!("waiting_ages"))?;
            let ages = line.query_map(params![lane, priority, Age::REACH], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
            })?;
            for age in ages {
                let (kind, ready_at) = age?;
                let oldest = oldest.entry((lane.clone(), kind)).or_insert(ready_at);
                *oldest = ready_at.min(*oldest);
            }
            above = priority;
        }
    }
    let ages = oldest.into_iter().map(|((lane, kind), ready_at)| Age {
        lane,
        kind,
        oldest_ready_at: Timestamp::from_ms(ready_at),
    });
    Ok(ages.collect())
}

pub(super) fn get_run(connection: &Connection, id: &RunId) -> rusqlite::Result<Option<Run>> {
    connection.prepare_cached(sql!("get_run"))?.query_row([id.as_str()], row::run).optional()
}

pub(super) fn records(
    connection: &Connection,
    run: &RunId,
    kind: Option<&str>,
) -> rusqlite::Result<Vec<Record>> {
    connection.prepare_cached(sql!("records"))?.query_map(params![run.as_str(), kind], row::record)?.collect()
}

/// Keys come as a JSON list.
pub(super) fn records_named(
    connection: &Connection,
    run: &RunId,
    kind: &str,
    keys: &str,
) -> rusqlite::Result<Vec<Record>> {
    let mut statement = connection.prepare_cached(sql!("records_named"))?;
    statement.query_map(params![run.as_str(), kind, keys], row::record)?.collect()
}

/// A filter as parameters: NULL means any.
pub(super) struct FilterValues<'a> {
    states: Option<String>,
    filter: &'a JobFilter,
}

type Parts<'a> = (Option<&'a str>, Option<&'a str>, Option<&'a str>, Option<&'a str>, Option<&'a str>);

impl<'a> FilterValues<'a> {
    pub(super) fn of(filter: &'a JobFilter) -> Self {
        let states = (!filter.states.is_empty())
            .then(|| serde_json::to_string(&filter.states).expect("states serialise as strings"));
        Self { states, filter }
    }

    /// States as a JSON list, kind, lane, tenant, run.
    pub(super) fn parts(&'a self) -> Parts<'a> {
        let filter = self.filter;
        (
            self.states.as_deref(),
            filter.kind.as_deref(),
            filter.lane.as_deref(),
            filter.tenant.as_deref(),
            filter.run.as_ref().map(RunId::as_str),
        )
    }
}
