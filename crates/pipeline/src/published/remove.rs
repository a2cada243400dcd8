//! Taking back what a run has published.

use std::collections::BTreeSet;

use telecine_queue::{Queue, Run, RunId, RunState};

use super::owner::{give_up, take_for_removal};
use super::{Lists, Published};
use crate::blobs::Blobs;
use crate::failure::{Attempted, Failed};
use crate::media_type::MediaType;
use crate::records::{INPUT, InputRecord, PUBLISHED, PublishedRecord, read};
use crate::submission::RunMeta;

/// Removes what a run that has ended published, unless another one owns the prefix by now; says how many files.
///
/// `blobs` is the store of the runs.
pub async fn unpublish(
    queue: &dyn Queue,
    blobs: &Blobs,
    published: &Published,
    id: &RunId,
) -> Result<usize, Failed> {
    let Some(run) = queue.get_run(id).await?.filter(|run| run.finished_at.is_some()) else { return Ok(0) };
    let Ok(RunMeta { publish_to: Some(prefix), .. }) = RunMeta::of(&run) else { return Ok(0) };
    let Some(input) = read::<InputRecord>(queue, id, INPUT).await? else { return Ok(0) };
    let place = published.place(&prefix, &run.tenant, MediaType::of_input(&input))?;
    if !take_for_removal(queue, &place, id).await? {
        return Ok(0);
    }
    let lists = Lists::read(blobs, &place).await?;
    let files = lists.others_than(&BTreeSet::new());
    let removed = files.len();
    published.blobs.delete_all(files).await?;
    lists.remove().await?;
    give_up(queue, &place).await?;
    Ok(removed)
}

/// The same of a run that did not come to publish all of its outputs, or was cancelled.
pub(crate) async fn remove_unfinished(
    queue: &dyn Queue,
    blobs: &Blobs,
    published: &Published,
    run: &Run,
) -> Attempted<usize> {
    let is_whole = run.state != RunState::Cancelled
        && read::<PublishedRecord>(queue, &run.id, PUBLISHED).await?.is_some();
    if is_whole {
        return Ok(0);
    }
    unpublish(queue, blobs, published, &run.id).await
}
