//! Rows as values. Columns are read by position, in the order that every statement on jobs lists them.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::str::FromStr;

use rusqlite::Row;
use rusqlite::types::{FromSql, Type};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::backoff::Backoff;
use crate::claim::Attempt;
use crate::entry::Entry;
use crate::event::Event;
use crate::feed::{FedEvent, FeedCursor, Place};
use crate::graph::Record;
use crate::job::{Fence, Job, JobId};
use crate::run::Run;
use crate::schedule::Schedule;
use crate::timestamp::Timestamp;
use crate::worker::{Worker, WorkerId};

/// Reads the columns of a row from left to right.
pub(super) struct Columns<'r, 's> {
    row: &'r Row<'s>,
    at: usize,
}

impl<'r, 's> Columns<'r, 's> {
    /// The first column that is not part of a job.
    pub(super) const AFTER_JOB: usize = 33;

    pub(super) fn of(row: &'r Row<'s>) -> Self {
        Self { row, at: 0 }
    }

    pub(super) fn next<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        self.at += 1;
        self.row.get(self.at - 1)
    }

    /// As it lies in the row.
    pub(super) fn text(&mut self) -> rusqlite::Result<&'r str> {
        self.at += 1;
        self.row.get_ref(self.at - 1)?.as_str().map_err(|error| self.unreadable(error.to_string()))
    }

    pub(super) fn parsed<T: FromStr<Err: ToString>>(&mut self) -> rusqlite::Result<T> {
        self.text()?.parse().map_err(|error: T::Err| self.unreadable(error.to_string()))
    }

    pub(super) fn json<T: DeserializeOwned>(&mut self) -> rusqlite::Result<T> {
        serde_json::from_str(self.text()?).map_err(|error| self.unreadable(error.to_string()))
    }

    fn maybe_json<T: DeserializeOwned>(&mut self) -> rusqlite::Result<Option<T>> {
        let Some(text) = self.next::<Option<String>>()? else { return Ok(None) };
        serde_json::from_str(&text).map(Some).map_err(|error| self.unreadable(error.to_string()))
    }

    fn instant(&mut self) -> rusqlite::Result<Timestamp> {
        self.next().map(Timestamp::from_ms)
    }

    fn maybe_instant(&mut self) -> rusqlite::Result<Option<Timestamp>> {
        Ok(self.next::<Option<i64>>()?.map(Timestamp::from_ms))
    }

    fn unreadable(&self, why: String) -> rusqlite::Error {
        rusqlite::Error::FromSqlConversionFailure(self.at - 1, Type::Text, why.into())
    }
}

/// The values of a set, as a statement takes them.
pub(super) fn json_array(items: impl Iterator<Item = impl Display>) -> String {
    let mut array = String::from("[");
    for (nth, item) in items.enumerate() {
        let comma = if nth == 0 { "" } else { "," };
        write!(array, "{comma}{item}").expect("memory takes everything");
    }
    array.push(']');
    array
}

pub(super) fn job(row: &Row<'_>) -> rusqlite::Result<Job> {
    let mut column = Columns::of(row);
    job_with(&mut column, Columns::json)
}

/// A job without its payload, and that as text: to parse it is not for the writer's thread.
pub(super) fn unread_job(row: &Row<'_>) -> rusqlite::Result<(Job, String)> {
    let mut payload = String::new();
    let job = job_with(&mut Columns::of(row), |column| {
        payload = column.next()?;
        Ok(Value::Null)
    })?;
    Ok((job, payload))
}

fn job_with<'r, 's>(
    column: &mut Columns<'r, 's>,
    payload: impl FnOnce(&mut Columns<'r, 's>) -> rusqlite::Result<Value>,
) -> rusqlite::Result<Job> {
    Ok(Job {
        id: JobId(column.next()?),
        tenant: column.next()?,
        run: column.next::<Option<String>>()?.and_then(|run| run.parse().ok()),
        step: column.next()?,
        kind: column.next()?,
        lane: column.next()?,
        priority: column.next()?,
        state: column.parsed()?,
        payload: payload(column)?,
        run_at: column.maybe_instant()?,
        generation: column.next()?,
        attempt: column.next()?,
        max_attempts: column.next()?,
        lost: column.next()?,
        max_lost: column.next()?,
        backoff: Backoff { base_ms: column.next()?, factor: column.next()?, cap_ms: column.next()? },
        timeout_ms: column.next::<Option<i64>>()?.map(i64::unsigned_abs),
        unique_key: column.next()?,
        limit_key: column.next()?,
        fence: Fence(column.next()?),
        worker: column.next::<Option<i64>>()?.map(WorkerId),
        slot: column.next()?,
        progress: column.next()?,
        checkpoint: column.maybe_json()?,
        error: column.maybe_json()?,
        created_at: column.instant()?,
        claimed_at: column.maybe_instant()?,
        result: column.maybe_json()?,
        finished_at: column.maybe_instant()?,
        required: column.next()?,
        needs_left: column.next()?,
    })
}

