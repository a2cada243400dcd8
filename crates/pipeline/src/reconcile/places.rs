//! Prefixes that callers chose: whether what lies below each is what should.
//!
//! They are found by the lists of what was put there, so those too that no entry of the database tells of.

use futures_util::{StreamExt, stream};
use telecine_queue::RunId;

use crate::failure::Attempted;
use crate::keys;
use crate::kinds::watch_over;
use crate::published::{Found, Standing, find, remove_unowned};

use super::strays::PAGE;
use super::{Finding, LOOKS_AT_ONCE, Outcome, Survey, Trouble};

impl Survey<'_> {
    pub(super) async fn places(&mut self) -> Attempted<()> {
        let (shop, mut after) = (self.shop, None);
        loop {
            let names = shop.blobs.folders(keys::PUBLICATIONS, after.as_deref(), PAGE).await?;
            let Some(last) = names.last().cloned() else { return Ok(()) };
            let mut looks = stream::iter(names)
                .map(|name| async move { (find(shop, &name).await, name) })
                .buffered(LOOKS_AT_ONCE);
            while let Some((found, name)) = looks.next().await {
                if self.stopping.is_cancelled() {
                    return Ok(());
                }
                self.tally.places += 1;
                let seen_to = match found {
                    Ok(Some(found)) => self.place(found).await,
                    Ok(None) => Ok(()),
                    Err(failed) => Err(failed),
                };
                self.looked_at(&keys::publications(&name), seen_to)?;
            }
            after = Some(last);
        }
    }

    async fn place(&mut self, found: Found) -> Attempted<()> {
        let others: Vec<&str> = found.others.iter().map(RunId::as_str).collect();
        let others = others.join(", ");
        let what = match &found.standing {
            // Runs that are known settle it when they have ended.
            Standing::Busy => return Ok(()),
            Standing::Free if found.are_known => return Ok(()),
            Standing::Of(_) | Standing::Nobodys | Standing::Free if found.others.is_empty() => return Ok(()),
            Standing::Of(run) => format!("files of {others} lie where those of {run} should"),
            Standing::Nobodys => format!("files of {others} lie there, which came to nothing"),
            Standing::Free => format!("files of {others} lie there, which the database does not know"),
        };
        let unknown = keys::publications(&found.place.name);
        let (outcome, then) = if !found.are_known && !self.is_sole {
            (Outcome::Waits, "and it may not be the only database")
        } else if !found.are_known && !self.is_long_unknown(&unknown) {
            (Outcome::Waits, "and somebody may have been told of them lately")
        } else if self.options.mend {
            match found.standing {
                Standing::Free => remove_unowned(self.shop, &found).await?,
                _ => watch_over(&*self.shop.queue, &found.place).await?,
            }
            self.note.forget_unknown(&unknown);
            (Outcome::Mended, "they go")
        } else {
            (Outcome::Mendable, "they can go")
        };
        let message = format!("{what}; {then}");
        self.found(Finding { trouble: Trouble::Publication, at: found.place.address, message, outcome });
        Ok(())
    }
}
