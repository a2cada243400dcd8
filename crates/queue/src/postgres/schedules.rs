//! Schedules: whoever locks one that is due, by the database's clock, pushes it and moves it on.

use std::time::Duration;

use sqlx::postgres::PgRow;

use super::connect::Database;
use super::failure::{Tried, unreadable};
use super::limits::balance;
use super::push::store;
use super::read::{instant, json, optional_instant, parsed, value};
use super::session::statement;
use super::sql;
use crate::bell::Ring;
use crate::limit::Bounds;
use crate::schedule::{Cron, NewSchedule, Schedule, Ticked};
use crate::timestamp::Timestamp;

pub(super) async fn schedule(database: &Database, schedule: &NewSchedule, cron: &Cron) -> Tried<Ring> {
    let mut tx = database.begin().await?;
    let clock = statement(sql!("schedule_clock")).fetch_one(&mut tx).await?;
    let next_at = cron.after(instant(&clock, "now")?);
    statement(sql!("schedule"))
        .bind(&schedule.name)
        .bind(&schedule.cron)
        .bind(schedule.missed.to_string())
        .bind(schedule.template())
        .bind(next_at.map(Timestamp::to_datetime))
        .execute(&mut tx)
        .await?;
    tx.commit().await?;
    Ok(Ring { scheduled: true, ..Ring::default() })
}

pub(super) async fn unschedule(database: &Database, name: &str) -> Tried<bool> {
    let mut connection = database.connection().await?;
    let known = statement(sql!("unschedule")).bind(name).fetch_optional(&mut connection).await?.is_some();
    connection.commit().await?;
    Ok(known)
}

pub(super) async fn schedules(database: &Database) -> Tried<Vec<Schedule>> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("schedules")).fetch_all(&mut connection).await?;
    let mut schedules = rows.iter().map(read).collect::<Tried<Vec<Schedule>>>()?;
    // Here and not in SQL: the database would sort by its own collation.
    schedules.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(schedules)
}

fn read(row: &PgRow) -> Tried<Schedule> {
    Ok(Schedule {
        name: value(row, "name")?,
        cron: value(row, "cron")?,
        missed: parsed(row, "missed")?,
        push: json(row, "push")?,
        next_at: instant(row, "next_at")?,
        last_at: optional_instant(row, "last_at")?,
    })
}

/// Looks before it locks: most of the time nothing is due.
pub(super) async fn tick(database: &Database) -> Tried<(Ticked, Ring)> {
    let mut ticked = Ticked { next_in: next_in(database).await?, ..Ticked::default() };
    let mut ring = Ring::default();
    if ticked.next_in == Some(Duration::ZERO) {
        (ticked.pushed, ring) = push_due(database).await?;
        ticked.next_in = next_in(database).await?;
    }
    Ok((ticked, ring))
}

async fn next_in(database: &Database) -> Tried<Option<Duration>> {
    let mut connection = database.connection().await?;
    let row = statement(sql!("tick_next")).fetch_one(&mut connection).await?;
    Ok(value::<Option<i64>>(&row, "next_in_ms")?.map(|ms| Duration::from_millis(ms.unsigned_abs())))
}

async fn push_due(database: &Database) -> Tried<(u64, Ring)> {
    let (mut ticks, mut ring, mut bounds) = (0, Ring::default(), Bounds::new());
    let mut tx = database.begin().await?;
    for row in &statement(sql!("tick_due")).fetch_all(&mut tx).await? {
        let schedule = read(row)?;
        let (pushes, due) = schedule.due(instant(row, "now")?)?;
        let moved = statement(sql!("tick"))
            .bind(&schedule.name)
            .bind(schedule.next_at.to_datetime())
            .bind(due.next_at.to_datetime())
            .bind(due.ticks.last().map(|tick| tick.to_datetime()))
            .execute(&mut tx)
            .await?;
        if moved.rows_affected() != 1 {
            return Err(unreadable("schedule", "next_at changed under its lock"));
        }
        if !pushes.is_empty() {
            ticks += pushes.len() as u64;
            let (_, rung) = store(&mut tx, &pushes, &mut bounds).await?;
            ring = ring.and(rung);
        }
    }
    // Once for all, so that their limits are locked in order.
    ring = ring.and(balance(&mut tx, &bounds).await?);
    tx.commit().await?;
    Ok((ticks, ring))
}
