//! Jobs that wait for others, and records: what a run is made of besides its jobs.
//!
//! Whoever ends or adds jobs of a run holds the run's row, so of two finishes of one run the second sees what the first
//! made: no need is overlooked.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::connect::Database;
use super::failure::Tried;
use super::finish::{Ending, end, error_json, ring_of};
use super::insert::{cost_us, insert_unique, rows_in_line};
use super::limits::{limited, note};
use super::read::{big_number, json, number, parsed, value};
use super::session::{Session, statement};
use super::{events, sql};
use crate::bell::Ring;
use crate::error::QueueError;
use crate::graph::{Needed, NewRecord, Spawn, need_failed};
use crate::job::{JobId, JobState, NewJob};
use crate::limit::Bounds;
use crate::run::RunId;

/// Notes what jobs need, now that their ids are known.
pub(super) async fn note_needs(connection: &mut Session<'_>, jobs: &[NewJob], ids: &[JobId]) -> Tried<()> {
    let (mut waiting, mut needed, mut policies) = (Vec::new(), Vec::new(), Vec::new());
    for (job, id) in jobs.iter().zip(ids) {
        for need in &job.needs {
            waiting.push(id.0);
            needed.push(resolve(need.on, ids).0);
            policies.push(need.on_failed.as_str());
        }
    }
    if !waiting.is_empty() {
        statement(sql!("need_add")).bind(waiting).bind(needed).bind(policies).execute(connection).await?;
    }
    Ok(())
}

fn resolve(needed: Needed, ids: &[JobId]) -> JobId {
    match needed {
        Needed::Nth(nth) => ids[nth],
        Needed::Job(id) => id,
    }
}

/// Adds jobs to a run, before the job that asks for them ends: the run cannot end in between.
pub(super) async fn spawn(
    connection: &mut Session<'_>,
    run: &str,
    spawn: &Spawn,
    bounds: &mut Bounds,
) -> Tried<Ring> {
    let Some(row) = statement(sql!("run_hold")).bind(run).fetch_optional(&mut *connection).await? else {
        return Ok(Ring::default());
    };
    let (tenant, fair_next): (String, i64) = (value(&row, "tenant")?, value(&row, "fair_next")?);
    let priority = value::<Option<i32>>(&row, "priority")?.and_then(|priority| u8::try_from(priority).ok());
    let jobs = spawn.jobs_at(priority);
    let rows = rows_in_line(&jobs, &tenant, Some(run), Some(fair_next));
    let wanted = spawn.jobs.iter().filter_map(|job| job.limit_key.as_deref()).collect();
    let limited = limited(connection, &wanted).await?;
    let (stored, mut ring) = insert_unique(connection, &rows, &limited, bounds).await?;
    let new = stored.iter().filter(|job| job.is_new).count();
    statement(sql!("run_grow"))
        .bind(run)
        .bind(i32::try_from(new).unwrap_or(i32::MAX))
        .bind(cost_us(&spawn.jobs))
        .execute(&mut *connection)
        .await?;
    let ids: Vec<JobId> = stored.into_iter().map(|job| job.id).collect();
    note_needs(connection, &spawn.jobs, &ids).await?;
    for edge in &spawn.edges {
        statement(sql!("need_more"))
            .bind(edge.job.0)
            .bind(run)
            .bind(resolve(edge.need.on, &ids).0)
            .bind(edge.need.on_failed.as_str())
            .execute(&mut *connection)
            .await?;
    }
    ring = ring.and(follow_needs_on_ended(connection, run, &spawn.jobs, bounds).await?);
    Ok(ring)
}

/// Needs on jobs that the run had before may be met already, or never be.
async fn follow_needs_on_ended(
    connection: &mut Session<'_>,
    run: &str,
    jobs: &[NewJob],
    bounds: &mut Bounds,
) -> Tried<Ring> {
    let existing: BTreeSet<i64> = jobs
        .iter()
        .flat_map(|job| &job.needs)
        .filter_map(|need| match need.on {
            Needed::Job(id) => Some(id.0),
            Needed::Nth(_) => None,
        })
        .collect();
    if existing.is_empty() {
        return Ok(Ring::default());
    }
    let existing: Vec<i64> = existing.into_iter().collect();
    let rows = statement(sql!("need_ended")).bind(run).bind(existing).fetch_all(&mut *connection).await?;
    let ended =
        rows.iter().map(|row| Ok((value(row, "id")?, parsed(row, "state")?))).collect::<Tried<Vec<_>>>()?;
    follow(connection, ended, bounds).await
}

