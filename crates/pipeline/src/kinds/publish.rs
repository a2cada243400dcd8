//! `publish`: copies of a run's outputs under the keys that its caller chose, what names others last.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{TryStreamExt, stream};
use serde_json::{Value, json};

use super::{Attempt, Work};
use crate::failure::{Attempted, Failed};
use crate::media_type::MediaType;
use crate::published::{Claimant, Copied, Holding, Lists, Place, Taken, copies};
use crate::records::{INPUT, InputRecord, OutputRecord, PUBLISHED, PublishedRecord, WarningRecord, read_all};

pub(super) struct Publish;

/// Copies that are made side by side.
const COPIES: usize = 8;
/// How soon a place that somebody writes to is looked at again.
const BUSY_WAIT: Duration = Duration::from_millis(500);

#[async_trait]
impl Work for Publish {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        let (queue, job) = (&*attempt.shop.queue, attempt.job);
        let run = queue.get_run(attempt.run).await?.ok_or_else(|| Failed::unexpected("the run is gone"))?;
        let meta = attempt.meta().await?;
        let prefix = meta.publish_to.ok_or_else(|| Failed::unexpected("the run publishes nothing"))?;
        let input: InputRecord = attempt.read(INPUT).await?;
        let place = attempt.shop.published.place(&prefix, &job.tenant, MediaType::of_input(&input))?;
        let outputs = read_all::<OutputRecord>(queue, attempt.run).await?;
        let copies = copies(&meta.recipe, outputs.iter().map(|(_, output)| output), &place.prefix);

        let claimant = Claimant { run: &run, job: job.id, fence: job.fence };
        let holding = match place.take(queue, &claimant).await? {
            Taken::Held(holding) => holding,
            Taken::Busy => return Err(Failed::not_yet(BUSY_WAIT)),
            Taken::Superseded(by) => {
                warn_of_later(attempt, &place, by.as_str());
                // An earlier generation may have published there.
                attempt.leave(PUBLISHED, &PublishedRecord::of(&place, BTreeSet::new()));
                return Ok(json!({ "files": 0, "superseded_by": by }));
            }
        };
        publish_all(attempt, &place, &holding, &copies).await?;

        let steps = outputs.into_iter().map(|(_, output)| output.step).collect();
        let files = copies.len();
        attempt.leave(PUBLISHED, &PublishedRecord::of(&place, steps));
        Ok(json!({ "files": files, "prefix": place.address }))
    }
}

fn warn_of_later(attempt: &Attempt<'_>, place: &Place, by: &str) {
    let (step, code) = (super::PUBLISH.to_owned(), "publish_superseded".to_owned());
    let message = format!("{} belongs to {by}, which was submitted later", place.address);
    attempt.leave(format!("{step}/{code}"), &WarningRecord { step, code, message });
}

/// Puts everything there, then removes what the prefix had before.
async fn publish_all(
    attempt: &Attempt<'_>,
    place: &Place,
    holding: &Holding<'_>,
    copies: &[Copied],
) -> Attempted<()> {
    let shop = attempt.shop;
    let keys: BTreeSet<String> = copies.iter().map(|copied| copied.to.clone()).collect();
    let mut lists = Lists::read(&shop.blobs, place).await?;
    lists.add(place, attempt.run, &keys).await?;

    let there = sizes(attempt, place).await?;
    let is_there = |copied: &Copied| {
        copied.file.is_named_by_content() && there.get(&copied.to) == Some(&copied.file.bytes)
    };
    let missing = copies.iter().filter(|copied| !is_there(copied)).cloned();
    let (manifests, contents): (Vec<Copied>, Vec<Copied>) = missing.partition(|copied| copied.is_manifest);
    let copying = stream::iter(contents.into_iter().map(Ok));
    copying.try_for_each_concurrent(COPIES, |copied| copy(attempt, holding, copied)).await?;
    require_whole(attempt, place, copies, |copied| !copied.is_manifest).await?;
    attempt.context.progress(0.8);
    for copied in manifests {
        copy(attempt, holding, copied).await?;
    }
    require_whole(attempt, place, copies, |_| true).await?;

    holding.require().await?;
    shop.published.blobs.delete_all(lists.others_than(&keys)).await?;
    lists.leave_only(place, attempt.run, &keys).await
}

async fn copy(attempt: &Attempt<'_>, holding: &Holding<'_>, copied: Copied) -> Attempted<()> {
    holding.require().await?;
    let (blobs, published) = (&attempt.shop.blobs, &attempt.shop.published.blobs);
    let Copied { file, to, .. } = copied;
    if blobs.can_copy_into(published, file.bytes) {
        return Ok(blobs.copy_into(published, &file.key, &to).await?);
    }
    let local = attempt.subfolder("published")?.join(format!("{}-{}", file.sha256, fastrand::u64(..)));
    let fetched = blobs.fetch(&file.key, &local).await?;
    if fetched.sha256 != file.sha256 {
        let message = format!("{} has other bytes than it had", file.key);
        return Err(Failed::for_now("verification_failed", message, "retry the step that made it"));
    }
    // The download may have taken its time.
    holding.require().await?;
    published.put_file(&to, &local).await?;
    let removed = tokio::fs::remove_file(&local).await;
    removed.map_err(|error| crate::failure::scratch_failed("a copy cannot be removed", &error))
}

async fn sizes(attempt: &Attempt<'_>, place: &Place) -> Attempted<BTreeMap<String, u64>> {
    let listed = attempt.shop.published.blobs.entries(&place.prefix);
    Ok(listed.map_ok(|meta| (meta.key, meta.bytes)).try_collect().await?)
}

/// What a store says it has taken is believed when it lists it.
async fn require_whole(
    attempt: &Attempt<'_>,
    place: &Place,
    copies: &[Copied],
    is_meant: fn(&Copied) -> bool,
) -> Attempted<()> {
    let there = sizes(attempt, place).await?;
    let mut meant = copies.iter().filter(|copied| is_meant(copied));
    match meant.find(|copied| there.get(&copied.to) != Some(&copied.file.bytes)) {
        None => Ok(()),
        Some(copied) => {
            let message = format!("{} is not there as it was copied", copied.to);
            Err(Failed::for_now("verification_failed", message, "check the store that is published in"))
        }
    }
}
