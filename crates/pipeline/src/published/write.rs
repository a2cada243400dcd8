//! Copies of a run's outputs on their way to a prefix.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{TryStreamExt, stream};
use telecine_queue::{JobContext, RunId};

use super::{Copied, Holding, Lists, Place, Standing};
use crate::blobs::StoreError;
use crate::failure::{Attempted, Failed, scratch_failed};
use crate::scratch::JobFolder;
use crate::workshop::Workshop;

/// Copies that are made side by side.
const COPIES: usize = 8;

/// All that a run publishes, by whoever holds the prefix.
pub(crate) struct Publication<'a> {
    pub(crate) shop: &'a Workshop,
    pub(crate) context: &'a JobContext,
    /// For what has to pass through here.
    pub(crate) folder: &'a JobFolder,
    pub(crate) place: &'a Place,
    pub(crate) run: &'a RunId,
    pub(crate) copies: &'a [Copied],
}

impl Publication<'_> {
    /// Puts everything there, then removes what the prefix had before.
    pub(crate) async fn write(&self, holding: Holding<'_>) -> Attempted<()> {
        let shop = self.shop;
        let keys: BTreeSet<String> = self.copies.iter().map(|copied| copied.to.clone()).collect();
        self.require_apart(&keys).await?;
        let mut lists = Lists::read(&shop.blobs, self.place).await?;
        lists.add(self.place, self.run, &keys).await?;

        let there = sizes(shop, self.place).await?;
        // What is named by its content is what it should be, also where another run has put it there.
        let is_there = |copied: &Copied| {
            copied.file.is_named_by_content() && there.get(&copied.to) == Some(&copied.file.bytes)
        };
        let missing = self.copies.iter().filter(|copied| !is_there(copied)).cloned();
        let (manifests, contents): (Vec<Copied>, Vec<Copied>) =
            missing.partition(|copied| copied.is_manifest);
        let copying = stream::iter(contents.into_iter().map(Ok));
        copying.try_for_each_concurrent(COPIES, |copied| self.copy(&holding, copied)).await?;
        self.require_whole(|copied| !copied.is_manifest).await?;
        self.context.progress(0.8);
        for copied in manifests {
            self.copy(&holding, copied).await?;
        }
        self.require_whole(|_| true).await?;

        holding.require().await?;
        let blobs = &shop.published.blobs;
        // Of an attempt that was killed.
        blobs.remove_staged_of(lists.all_keys()).await?;
        blobs.delete_all(lists.others_than(&keys)).await?;
        lists.leave_only(self.place, self.run, &keys).await?;
        holding.complete().await
    }

    /// One prefix may lie in another, as `u42/image` does in `u42`, but no key can have two owners.
    async fn require_apart(&self, keys: &BTreeSet<String>) -> Attempted<()> {
        for prefix in folders_of(keys).into_iter().filter(|prefix| *prefix != self.place.prefix) {
            let place = self.shop.published.at(prefix.to_owned())?;
            if place.standing(&*self.shop.queue).await? == Standing::Free {
                continue;
            }
            let lists = Lists::read(&self.shop.blobs, &place).await?;
            if let Some(key) = keys.iter().find(|key| lists.have(key)) {
                let message = format!("{key} belongs to what is published at {}", place.address);
                return Err(Failed::for_good(
                    "invalid_prefix",
                    message,
                    "submit it again with another prefix",
                ));
            }
        }
        Ok(())
    }

    async fn copy(&self, holding: &Holding<'_>, copied: Copied) -> Attempted<()> {
        holding.require().await?;
        let (blobs, published) = (&self.shop.blobs, &self.shop.published.blobs);
        let Copied { file, to, .. } = copied;
        if blobs.can_copy_into(published, file.bytes) {
            return Ok(blobs.copy_into(published, &file.key, &to).await?);
        }
        let folder = self.folder.subfolder("published");
        let folder = folder.map_err(|error| scratch_failed("no folder can be made", &error))?;
        let local = folder.join(format!("{}-{}", file.sha256, fastrand::u64(..)));
        let fetched = blobs.fetch(&file.key, &local).await?;
        if fetched.sha256 != file.sha256 {
            let message = format!("{} has other bytes than it had", file.key);
            return Err(Failed::for_now("verification_failed", message, "retry the step that made it"));
        }
        // The download may have taken its time.
        holding.require().await?;
        published.put_file(&to, &local).await?;
        let removed = tokio::fs::remove_file(&local).await;
        removed.map_err(|error| scratch_failed("a copy cannot be removed", &error))
    }

    /// What a store says it has taken is believed when it lists it.
    async fn require_whole(&self, is_meant: fn(&Copied) -> bool) -> Attempted<()> {
        let there = sizes(self.shop, self.place).await?;
        let mut meant = self.copies.iter().filter(|copied| is_meant(copied));
        match meant.find(|copied| there.get(&copied.to) != Some(&copied.file.bytes)) {
            None => Ok(()),
            Some(copied) => {
                let message = format!("{} is not there as it was copied", copied.to);
                Err(Failed::for_now("verification_failed", message, "check the store that is published in"))
            }
        }
    }
}

/// Every folder in which one of these keys lies, and those around it.
fn folders_of(keys: &BTreeSet<String>) -> BTreeSet<&str> {
    let around = |key| std::iter::successors(Some(key), |key: &&str| Some(key.rsplit_once('/')?.0)).skip(1);
    keys.iter().flat_map(|key| around(key.as_str())).collect()
}

/// Everything below a prefix, whosever it is.
pub(crate) async fn sizes(shop: &Workshop, place: &Place) -> Result<BTreeMap<String, u64>, StoreError> {
    shop.published.blobs.entries(&place.prefix).map_ok(|meta| (meta.key, meta.bytes)).try_collect().await
}
