//! `finish`: from running to history, or back into the queue.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use rusqlite::params;

use super::events::told;
use super::graph::{follow_end, mark_playable, put_records, spawn};
use super::limits::Bounded;
use super::row::{Columns, json_array};
use super::sql;
use super::writer::Tx;
use crate::bell::Ring;
use crate::claim::{AttemptOutcome, Finish, Settled};
use crate::error::Result;
use crate::graph::{NewRecord, Spawn};
use crate::job::{Fence, JobError, JobId, JobState};
use crate::settle::{RunShare, Verdict};

/// Longer results travel by themselves: the text of a set is parsed more than once, and has a limit.
const LONGEST_IN_SET: usize = 1_000;

/// A finish as the writer's thread applies it: everything decided and serialised.
pub(super) struct Settlement {
    id: JobId,
    fence: Fence,
    lane: String,
    kind: String,
    slot: Option<u32>,
    attempt: u32,
    error: Option<String>,
    end: End,
    /// It belongs to no run and no limit, so nothing else changes when it ends.
    stands_alone: bool,
    spawn: Option<Spawn>,
    records: Vec<NewRecord>,
    playable: bool,
}

enum End {
    Done { state: JobState, result: Option<String> },
    Back { delay: Duration, outcome: AttemptOutcome },
}

impl Settlement {
    pub(super) fn of(finish: &Finish) -> Self {
        let (job, slot) = (&finish.claim.job, finish.claim.slot);
        let (attempt, error, end) = match finish.verdict() {
            Verdict::Done { state, result, error } => {
                (job.attempt, error, End::Done { state, result: result.map(ToString::to_string) })
            }
            Verdict::Back { delay, attempt, outcome, error } => {
                (attempt, error, End::Back { delay, outcome })
            }
        };
        Self {
            id: job.id,
            fence: job.fence,
            lane: job.lane.clone(),
            kind: job.kind.clone(),
            slot,
            attempt,
            error: error.map(error_json),
            end,
            stands_alone: finish.claim.stands_alone(),
            spawn: finish.spawned().cloned(),
            records: finish.records.clone(),
            playable: finish.playable,
        }
    }

    /// The result, if this is a completion that changes nothing but its own job.
    fn plain_result(&self) -> Option<&str> {
        match &self.end {
            End::Done { state: JobState::Completed, result: Some(result) } if self.stands_alone => {
                Some(result.as_str()).filter(|result| result.len() <= LONGEST_IN_SET)
            }
            End::Done { .. } | End::Back { .. } => None,
        }
    }
}

pub(super) fn error_json(error: &JobError) -> String {
    serde_json::to_string(error).expect("an error is two strings")
}

pub(super) fn finish(tx: &Tx<'_>, batch: &[Settlement]) -> Result<Vec<Settled>> {
    let completed = complete_set(tx, batch)?;
    let settled =
        batch.iter().map(|settlement| match completed.contains(&(settlement.id, settlement.fence)) {
            true => Ok(Settled::Accepted),
            false => settle(tx, settlement),
        });
    settled.collect()
}

/// Completes the plain ones as one set (less than 5 µs a job; one by one it is 11); says whose claims it settled.
fn complete_set(tx: &Tx<'_>, batch: &[Settlement]) -> Result<HashSet<(JobId, Fence)>> {
    // One claim of each job: should there be another in the batch, it is settled by itself afterwards.
    let mut plain: BTreeMap<JobId, &Settlement> =
        batch.iter().filter(|it| it.plain_result().is_some()).map(|it| (it.id, it)).collect();
    if plain.is_empty() {
        return Ok(HashSet::new());
    }
    let set = json_array(plain.values().map(|it| {
        let slot = it.slot.map_or("null".into(), |slot| slot.to_string());
        format!("[{},{},{slot},{}]", it.id, it.fence.0, it.plain_result().unwrap_or("null"))
    }));
    let mut ids = json_array(plain.keys());
    if tx.run(sql!("finish_done_all"), params![set, tx.now.as_ms()])? < plain.len() {
        let copied = tx.all(sql!("finish_copied"), [ids], |row| row.get(0).map(JobId))?;
        plain.retain(|id, _| copied.contains(id));
        ids = json_array(plain.keys());
    }
    tx.run(sql!("finish_forget_all"), [ids])?;
    for completed in plain.values() {
        tx.count(&completed.lane, &completed.kind, JobState::Running, -1);
        tx.count(&completed.lane, &completed.kind, JobState::Completed, 1);
    }
    Ok(plain.values().map(|completed| (completed.id, completed.fence)).collect())
}

fn settle(tx: &Tx<'_>, settlement: &Settlement) -> Result<Settled> {
    let (id, fence) = (settlement.id.0, settlement.fence.0);
    let Some(held) = tx.first(sql!("finish_look"), [id, fence], Standing::read)? else {
        let mine = tx.first(sql!("finish_settled"), [id, fence], |_| Ok(()))?.is_some();
        return Ok(if mine { Settled::Accepted } else { Settled::Refused });
    };
    if let Some(run) = &held.run {
        put_records(tx, run, &settlement.records)?;
        if settlement.playable {
            mark_playable(tx, run)?;
        }
        if let Some(jobs) = &settlement.spawn {
            spawn(tx, run, jobs)?;
        }
    }
    match &settlement.end {
        End::Done { state, result } => {
            let last = Ending {
                state: *state,
                fence: Some(settlement.fence),
                settled_fence: Some(settlement.fence),
                slot: settlement.slot,
                attempt: Some(settlement.attempt),
                // Taken for lost, it came back after all.
                losses: -i32::from(held.state != JobState::Running),
                error: settlement.error.as_deref(),
                result: result.as_deref(),
            };
            end(tx, settlement.id, &held, &last)?;
            if held.state != JobState::Running {
                tx.run(sql!("attempt_unlose"), [id, fence])?;
            }
        }
        End::Back { delay, outcome } => put_back(tx, settlement, &held, *delay, *outcome)?,
    }
    Ok(Settled::Accepted)
}

