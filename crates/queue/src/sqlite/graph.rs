//! Jobs that wait for others: needs are noted, met, and followed when they fail.

use std::collections::BTreeSet;

use rusqlite::params;
use serde_json::Value;

use super::events::{tell, told};
use super::finish::{Ending, Standing, end_one, error_json};
use super::push::{Owner, push_job};
use super::sql;
use super::writer::Tx;
use crate::bell::Ring;
use crate::error::Result;
use crate::graph::{Edge, Need, Needed, NewRecord, OnFailed, Spawn, need_failed};
use crate::job::{JobId, JobState, NewJob};

/// Notes what the jobs of one push need, now that their ids are known.
pub(super) fn note_needs(tx: &Tx<'_>, jobs: &[NewJob], ids: &[JobId]) -> Result<()> {
    for (job, id) in jobs.iter().zip(ids) {
        for need in &job.needs {
            if let Needed::Nth(nth) = need.on {
                tx.run(sql!("need_add"), params![id.0, ids[nth].0, need.on_failed.as_str()])?;
            }
        }
    }
    Ok(())
}

/// Adds jobs to a run in the transaction of the job that asks for them. They are counted before that job ends, so the
/// run cannot end in between.
pub(super) fn spawn(tx: &Tx<'_>, run: &str, spawn: &Spawn) -> Result<()> {
    let look = tx.first(sql!("run_look"), [run], |row| {
        let owner = Owner { tenant: row.get(0)?, capped: row.get(2)? };
        Ok((owner, row.get::<_, i64>(1)?, row.get::<_, Option<u8>>(3)?))
    })?;
    let Some((owner, mut fair_at, priority)) = look else { return Ok(()) };
    let jobs = spawn.jobs_at(priority);
    let (mut ids, mut stored) = (Vec::with_capacity(jobs.len()), 0);
    for job in jobs.iter() {
        let (id, is_new) = push_job(tx, &owner, Some(run), job, fair_at)?;
        ids.push(id);
        stored += u32::from(is_new);
        fair_at += i64::from(job.cost_ms) * 1_000;
    }
    tx.run(sql!("run_grow"), params![run, stored, fair_at])?;
    note_needs(tx, &spawn.jobs, &ids)?;
    let needs_existing = |job: &NewJob| job.needs.iter().any(|need| matches!(need.on, Needed::Job(_)));
    for (job, id) in spawn.jobs.iter().zip(&ids).filter(|(job, _)| needs_existing(job)) {
        note_needs_on_existing(tx, run, *id, &job.needs)?;
    }
    spawn.edges.iter().try_for_each(|edge| add_edge(tx, run, edge, &ids))
}

/// Needs on jobs that the run had before may be met already, or never be.
fn note_needs_on_existing(tx: &Tx<'_>, run: &str, id: JobId, needs: &[Need]) -> Result<()> {
    for need in needs {
        let Needed::Job(needed) = need.on else { continue };
        tx.run(sql!("need_add"), params![id.0, needed.0, need.on_failed.as_str()])?;
        let state = tx.first(sql!("need_target"), params![needed.0, run], |row| row.get::<_, String>(0))?;
        let state = state.and_then(|state| state.parse().ok()).unwrap_or(JobState::Cancelled);
        if state.is_terminal() {
            follow(tx, vec![(id, need.on_failed, needed, state)])?;
        }
    }
    Ok(())
}

fn add_edge(tx: &Tx<'_>, run: &str, edge: &Edge, spawned: &[JobId]) -> Result<()> {
    let needed = match edge.need.on {
        Needed::Nth(nth) => spawned[nth],
        Needed::Job(id) => id,
    };
    if tx.run(sql!("need_more"), params![edge.job.0, run])? == 1 {
        tx.run(sql!("need_add"), params![edge.job.0, needed.0, edge.need.on_failed.as_str()])?;
    }
    Ok(())
}

/// A job ended: what waited for it goes on, or ends too, and so on down the graph.
pub(super) fn follow_end(tx: &Tx<'_>, ended: JobId, state: JobState) -> Result<()> {
    let dependents = dependents(tx, ended, state)?;
    follow(tx, dependents)
}

/// One need that has ended: who needed it, under which policy, what it was, and how it ended.
type EndedNeed = (JobId, OnFailed, JobId, JobState);

fn dependents(tx: &Tx<'_>, ended: JobId, state: JobState) -> Result<Vec<EndedNeed>> {
    let found = tx.all(sql!("need_dependents"), [ended.0], |row| {
        let mut column = super::row::Columns::of(row);
        Ok((JobId(column.next()?), column.parsed::<OnFailed>()?))
    })?;
    Ok(found.into_iter().map(|(job, policy)| (job, policy, ended, state)).collect())
}

