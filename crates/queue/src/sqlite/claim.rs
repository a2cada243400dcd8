//! `pull`: from ready to running.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::params;

use super::clock::{boottime_ms, ms};
use super::events::told;
use super::policy::without_paused;
use super::row::{self, json_array};
use super::sql;
use super::writer::Tx;
use crate::claim::Claim;
use crate::error::{QueueError, Result};
use crate::job::{DEADLINE_GRACE, Job, JobId, JobState};
use crate::run::RunId;
use crate::worker::{Claimed, Pull};

/// A claimed job whose payload is still text.
pub(super) struct Unread {
    job: Job,
    payload: String,
}

impl Unread {
    pub(super) fn read(self) -> Result<Claimed> {
        let mut job = self.job;
        job.payload = serde_json::from_str(&self.payload).map_err(QueueError::unexpected)?;
        let job = Arc::new(job);
        Ok(Claimed { claim: Claim::of(&job), job })
    }
}

pub(super) fn pull(tx: &Tx<'_>, pull: &Pull) -> Result<Vec<Unread>> {
    if tx.first(sql!("worker_lives"), [pull.worker.0], |_| Ok(()))?.is_none() {
        return Err(QueueError::WorkerGone);
    }
    let (lanes, kinds) = without_paused(tx, pull)?;
    let kinds = serde_json::to_string(&kinds).map_err(QueueError::unexpected)?;
    let mut claimed = Vec::new();
    let mut scratch = Scratch::of(pull);
    for (lane, slots) in &lanes {
        claimed.extend(pull_lane(tx, pull, lane, *slots, &kinds, &mut scratch)?);
    }
    Ok(claimed)
}

fn pull_lane(
    tx: &Tx<'_>,
    pull: &Pull,
    lane: &str,
    slots: u32,
    kinds: &str,
    scratch: &mut Scratch,
) -> Result<Vec<Unread>> {
    let wanted = params![pull.worker.0, tx.now.as_ms(), lane, scratch.free_bytes, kinds, slots];
    let mut found = tx.all(sql!("pull"), wanted, |row| {
        let (job, payload) = row::unread_job(row)?;
        Ok(Unread { job, payload })
    })?;
    scratch.keep_what_fits(tx, &mut found)?;
    let ids = json_array(found.iter().map(|it| it.job.id));
    let claim = params![ids, pull.worker.0, tx.now.as_ms(), boottime_ms(), ms(DEADLINE_GRACE)];
    let claimed = if found.is_empty() { 0 } else { tx.run(sql!("pull_claim"), claim)? };
    if claimed != found.len() {
        return Err(QueueError::unexpected(format!("claimed {claimed} of {} ready jobs", found.len())));
    }
    let mut last_started: Option<RunId> = None;
    for claimed in &found {
        note_claim(tx, &claimed.job, &mut last_started)?;
    }
    Ok(found)
}

/// The scratch space that one pull may still promise to jobs.
struct Scratch {
    free_bytes: i64,
    is_bounded: bool,
}

impl Scratch {
    fn of(pull: &Pull) -> Self {
        let free_bytes = i64::try_from(pull.free_scratch_bytes).unwrap_or(i64::MAX);
        Self { free_bytes, is_bounded: pull.free_scratch_bytes < u64::MAX }
    }

    /// Each job fits by itself; from the first that does not fit beside those before it, only those stay that need none.
    fn keep_what_fits(&mut self, tx: &Tx<'_>, found: &mut Vec<Unread>) -> Result<()> {
        if !self.is_bounded || found.is_empty() {
            return Ok(());
        }
        let ids = json_array(found.iter().map(|it| it.job.id));
        let needed: HashMap<JobId, i64> = tx
            .all(sql!("pull_scratch"), [ids], |row| Ok((JobId(row.get(0)?), row.get(1)?)))?
            .into_iter()
            .collect();
        let mut is_full = false;
        found.retain(|it| match needed.get(&it.job.id) {
            None => true,
            Some(bytes) if is_full || *bytes > self.free_bytes => {
                is_full = true;
                false
            }
            Some(bytes) => {
                self.free_bytes -= bytes;
                true
            }
        });
        Ok(())
    }
}

fn note_claim(tx: &Tx<'_>, job: &Job, last_started: &mut Option<RunId>) -> Result<()> {
    tx.count(&job.lane, &job.kind, JobState::Pending, -1);
    tx.count(&job.lane, &job.kind, JobState::Running, 1);
    if job.run.is_some() && *last_started != job.run {
        let run = job.run.as_ref().map(RunId::as_str);
        if tx.run(sql!("pull_run_started"), params![run, tx.now.as_ms()])? == 1 {
            told(tx);
        }
        last_started.clone_from(&job.run);
    }
    Ok(())
}
