//! Workers and what they claim: `register`, `pull`, `drain`, `deregister`.

use std::cmp::Reverse;
use std::sync::Arc;

use super::connect::{Database, ms};
use super::failure::Tried;
use super::limits::{balance, bounds_of};
use super::read::{claimed_job, value};
use super::session::{Session, statement};
use super::sql;
use crate::bell::Ring;
use crate::claim::Claim;
use crate::error::QueueError;
use crate::job::{DEADLINE_GRACE, Fence, JobId};
use crate::worker::{Claimed, NewWorker, Pull, WorkerId};

pub(super) async fn pull(database: &Database, pull: &Pull) -> Tried<Vec<Claimed>> {
    let (lanes, jobs): (Vec<&str>, Vec<i64>) =
        pull.lanes.iter().map(|(lane, slots)| (lane.as_str(), i64::from(*slots))).unzip();
    let mut connection = database.connection().await?;
    let mut claimed = Vec::new();
    let is_bounded = pull.free_scratch_bytes < u64::MAX;
    statement(if is_bounded { sql!("pull_fitting") } else { sql!("pull") })
        .bind(pull.worker.0)
        .bind(lanes)
        .bind(jobs)
        .bind(&pull.kinds)
        .bind(i64::try_from(pull.free_scratch_bytes).unwrap_or(i64::MAX))
        .bind(ms(DEADLINE_GRACE))
        .fetch_each(&mut connection, |row| {
            let (job, fair_at) = claimed_job(row, pull.worker)?;
            let place = (Reverse(job.priority), fair_at, job.id);
            let job = Arc::new(job);
            claimed.push((place, Claimed { claim: Claim::of(&job), job }));
            Ok(())
        })
        .await?;
    if claimed.is_empty() {
        check_alive(&mut connection, pull.worker).await?;
    }
    connection.commit().await?;
    // Best first; the server gives them in the order of their ids.
    claimed.sort_by_key(|(place, _)| *place);
    Ok(claimed.into_iter().map(|(_, claimed)| claimed).collect())
}

async fn check_alive(connection: &mut Session<'_>, worker: WorkerId) -> Tried<()> {
    match statement(sql!("pull_lives")).bind(worker.0).fetch_optional(connection).await? {
        Some(_) => Ok(()),
        None => Err(QueueError::WorkerGone.into()),
    }
}

pub(super) async fn register(database: &Database, worker: &NewWorker) -> Tried<WorkerId> {
    let mut tx = database.begin().await?;
    let row = statement(sql!("register"))
        .bind(&worker.name)
        .bind(&worker.host)
        .bind(i64::from(worker.pid))
        .bind(serde_json::to_string(&worker.slots).expect("a map of numbers is plain data"))
        .bind(serde_json::to_string(&worker.kinds).expect("a list of names is plain data"))
        .bind(ms(worker.lease))
        .fetch_one(&mut tx)
        .await?;
    let id = WorkerId(value(&row, "id")?);
    if !worker.holding.is_empty() {
        adopt(&mut tx, id, &worker.holding).await?;
        let held = worker.holding.iter().map(|(job, _)| job.0).collect();
        let bounds = bounds_of(&mut tx, held).await?;
        balance(&mut tx, &bounds).await?;
    }
    tx.commit().await?;
    Ok(id)
}

async fn adopt(connection: &mut Session<'_>, worker: WorkerId, holding: &[(JobId, Fence)]) -> Tried<()> {
    let (jobs, fences): (Vec<i64>, Vec<i64>) = holding.iter().map(|(job, fence)| (job.0, fence.0)).unzip();
    statement(sql!("register_adopt"))
        .bind(worker.0)
        .bind(jobs)
        .bind(fences)
        .bind(ms(DEADLINE_GRACE))
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn deregister(database: &Database, id: WorkerId) -> Tried<()> {
    let mut connection = database.connection().await?;
    statement(sql!("deregister")).bind(id.0).execute(&mut connection).await?;
    connection.commit().await
}

pub(super) async fn drain(database: &Database, id: WorkerId) -> Tried<(bool, Ring)> {
    let mut connection = database.connection().await?;
    let known = statement(sql!("drain")).bind(id.0).fetch_optional(&mut connection).await?.is_some();
    connection.commit().await?;
    Ok((known, Ring { revoked: known, ..Ring::default() }))
}
