//! The beat, on a connection of its own: it waits for no one in this process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, params};

use super::clock::{LineClock, boottime_ms, ms};
use super::connect::{open_again, wait_by_the_millisecond};
use super::finish::requeued;
use super::graph::{mark_playable, put_records};
use super::limits::Bounded;
use super::live::Live;
use super::row::Columns;
use super::sql;
use super::writer::Tx;
use crate::claim::AttemptOutcome;
use crate::error::{QueueError, Result};
use crate::job::JobState;
use crate::queue::Pulse;
use crate::worker::{Beat, BeatReply, ClaimBeat};

pub(super) struct SqlitePulse {
    connection: Connection,
    line: LineClock,
    patience: Duration,
    live: Arc<Live>,
}

impl SqlitePulse {
    pub(super) fn open(path: &Path, line: LineClock, patience: Duration, live: Arc<Live>) -> Result<Self> {
        let connection = open_again(path, patience)?;
        wait_by_the_millisecond(&connection)?;
        Ok(Self { connection, line, patience, live })
    }
}

#[async_trait]
impl Pulse for SqlitePulse {
    /// Blocks its thread, which is the beat's own.
    async fn beat(&mut self, beat: &Beat) -> Result<BeatReply> {
        let (reply, ring) = Tx::alone(&self.connection, self.line, self.patience, |tx| beat_in(tx, beat))?;
        self.live.ring(ring);
        Ok(reply)
    }
}

fn beat_in(tx: &Tx<'_>, beat: &Beat) -> Result<BeatReply> {
    let lease_until = boottime_ms() + ms(beat.lease);
    let renewed = params![beat.worker.0, lease_until, tx.now.as_ms(), beat.draining];
    let Some(drain) = tx.first(sql!("beat_worker"), renewed, |row| row.get(0))? else {
        return Err(QueueError::WorkerGone);
    };
    let mut refused = Vec::new();
    for claim in &beat.claims {
        if !still_held(tx, claim)? {
            refused.push(claim.job);
        }
    }
    release_stranded(tx, beat)?;
    Ok(BeatReply { refused, drain })
}

fn release_stranded(tx: &Tx<'_>, beat: &Beat) -> Result<()> {
    let held: Vec<i64> = beat.claims.iter().map(|claim| claim.job.0).collect();
    let held = serde_json::to_string(&held).map_err(QueueError::unexpected)?;
    let claimed_before = boottime_ms() - ms(beat.lease);
    let stranded = tx.all(sql!("beat_stranded"), params![beat.worker.0, claimed_before, held], |row| {
        let mut column = Columns::of(row);
        let (id, lane, kind): (i64, String, String) = (column.next()?, column.next()?, column.next()?);
        Ok((id, lane, kind, Bounded::read(&mut column)?))
    })?;
    for (id, lane, kind, bounded) in stranded {
        let outcome = AttemptOutcome::Stranded.as_str();
        tx.run(sql!("attempt_add"), params![id, None::<u32>, tx.now.as_ms(), outcome, None::<&str>])?;
        let again = requeued(tx, Duration::ZERO, &bounded);
        tx.run(sql!("beat_release"), params![id, again.state.as_str(), again.parked_on, tx.now.as_ms()])?;
        tx.count(&lane, &kind, JobState::Running, -1);
        tx.count(&lane, &kind, again.state, 1);
        tracing::warn!(job.id = id, "gave back a job that was claimed but never arrived");
    }
    Ok(())
}

fn run_to_tell(tx: &Tx<'_>, claim: &ClaimBeat) -> Result<Option<String>> {
    if claim.records.is_empty() && !claim.playable {
        return Ok(None);
    }
    tx.first(sql!("job_run"), [claim.job.0, claim.fence.0], |row| row.get(0))
}

/// Saves what is new about a claim; says whether the claim still is the worker's.
fn still_held(tx: &Tx<'_>, claim: &ClaimBeat) -> Result<bool> {
    if let Some(run) = run_to_tell(tx, claim)? {
        put_records(tx, &run, &claim.records)?;
        if claim.playable {
            mark_playable(tx, &run)?;
        }
    }
    if claim.progress.is_none() && claim.checkpoint.is_none() && claim.slot.is_none() {
        return Ok(tx.first(sql!("beat_look"), [claim.job.0, claim.fence.0], |_| Ok(()))?.is_some());
    }
    let checkpoint = claim.checkpoint.as_ref().map(ToString::to_string);
    let news = params![claim.job.0, claim.fence.0, claim.progress, checkpoint, claim.slot];
    Ok(tx.run(sql!("beat_claim"), news)? == 1)
}
