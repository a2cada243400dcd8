//! Events and the outbox: `tell`, `events`, sinks, and what a relay does.
//!
//! Triggers of the schema write what a change of a run has to tell, and the rows of the outbox.

use std::time::Duration;

use sqlx::postgres::PgRow;

use super::connect::{Database, ms};
use super::failure::Tried;
use super::read::{big_number, instant, json, number, optional_instant, parsed, value};
use super::session::{Session, statement};
use super::sql;
use crate::bell::Ring;
use crate::event::{Delivered, Event, LONGEST_DELAY, OutboxDepth, PARCEL_EVENTS, Parcel, Undelivered};
use crate::run::RunId;

/// An event on its way to its run.
pub(super) struct Told<'a> {
    pub(super) run: &'a str,
    pub(super) name: &'a str,
    pub(super) body: String,
}

/// Somebody who waits for events may find one.
pub(super) fn ring() -> Ring {
    Ring { told: true, ..Ring::default() }
}

pub(super) async fn tell(database: &Database, told: &Told<'_>) -> Tried<Option<u64>> {
    let mut connection = database.connection().await?;
    let seqs = add(&mut connection, std::slice::from_ref(told)).await?;
    connection.commit().await?;
    Ok(seqs.first().copied())
}

/// Adds events to runs, inside any transaction. Gives the numbers of those whose run there is.
pub(super) async fn add(connection: &mut Session<'_>, told: &[Told<'_>]) -> Tried<Vec<u64>> {
    let rows = statement(sql!("tell"))
        .bind(told.iter().map(|told| told.run).collect::<Vec<_>>())
        .bind(told.iter().map(|told| told.name).collect::<Vec<_>>())
        .bind(told.iter().map(|told| told.body.as_str()).collect::<Vec<_>>())
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| big_number(row, "seq")).collect()
}

pub(super) async fn events(
    database: &Database,
    run: &RunId,
    after_seq: u64,
    limit: u32,
) -> Tried<Vec<Event>> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("events"))
        .bind(run.as_str())
        .bind(i64::try_from(after_seq).unwrap_or(i64::MAX))
        .bind(i64::from(limit))
        .fetch_all(&mut connection)
        .await?;
    rows.iter().map(event).collect()
}

pub(super) fn event(row: &PgRow) -> Tried<Event> {
    Ok(Event {
        run: parsed(row, "run")?,
        seq: big_number(row, "seq")?,
        name: value(row, "type")?,
        at: instant(row, "at")?,
        body: json(row, "body")?,
    })
}

/// Whether it was not known yet. What an earlier sink of that name left behind is not for this one.
pub(super) async fn add_sink(database: &Database, name: &str) -> Tried<bool> {
    let mut tx = database.begin().await?;
    let is_new = statement(sql!("sink_add")).bind(name).fetch_optional(&mut tx).await?.is_some();
    if is_new {
        statement(sql!("sink_forget")).bind(name).execute(&mut tx).await?;
    }
    tx.commit().await?;
    Ok(is_new)
}

pub(super) async fn remove_sink(database: &Database, name: &str) -> Tried<bool> {
    let mut tx = database.begin().await?;
    let known = statement(sql!("sink_remove")).bind(name).fetch_optional(&mut tx).await?.is_some();
    statement(sql!("sink_forget")).bind(name).execute(&mut tx).await?;
    tx.commit().await?;
    Ok(known)
}

pub(super) async fn depths(database: &Database) -> Tried<Vec<OutboxDepth>> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("outbox_depths"))
        .bind(i64::from(OutboxDepth::MAX_RUNS))
        .fetch_all(&mut connection)
        .await?;
    let depth = |row: &PgRow| {
        Ok(OutboxDepth {
            sink: value(row, "sink")?,
            waiting: big_number(row, "waiting")?,
            oldest_at: optional_instant(row, "oldest_at")?,
        })
    };
    rows.iter().map(depth).collect()
}

pub(super) async fn take(database: &Database, sink: &str, runs: u32, lease: Duration) -> Tried<Vec<Parcel>> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("outbox_take"))
        .bind(sink)
        .bind(i64::from(runs))
        .bind(ms(lease))
        .bind(i64::from(PARCEL_EVENTS))
        .fetch_all(&mut connection)
        .await?;
    connection.commit().await?;
    let unsent = rows
        .iter()
        .map(|row| Ok((number(row, "attempt")?, event(row)?)))
        .collect::<Tried<Vec<(u32, Event)>>>()?;
    Ok(Parcel::gather(unsent))
}

pub(super) async fn is_ahead(database: &Database, sink: &str, event: &Event, types: &[&str]) -> Tried<bool> {
    let mut connection = database.connection().await?;
    let row = statement(sql!("outbox_ahead"))
        .bind(sink)
        .bind(event.run.as_str())
        .bind(i64::try_from(event.seq).unwrap_or(i64::MAX))
        .bind(types)
        .fetch_one(&mut connection)
        .await?;
    value(&row, "is_ahead")
}

/// Says of how many runs it was still the caller's to say.
pub(super) async fn done(database: &Database, sink: &str, delivered: &[Delivered]) -> Tried<u64> {
    let runs: Vec<&str> = delivered.iter().map(|sent| sent.run.as_str()).collect();
    let mut tx = database.begin().await?;
    statement(sql!("outbox_hold")).bind(&runs).execute(&mut tx).await?;
    let settled = statement(sql!("outbox_done"))
        .bind(sink)
        .bind(&runs)
        .bind(delivered.iter().map(|sent| attempt(sent.attempt)).collect::<Vec<_>>())
        .bind(
            delivered
                .iter()
                .map(|sent| i64::try_from(sent.through_seq).unwrap_or(i64::MAX))
                .collect::<Vec<_>>(),
        )
        .fetch_all(&mut tx)
        .await?
        .len();
    tx.commit().await?;
    Ok(settled as u64)
}

pub(super) async fn retry(database: &Database, sink: &str, undelivered: &[Undelivered]) -> Tried<u64> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("outbox_retry"))
        .bind(sink)
        .bind(undelivered.iter().map(|unsent| unsent.run.as_str()).collect::<Vec<_>>())
        .bind(undelivered.iter().map(|unsent| attempt(unsent.attempt)).collect::<Vec<_>>())
        .bind(undelivered.iter().map(|unsent| ms(unsent.delay.min(LONGEST_DELAY))).collect::<Vec<_>>())
        .fetch_all(&mut connection)
        .await?;
    connection.commit().await?;
    Ok(rows.len() as u64)
}

fn attempt(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