/// What a verb must know of a live job before it moves it.
pub(super) struct Standing {
    pub(super) lane: String,
    pub(super) kind: String,
    pub(super) state: JobState,
    pub(super) run: Option<String>,
    pub(super) required: bool,
    pub(super) bounded: Bounded,
}

impl Standing {
    pub(super) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let mut column = Columns::of(row);
        Ok(Self {
            lane: column.next()?,
            kind: column.next()?,
            state: column.parsed()?,
            run: column.next()?,
            required: column.next()?,
            bounded: Bounded::read(&mut column)?,
        })
    }
}

/// How a job goes down in history.
pub(super) struct Ending<'a> {
    pub(super) state: JobState,
    /// `None`: as it is.
    pub(super) fence: Option<Fence>,
    /// `None` when no claim settled it.
    pub(super) settled_fence: Option<Fence>,
    pub(super) slot: Option<u32>,
    /// `None`: as it is.
    pub(super) attempt: Option<u32>,
    /// How many more than the job has.
    pub(super) losses: i32,
    pub(super) error: Option<&'a str>,
    pub(super) result: Option<&'a str>,
}

impl<'a> Ending<'a> {
    /// Of a job that no claim holds.
    pub(super) fn unclaimed(state: JobState, error: Option<&'a str>) -> Self {
        Self {
            state,
            fence: None,
            settled_fence: None,
            slot: None,
            attempt: None,
            losses: 0,
            error,
            result: None,
        }
    }
}

/// Moves a live job to history, tells its run, and lets what waited for it go on.
pub(super) fn end(tx: &Tx<'_>, id: JobId, held: &Standing, last: &Ending<'_>) -> Result<()> {
    end_one(tx, id, held, last)?;
    match held.run {
        Some(_) => follow_end(tx, id, last.state),
        None => Ok(()),
    }
}

pub(super) fn end_one(tx: &Tx<'_>, id: JobId, held: &Standing, last: &Ending<'_>) -> Result<()> {
    tx.run(
        sql!("finish_done"),
        params![
            id.0,
            last.state.as_str(),
            last.fence.map(|fence| fence.0),
            last.settled_fence.map(|fence| fence.0),
            last.slot,
            last.attempt,
            last.losses,
            last.error,
            last.result,
            tx.now.as_ms()
        ],
    )?;
    tx.run(sql!("finish_forget"), [id.0])?;
    tx.touch(held.bounded.bounds());
    tx.count(&held.lane, &held.kind, held.state, -1);
    tx.count(&held.lane, &held.kind, last.state, 1);
    if let Some(run) = &held.run {
        let share = RunShare::of(last.state, held.required);
        tx.run(
            sql!("run_settle"),
            params![run, share.failed, share.cancelled, 0, tx.now.as_ms(), share.degraded],
        )?;
        told(tx);
    }
    Ok(())
}

fn put_back(
    tx: &Tx<'_>,
    settlement: &Settlement,
    held: &Standing,
    delay: Duration,
    outcome: AttemptOutcome,
) -> Result<()> {
    let id = settlement.id.0;
    let error = settlement.error.as_deref();
    tx.run(sql!("attempt_add"), params![id, settlement.slot, tx.now.as_ms(), outcome.as_str(), error])?;
    let again = requeued(tx, delay, &held.bounded);
    let state = again.state.as_str();
    tx.run(
        sql!("finish_back"),
        params![id, state, again.run_at, settlement.attempt, error, again.parked_on, tx.now.as_ms()],
    )?;
    tx.count(&held.lane, &held.kind, held.state, -1);
    tx.count(&held.lane, &held.kind, again.state, 1);
    Ok(())
}

/// How a job goes back into the queue.
pub(super) struct Requeued {
    pub(super) state: JobState,
    pub(super) run_at: Option<i64>,
    pub(super) parked_on: Option<&'static str>,
}

/// A job is to run again after `delay`; wakes whoever waits for such a job. One with bounds gives up its place and waits
/// to be let in again.
pub(super) fn requeued(tx: &Tx<'_>, delay: Duration, bounded: &Bounded) -> Requeued {
    tx.touch(bounded.bounds());
    let parked_on = bounded.parks_on();
    if delay.is_zero() && parked_on.is_some() {
        Requeued { state: JobState::Parked, run_at: None, parked_on }
    } else if delay.is_zero() {
        tx.ring(Ring { ready: true, ..Ring::default() });
        Requeued { state: JobState::Pending, run_at: None, parked_on }
    } else {
        tx.ring(Ring { scheduled: true, ..Ring::default() });
        Requeued { state: JobState::Scheduled, run_at: Some(tx.now.plus(delay).as_ms()), parked_on }
    }
}
