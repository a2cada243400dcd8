//! Uploads that expired. One that a run waits for does not: the run was accepted with it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use futures_util::TryStreamExt;
use serde::Deserialize;
use telecine_queue::{RunFilter, RunPage, RunState};

use super::Swept;
use crate::failure::Attempted;
use crate::input::Input;
use crate::keys;
use crate::workshop::Workshop;

/// An upload that was young enough when a run of it was asked for has so long to be found in a run.
const ACCEPTED_WITHIN: Duration = Duration::from_mins(10);
const PAGE: u32 = 200;

/// When its parts were stored.
#[derive(Debug, Default)]
struct Parts {
    bytes_at: Option<SystemTime>,
    sidecar_at: Option<SystemTime>,
}

impl Parts {
    /// It is as old as its sidecar, which makes it an upload. Bytes without one are of a put or a removal that was cut short.
    fn is_older(&self, than: Duration) -> bool {
        let at = self.sidecar_at.or(self.bytes_at);
        at.is_some_and(|at| at.elapsed().is_ok_and(|age| age > than))
    }
}

/// What a run's row tells of its input.
#[derive(Deserialize)]
struct Names {
    input: Input,
}

pub(super) async fn sweep(shop: &Workshop, swept: &mut Swept) -> Attempted<()> {
    let mut expired = expired(shop).await?;
    if expired.is_empty() {
        return Ok(());
    }
    // Read after the uploads: a run that is not among them was asked for when its upload was too old already.
    let wanted = wanted(shop).await?;
    expired.retain(|key| !wanted.contains(key));
    for key in expired {
        // From here on nobody finds it.
        shop.blobs.delete(&keys::sidecar_of(&key)).await?;
        shop.blobs.delete(&key).await?;
        swept.uploads += 1;
    }
    Ok(())
}

/// The keys of their bytes.
async fn expired(shop: &Workshop) -> Attempted<BTreeSet<String>> {
    let mut uploads: BTreeMap<String, Parts> = BTreeMap::new();
    let mut entries = shop.blobs.entries(keys::UPLOADS);
    while let Some(blob) = entries.try_next().await? {
        match keys::upload_of(&blob.key) {
            Some(key) => uploads.entry(key.to_owned()).or_default().sidecar_at = Some(blob.modified_at),
            None => uploads.entry(blob.key).or_default().bytes_at = Some(blob.modified_at),
        }
    }
    let keep = shop.keep_uploads.saturating_add(ACCEPTED_WITHIN);
    uploads.retain(|_, parts| parts.is_older(keep));
    Ok(uploads.into_keys().collect())
}

/// The keys of uploads that runs wait for, or may still be reading.
async fn wanted(shop: &Workshop) -> Attempted<BTreeSet<String>> {
    let filter = RunFilter { states: vec![RunState::Queued, RunState::Running], ..RunFilter::default() };
    let (mut wanted, mut page) = (BTreeSet::new(), RunPage::first(PAGE));
    loop {
        let listed = shop.queue.list_runs(&filter, page).await?;
        for run in &listed.data {
            // What is no run of the pipeline has no upload.
            if let Ok(Names { input: Input::Upload(id) }) = Names::deserialize(&run.meta) {
                wanted.extend(keys::upload(&run.tenant, &id));
            }
        }
        match listed.next_cursor {
            Some(before) => page = RunPage { before: Some(before), limit: PAGE },
            None => return Ok(wanted),
        }
    }
}
