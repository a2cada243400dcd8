//! Blobs of runs that the database does not know: a worker that came too late stored them, or somebody deleted the run
//! behind our back.
//!
//! They are looked for by the folders of the store, and removed only after the database has not known them for a while:
//! whoever restores a database, or starts a second one on the same store, has time to notice. Where several databases use
//! the store nobody can tell whose they are, and they stay.

use std::collections::BTreeSet;

use futures_util::TryStreamExt;
use telecine_queue::{RunFilter, RunId, RunPage};
use tokio_util::sync::CancellationToken;

use super::note::Note;
use super::{Swept, is_older};
use crate::blobs::StoreError;
use crate::failure::Attempted;
use crate::keys;
use crate::lifetime::remove_blobs;
use crate::records::{BORROWED, BorrowedRecord, read};
use crate::workshop::Workshop;

/// Each folder costs a look into the database.
const PAGE: usize = 200;
/// A tenant's folder costs the store as much as some looks cost the database.
const COST_OF_TENANT: usize = 5;

pub(super) async fn sweep(
    shop: &Workshop,
    stopping: &CancellationToken,
    note: &mut Note,
    swept: &mut Swept,
) -> Attempted<()> {
    // What earlier sweeps have seen; what this one sees is for later ones.
    remove_old(shop, stopping, note, swept).await?;
    let mut left = shop.sweep_pages as usize * PAGE;
    while left > 0 && !stopping.is_cancelled() {
        let Some(looked_at) = look_at_a_page(shop, note).await? else { break };
        left = left.saturating_sub(looked_at + COST_OF_TENANT);
    }
    Ok(())
}

/// Notes the orphans among the next folders of a tenant and says how many it looked at; `None`: those were the last, and
/// the next look begins at the beginning.
async fn look_at_a_page(shop: &Workshop, note: &mut Note) -> Attempted<Option<usize>> {
    let Some((tenant, runs)) = next_folders(shop, note.orphans_after.clone(), PAGE).await? else {
        note.orphans_after = None;
        return Ok(None);
    };
    for name in &runs {
        // What is not named like a run is not ours.
        let Ok(id) = name.parse::<RunId>() else { continue };
        let prefix = format!("{tenant}/{id}");
        if shop.queue.get_run(&id).await?.is_some() {
            note.forget_unknown(&prefix);
        } else {
            note.remember_unknown(prefix);
        }
    }
    note.orphans_after = runs.last().map(|run| (tenant, run.clone()));
    Ok(Some(runs.len()))
}

/// The folders of runs that come behind one, and the tenant's folder in which they are; `None`: there are no more.
pub(crate) async fn next_folders(
    shop: &Workshop,
    mut after: Option<(String, String)>,
    limit: usize,
) -> Result<Option<(String, Vec<String>)>, StoreError> {
    loop {
        if let Some((tenant, run)) = &after {
            let runs = shop.blobs.folders(tenant, Some(run), limit).await?;
            if !runs.is_empty() {
                return Ok(Some((tenant.clone(), runs)));
            }
        }
        // The tenant has no more: on to the next one. Names of ours that are no tenant's begin with a line.
        let mut tenant = after.map(|(tenant, _)| tenant);
        loop {
            let next = shop.blobs.folders("", tenant.as_deref(), 1).await?.pop();
            let Some(next) = next else { return Ok(None) };
            if keys::is_tenant_folder(&next) {
                after = Some((next, String::new()));
                break;
            }
            tenant = Some(next);
        }
    }
}

/// Removes what has been an orphan for long enough, and nobody borrows from.
async fn remove_old(
    shop: &Workshop,
    stopping: &CancellationToken,
    note: &mut Note,
    swept: &mut Swept,
) -> Attempted<()> {
    let seen = note.orphans.iter().filter(|(_, since)| is_older(**since, shop.keep_unpublished));
    // What was published under keys of others is left to whoever reconciles.
    let run_of = |prefix: &str| prefix.rsplit('/').next()?.parse::<RunId>().ok();
    let mut old: Vec<(String, RunId)> =
        seen.filter_map(|(prefix, _)| Some((prefix.clone(), run_of(prefix)?))).collect();
    if old.is_empty() {
        return Ok(());
    }
    let Some(borrowed) = borrowed_prefixes(shop, stopping).await? else { return Ok(()) };
    old.retain(|(prefix, _)| !borrowed.contains(prefix));
    for (prefix, id) in old {
        if stopping.is_cancelled() {
            return Ok(());
        }
        match judge(shop, &prefix, &id).await? {
            Stray::Wanted | Stray::Young { .. } => continue,
            Stray::Old { .. } => {}
        }
        let removed = remove_blobs(&shop.blobs, &prefix).await?;
        tracing::info!(prefix, removed, "removed blobs of a run that the database does not know");
        note.forget_unknown(&prefix);
        swept.orphans += 1;
        swept.blobs += removed;
    }
    Ok(())
}

/// What is to be said of blobs whose run the database did not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stray {
    /// It knows the run now, or somebody wants them kept.
    Wanted,
    /// Somebody has stored something there lately, and may still be at it.
    Young {
        blobs: u64,
        bytes: u64,
    },
    Old {
        blobs: u64,
        bytes: u64,
    },
}

pub(crate) async fn judge(shop: &Workshop, prefix: &str, id: &RunId) -> Attempted<Stray> {
    if shop.queue.get_run(id).await?.is_some() || shop.blobs.exists(&keys::kept_below(prefix)).await? {
        return Ok(Stray::Wanted);
    }
    let (mut blobs, mut bytes, mut is_old) = (0, 0, true);
    let mut stored = shop.blobs.entries(prefix);
    while let Some(blob) = stored.try_next().await? {
        blobs += 1;
        bytes += blob.bytes;
        is_old &= blob.modified_at.elapsed().is_ok_and(|age| age >= shop.keep_unpublished);
    }
    Ok(if is_old { Stray::Old { blobs, bytes } } else { Stray::Young { blobs, bytes } })
}

/// Where the outputs lie that runs have borrowed from others which are gone; `None`: it was stopped. No list tells who
/// borrowed from a run that is gone, so all runs are asked: it happens only when there is something to remove.
pub(crate) async fn borrowed_prefixes(
    shop: &Workshop,
    stopping: &CancellationToken,
) -> Attempted<Option<BTreeSet<String>>> {
    let mut borrowed = BTreeSet::new();
    let mut page = RunPage::first(RunPage::MAX_LIMIT);
    loop {
        let listed = shop.queue.list_runs(&RunFilter::default(), page).await?;
        for run in &listed.data {
            if stopping.is_cancelled() {
                return Ok(None);
            }
            let Some(record) = read::<BorrowedRecord>(&*shop.queue, &run.id, BORROWED).await? else {
                continue;
            };
            if shop.queue.get_run(&record.owner).await?.is_none() {
                borrowed.insert(keys::of_run(&run.tenant, &record.owner));
            }
        }
        match listed.next_cursor {
            Some(before) => page = RunPage { before: Some(before), limit: RunPage::MAX_LIMIT },
            None => return Ok(Some(borrowed)),
        }
    }
}