/// Jobs of runs ended: what waited for them goes on, or ends too, wave by wave down the graph.
/// The caller balances the limits that this notes in `bounds`.
pub(super) async fn follow(
    connection: &mut Session<'_>,
    mut ended: Vec<(i64, JobState)>,
    bounds: &mut Bounds,
) -> Tried<Ring> {
    let mut ring = Ring::default();
    while !ended.is_empty() {
        let rows = statement(sql!("need_follow"))
            .bind(ended.iter().map(|(id, _)| *id).collect::<Vec<_>>())
            .bind(ended.iter().map(|(_, state)| state.as_str()).collect::<Vec<_>>())
            .fetch_all(&mut *connection)
            .await?;
        let mut doomed = Vec::new();
        for row in &rows {
            let Some(culprit) = value::<Option<i64>>(row, "culprit")? else {
                ring = ring.and(ring_of(parsed(row, "state")?));
                note(bounds, row)?;
                continue;
            };
            let fence: i64 = value(row, "fence")?;
            let state = if value(row, "fails")? { JobState::Failed } else { JobState::Skipped };
            doomed.push(Ending {
                id: value(row, "id")?,
                fence,
                guarded: false,
                fence_after: fence,
                settled_after: value(row, "settled_fence")?,
                state,
                result: None,
                error: Some(error_json(&need_failed(JobId(culprit), parsed(row, "culprit_state")?))),
                attempt: number(row, "attempt")?,
                lost: Some(number(row, "lost")?),
                slot: None,
                in_run: true,
            });
        }
        end(connection, &doomed, bounds).await?;
        ended = doomed.into_iter().map(|ending| (ending.id, ending.state)).collect();
    }
    Ok(ring)
}

/// The jobs that need one of these.
pub(super) async fn needing(connection: &mut Session<'_>, ids: &[i64]) -> Tried<Vec<i64>> {
    let rows = statement(sql!("need_of_ended")).bind(ids.to_vec()).fetch_all(connection).await?;
    rows.iter().map(|row| value(row, "job")).collect()
}

pub(super) async fn recount(connection: &mut Session<'_>, ids: Vec<i64>, bounds: &mut Bounds) -> Tried<Ring> {
    let rows = statement(sql!("need_recount")).bind(ids).fetch_all(connection).await?;
    for row in &rows {
        note(bounds, row)?;
    }
    rows.iter().try_fold(Ring::default(), |ring, row| Ok(ring.and(ring_of(parsed(row, "state")?))))
}

/// The runs of the jobs that these claims may still settle, by claim. The jobs are locked.
pub(super) async fn hold(
    connection: &mut Session<'_>,
    claims: &[(i64, i64)],
) -> Tried<HashMap<(i64, i64), Option<String>>> {
    let (ids, fences): (Vec<i64>, Vec<i64>) = claims.iter().copied().unzip();
    let rows = statement(sql!("finish_hold")).bind(ids).bind(fences).fetch_all(connection).await?;
    rows.iter().map(|row| Ok(((value(row, "id")?, value(row, "fence")?), value(row, "run")?))).collect()
}

/// Everyone locks runs in order of id: whoever spawns into some of them locks those first in which jobs only end.
pub(super) async fn hold_runs(connection: &mut Session<'_>, runs: Vec<&str>) -> Tried<()> {
    statement(sql!("finish_runs")).bind(runs).execute(connection).await?;
    Ok(())
}

/// A job of the run says that what it makes can be played. The first one counts. Says whom to wake.
pub(super) async fn mark_playable(connection: &mut Session<'_>, run: &str) -> Tried<Ring> {
    let first = statement(sql!("run_playable")).bind(run).fetch_optional(connection).await?;
    Ok(if first.is_some() { events::ring() } else { Ring::default() })
}

/// Writes a record of a job that is held, and what it tells if it is new. Says whom to wake.
pub(super) async fn write_record_of_job(
    connection: &mut Session<'_>,
    run: &str,
    record: &NewRecord,
) -> Tried<Ring> {
    let mut ring = Ring::default();
    if let Some(event) = &record.tells {
        let before = statement(sql!("record_json")).bind(run).bind(&record.kind).bind(&record.key);
        let before: Option<Value> =
            before.fetch_optional(&mut *connection).await?.map(|row| json(&row, "json")).transpose()?;
        if before.as_ref() != Some(&record.json) {
            let told = events::Told { run, name: &event.name, body: event.body.to_string() };
            events::add(connection, &[told]).await?;
            ring = events::ring();
        }
    }
    write_record(connection, run, record, None).await?;
    Ok(ring)
}

/// Writes a record. `None`: there is no such run, or it is not at the expected version.
pub(super) async fn write_record(
    connection: &mut Session<'_>,
    run: &str,
    record: &NewRecord,
    expected: Option<u64>,
) -> Tried<Option<u64>> {
    let row = statement(sql!("record_put"))
        .bind(run)
        .bind(&record.kind)
        .bind(&record.key)
        .bind(record.json.to_string())
        .bind(expected.map(u64::cast_signed))
        .fetch_optional(connection)
        .await?;
    row.map(|row| big_number(&row, "version")).transpose()
}

pub(super) async fn put_record(
    database: &Database,
    run: &RunId,
    record: &NewRecord,
    expected: Option<u64>,
) -> Tried<u64> {
    let mut connection = database.connection().await?;
    if let Some(version) = write_record(&mut connection, run.as_str(), record, expected).await? {
        connection.commit().await?;
        return Ok(version);
    }
    let row = statement(sql!("record_version"))
        .bind(run.as_str())
        .bind(&record.kind)
        .bind(&record.key)
        .fetch_optional(&mut connection)
        .await?;
    Err(match row {
        None => QueueError::NoSuchRun(run.clone()),
        Some(row) => QueueError::Stale {
            key: record.key.clone(),
            expected: expected.unwrap_or_default(),
            found: big_number(&row, "version")?,
        },
    }
    .into())
}
