//! What a run has published and where, whether it is there, and taking it back.

use std::time::Duration;

use telecine_queue::{Queue, Run, RunId, RunState};

use super::write::sizes;
use super::{Copied, Lists, Place, Published, Standing, copies};
use crate::blobs::Blobs;
use crate::failure::{Attempted, Failed};
use crate::keys;
use crate::kinds::watch_over;
use crate::lifetime::is_deleted;
use crate::media_type::MediaType;
use crate::records::{INPUT, InputRecord, OutputRecord, PUBLISHED, PublishedRecord, read, read_all};
use crate::submission::RunMeta;
use crate::workshop::Workshop;

/// What a run has published, and can be copied again.
pub(crate) struct Promised {
    pub(crate) run: Run,
    pub(crate) place: Place,
    pub(crate) copies: Vec<Copied>,
}

/// `None`: nothing, or nobody knows any more what.
pub(crate) async fn promised(shop: &Workshop, id: &RunId) -> Attempted<Option<Promised>> {
    let queue = &*shop.queue;
    let ended_well = |run: &Run| matches!(run.state, RunState::Succeeded | RunState::Partial);
    let Some(run) = queue.get_run(id).await?.filter(ended_well) else { return Ok(None) };
    let Some(published) = read::<PublishedRecord>(queue, id, PUBLISHED).await? else { return Ok(None) };
    let Some(place) = place_of(queue, &shop.published, &run).await? else { return Ok(None) };
    let Ok(meta) = RunMeta::of(&run) else { return Ok(None) };
    if is_deleted(queue, id).await? {
        return Ok(None);
    }
    let outputs = read_all::<OutputRecord>(queue, id).await?;
    let outputs = outputs.iter().map(|(_, output)| output);
    let copies = copies(&meta.recipe, outputs.filter(|it| published.steps.contains(&it.step)), &place.prefix);
    Ok(Some(Promised { run, place, copies }))
}

/// Where a run publishes; `None`: nowhere, or it did not come so far as to know.
async fn place_of(queue: &dyn Queue, published: &Published, run: &Run) -> Attempted<Option<Place>> {
    let Ok(RunMeta { publish_to: Some(prefix), .. }) = RunMeta::of(run) else { return Ok(None) };
    let Some(input) = read::<InputRecord>(queue, &run.id, INPUT).await? else { return Ok(None) };
    published.place(&prefix, &run.tenant, MediaType::of_input(&input)).map(Some)
}

/// Whether all copies are there, and no other run's.
pub(crate) async fn is_as_promised(
    shop: &Workshop,
    place: &Place,
    run: &RunId,
    copies: &[Copied],
) -> Attempted<bool> {
    let there = sizes(shop, place).await?;
    let is_whole = copies.iter().all(|copied| there.get(&copied.to) == Some(&copied.file.bytes));
    Ok(is_whole && Lists::read(&shop.blobs, place).await?.others(place, Some(run)).is_empty())
}

/// Removes what runs have put below a prefix that came to nothing, but for what stands on the list of one that did not;
/// says how many files.
pub(crate) async fn remove_all_but(
    shop: &Workshop,
    place: &Place,
    stays: Option<&RunId>,
) -> Attempted<usize> {
    let expected = stays.map_or(Standing::Nobodys, |run| Standing::Of(run.clone()));
    let removal = place.take_for_removal(&*shop.queue, |_, standing| *standing == expected).await?;
    let Some(removal) = removal else { return Err(Failed::not_yet(Duration::ZERO)) };
    let removed = remove_files(&shop.blobs, &shop.published, place, stays).await?;
    removal.end(stays).await?;
    Ok(removed)
}

async fn remove_files(
    blobs: &Blobs,
    published: &Published,
    place: &Place,
    stays: Option<&RunId>,
) -> Attempted<usize> {
    let lists = Lists::read(blobs, place).await?;
    let kept = stays.map(|run| lists.of(place, run)).unwrap_or_default();
    let files = lists.others_than(&kept);
    let removed = files.len();
    published.blobs.remove_staged_of(lists.all_keys()).await?;
    published.blobs.delete_all(files).await?;
    lists.remove_others(place, stays).await?;
    Ok(removed)
}

/// A prefix that somebody has published below.
pub(crate) struct Found {
    pub(crate) place: Place,
    pub(crate) standing: Standing,
    /// Runs whose files lie there and should not.
    pub(crate) others: Vec<RunId>,
    /// Whether the database knows all of them.
    pub(crate) are_known: bool,
}

/// By the name of the place; `None`: it is in a store that was published in before.
pub(crate) async fn find(shop: &Workshop, name: &str) -> Attempted<Option<Found>> {
    let lists = Lists::named(&shop.blobs, name).await?;
    let Some(prefix) = lists.prefix() else { return Ok(None) };
    let place = shop.published.at(prefix.to_owned())?;
    if place.name != name {
        return Ok(None);
    }
    let standing = place.standing(&*shop.queue).await?;
    let rightful = if let Standing::Of(run) = &standing { Some(run) } else { None };
    let others: Vec<RunId> =
        lists.others(&place, rightful).iter().filter_map(|list| keys::publisher(list)).collect();
    let mut are_known = true;
    for run in &others {
        are_known &= shop.queue.get_run(run).await?.is_some();
    }
    Ok(Some(Found { place, standing, others, are_known }))
}

/// Removes what runs have put below a prefix that is nobody's. Who takes it just now is on another list, and looks again.
pub(crate) async fn remove_unowned(shop: &Workshop, found: &Found) -> Attempted<()> {
    let lists = Lists::read(&shop.blobs, &found.place).await?;
    let (theirs, files) = lists.of_these_alone(&found.others);
    shop.published.blobs.delete_all(files).await?;
    Ok(shop.blobs.delete_all(theirs).await?)
}

/// Removes what a run has published that is being deleted, unless another one owns the prefix by now.
///
/// `blobs` is the store of the runs.
pub(crate) async fn unpublish(
    queue: &dyn Queue,
    blobs: &Blobs,
    published: &Published,
    run: &Run,
) -> Attempted<()> {
    let Some(place) = place_of(queue, published, run).await? else { return Ok(()) };
    let nothing_else = [Standing::Nobodys, Standing::Of(run.id.clone())];
    let is_own = |owner: &RunId, standing: &Standing| *owner == run.id && nothing_else.contains(standing);
    let Some(removal) = place.take_for_removal(queue, is_own).await? else {
        // Somebody is at it, or what was there before has to come back.
        if place.disown(queue, &run.id).await? {
            watch_over(queue, &place).await?;
        }
        return Ok(());
    };
    remove_files(blobs, published, &place, None).await?;
    removal.end(None).await
}

/// Has what a run put below a prefix taken back that was cancelled, or could not publish all, if nobody did so yet.
pub(crate) async fn settle_unfinished(shop: &Workshop, run: &Run) -> Attempted<()> {
    if matches!(run.state, RunState::Succeeded | RunState::Partial) {
        return Ok(());
    }
    let Some(place) = place_of(&*shop.queue, &shop.published, run).await? else { return Ok(()) };
    if Lists::read(&shop.blobs, &place).await?.has(&place, &run.id) {
        watch_over(&*shop.queue, &place).await?;
    }
    Ok(())
}
