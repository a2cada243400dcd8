//! `pull`: from ready to running.

use rusqlite::params;

use super::clock::{boottime_ms, ms};
use super::events::told;
use super::policy::without_paused;
use super::row::{self, Columns};
use super::sql;
use super::writer::Tx;
use crate::claim::Claim;
use crate::error::{QueueError, Result};
use crate::job::{DEADLINE_GRACE, Job, JobState};
use crate::run::RunId;
use crate::worker::{Claimed, Pull};

pub(super) fn pull(tx: &Tx<'_>, pull: &Pull) -> Result<Vec<Claimed>> {
    if tx.first(sql!("worker_lives"), [pull.worker.0], |_| Ok(()))?.is_none() {
        return Err(QueueError::WorkerGone);
    }
    let (lanes, kinds) = without_paused(tx, pull)?;
    let kinds = serde_json::to_string(&kinds).map_err(QueueError::unexpected)?;
    let mut claimed = Vec::new();
    for (lane, slots) in &lanes {
        claimed.extend(pull_lane(tx, pull, lane, *slots, &kinds)?);
    }
    Ok(claimed)
}

fn pull_lane(tx: &Tx<'_>, pull: &Pull, lane: &str, slots: u32, kinds: &str) -> Result<Vec<Claimed>> {
    let free_bytes = i64::try_from(pull.free_scratch_bytes).unwrap_or(i64::MAX);
    let mut found = tx.all(
        sql!("pull"),
        params![
            pull.worker.0,
            tx.now.as_ms(),
            boottime_ms(),
            lane,
            free_bytes,
            kinds,
            slots,
            ms(DEADLINE_GRACE)
        ],
        |row| Ok((row::job(row)?, row.get::<_, i64>(Columns::AFTER_JOB)?)),
    )?;
    found.sort_by_key(|(job, fair_at)| (std::cmp::Reverse(job.priority), *fair_at, job.id));
    let mut last_started: Option<RunId> = None;
    for (job, _) in &found {
        note_claim(tx, job, &mut last_started)?;
    }
    Ok(found.into_iter().map(|(job, _)| Claimed { claim: Claim::of(&job), job }).collect())
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
