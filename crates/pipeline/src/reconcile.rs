//! What the database tells of and what the store has, compared from end to end and brought together again.
//!
//! Sweeps remove what is over, a bounded part at a time, and trust the store with the rest. This looks at everything:
//!
//! ```text
//!   every run that has ended ──► its outputs: there, as long as they were, with the bytes they had?   outputs.rs
//!                                  and their copies under keys of its caller's                        copies.rs
//!                                  no: its steps are started over, or it is told why not              mend.rs
//!   every folder of the store ─► a run that the database knows, that somebody borrows from, or kept?  strays.rs
//!   every entry of the cache ──► a run that the database knows?
//!   every prefix of a caller's ► the files of the run whose it is, and no other's?                     places.rs
//!   puts that never ended
//! ```
//! Nothing is changed unless somebody asks for it, and then by the rules that sweeps, retries and deletions keep among
//! themselves (`lifetime.rs`): runs that are not over are left alone, and what somebody stored lately is not removed, nor
//! what the database has not known for a while only (`sweep/note.rs`). So it can be run beside workers, sweeps and itself.
//! What it holds in memory goes by the files of a few runs.

mod copies;
mod mend;
mod outputs;
mod places;
mod strays;

use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde::Serialize;
use telecine_queue::{Run, RunFilter, RunPage, RunState};
use tokio_util::sync::CancellationToken;

use crate::blobs::StoreError;
use crate::failure::{Attempted, Failed};
use crate::kinds::sweep::Swept;
use crate::kinds::sweep::note::Note;
use crate::kinds::sweep::runs::tidy;
use crate::workshop::Workshop;

use outputs::{Leftovers, Sight};

const PAGE: u32 = 200;
/// Listing a run costs a bucket some 30 ms, in which it can be asked about others.
const LOOKS_AT_ONCE: usize = 8;
/// In a row. One run that cannot be read must not keep the others from it; a store that is away can.
const MOST_FAILURES: u32 = 10;

#[derive(Clone, Copy, Debug, Default)]
pub struct ReconcileOptions {
    /// Mend what can be mended, instead of telling of it only.
    pub mend: bool,
    /// Read every byte of every output and compare its hash.
    pub deep: bool,
    /// No other copy of the database is at work: it may take what it does not know for nobody's again.
    pub claim_store: bool,
    /// Puts that were begun less than this long ago may be of somebody who is at work.
    pub unfinished_older_than: Duration,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub trouble: Trouble,
    /// A run's id, or a key in the store or what many begin with.
    pub at: String,
    pub message: String,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// Outputs of a run are missing, or not what they were.
    Damaged,
    /// Blobs of a run that the database does not know.
    Orphan,
    /// Blobs of a run that has ended and publishes them nowhere.
    Leftover,
    /// Files that lie under keys of a caller's and should not.
    Publication,
    /// An entry of the cache that names a run which is gone.
    StaleCache,
    /// Puts that never ended.
    Unfinished,
    /// It could not be looked at.
    Unreadable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It would be mended, if somebody asked for that.
    Mendable,
    Mended,
    /// It is young, or somebody else is at it: a later look decides.
    Waits,
    /// Nothing here can mend it.
    Lost,
}

/// What was looked at so far, and what became of what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub runs: u64,
    pub folders: u64,
    pub cache_entries: u64,
    /// Prefixes that callers chose.
    pub places: u64,
    pub mendable: u64,
    pub mended: u64,
    pub waits: u64,
    pub lost: u64,
    /// The database was said to be the only one.
    pub is_claimed: bool,
    /// What could not be looked at, and why.
    pub left_out: Vec<String>,
}

impl Tally {
    /// Whether something is left that somebody should see to.
    pub fn is_clean(&self) -> bool {
        self.mendable == 0 && self.lost == 0
    }
}

/// What is told on the way.
#[derive(Debug)]
pub enum News<'a> {
    Looked(&'a Tally),
    Found(Finding),
}

/// Compares the database with the store. What `shop.keep_unpublished` calls young is not removed.
pub async fn reconcile(
    shop: &Workshop,
    options: ReconcileOptions,
    stopping: &CancellationToken,
    tell: &mut (dyn FnMut(News<'_>) + Send),
) -> Result<Tally, Failed> {
    let (tally, note) = (Tally::default(), Note::default());
    let mut survey = Survey { shop, options, stopping, tell, tally, failures: 0, note, is_sole: false };
    survey.runs().await?;
    survey.unknown().await?;
    survey.unfinished().await?;
    Ok(survey.tally)
}

/// A look at everything that is under way.
struct Survey<'a> {
    shop: &'a Workshop,
    options: ReconcileOptions,
    stopping: &'a CancellationToken,
    tell: &'a mut (dyn FnMut(News<'_>) + Send),
    tally: Tally,
    /// In a row.
    failures: u32,
    /// Since when what is unknown was.
    note: Note,
    /// Whether what the database does not know can be told to be nobody's.
    is_sole: bool,
}

