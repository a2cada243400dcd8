//! Workers come, are listed, are asked to leave, and go.

use rusqlite::{Connection, params};

use super::clock::{boot_id, boottime_ms, ms};
use super::live::Live;
use super::row;
use super::sql;
use super::writer::Tx;
use crate::bell::Ring;
use crate::error::{QueueError, Result};
use crate::job::{DEADLINE_GRACE, Fence, JobId, JobState};
use crate::timestamp::Timestamp;
use crate::worker::{NewWorker, Worker, WorkerId};

/// How long a dead worker stays in the list.
const SHOWN_DEAD_MS: i64 = 60 * 60 * 1_000;

pub(super) fn register(tx: &Tx<'_>, live: &Live, worker: &NewWorker) -> Result<WorkerId> {
    let slots = serde_json::to_string(&worker.slots).map_err(QueueError::unexpected)?;
    let kinds = serde_json::to_string(&worker.kinds).map_err(QueueError::unexpected)?;
    let lease_until = boottime_ms() + ms(worker.lease);
    tx.run(
        sql!("register"),
        params![worker.name, worker.host, worker.pid, slots, kinds, boot_id(), lease_until, tx.now.as_ms()],
    )?;
    let id = WorkerId(tx.inserted());
    for (job, fence) in &worker.holding {
        adopt(tx, id, *job, *fence)?;
    }
    // Before COMMIT: nobody may see the row and miss the lock.
    if worker.pid != 0 {
        live.join(id)?;
    }
    Ok(id)
}

fn adopt(tx: &Tx<'_>, worker: WorkerId, job: JobId, fence: Fence) -> Result<()> {
    let Some(before) = tx.first(sql!("finish_look"), [job.0, fence.0], super::finish::Standing::read)? else {
        return Ok(());
    };
    if tx.run(sql!("register_adopt"), [job.0, fence.0, worker.0, ms(DEADLINE_GRACE)])? == 1 {
        tx.run(sql!("attempt_unlose"), [job.0, fence.0])?;
        tx.count(&before.lane, &before.kind, before.state, -1);
        tx.count(&before.lane, &before.kind, JobState::Running, 1);
        tx.touch(before.bounded.bounds());
    }
    Ok(())
}

pub(super) fn deregister(tx: &Tx<'_>, id: WorkerId) -> Result<()> {
    if tx.run(sql!("worker_forget"), [id.0])? == 0 {
        tx.run(sql!("worker_leave"), params![id.0, tx.now.as_ms()])?;
    }
    Ok(())
}

pub(super) fn drain(tx: &Tx<'_>, id: WorkerId) -> Result<bool> {
    let asked = tx.run(sql!("worker_drain"), [id.0])? == 1;
    tx.ring(Ring { revoked: asked, ..Ring::default() });
    Ok(asked)
}

pub(super) fn list(connection: &Connection) -> rusqlite::Result<Vec<Worker>> {
    let (boot, now_ms) = (boot_id(), boottime_ms());
    let is_alive = |its_boot: &str, lease_until| its_boot == boot && lease_until >= now_ms;
    let mut statement = connection.prepare_cached(sql!("workers"))?;
    statement
        .query_map([Timestamp::now().as_ms() - SHOWN_DEAD_MS], |row| row::worker(row, is_alive))?
        .collect()
}
