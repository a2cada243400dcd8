//! Events and the outbox: `tell`, `events`, sinks, and what a relay does.
//!
//! Triggers of the schema write what a change of a run has to tell, and the rows of the outbox.

use std::time::Duration;

use rusqlite::{Connection, params};
use serde_json::Value;

use super::clock::ms;
use super::row;
use super::sql;
use super::writer::Tx;
use crate::bell::Ring;
use crate::error::Result;
use crate::event::{Delivered, Event, LONGEST_DELAY, OutboxDepth, PARCEL_EVENTS, Parcel, Undelivered};
use crate::run::RunId;
use crate::timestamp::Timestamp;

/// Adds an event to a run, inside any transaction; gives its number. `None`: there is no such run.
pub(super) fn tell(tx: &Tx<'_>, run: &str, name: &str, body: &Value) -> Result<Option<u64>> {
    let seq = tx.first(sql!("tell_next"), [run], |row| row.get::<_, i64>(0))?;
    let Some(seq) = seq else { return Ok(None) };
    tx.run(sql!("tell"), params![run, seq, name, tx.now.as_ms(), body.to_string()])?;
    told(tx);
    Ok(Some(seq.unsigned_abs()))
}

/// A run of this transaction has something to tell.
pub(super) fn told(tx: &Tx<'_>) {
    tx.ring(Ring { told: true, ..Ring::default() });
}

pub(super) fn events(
    connection: &Connection,
    run: &RunId,
    after_seq: u64,
    limit: u32,
) -> rusqlite::Result<Vec<Event>> {
    let after_seq = i64::try_from(after_seq).unwrap_or(i64::MAX);
    connection
        .prepare_cached(sql!("events"))?
        .query_map(params![run.as_str(), after_seq, limit], row::event)?
        .collect()
}

/// Whether it was not known yet.
pub(super) fn add_sink(tx: &Tx<'_>, name: &str) -> Result<bool> {
    Ok(tx.run(sql!("sink_add"), params![name, tx.now.as_ms()])? == 1)
}

pub(super) fn remove_sink(tx: &Tx<'_>, name: &str) -> Result<bool> {
    tx.run(sql!("sink_forget"), [name])?;
    Ok(tx.run(sql!("sink_remove"), [name])? == 1)
}

pub(super) fn depths(connection: &Connection) -> rusqlite::Result<Vec<OutboxDepth>> {
    let reading = connection.unchecked_transaction()?;
    let mut sinks = reading.prepare_cached(sql!("sinks"))?;
    let mut depth = reading.prepare_cached(sql!("outbox_depths"))?;
    let depths = sinks.query_map([], |row| row.get::<_, String>(0))?.map(|sink| {
        let sink = sink?;
        depth.query_row(params![sink, OutboxDepth::MAX_RUNS], |row| {
            let oldest_at = row.get::<_, Option<i64>>(1)?.map(Timestamp::from_ms);
            let waiting = row.get::<_, i64>(0)?.unsigned_abs();
            Ok(OutboxDepth { sink: sink.clone(), waiting, oldest_at })
        })
    });
    depths.collect()
}

pub(super) fn take(tx: &Tx<'_>, sink: &str, runs: u32, lease: Duration) -> Result<Vec<Parcel>> {
    // Not the transaction's time: that may be older than the event whose wake-up brought us here.
    let now = Timestamp::now().as_ms();
    let due = tx.all(sql!("outbox_take"), params![sink, now, ms(lease), ms(LONGEST_DELAY), runs], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?))
    })?;
    let mut unsent = Vec::new();
    for (run, attempt) in due {
        let events = tx.all(sql!("outbox_events"), params![run, sink, PARCEL_EVENTS], row::event)?;
        unsent.extend(events.into_iter().map(|event| (attempt, event)));
    }
    Ok(Parcel::gather(unsent))
}

pub(super) fn is_ahead(
    connection: &Connection,
    sink: &str,
    (run, seq): (&RunId, u64),
    types: &str,
) -> rusqlite::Result<bool> {
    let seq = i64::try_from(seq).unwrap_or(i64::MAX);
    connection
        .prepare_cached(sql!("outbox_ahead"))?
        .query_row(params![sink, run.as_str(), seq, types], |row| row.get(0))
}

/// Says of how many runs it was still the caller's to say.
pub(super) fn done(tx: &Tx<'_>, sink: &str, delivered: &[Delivered]) -> Result<u64> {
    let mut settled = 0;
    for sent in delivered {
        let run = sent.run.as_str();
        if tx.first(sql!("outbox_look"), params![run, sink, sent.attempt], |_| Ok(()))?.is_none() {
            continue;
        }
        let through_seq = i64::try_from(sent.through_seq).unwrap_or(i64::MAX);
        tx.run(sql!("outbox_done"), params![run, sink, through_seq])?;
        tx.run(sql!("outbox_next"), params![run, sink, tx.now.as_ms()])?;
        settled += 1;
    }
    Ok(settled)
}

pub(super) fn retry(tx: &Tx<'_>, sink: &str, undelivered: &[Undelivered]) -> Result<u64> {
    let mut settled = 0;
    for unsent in undelivered {
        let due_at = tx.now.plus(unsent.delay.min(LONGEST_DELAY)).as_ms();
        let put_off = params![unsent.run.as_str(), sink, unsent.attempt, due_at];
        settled += tx.run(sql!("outbox_retry"), put_off)? as u64;
    }
    Ok(settled)
}