/// A list of work instead of recursion: a chain of skipped jobs may be long.
fn follow(tx: &Tx<'_>, mut work: Vec<EndedNeed>) -> Result<()> {
    while let Some((job, policy, needed, state)) = work.pop() {
        match policy.verdict(state) {
            None => meet(tx, job)?,
            Some(end) => {
                let Some(standing) = waiting(tx, job)? else { continue };
                let error = error_json(&need_failed(needed, state));
                end_one(tx, job, &standing, &Ending::unclaimed(end, Some(&error)))?;
                work.extend(dependents(tx, job, end)?);
            }
        }
    }
    Ok(())
}

fn waiting(tx: &Tx<'_>, job: JobId) -> Result<Option<Standing>> {
    let standing = tx.first(sql!("live"), [job.0], Standing::read)?;
    Ok(standing.filter(|standing| standing.state == JobState::Waiting))
}

fn meet(tx: &Tx<'_>, job: JobId) -> Result<()> {
    let left = tx.first(sql!("need_met"), [job.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
    ready_if_met(tx, job, left)
}

fn ready_if_met(tx: &Tx<'_>, job: JobId, left: Option<(i64, Option<i64>)>) -> Result<()> {
    let Some((0, run_at)) = left else { return Ok(()) };
    let Some(standing) = waiting(tx, job)? else { return Ok(()) };
    let bounded = standing.bounded.in_force(tx)?;
    let parked_on = bounded.parks_on();
    let state = match run_at {
        Some(at) if at > tx.now.as_ms() => JobState::Scheduled,
        _ if parked_on.is_some() => JobState::Parked,
        _ => JobState::Pending,
    };
    if state == JobState::Parked {
        tx.touch(bounded.bounds());
    }
    tx.run(sql!("need_ready"), params![job.0, state.as_str(), parked_on, tx.now.as_ms()])?;
    tx.count(&standing.lane, &standing.kind, JobState::Waiting, -1);
    tx.count(&standing.lane, &standing.kind, state, 1);
    tx.ring(Ring {
        ready: state == JobState::Pending,
        scheduled: state == JobState::Scheduled,
        ..Ring::default()
    });
    Ok(())
}

/// A job started over: what needs it, and what needs that, starts over too and waits for it.
pub(super) fn restart_dependents(
    tx: &Tx<'_>,
    restarted: JobId,
    mut restart: impl FnMut(JobId) -> Result<bool>,
) -> Result<()> {
    let (mut work, mut affected) = (vec![restarted], BTreeSet::new());
    while let Some(job) = work.pop() {
        for dependent in tx.all(sql!("need_of_ended"), [job.0], |row| row.get(0).map(JobId))? {
            if affected.insert(dependent) && restart(dependent)? {
                work.push(dependent);
            }
        }
    }
    for job in affected {
        let left = tx.first(sql!("need_recount"), [job.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
        ready_if_met(tx, job, left)?;
    }
    Ok(())
}

/// Writes what a claim recorded, and what those that are new tell.
pub(super) fn put_records(tx: &Tx<'_>, run: &str, records: &[NewRecord]) -> Result<()> {
    for record in records {
        if let Some(event) = &record.tells
            && !is_there(tx, run, record)?
        {
            tell(tx, run, &event.name, &event.body)?;
        }
        put_record(tx, run, record)?;
    }
    Ok(())
}

fn is_there(tx: &Tx<'_>, run: &str, record: &NewRecord) -> Result<bool> {
    let named = [run, record.kind.as_str(), record.key.as_str()];
    let before = tx.first(sql!("record_json"), named, |row| row.get::<_, String>(0))?;
    let before = before.and_then(|json| serde_json::from_str::<Value>(&json).ok());
    Ok(before.as_ref() == Some(&record.json))
}

/// A job of the run says that what it makes can be played. The first one counts.
pub(super) fn mark_playable(tx: &Tx<'_>, run: &str) -> Result<()> {
    if tx.run(sql!("run_playable"), params![run, tx.now.as_ms()])? == 1 {
        told(tx);
    }
    Ok(())
}

/// Zero versions: there is no such run.
pub(super) fn put_record(tx: &Tx<'_>, run: &str, record: &NewRecord) -> Result<Option<u64>> {
    let version = tx.first(
        sql!("record_put"),
        params![run, record.kind, record.key, record.json.to_string()],
        |row| row.get::<_, i64>(0),
    )?;
    Ok(version.map(i64::unsigned_abs))
}
