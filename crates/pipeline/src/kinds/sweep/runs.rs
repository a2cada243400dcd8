//! Runs that have ended, newest first, as many as one sweep looks at.

use std::collections::BTreeSet;

use futures_util::TryStreamExt;
use telecine_queue::{Run, RunFilter, RunId, RunPage, RunState, Timestamp};
use tokio_util::sync::CancellationToken;

use super::note::Note;
use super::{Swept, is_older};
use crate::blobs::BlobMeta;
use crate::failure::Attempted;
use crate::keys;
use crate::kinds::conclude::named;
use crate::lifetime::{Broom, Deleted, announce_loss, delete, end_again};
use crate::published::settle_unfinished;
use crate::records::{
    INPUT, InputRecord, LIFETIME, LifetimeRecord, OutputRecord, RunRecord, read, read_all, read_versioned,
};
use crate::workshop::Workshop;

/// Most runs need nothing but a look at their record.
const PAGE: u32 = 200;
/// In a row. One run that cannot be swept must not keep the others from it; a store that is away can.
const MOST_FAILURES: u32 = 10;

pub(super) async fn sweep(
    shop: &Workshop,
    stopping: &CancellationToken,
    note: &mut Note,
    swept: &mut Swept,
) -> Attempted<()> {
    let ended = [RunState::Succeeded, RunState::Partial, RunState::Failed, RunState::Cancelled];
    let filter = RunFilter { states: ended.into(), ..RunFilter::default() };
    let mut failures = 0;
    for _ in 0..shop.sweep_pages {
        let page = RunPage { before: note.runs_before.clone(), limit: PAGE };
        let listed = shop.queue.list_runs(&filter, page).await?;
        for run in &listed.data {
            if stopping.is_cancelled() {
                return Ok(());
            }
            match sweep_run(shop, run, swept).await {
                Ok(()) => failures = 0,
                Err(failed) => {
                    tracing::warn!(run.id = %run.id, code = failed.code, reason = failed.message, "a run cannot be swept");
                    failures += 1;
                    if failures == MOST_FAILURES {
                        return Err(failed);
                    }
                }
            }
        }
        note.runs_before = listed.next_cursor;
        if note.runs_before.is_none() {
            break;
        }
    }
    Ok(())
}

async fn sweep_run(shop: &Workshop, run: &Run, swept: &mut Swept) -> Attempted<()> {
    let queue = &*shop.queue;
    let Some(finished_at) = run.finished_at else { return Ok(()) };
    let (_, lifetime) = read_versioned::<LifetimeRecord>(queue, &run.id, LIFETIME).await?;
    let lifetime = lifetime.unwrap_or_default();
    if lifetime.has_ended {
        // It was deleted: either that was cut short, or others have borrowed from it.
        let ended = end_again(shop, &run.id, &lifetime).await?;
        swept.runs += usize::from(ended == Deleted::Gone);
        return Ok(());
    }
    if shop.keep_runs.is_some_and(|keep| is_older(finished_at, keep)) {
        return delete_run(shop, run, swept).await;
    }
    if !is_older(finished_at, shop.keep_unpublished) {
        return Ok(());
    }
    if is_forgotten(shop, run).await? {
        return delete_run(shop, run, swept).await;
    }
    if lifetime.tidied_at.is_none_or(|tidied_at| tidied_at <= finished_at) {
        tidy(shop, &run.id, finished_at, swept).await?;
    }
    Ok(())
}

async fn delete_run(shop: &Workshop, run: &Run, swept: &mut Swept) -> Attempted<()> {
    let deleted = delete(&*shop.queue, &shop.blobs, &run.id).await?;
    swept.runs += usize::from(deleted == Deleted::Gone);
    Ok(())
}

/// Whether history has forgotten the jobs of a run that published nothing: there is nothing left to know of it.
async fn is_forgotten(shop: &Workshop, run: &Run) -> Attempted<bool> {
    let is_published = run.state != RunState::Cancelled
        && !shop.queue.records(&run.id, Some(OutputRecord::TYPE)).await?.is_empty();
    Ok(!is_published && shop.queue.run_steps(&run.id).await?.is_empty())
}

/// Removes what the run stored and publishes nowhere.
pub(crate) async fn tidy(
    shop: &Workshop,
    id: &RunId,
    finished_at: Timestamp,
    swept: &mut Swept,
) -> Attempted<()> {
    let queue = &*shop.queue;
    let Some(broom) = Broom::take(queue, id, finished_at).await? else { return Ok(()) };
    let tidied = remove_unpublished(shop, id, &broom, swept).await;
    broom.put_away(queue, id, matches!(tidied, Ok(true))).await?;
    tidied.map(drop)
}

/// Says whether nothing is left.
async fn remove_unpublished(
    shop: &Workshop,
    id: &RunId,
    broom: &Broom,
    swept: &mut Swept,
) -> Attempted<bool> {
    // The list of runs may be minutes old: only what is read from here on is known to stay as it is.
    let run = shop.queue.get_run(id).await?;
    let is_over = |run: &Run| run.finished_at.is_some_and(|at| is_older(at, shop.keep_unpublished));
    let Some(run) = run.filter(is_over) else { return Ok(false) };
    settle_unfinished(shop, &run).await?;
    let named = published(shop, &run).await?;
    let stored: Vec<BlobMeta> = shop.blobs.entries(&keys::of_run(&run.tenant, id)).try_collect().await?;
    let unnamed = stored.into_iter().filter(|blob| !named.contains(&blob.key));
    // Whoever stored something since the run has ended came too late, but may still be at it.
    let (old, young): (Vec<BlobMeta>, Vec<BlobMeta>) =
        unnamed.partition(|blob| blob.modified_at.elapsed().is_ok_and(|age| age >= shop.keep_unpublished));
    if !old.is_empty() {
        announce_loss(&*shop.queue, id).await?;
    }
    for batch in old.chunks(1_000) {
        if !broom.may_go_on() {
            return Ok(false);
        }
        shop.blobs.delete_all(batch.iter().map(|blob| blob.key.clone())).await?;
        swept.blobs += batch.len();
    }
    Ok(young.is_empty())
}

/// The blobs of a run that somebody may still ask for.
pub(crate) async fn published(shop: &Workshop, run: &Run) -> Attempted<BTreeSet<String>> {
    // Without a record nobody has probed what was taken in: it was no media, and a retry takes it in again.
    let Some(input) = read::<InputRecord>(&*shop.queue, &run.id, INPUT).await? else {
        return Ok(BTreeSet::new());
    };
    let outputs = read_all::<OutputRecord>(&*shop.queue, &run.id).await?;
    // Nothing of a cancelled run counts as published.
    let is_kept = run.state != RunState::Cancelled;
    Ok(named(&input, outputs.iter().map(|(_, output)| output).filter(|_| is_kept)))
}
