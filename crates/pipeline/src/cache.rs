//! The same work is done once: a run whose input, recipe and programs are those of an earlier one borrows its outputs.
//!
//! Outputs lie under the run that made them, their *owner*. A blob named after the work says who that is. Owner and
//! borrowers are counted in one record of the owner, which is only ever changed from the version that was read: so a
//! run cannot borrow what is just being deleted, nor delete what is just being borrowed.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};
use telecine_media::Capabilities;
use telecine_queue::{Queue, QueueError, Run, RunId, RunState};

use crate::blobs::{Blobs, StoreError, hash_bytes, hash_file};
use crate::failure::{Attempted, Failed};
use crate::keys;
use crate::kinds::Attempt;
use crate::recipe::Recipe;
use crate::records::{
    BORROWED, BorrowedRecord, InputRecord, LIFETIME, LifetimeRecord, OutputRecord, WarningRecord, read_all,
    read_versioned, record,
};

/// What names a piece of work: the same name means the same outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkName(String);

/// Who did a piece of work.
#[derive(Debug, Serialize, Deserialize)]
struct Maker {
    run: RunId,
}

impl WorkName {
    fn of(input_sha256: &str, marks: &[String], recipe: &Recipe, programs: &Capabilities) -> Self {
        let parts = (
            (input_sha256, marks),
            recipe.enabled_steps().collect::<Vec<_>>(),
            (&programs.ffmpeg_version, &programs.ffprobe_version, &programs.vips_version),
            &programs.working_hardware,
            env!("CARGO_PKG_VERSION"),
        );
        let text = serde_json::to_vec(&parts).expect("a work's name is plain data");
        Self(hash_bytes(&text))
    }

    fn key(&self, tenant: &str) -> String {
        keys::cache(tenant, &self.0)
    }
}

/// Remembers that this run did the work. Who reads it checks that the run has succeeded.
pub(crate) async fn remember(attempt: &Attempt<'_>, work: &WorkName) -> Attempted<()> {
    let key = work.key(&attempt.job.tenant);
    let named = |lifetime| Some(LifetimeRecord { cache_key: Some(key.clone()), ..lifetime });
    change(&*attempt.shop.queue, attempt.run, named).await?;
    let maker = serde_json::to_vec(&Maker { run: attempt.run.clone() }).expect("a name is plain data");
    Ok(attempt.shop.blobs.put_bytes(&key, maker.into()).await?)
}

/// Borrows the outputs of an earlier run that did the same; says whose. `None`: they have to be made.
pub(crate) async fn borrow(attempt: &Attempt<'_>, work: &WorkName) -> Attempted<Option<RunId>> {
    let (queue, blobs) = (&*attempt.shop.queue, &attempt.shop.blobs);
    let Some(owner) = maker(blobs, &work.key(&attempt.job.tenant)).await? else { return Ok(None) };
    let run = queue.get_run(&owner).await?;
    let is_usable =
        run.is_some_and(|run| run.state == RunState::Succeeded && run.tenant == attempt.job.tenant);
    if !is_usable || owner == *attempt.run {
        return Ok(None);
    }
    let outputs = read_all::<OutputRecord>(queue, &owner).await?;
    if !are_whole(blobs, &attempt.job.tenant, &owner, &outputs).await? {
        return Ok(None);
    }
    let is_borrowed = change(queue, &owner, |lifetime| {
        if lifetime.has_ended {
            return None;
        }
        let mut borrowers = lifetime.borrowers.clone();
        borrowers.insert(attempt.run.to_string());
        Some(LifetimeRecord { borrowers, ..lifetime })
    });
    if !is_borrowed.await? {
        return Ok(None);
    }
    for (key, output) in outputs {
        attempt.leave(key, &output);
    }
    for (key, warning) in read_all::<WarningRecord>(queue, &owner).await? {
        attempt.leave(key, &warning);
    }
    attempt.leave(BORROWED, &BorrowedRecord { owner: owner.clone() });
    Ok(Some(owner))
}

/// Whether every file of these outputs is still there, as long as it was: stores lose things, and people delete them.
async fn are_whole(
    blobs: &Blobs,
    tenant: &str,
    owner: &RunId,
    outputs: &[(String, OutputRecord)],
) -> Attempted<bool> {
    let stored = blobs.entries(&keys::of_run(tenant, owner)).map_ok(|meta| (meta.key, meta.bytes));
    let stored: BTreeMap<String, u64> = stored.try_collect().await?;
    let mut files = outputs.iter().flat_map(|(_, output)| &output.files);
    Ok(files.all(|file| stored.get(&file.key) == Some(&file.bytes)))
}

