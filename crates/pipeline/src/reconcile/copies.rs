//! Copies of a run's outputs under the keys that its caller chose.

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use telecine_queue::Run;

use crate::failure::Attempted;
use crate::kinds::PUBLISH;
use crate::media_type::MediaType;
use crate::published::copies;
use crate::records::{
    INPUT, InputRecord, OutputRecord, PUBLISHED, PublishedRecord, StoredFile, read, read_all,
};
use crate::submission::RunMeta;
use crate::workshop::Workshop;

use super::outputs::{DamagedFile, Fault};

/// Those that are missing, or have another size. None if the place is another run's by now.
pub(super) async fn damaged(shop: &Workshop, run: &Run) -> Attempted<Vec<DamagedFile>> {
    let queue = &*shop.queue;
    let Some(published) = read::<PublishedRecord>(queue, &run.id, PUBLISHED).await? else {
        return Ok(Vec::new());
    };
    let Some(input) = read::<InputRecord>(queue, &run.id, INPUT).await? else { return Ok(Vec::new()) };
    let Ok(RunMeta { publish_to: Some(prefix), recipe, .. }) = RunMeta::of(run) else {
        return Ok(Vec::new());
    };
    let place = shop.published.place(&prefix, &run.tenant, MediaType::of_input(&input))?;
    if !place.is_of(queue, &run.id).await? {
        return Ok(Vec::new());
    }
    let outputs = read_all::<OutputRecord>(queue, &run.id).await?;
    let outputs = outputs.iter().map(|(_, output)| output);
    let copied =
        copies(&recipe, outputs.filter(|output| published.steps.contains(&output.step)), &place.prefix);
    let stored = shop.published.blobs.entries(&place.prefix).map_ok(|blob| (blob.key, blob.bytes));
    let stored: BTreeMap<String, u64> = stored.try_collect().await?;
    let damaged = copied.into_iter().filter_map(|copied| {
        let fault = match stored.get(&copied.to) {
            Some(bytes) if *bytes == copied.file.bytes => return None,
            Some(_) => Fault::OtherSize,
            None => Fault::Missing,
        };
        let file = StoredFile { path: copied.to.clone(), key: copied.to, ..copied.file };
        Some(DamagedFile { step: PUBLISH.to_owned(), file, fault })
    });
    Ok(damaged.collect())
}
