//! `push`: runs and jobs into the file.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::events::told;
use super::graph::note_needs;
use super::limits::Bounded;
use super::sql;
use super::writer::Tx;
use crate::bell::Ring;
use crate::error::{QueueError, Result};
use crate::job::{JobId, JobState, NewJob};
use crate::limit::tenant_step_us;
use crate::push::{KEEP_KEYS, Push, Pushed};
use crate::run::RunId;
use crate::timestamp::Timestamp;

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
    let found =
        tx.first(sql!("push_known_key"), params![push.tenant, key, tx.now.as_ms()], UsedKey::of_row)?;
    found.map(|used| used.pushed(key, &push.body_hash())).transpose()
}

/// What an idempotency key was used for, outside of any push.
pub(super) fn used_key(
    connection: &Connection,
    tenant: &str,
    key: &str,
) -> rusqlite::Result<Option<UsedKey>> {
    connection
        .prepare_cached(sql!("push_known_key"))?
        .query_row(params![tenant, key, Timestamp::now().as_ms()], UsedKey::of_row)
        .optional()
}

/// A row of an idempotency key.
pub(super) struct UsedKey {
    body_hash: Vec<u8>,
    run: Option<String>,
    jobs: String,
}

impl UsedKey {
    fn of_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { body_hash: row.get(0)?, run: row.get(1)?, jobs: row.get(2)? })
    }

    /// What it made, if that is what it stands for.
    pub(super) fn pushed(self, key: &str, body_hash: &[u8]) -> Result<Pushed> {
        if self.body_hash != body_hash {
            return Err(QueueError::KeyReused { key: key.to_owned() });
        }
        let run = self.run.map(|run| run.parse()).transpose();
        Ok(Pushed {
            run: run.map_err(|error: String| QueueError::unexpected(error))?,
            jobs: serde_json::from_str(&self.jobs).map_err(QueueError::unexpected)?,
            replayed: true,
        })
    }
}

fn push_new(tx: &Tx<'_>, push: &Push) -> Result<Pushed> {
    let run = push.run.as_ref().map(|_| RunId::new());
    let run_id = run.as_ref().map(RunId::as_str);
    let (mut jobs, mut stored) = (Vec::with_capacity(push.jobs.len()), 0);
    let (mut line, owner) = Line::of(tx, push)?;
    for job in &push.jobs {
        let (id, is_new) = push_job(tx, &owner, run_id, job, line.place(job))?;
        jobs.push(id);
        stored += u32::from(is_new);
    }
    if let (Some(id), Some(run)) = (run_id, &push.run) {
        let meta = run.meta.to_string();
        tx.run(
            sql!("push_run"),
            params![id, push.tenant, run.name, run.external_id, meta, stored, tx.now.as_ms(), line.next()],
        )?;
        note_needs(tx, &push.jobs, &jobs)?;
        told(tx);
    }
    Ok(Pushed { run, jobs, replayed: false })
}

/// Where the jobs of one push stand in the line.
enum Line {
    /// All at the push's time.
    Alone { at: i64 },
    /// A run's jobs stand behind each other by their cost.
    Run { next: i64 },
    /// A named tenant's jobs stand behind each other and behind its backlog, so that a flood is in nobody else's way.
    Tenant { now: i64, last: Option<i64>, weight: f64 },
}

impl Line {
    fn of(tx: &Tx<'_>, push: &Push) -> Result<(Self, Owner)> {
        let (now, tenant) = (tx.line.now_us(), push.tenant.clone());
        if tenant.is_empty() {
            let line = if push.run.is_some() { Self::Run { next: now } } else { Self::Alone { at: now } };
            return Ok((line, Owner { tenant, capped: false }));
        }
        let backlog =
            tx.first(sql!("push_backlog"), [&tenant], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let (last, weight, capped) = backlog.unwrap_or((None, 1.0, false));
        Ok((Self::Tenant { now, last, weight }, Owner { tenant, capped }))
    }

    /// Where the next job of the run will stand.
    fn next(&self) -> i64 {
        match self {
            Self::Alone { at } => *at,
            Self::Run { next } => *next,
            Self::Tenant { now, last, .. } => last.unwrap_or(*now),
        }
    }

    fn place(&mut self, job: &NewJob) -> i64 {
        match self {
            Self::Alone { at } => *at,
            Self::Run { next } => {
                *next += i64::from(job.cost_ms) * 1_000;
                *next - i64::from(job.cost_ms) * 1_000
            }
            Self::Tenant { now, last, weight } => {
                let step = (tenant_step_us(job.cost_ms) as f64 / *weight) as i64;
                let place = last.map_or(*now, |last| (last + step).max(*now));
                *last = Some(place);
                place
            }
        }
    }
}

/// Whose jobs are pushed.
pub(super) struct Owner {
    pub(super) tenant: String,
    /// Whether the tenant has a cap.
    pub(super) capped: bool,
}

/// Stores a job, or finds the one that holds its unique key; says whether it is new.
pub(super) fn push_job(
    tx: &Tx<'_>,
    owner: &Owner,
    run: Option<&str>,
    job: &NewJob,
    fair_at: i64,
) -> Result<(JobId, bool)> {
    if let Some(key) = &job.unique_key {
        let twin =
            tx.first(sql!("push_twin"), params![owner.tenant, job.kind, key], |row| row.get(0).map(JobId))?;
        if let Some(twin) = twin {
            return Ok((twin, false));
        }
    }
    let capped = owner.capped.then(|| owner.tenant.clone());
    let bounded = Bounded { limit_key: job.limit_key.clone(), capped }.in_force(tx)?;
    let parked_on = bounded.parks_on();
    let state = match job.run_at {
        _ if !job.needs.is_empty() => JobState::Waiting,
        Some(at) if at > tx.now => JobState::Scheduled,
        _ if parked_on.is_some() => JobState::Parked,
        _ => JobState::Pending,
    };
    if state == JobState::Parked {
        tx.touch(bounded.bounds());
    }
    tx.run(
        sql!("push_job"),
        params![
            owner.tenant,
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
            parked_on,
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
