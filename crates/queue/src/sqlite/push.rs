//! `push`: runs and jobs into the file.

use rusqlite::params;

use super::clock::steady_us;
use super::graph::note_needs;
use super::sql;
use super::writer::Tx;
use crate::bell::Ring;
use crate::error::{QueueError, Result};
use crate::job::{JobId, JobState, NewJob};
use crate::push::{KEEP_KEYS, Push, Pushed};
use crate::run::RunId;

pub(super) fn push(tx: &Tx<'_>, pushes: Vec<Push>) -> Result<Vec<Pushed>> {
    pushes.into_iter().map(|push| push_once(tx, &push)).collect()
}

fn push_once(tx: &Tx<'_>, push: &Push) -> Result<Pushed> {
    let Some(key) = &push.idempotency_key else { return push_new(tx, push) };
    if let Some(known) = known(tx, push, key)? {
        return Ok(known);
    }
    let pushed = push_new(tx, push)?;
    let jobs = serde_json::to_string(&pushed.jobs).map_err(QueueError::unexpected)?;
    let expires_at = tx.now.plus(KEEP_KEYS).as_ms();
    let run = pushed.run.as_ref().map(RunId::as_str);
    tx.run(sql!("push_key"), params![push.tenant, key, push.body_hash(), run, jobs, expires_at])?;
    Ok(pushed)
}

fn known(tx: &Tx<'_>, push: &Push, key: &str) -> Result<Option<Pushed>> {
    let found = tx.first(sql!("push_known_key"), params![push.tenant, key, tx.now.as_ms()], |row| {
        Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Option<String>>(1)?, row.get::<_, String>(2)?))
    })?;
    let Some((body_hash, run, jobs)) = found else { return Ok(None) };
    if body_hash != push.body_hash() {
        return Err(QueueError::KeyReused { key: key.to_owned() });
    }
    let run =
        run.map(|run| run.parse()).transpose().map_err(|error: String| QueueError::unexpected(error))?;
    let jobs = serde_json::from_str(&jobs).map_err(QueueError::unexpected)?;
    Ok(Some(Pushed { run, jobs, replayed: true }))
}

fn push_new(tx: &Tx<'_>, push: &Push) -> Result<Pushed> {
    let run = push.run.as_ref().map(|_| RunId::new());
    let run_id = run.as_ref().map(RunId::as_str);
    let (mut jobs, mut stored) = (Vec::with_capacity(push.jobs.len()), 0);
    let mut fair_at = steady_us();
    for job in &push.jobs {
        let (id, is_new) = push_job(tx, &push.tenant, run_id, job, fair_at)?;
        jobs.push(id);
        stored += u32::from(is_new);
        if run.is_some() {
            fair_at += i64::from(job.cost_ms) * 1_000;
        }
    }
    if let (Some(id), Some(run)) = (run_id, &push.run) {
        let meta = run.meta.to_string();
        tx.run(
            sql!("push_run"),
            params![id, push.tenant, run.name, run.external_id, meta, stored, tx.now.as_ms(), fair_at],
        )?;
        note_needs(tx, &push.jobs, &jobs)?;
    }
    Ok(Pushed { run, jobs, replayed: false })
}

/// Stores a job, or finds the one that holds its unique key; says whether it is new.
pub(super) fn push_job(
    tx: &Tx<'_>,
    tenant: &str,
    run: Option<&str>,
    job: &NewJob,
    fair_at: i64,
) -> Result<(JobId, bool)> {
    if let Some(key) = &job.unique_key {
        let twin =
            tx.first(sql!("push_twin"), params![tenant, job.kind, key], |row| row.get(0).map(JobId))?;
        if let Some(twin) = twin {
            return Ok((twin, false));
        }
    }
    let state = match job.run_at {
        _ if !job.needs.is_empty() => JobState::Waiting,
        Some(at) if at > tx.now => JobState::Scheduled,
        _ => JobState::Pending,
    };
    tx.run(
        sql!("push_job"),
        params![
            tenant,
            run,
            job.step,
            job.kind,
            job.lane,
            job.priority,
            fair_at,
            state.as_str(),
            job.run_at.map(|at| at.as_ms()),
            job.timeout_ms.map(u64::cast_signed),
            job.max_attempts,
            job.max_lost,
            job.backoff.base_ms,
            job.backoff.factor,
            job.backoff.cap_ms,
            job.limit_key,
            job.unique_key,
            job.scratch_bytes.cast_signed(),
            job.cost_ms,
            job.payload.to_string(),
            tx.now.as_ms(),
            job.required,
            job.needs_count(),
        ],
    )?;
    tx.count(&job.lane, &job.kind, state, 1);
    tx.ring(Ring {
        ready: state == JobState::Pending,
        scheduled: state == JobState::Scheduled,
        ..Ring::default()
    });
    Ok((JobId(tx.inserted()), true))
}
