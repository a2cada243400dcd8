//! How long outputs live: who counts on them, and who may take something away.
//!
//! One record of a run says so, [`LifetimeRecord`]. It is only ever changed from the version that was read, so of two who
//! want what excludes the other, one comes first:
//!
//! - A run cannot borrow what is just being deleted, nor delete what is just being borrowed.
//! - A retry says so before it opens the run again, and a sweep before it removes what the run publishes nowhere. Neither
//!   begins while the other is at it, so no job counts on a segment that is about to go.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use telecine_queue::{Queue, QueueError, Run, RunId, Timestamp};

use crate::blobs::{Blobs, StoreError};
use crate::cache;
use crate::failure::{Attempted, Failed};
use crate::keys;
use crate::published::{Published, unpublish};
use crate::records::{
    BORROWED, BorrowedRecord, LIFETIME, LifetimeRecord, OutputRecord, read, read_all, read_versioned, record,
};
use crate::workshop::Workshop;

/// A retry that was announced opens its run within this time, or never.
const RETRY_WITHIN: Duration = Duration::from_secs(60);
/// A sweep that began removes nothing of the run after this time. Whoever comes later need not wait for it.
const SWEEP_WITHIN: Duration = Duration::from_mins(5);
/// Between the two, for clocks that differ.
const SWEEP_IS_OVER_AFTER: Duration = Duration::from_mins(10);

impl LifetimeRecord {
    fn is_being_swept(&self) -> bool {
        self.swept_since.is_some_and(|since| is_recent(since, SWEEP_IS_OVER_AFTER))
    }

    /// Of a run that ended then: it may be opened again at any moment.
    fn is_being_retried(&self, finished_at: Timestamp) -> bool {
        self.retried_at.is_some_and(|at| at >= finished_at && is_recent(at, RETRY_WITHIN))
    }
}

/// Also what a clock that runs ahead calls the future.
fn is_recent(at: Timestamp, within: Duration) -> bool {
    Timestamp::now().since(at) < within
}