async fn maker(blobs: &Blobs, key: &str) -> Attempted<Option<RunId>> {
    match blobs.get_bytes(key).await {
        // What is unreadable was written by nobody of ours: the work is done again.
        Ok(bytes) => Ok(serde_json::from_slice::<Maker>(&bytes).ok().map(|maker| maker.run)),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Changes an owner's record from what it is; `false` where that cannot be, or nobody is there.
async fn change(
    queue: &dyn Queue,
    owner: &RunId,
    next: impl Fn(LifetimeRecord) -> Option<LifetimeRecord>,
) -> Result<bool, QueueError> {
    loop {
        let (version, now) = read_versioned::<LifetimeRecord>(queue, owner, LIFETIME).await?;
        let Some(next) = next(now.unwrap_or_default()) else { return Ok(false) };
        match queue.put_record(owner, record(LIFETIME, &next), Some(version)).await {
            Ok(_) => return Ok(true),
            Err(QueueError::Stale { .. }) => {}
            Err(QueueError::NoSuchRun(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
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

/// Forgets a run that has ended, with its blobs.
pub async fn delete(queue: &dyn Queue, blobs: &Blobs, id: &RunId) -> Result<Deleted, Failed> {
    end(queue, blobs, id, false).await
}

/// Forgets a run that has ended. What it published stays in the store, and is its owner's to remove.
pub async fn forget(queue: &dyn Queue, blobs: &Blobs, id: &RunId) -> Result<Deleted, Failed> {
    end(queue, blobs, id, true).await
}

/// Goes on with a deletion that was cut short, or waited for somebody; `false` where there is none.
pub(crate) async fn end_again(queue: &dyn Queue, blobs: &Blobs, run: &Run) -> Attempted<bool> {
    let (_, lifetime) = read_versioned::<LifetimeRecord>(queue, &run.id, LIFETIME).await?;
    let Some(lifetime) = lifetime.filter(|lifetime| lifetime.has_ended) else { return Ok(false) };
    end(queue, blobs, &run.id, lifetime.keeps_outputs).await?;
    Ok(true)
}

async fn end(queue: &dyn Queue, blobs: &Blobs, id: &RunId, keeps_outputs: bool) -> Attempted<Deleted> {
    let run = queue.get_run(id).await?.ok_or_else(|| no_such_run(id))?;
    if run.finished_at.is_none() {
        let message = format!("{id} is {}", run.state);
        return Err(Failed::for_good("run_not_ended", message, "cancel it first"));
    }
    // From here on nobody can borrow from it, and it is shown no more: if this is cut short, it is deleted again.
    change(queue, id, |lifetime| Some(LifetimeRecord { has_ended: true, keeps_outputs, ..lifetime })).await?;
    // Outputs that are to stay are still used, by somebody whom nobody knows here.
    if !keeps_outputs && let Some((_, borrowed)) = read_all::<BorrowedRecord>(queue, id).await?.pop() {
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

/// Blobs first: if this is cut short, the run is still there to be deleted again.
async fn remove_all(queue: &dyn Queue, blobs: &Blobs, tenant: &str, id: &RunId) -> Attempted<Deleted> {
    let (_, lifetime) = read_versioned::<LifetimeRecord>(queue, id, LIFETIME).await?;
    let lifetime = lifetime.unwrap_or_default();
    if let Some(key) = lifetime.cache_key
        && maker(blobs, &key).await?.as_ref() == Some(id)
    {
        blobs.delete(&key).await?;
    }
    let mut kept = BTreeSet::new();
    if lifetime.keeps_outputs {
        let outputs = read_all::<OutputRecord>(queue, id).await?;
        kept.extend(outputs.into_iter().flat_map(|(_, output)| output.files).map(|file| file.key));
    }
    let stored = blobs.list(&keys::of_run(tenant, id)).await?;
    blobs.delete_all(stored.into_iter().filter(|key| !kept.contains(key))).await?;
    match queue.delete_run(id).await {
        Ok(()) | Err(QueueError::NoSuchRun(_)) => Ok(Deleted::Gone),
        Err(QueueError::WrongRunState { .. }) => Ok(Deleted::Untold),
        Err(error) => Err(error.into()),
    }
}

fn no_such_run(id: &RunId) -> Failed {
    Failed::for_good("run_not_found", format!("there is no run {id}"), "see `telecine runs ls`")
}

/// The name of the work that a run's input and recipe come to.
pub(crate) async fn work_of(
    attempt: &Attempt<'_>,
    input: &InputRecord,
    recipe: &Recipe,
) -> Attempted<WorkName> {
    let programs = attempt.shop.capabilities(&attempt.cancel).await?;
    // A picture that is laid over the film is named by the recipe; what it shows is in its file.
    let mut marks = Vec::new();
    for step in recipe.enabled_steps() {
        if let Some(mark) = step.does.media().and_then(|wanted| wanted.video?.watermark) {
            marks.push(hash_file(&mark.image).await?.0);
        }
    }
    Ok(WorkName::of(&input.sha256, &marks, recipe, programs))
}
