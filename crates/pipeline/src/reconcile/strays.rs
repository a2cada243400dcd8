//! What lies in the store without a run that the database knows.

use std::collections::BTreeSet;

use futures_util::{StreamExt, TryStreamExt};
use telecine_queue::RunId;

use crate::blobs::BlobMeta;
use crate::cache::maker;
use crate::failure::Attempted;
use crate::keys;
use crate::kinds::sweep::is_older;
use crate::kinds::sweep::note::{Note, claim_store, database_of, is_signed_in, why_not_sole};
use crate::kinds::sweep::orphans::{Stray, borrowed_prefixes, judge, next_folders};
use crate::lifetime::remove_blobs;
use crate::workshop::Workshop;

use super::{Finding, LOOKS_AT_ONCE, Outcome, Survey, Trouble};

/// A folder of this machine is read anew for every page.
pub(super) const PAGE: usize = 5_000;

impl Survey<'_> {
    /// Whatever the database does not know.
    pub(super) async fn unknown(&mut self) -> Attempted<()> {
        let database = match whose(self.shop, self.options.claim_store).await? {
            Ok((database, note)) => {
                (self.note, self.is_sole) = (note, true);
                Some(database)
            }
            Err(why) => {
                self.tally.left_out.push(format!("blobs and cache entries of unknown runs: {why}"));
                None
            }
        };
        self.tally.is_claimed = self.is_sole && self.options.claim_store;
        if self.is_sole {
            self.orphans().await?;
            self.cache().await?;
        }
        self.places().await?;
        if let Some(database) = database.filter(|_| self.options.mend) {
            std::mem::take(&mut self.note).write_unknown(&self.shop.blobs, &database).await?;
        }
        Ok(())
    }

    /// Whether the database has not known it for so long that it is nobody's. Who may change something keeps in mind what it
    /// sees for the first time: after a restore somebody has to have time to notice.
    pub(super) fn is_long_unknown(&mut self, what: &str) -> bool {
        match self.note.unknown_since(what) {
            Some(since) => is_older(since, self.shop.keep_unpublished),
            None => {
                self.note.remember_unknown(what.to_owned());
                false
            }
        }
    }

    async fn orphans(&mut self) -> Attempted<()> {
        let (mut after, mut borrowed) = (None, None);
        while let Some((tenant, runs)) = next_folders(self.shop, after.take(), PAGE).await? {
            for name in &runs {
                if self.stopping.is_cancelled() {
                    return Ok(());
                }
                self.tally.folders += 1;
                // What is not named like a run is not ours.
                if let Ok(id) = name.parse::<RunId>() {
                    let prefix = format!("{tenant}/{id}");
                    let seen_to = self.orphan(&prefix, &id, &mut borrowed).await;
                    self.looked_at(&prefix, seen_to)?;
                }
            }
            after = runs.last().map(|run| (tenant, run.clone()));
        }
        Ok(())
    }

    /// `borrowed` is found out for the first one: it costs a look at all runs.
    async fn orphan(
        &mut self,
        prefix: &str,
        id: &RunId,
        borrowed: &mut Option<BTreeSet<String>>,
    ) -> Attempted<()> {
        // The database costs less than the store, and knows nearly all.
        if self.shop.queue.get_run(id).await?.is_some() {
            return Ok(());
        }
        let (blobs, bytes, is_old) = match judge(self.shop, prefix, id).await? {
            // What has no blobs is a folder of this machine in which somebody has just begun, or ended.
            Stray::Wanted | Stray::Young { blobs: 0, .. } | Stray::Old { blobs: 0, .. } => return Ok(()),
            Stray::Young { blobs, bytes } => (blobs, bytes, false),
            Stray::Old { blobs, bytes } => (blobs, bytes, true),
        };
        if borrowed.is_none() {
            *borrowed = borrowed_prefixes(self.shop, self.stopping).await?;
        }
        // `None`: it was stopped.
        if borrowed.as_ref().is_none_or(|borrowed| borrowed.contains(prefix)) {
            return Ok(());
        }
        let mut message = format!("{blobs} blobs, {bytes} bytes, of a run that the database does not know");
        let outcome = if !is_old {
            message += ", and that somebody stored lately";
            Outcome::Waits
        } else if !self.is_long_unknown(prefix) {
            message += "; they stay until it has not known them for a while";
            Outcome::Waits
        } else if self.options.mend {
            remove_blobs(&self.shop.blobs, prefix).await?;
            self.note.forget_unknown(prefix);
            Outcome::Mended
        } else {
            Outcome::Mendable
        };
        self.found(Finding { trouble: Trouble::Orphan, at: prefix.to_owned(), message, outcome });
        Ok(())
    }

    async fn cache(&mut self) -> Attempted<()> {
        let shop = self.shop;
        let mut looks = shop
            .blobs
            .entries(keys::CACHE)
            .map(|entry| async move {
                let entry = entry?;
                let names = named_by(shop, &entry).await;
                Attempted::Ok((entry, names))
            })
            .buffered(LOOKS_AT_ONCE);
        while let Some((entry, names)) = looks.try_next().await? {
            if self.stopping.is_cancelled() {
                return Ok(());
            }
            self.tally.cache_entries += 1;
            let seen_to = match names {
                Ok(None) => Ok(()),
                Ok(Some(message)) => self.forget_entry(&entry, message).await,
                Err(failed) => Err(failed),
            };
            self.looked_at(&entry.key, seen_to)?;
        }
        Ok(())
    }

    /// Who does the work next writes the entry anew, so nothing is lost if it does so just now.
    async fn forget_entry(&mut self, entry: &BlobMeta, message: String) -> Attempted<()> {
        let outcome = if self.options.mend {
            self.shop.blobs.delete(&entry.key).await?;
            Outcome::Mended
        } else {
            Outcome::Mendable
        };
        self.found(Finding { trouble: Trouble::StaleCache, at: entry.key.clone(), message, outcome });
        Ok(())
    }
}

/// What is wrong with an entry of the cache; `None`: nothing.
async fn named_by(shop: &Workshop, entry: &BlobMeta) -> Attempted<Option<String>> {
    Ok(match maker(&shop.blobs, &entry.key).await? {
        Some(run) if shop.queue.get_run(&run).await?.is_some() => None,
        Some(run) => Some(format!("it names {run}, which the database does not know")),
        None => Some("it names no run".to_owned()),
    })
}

/// The name of the database and its note, if all of the store is this one's; else why nobody can tell.
async fn whose(shop: &Workshop, claim: bool) -> Attempted<Result<(String, Note), &'static str>> {
    let Some(database) = database_of(&*shop.queue).await? else {
        return Ok(Err("no worker has ever been started on this database"));
    };
    if !is_signed_in(&shop.blobs, &database).await? {
        return Ok(Err("this database has never stored anything there"));
    }
    if claim {
        claim_store(shop, &database).await?;
    }
    let note = Note::read(&shop.blobs, &database).await?;
    Ok(match why_not_sole(shop, &database, &note).await? {
        Some(why) => Err(why),
        None => Ok((database, note)),
    })
}
