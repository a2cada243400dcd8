//! The same work is done once: a run whose input, recipe and programs are those of an earlier one borrows its outputs.
//!
//! Outputs lie under the run that made them, their *owner*. A blob named after the work says who that is. Who has
//! borrowed them is counted in one record of the owner (`lifetime.rs`).

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};
use telecine_media::Capabilities;
use telecine_queue::{Run, RunId, RunState};

use crate::blobs::{Blobs, StoreError, hash_bytes, hash_file};
use crate::failure::Attempted;
use crate::keys;
use crate::kinds::Attempt;
use crate::lifetime::change;
use crate::recipe::Recipe;
use crate::records::{
    BORROWED, BorrowedRecord, InputRecord, LifetimeRecord, OutputRecord, WarningRecord, read_all,
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
    let made = queue.get_run(&owner).await?;
    let is_usable = |run: &Run| run.state == RunState::Succeeded && run.tenant == attempt.job.tenant;
    let Some(made) = made.filter(is_usable).filter(|run| run.id != *attempt.run) else { return Ok(None) };
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
        attempt.leave_output(key, &output);
    }
    for (key, warning) in read_all::<WarningRecord>(queue, &owner).await? {
        attempt.leave(key, &warning);
    }
    attempt.leave(BORROWED, &BorrowedRecord { owner: owner.clone() });
    if made.playable_at.is_some() {
        attempt.context.playable();
    }
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

pub(crate) async fn maker(blobs: &Blobs, key: &str) -> Attempted<Option<RunId>> {
    match blobs.get_bytes(key).await {
        // What is unreadable was written by nobody of ours: the work is done again.
        Ok(bytes) => Ok(serde_json::from_slice::<Maker>(&bytes).ok().map(|maker| maker.run)),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
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