/// Changes a run's record from what it is; `false` where that cannot be, or nobody is there.
pub(crate) async fn change(
    queue: &dyn Queue,
    run: &RunId,
    mut next: impl FnMut(LifetimeRecord) -> Option<LifetimeRecord>,
) -> Result<bool, QueueError> {
    loop {
        let (version, now) = read_versioned::<LifetimeRecord>(queue, run, LIFETIME).await?;
        let Some(next) = next(now.unwrap_or_default()) else { return Ok(false) };
        match queue.put_record(run, record(LIFETIME, &next), Some(version)).await {
            Ok(_) => return Ok(true),
            Err(QueueError::Stale { .. }) => {}
            Err(QueueError::NoSuchRun(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

/// Whether somebody has deleted the run, of which only the outputs live on with others.
pub async fn is_deleted(queue: &dyn Queue, run: &RunId) -> Result<bool, QueueError> {
    let (_, lifetime) = read_versioned::<LifetimeRecord>(queue, run, LIFETIME).await?;
    Ok(lifetime.is_some_and(|lifetime| lifetime.has_ended))
}

/// Says that the run is about to be retried. From here on nothing that it has stored is taken away.
pub(crate) async fn announce_retry(queue: &dyn Queue, run: &Run) -> Result<LifetimeRecord, QueueError> {
    let mut seen = LifetimeRecord::default();
    let is_announced = change(queue, &run.id, |lifetime| {
        seen = lifetime.clone();
        let may = !lifetime.is_being_swept() && !lifetime.has_ended;
        may.then(|| LifetimeRecord { retried_at: Some(Timestamp::now()), tidied_at: None, ..lifetime })
    });
    match is_announced.await? {
        true => Ok(seen),
        false if seen.is_being_swept() => Err(QueueError::WrongRunState {
            id: run.id.clone(),
            state: run.state,
            hint: "what it stored on the way is just being removed; try again in a minute".into(),
        }),
        false => Err(QueueError::NoSuchRun(run.id.clone())),
    }
}

/// The same of a run that has ended, unless somebody else retries, sweeps or deletes it; `None`: somebody does.
pub(crate) async fn announce_first_retry(
    queue: &dyn Queue,
    run: &Run,
) -> Result<Option<LifetimeRecord>, QueueError> {
    let Some(finished_at) = run.finished_at else { return Ok(None) };
    let mut seen = LifetimeRecord::default();
    let is_announced = change(queue, &run.id, |lifetime| {
        seen = lifetime.clone();
        let is_busy = lifetime.is_being_swept() || lifetime.is_being_retried(finished_at);
        let may = !is_busy && !lifetime.has_ended;
        may.then(|| LifetimeRecord { retried_at: Some(Timestamp::now()), tidied_at: None, ..lifetime })
    });
    Ok(is_announced.await?.then_some(seen))
}

/// Before anything of a run goes that it publishes nowhere.
pub(crate) async fn announce_loss(queue: &dyn Queue, run: &RunId) -> Result<(), QueueError> {
    change(queue, run, |lifetime| Some(LifetimeRecord { has_lost_blobs: true, ..lifetime })).await.map(drop)
}

/// The right to remove what an ended run publishes nowhere, for a while.
pub(crate) struct Broom {
    since: std::time::Instant,
}

impl Broom {
    /// `None`: somebody retries, deletes or sweeps the run.
    ///
    /// Only what is read of the run after this still holds while it is swept.
    pub(crate) async fn take(
        queue: &dyn Queue,
        run: &RunId,
        finished_at: Timestamp,
    ) -> Result<Option<Self>, QueueError> {
        let since = std::time::Instant::now();
        let is_taken = change(queue, run, |lifetime| {
            let is_busy = lifetime.is_being_retried(finished_at) || lifetime.is_being_swept();
            let is_free = !lifetime.has_ended && !is_busy;
            is_free.then(|| LifetimeRecord { swept_since: Some(Timestamp::now()), ..lifetime })
        });
        Ok(is_taken.await?.then_some(Self { since }))
    }

    pub(crate) fn may_go_on(&self) -> bool {
        self.since.elapsed() < SWEEP_WITHIN
    }

    pub(crate) async fn put_away(self, queue: &dyn Queue, run: &RunId, is_tidy: bool) -> Attempted<()> {
        let tidied_at = is_tidy.then(Timestamp::now);
        let over = |lifetime| Some(LifetimeRecord { swept_since: None, tidied_at, ..lifetime });
        change(queue, run, over).await?;
        Ok(())
    }
}

/// What became of a run's blobs when it was to be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// The run and all its blobs are gone.
    Gone,
    /// The run is shown no more; others have borrowed its outputs, and the last of them takes them along.
    Lent,
    /// The run is shown no more and its blobs are gone; its row goes with a later sweep, when everyone who is to hear of
    /// it has.
    Untold,
}

/// What else of a run goes with it, and what stays.
struct Fate<'a> {
    keeps_outputs: bool,
    /// Where it published, if that goes.
    published: Option<&'a Published>,
}

/// Forgets a run that has ended, with its blobs. Copies under keys of its caller's stay.
pub async fn delete(queue: &dyn Queue, blobs: &Blobs, id: &RunId) -> Result<Deleted, Failed> {
    end(queue, blobs, id, Fate { keeps_outputs: false, published: None }).await
}

/// The same with those copies, unless another run owns the place by now.
pub async fn delete_everywhere(
    queue: &dyn Queue,
    blobs: &Blobs,
    published: &Published,
    id: &RunId,
) -> Result<Deleted, Failed> {
    end(queue, blobs, id, Fate { keeps_outputs: false, published: Some(published) }).await
}

/// Forgets a run that has ended. What it published stays in the store, and is its owner's to remove.
pub async fn forget(queue: &dyn Queue, blobs: &Blobs, id: &RunId) -> Result<Deleted, Failed> {
    end(queue, blobs, id, Fate { keeps_outputs: true, published: None }).await
}

/// Goes on with a deletion that was cut short, or waited for somebody.
pub(crate) async fn end_again(shop: &Workshop, id: &RunId, lifetime: &LifetimeRecord) -> Attempted<Deleted> {
    let queue = &*shop.queue;
    forget_lost_borrowers(queue, id).await?;
    let published = lifetime.unpublishes.then_some(&shop.published);
    end(queue, &shop.blobs, id, Fate { keeps_outputs: lifetime.keeps_outputs, published }).await
}

async fn end(queue: &dyn Queue, blobs: &Blobs, id: &RunId, fate: Fate<'_>) -> Attempted<Deleted> {
    let Fate { keeps_outputs, published } = fate;
    let run = queue.get_run(id).await?.ok_or_else(|| no_such_run(id))?;
    let Some(finished_at) = run.finished_at else {
        let message = format!("{id} is {}", run.state);
        return Err(Failed::for_good("run_not_ended", message, "cancel it first"));
    };
    // From here on nobody can borrow from it or retry it, and it is shown no more: if this is cut short, it is deleted again.
    let is_ended = change(queue, id, |lifetime| {
        let may = lifetime.has_ended || !lifetime.is_being_retried(finished_at);
        let unpublishes = published.is_some();
        may.then_some(LifetimeRecord { has_ended: true, keeps_outputs, unpublishes, ..lifetime })
    });
    if !is_ended.await? {
        return Err(match queue.get_run(id).await? {
            Some(_) => {
                Failed::for_good("run_not_ended", format!("{id} is just being retried"), "cancel it first")
            }
            None => no_such_run(id),
        });
    }
    // A retry that was announced before, and took its time.
    if queue.get_run(id).await?.is_some_and(|run| run.finished_at.is_none()) {
        change(queue, id, |lifetime| Some(LifetimeRecord { has_ended: false, ..lifetime })).await?;
        return Err(Failed::for_good("run_not_ended", format!("{id} is being retried"), "cancel it first"));
    }
    if let Some(published) = published {
        unpublish(queue, blobs, published, &run).await?;
    }
    // Outputs that are to stay are still used, by somebody whom nobody knows here.
    if !keeps_outputs && let Some(borrowed) = read::<BorrowedRecord>(queue, id, BORROWED).await? {
        give_back(queue, blobs, &run.tenant, id, &borrowed.owner).await?;
    }
    let (_, lifetime) = read_versioned::<LifetimeRecord>(queue, id, LIFETIME).await?;
    if lifetime.is_some_and(|lifetime| !lifetime.borrowers.is_empty()) {
        return Ok(Deleted::Lent);
    }
    remove_all(queue, blobs, &run.tenant, id).await
}

async fn give_back(
    queue: &dyn Queue,
    blobs: &Blobs,
    tenant: &str,
    borrower: &RunId,
    owner: &RunId,
) -> Attempted<()> {
    let is_counted = change(queue, owner, |mut lifetime| {
        lifetime.borrowers.remove(borrower.as_str());
        Some(lifetime)
    });
    // Where the owner is gone nobody counts any more, and what others may still use stays.
    if !is_counted.await? {
        return Ok(());
    }
    let (_, lifetime) = read_versioned::<LifetimeRecord>(queue, owner, LIFETIME).await?;
    let is_last = lifetime.is_some_and(|lifetime| lifetime.has_ended && lifetime.borrowers.is_empty());
    if is_last {
        remove_all(queue, blobs, tenant, owner).await?;
    }
    Ok(())
}

/// Of a deleted run: forgets borrowers that do not count on it any more, because they are gone, or were stopped before
/// they knew that they had borrowed. Nobody can become one.
async fn forget_lost_borrowers(queue: &dyn Queue, owner: &RunId) -> Attempted<()> {
    let (_, lifetime) = read_versioned::<LifetimeRecord>(queue, owner, LIFETIME).await?;
    let mut lost = Vec::new();
    for borrower in lifetime.map(|lifetime| lifetime.borrowers).unwrap_or_default() {
        let Ok(id) = borrower.parse::<RunId>() else { continue };
        // First the run, then what it has borrowed: one that has ended borrows nothing more.
        let is_live = queue.get_run(&id).await?.is_some_and(|run| run.finished_at.is_none());
        let borrowed = read::<BorrowedRecord>(queue, &id, BORROWED).await?;
        if !is_live && borrowed.is_none_or(|borrowed| borrowed.owner != *owner) {
            lost.push(borrower);
        }
    }
    if !lost.is_empty() {
        change(queue, owner, |mut lifetime| {
            lifetime.borrowers.retain(|borrower| !lost.contains(borrower));
            Some(lifetime)
        })
        .await?;
    }
    Ok(())
}

/// Blobs first: if this is cut short, the run is still there to be deleted again.
async fn remove_all(queue: &dyn Queue, blobs: &Blobs, tenant: &str, id: &RunId) -> Attempted<Deleted> {
    let (_, lifetime) = read_versioned::<LifetimeRecord>(queue, id, LIFETIME).await?;
    let lifetime = lifetime.unwrap_or_default();
    if let Some(key) = lifetime.cache_key
        && cache::maker(blobs, &key).await?.as_ref() == Some(id)
    {
        blobs.delete(&key).await?;
    }
    if lifetime.keeps_outputs {
        remove_unpublished(queue, blobs, tenant, id).await?;
    } else {
        remove_blobs(blobs, &keys::of_run(tenant, id)).await?;
    }
    match queue.delete_run(id).await {
        Ok(()) | Err(QueueError::NoSuchRun(_)) => Ok(Deleted::Gone),
        Err(QueueError::WrongRunState { .. }) => Ok(Deleted::Untold),
        Err(error) => Err(error.into()),
    }
}

/// All but what the run published. A blob says that this is meant, or a sweep would take it for an orphan's.
async fn remove_unpublished(queue: &dyn Queue, blobs: &Blobs, tenant: &str, id: &RunId) -> Attempted<()> {
    let mark = keys::kept(tenant, id);
    blobs.put_bytes(&mark, Bytes::from_static(b"{}")).await?;
    let outputs = read_all::<OutputRecord>(queue, id).await?;
    let published = outputs.into_iter().flat_map(|(_, output)| output.files).map(|file| file.key);
    let kept: BTreeSet<String> = published.chain([mark]).collect();
    let stored = blobs.list(&keys::of_run(tenant, id)).await?;
    blobs.delete_all(stored.into_iter().filter(|key| !kept.contains(key))).await?;
    Ok(())
}

/// Everything below a prefix, puts that never ended too; says how many blobs.
pub(crate) async fn remove_blobs(blobs: &Blobs, prefix: &str) -> Result<usize, StoreError> {
    let stored = blobs.list(prefix).await?;
    let removed = stored.len();
    blobs.delete_all(stored).await?;
    // Not every store tells of what was never ended.
    if let Err(error) = blobs.sweep_unfinished_below(prefix, Duration::ZERO).await {
        tracing::debug!(prefix, %error, "puts that never ended cannot be swept");
    }
    Ok(removed)
}

fn no_such_run(id: &RunId) -> Failed {
    Failed::for_good("run_not_found", format!("there is no run {id}"), "see `telecine runs ls`")
}