impl Survey<'_> {
    async fn runs(&mut self) -> Attempted<()> {
        let ended = [RunState::Succeeded, RunState::Partial, RunState::Failed, RunState::Cancelled];
        let filter = RunFilter { states: ended.into(), ..RunFilter::default() };
        let (shop, deep) = (self.shop, self.options.deep);
        let mut page = RunPage::first(PAGE);
        loop {
            let listed = shop.queue.list_runs(&filter, page).await?;
            let mut looks = stream::iter(listed.data)
                .map(|run| async move { (outputs::look(shop, &run, deep).await, run) })
                .buffered(LOOKS_AT_ONCE);
            while let Some((sight, run)) = looks.next().await {
                if self.stopping.is_cancelled() {
                    return Ok(());
                }
                let seen_to = match sight {
                    Ok(sight) => self.see_to(&run, sight).await,
                    Err(failed) => Err(failed),
                };
                self.tally.runs += 1;
                self.looked_at(run.id.as_str(), seen_to)?;
            }
            match listed.next_cursor {
                Some(before) => page = RunPage { before: Some(before), limit: PAGE },
                None => return Ok(()),
            }
        }
    }

    async fn see_to(&mut self, run: &Run, sight: Sight) -> Attempted<()> {
        if let Some(leftovers) = sight.leftovers {
            self.clear(run, leftovers).await?;
        }
        if !sight.damage.is_empty() {
            let finding = mend::mend(self.shop, self.options.mend, run, &sight.damage).await?;
            self.found(finding);
        }
        Ok(())
    }

    async fn clear(&mut self, run: &Run, leftovers: Leftovers) -> Attempted<()> {
        let mut message = format!("{} that it publishes nowhere", leftovers.counted());
        let outcome = match run.finished_at {
            _ if leftovers.old == 0 => {
                message += ", and that somebody stored lately";
                Outcome::Waits
            }
            Some(finished_at) if self.options.mend => {
                let mut swept = Swept::default();
                tidy(self.shop, &run.id, finished_at, &mut swept).await?;
                if swept.blobs > 0 { Outcome::Mended } else { Outcome::Waits }
            }
            _ => Outcome::Mendable,
        };
        self.found(Finding { trouble: Trouble::Leftover, at: run.id.to_string(), message, outcome });
        Ok(())
    }

    async fn unfinished(&mut self) -> Attempted<()> {
        if self.stopping.is_cancelled() {
            return Ok(());
        }
        let (blobs, older_than) = (&self.shop.blobs, self.options.unfinished_older_than);
        let (counted, outcome) = match self.options.mend {
            true => (blobs.sweep_unfinished(older_than).await, Outcome::Mended),
            false => (blobs.count_unfinished(older_than).await, Outcome::Mendable),
        };
        match counted {
            Ok(0) => {}
            Ok(puts) => {
                let (at, message) = ("the store".to_owned(), format!("{puts} puts that never ended"));
                self.found(Finding { trouble: Trouble::Unfinished, at, message, outcome });
            }
            Err(StoreError::Invalid { .. }) => {
                let why =
                    "puts that never ended: this store does not list them; give the bucket a lifecycle rule";
                self.tally.left_out.push(why.to_owned());
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn found(&mut self, finding: Finding) {
        let count = match finding.outcome {
            Outcome::Mendable => &mut self.tally.mendable,
            Outcome::Mended => &mut self.tally.mended,
            Outcome::Waits => &mut self.tally.waits,
            Outcome::Lost => &mut self.tally.lost,
        };
        *count += 1;
        (self.tell)(News::Found(finding));
    }

    /// What cannot be looked at is a finding, too, unless nothing can.
    fn looked_at(&mut self, at: &str, outcome: Attempted<()>) -> Attempted<()> {
        match outcome {
            Ok(()) => self.failures = 0,
            Err(failed) => {
                self.failures += 1;
                if self.failures == MOST_FAILURES {
                    return Err(failed);
                }
                self.found(Finding {
                    trouble: Trouble::Unreadable,
                    at: at.to_owned(),
                    message: failed.message,
                    outcome: Outcome::Lost,
                });
            }
        }
        (self.tell)(News::Looked(&self.tally));
        Ok(())
    }
}