pub(super) fn attempt(row: &Row<'_>) -> rusqlite::Result<Attempt> {
    let mut column = Columns::of(row);
    Ok(Attempt {
        job: JobId(column.next()?),
        fence: Fence(column.next()?),
        generation: column.next()?,
        worker: column.next::<Option<i64>>()?.map(WorkerId),
        slot: column.next()?,
        started_at: column.instant()?,
        ended_at: column.instant()?,
        outcome: column.parsed()?,
        error: column.maybe_json()?,
    })
}

pub(super) fn run(row: &Row<'_>) -> rusqlite::Result<Run> {
    let mut column = Columns::of(row);
    Ok(Run {
        id: column.parsed()?,
        tenant: column.next()?,
        name: column.next()?,
        external_id: column.next()?,
        state: column.parsed()?,
        generation: column.next()?,
        priority: column.next()?,
        meta: column.json::<Value>()?,
        jobs_total: column.next()?,
        jobs_left: column.next()?,
        jobs_failed: column.next()?,
        jobs_cancelled: column.next()?,
        jobs_degraded: column.next()?,
        created_at: column.instant()?,
        started_at: column.maybe_instant()?,
        playable_at: column.maybe_instant()?,
        finished_at: column.maybe_instant()?,
    })
}

pub(super) fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let mut column = Columns::of(row);
    let (run, kind, key) = (column.parsed()?, column.next()?, column.next()?);
    Ok(Record { run, kind, key, version: column.next::<i64>()?.unsigned_abs(), json: column.json()? })
}

pub(super) fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let mut column = Columns::of(row);
    Ok(Entry {
        kind: column.next()?,
        key: column.next()?,
        version: column.next::<i64>()?.unsigned_abs(),
        body: column.json()?,
        updated_at: column.instant()?,
    })
}

/// `is_alive` judges a boot id and the end of a lease in that boot's time.
pub(super) fn worker(row: &Row<'_>, is_alive: impl Fn(&str, i64) -> bool) -> rusqlite::Result<Worker> {
    let mut column = Columns::of(row);
    let (id, name, host, pid) = (WorkerId(column.next()?), column.next()?, column.next()?, column.next()?);
    let slots: BTreeMap<String, u32> = column.json()?;
    let kinds: Vec<String> = column.json()?;
    let (running, draining) = (column.next()?, column.next()?);
    let (boot, lease_until): (String, i64) = (column.next()?, column.next()?);
    let died = column.maybe_instant()?.is_some();
    Ok(Worker {
        id,
        name,
        host,
        pid,
        slots,
        kinds,
        running,
        draining,
        alive: !died && is_alive(&boot, lease_until),
        started_at: column.instant()?,
        seen_at: column.instant()?,
    })
}

pub(super) fn event(row: &Row<'_>) -> rusqlite::Result<Event> {
    read_event(&mut Columns::of(row))
}

fn read_event(column: &mut Columns<'_, '_>) -> rusqlite::Result<Event> {
    Ok(Event {
        run: column.parsed()?,
        seq: column.next::<i64>()?.unsigned_abs(),
        name: column.next()?,
        at: column.instant()?,
        body: column.json()?,
    })
}

pub(super) fn fed_event(row: &Row<'_>) -> rusqlite::Result<FedEvent> {
    let mut column = Columns::of(row);
    let event = read_event(&mut column)?;
    let cursor = feed_cursor(column.next::<i64>()?.unsigned_abs());
    Ok(FedEvent { cursor, tenant: column.next()?, event })
}

/// Behind the event at this place; 0 is before all of them.
pub(super) fn feed_cursor(place: u64) -> FeedCursor {
    FeedCursor(if place == 0 { Place::Start } else { Place::Row(place) })
}

pub(super) fn schedule(row: &Row<'_>) -> rusqlite::Result<Schedule> {
    let mut column = Columns::of(row);
    Ok(Schedule {
        name: column.next()?,
        cron: column.next()?,
        missed: column.parsed()?,
        push: column.json()?,
        next_at: column.instant()?,
        last_at: column.maybe_instant()?,
    })
}
