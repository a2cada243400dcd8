//! `sweep`: removes what nobody will ask for: blobs of ended runs that no output names, uploads that expired, and runs
//! whose time is over. It belongs to no run; every worker sees to it that it is scheduled.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::TryStreamExt;
use serde_json::{Value, json};
use telecine_queue::{
    Failure, Job, JobContext, Kind, Missed, NewJob, NewSchedule, QueueError, Run, RunFilter, RunPage,
    RunState, Timestamp,
};

use super::conclude::named;
use super::{SWEEP, lane_of};
use crate::cache::{delete, end_again};
use crate::failure::Attempted;
use crate::keys;
use crate::records::{INPUT, InputRecord, OutputRecord, read, read_all};
use crate::workshop::Workshop;

/// At half past every hour, in UTC.
const WHEN: &str = "30 * * * *";
const PAGE: u32 = 200;

pub(super) struct Sweep(pub(super) Arc<Workshop>);

/// What a sweep removed.
#[derive(Debug, Default)]
struct Swept {
    runs: u32,
    blobs: u32,
    uploads: u32,
    /// Puts that never ended.
    unfinished: usize,
}

/// Sees to it that somebody sweeps.
pub async fn schedule_sweeps(shop: &Workshop) -> Result<(), QueueError> {
    let job = NewJob::new(SWEEP, json!({})).lane(lane_of(SWEEP).unwrap_or("io")).priority(10);
    let schedule = NewSchedule::new(SWEEP, WHEN, job).missed(Missed::Once);
    shop.queue.schedule(schedule).await
}

#[async_trait]
impl Kind for Sweep {
    fn name(&self) -> &'static str {
        SWEEP
    }

    fn lane(&self) -> &'static str {
        lane_of(SWEEP).unwrap_or("io")
    }

    async fn run(&self, job: &Job, context: &JobContext) -> Result<Value, Failure> {
        let swept = sweep(&self.0, context).await.map_err(|failed| failed.settle(job, context))?;
        Ok(
            json!({ "runs": swept.runs, "blobs": swept.blobs, "uploads": swept.uploads, "unfinished": swept.unfinished }),
        )
    }
}

async fn sweep(shop: &Workshop, context: &JobContext) -> Attempted<Swept> {
    let mut swept = Swept::default();
    let ended = [RunState::Succeeded, RunState::Partial, RunState::Failed, RunState::Cancelled];
    let filter = RunFilter { states: ended.into(), ..RunFilter::default() };
    let mut page = RunPage::first(PAGE);
    loop {
        let listed = shop.queue.list_runs(&filter, page).await?;
        for run in &listed.data {
            if context.stopping().is_cancelled() {
                return Ok(swept);
            }
            sweep_run(shop, run, &mut swept).await?;
        }
        match listed.next_cursor {
            Some(before) => page = RunPage { before: Some(before), limit: PAGE },
            None => break,
        }
    }
    sweep_uploads(shop, &mut swept).await?;
    Ok(swept)
}

async fn sweep_run(shop: &Workshop, run: &Run, swept: &mut Swept) -> Attempted<()> {
    let Some(finished_at) = run.finished_at else { return Ok(()) };
    if shop.keep_runs.is_some_and(|keep| is_older(finished_at, keep)) {
        delete(&*shop.queue, &shop.blobs, &run.id).await?;
        swept.runs += 1;
        return Ok(());
    }
    if end_again(&*shop.queue, &shop.blobs, run).await? {
        swept.runs += 1;
        return Ok(());
    }
    let is_whole = matches!(run.state, RunState::Succeeded | RunState::Partial);
    if is_whole || !is_older(finished_at, shop.keep_unpublished) {
        return Ok(());
    }
    let keys = shop.blobs.list(&keys::of_run(&run.tenant, &run.id)).await?;
    let Some(input) = read::<InputRecord>(&*shop.queue, &run.id, INPUT).await? else { return Ok(()) };
    let outputs = read_all::<OutputRecord>(&*shop.queue, &run.id).await?;
    // Nothing of a cancelled run counts as published.
    let is_kept = run.state != RunState::Cancelled;
    let named = named(&input, outputs.iter().map(|(_, output)| output).filter(|_| is_kept));
    for key in keys.iter().filter(|key| !named.contains(*key)) {
        shop.blobs.delete(key).await?;
        swept.blobs += 1;
    }
    Ok(())
}

async fn sweep_uploads(shop: &Workshop, swept: &mut Swept) -> Attempted<()> {
    match shop.blobs.sweep_unfinished(shop.keep_unpublished).await {
        Ok(removed) => swept.unfinished = removed,
        // Not every store tells of unfinished uploads.
        Err(error) => tracing::warn!(%error, "puts that never ended cannot be swept"),
    }
    let mut uploads = shop.blobs.entries(keys::UPLOADS);
    while let Some(upload) = uploads.try_next().await? {
        if upload.modified_at.elapsed().is_ok_and(|age| age > shop.keep_uploads) {
            shop.blobs.delete(&upload.key).await?;
            swept.uploads += 1;
        }
    }
    Ok(())
}

fn is_older(at: Timestamp, than: Duration) -> bool {
    let age_ms = Timestamp::now().as_ms() - at.as_ms();
    age_ms > i64::try_from(than.as_millis()).unwrap_or(i64::MAX)
}
