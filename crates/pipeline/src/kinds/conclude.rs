//! `conclude`: the last job of a run. Removes what the run stored on the way and publishes nowhere, and lets later runs
//! find its outputs.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{Attempt, Work};
use crate::blobs::StoreError;
use crate::cache::{remember, work_of};
use crate::failure::Attempted;
use crate::keys;
use crate::lifetime::announce_loss;
use crate::media_type::MediaType;
use crate::records::{INPUT, InputRecord, OutputRecord, SourceAt, read_all};

pub(super) struct Conclude;

#[async_trait]
impl Work for Conclude {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        let meta = attempt.meta().await?;
        let input: InputRecord = attempt.read(INPUT).await?;
        let outputs = read_all::<OutputRecord>(&*attempt.shop.queue, attempt.run).await?;
        // A store that removes nothing, or lists nothing, is no reason to find fault with the run: the next sweep tries again.
        let removed = match tidy(attempt, &input, &outputs).await {
            Ok(removed) => removed,
            Err(failed) => {
                tracing::warn!(run.id = %attempt.run, reason = failed.message, "what the run stored on the way is left to a sweep");
                0
            }
        };
        let is_whole = meta.recipe.fitting_steps(MediaType::of_input(&input)).all(|step| {
            let made = |name: &str| {
                outputs.iter().any(|(_, output)| output.step == step.name && output.name == name)
            };
            step.does.promised().into_iter().all(|name| made(name.unwrap_or(&step.name)))
        });
        if is_whole && meta.recipe.is_repeatable() {
            remember(attempt, &work_of(attempt, &input, &meta.recipe).await?).await?;
        }
        Ok(json!({ "removed": removed, "remembered": is_whole }))
    }
}

/// Removes what the run stored and publishes nowhere; says how much.
async fn tidy(
    attempt: &Attempt<'_>,
    input: &InputRecord,
    outputs: &[(String, OutputRecord)],
) -> Attempted<usize> {
    let (blobs, of_run) = (&attempt.shop.blobs, keys::of_run(&attempt.job.tenant, attempt.run));
    let named = named(input, outputs.iter().map(|(_, output)| output));
    let stored = blobs.list(&of_run).await?;
    let unnamed: Vec<String> = stored.into_iter().filter(|key| !named.contains(key)).collect();
    let removed = unnamed.len();
    if removed > 0 {
        announce_loss(&*attempt.shop.queue, attempt.run).await?;
    }
    blobs.delete_all(unnamed).await?;
    // Whoever was to end these puts is dead, or no longer counts.
    match blobs.sweep_unfinished_below(&of_run, Duration::ZERO).await {
        Ok(unfinished) => Ok(removed + unfinished),
        // Not every store tells of them.
        Err(StoreError::Invalid { .. }) => Ok(removed),
        Err(error) => Err(error.into()),
    }
}

/// The blobs of a run that somebody may still ask for.
pub(crate) fn named<'a>(
    input: &InputRecord,
    outputs: impl Iterator<Item = &'a OutputRecord>,
) -> BTreeSet<String> {
    let source = match &input.at {
        SourceAt::Blob { key } => Some(key.clone()),
        SourceAt::File { .. } => None,
    };
    outputs.flat_map(|output| &output.files).map(|file| file.key.clone()).chain(source).collect()
}
