//! Schedules: whoever holds the write lock when one is due pushes it and moves it on.
//!
//! A tick is named by its instant, so each is pushed once whatever the wall clocks of the processes do: one that runs fast
//! pushes early, and the others wait until time has caught up.

use rusqlite::{Connection, params};

use super::push::push;
use super::row;
use super::sql;
use super::writer::Tx;
use crate::bell::Ring;
use crate::error::Result;
use crate::schedule::{Cron, NewSchedule, Schedule};
use crate::timestamp::Timestamp;

pub(super) fn schedule(tx: &Tx<'_>, schedule: &NewSchedule, cron: &Cron) -> Result<()> {
    let next_at = cron.after(tx.now).map(Timestamp::as_ms);
    let missed = schedule.missed.to_string();
    tx.run(sql!("schedule"), params![schedule.name, schedule.cron, missed, schedule.template(), next_at])?;
    tx.ring(Ring { scheduled: true, ..Ring::default() });
    Ok(())
}

pub(super) fn unschedule(tx: &Tx<'_>, name: &str) -> Result<bool> {
    Ok(tx.run(sql!("unschedule"), [name])? == 1)
}

pub(super) fn schedules(connection: &Connection) -> rusqlite::Result<Vec<Schedule>> {
    connection.prepare_cached(sql!("schedules"))?.query_map([], row::schedule)?.collect()
}

pub(super) fn next_at(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let next_at: Option<i64> =
        connection.prepare_cached(sql!("tick_next"))?.query_row([], |row| row.get(0))?;
    Ok(next_at.map(Timestamp::from_ms))
}

/// Pushes what is due; says how many ticks.
pub(super) fn tick(tx: &Tx<'_>) -> Result<u64> {
    let mut ticks = 0;
    for schedule in tx.all(sql!("tick_due"), [tx.now.as_ms()], row::schedule)? {
        let (pushes, due) = schedule.due(tx.now)?;
        let last_at = due.ticks.last().map(|tick| tick.as_ms());
        let moved = params![schedule.name, schedule.next_at.as_ms(), due.next_at.as_ms(), last_at];
        if tx.run(sql!("tick"), moved)? == 1 {
            ticks += pushes.len() as u64;
            push(tx, pushes)?;
        }
    }
    Ok(ticks)
}
