//! `ingest`: fetch, hash, sniff, probe, limits, plan; then everything else there is to do.

use async_trait::async_trait;
use serde_json::{Value, json};
use telecine_queue::{JobFilter, Page, Spawn};

use super::{Attempt, Work, sign_in};
use crate::cache::{borrow, work_of};
use crate::failure::{Attempted, Failed};
use crate::graph::{Graph, publish};
use crate::planned::{Planned, examine};
use crate::records::{INPUT, InputRecord, PlanRecord};
use crate::source::take;
use crate::submission::RunMeta;

pub(super) struct Ingest;

#[async_trait]
impl Work for Ingest {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        require_first(attempt).await?;
        let meta = attempt.meta().await?;
        sign_in(attempt.shop).await?;
        let input = described(attempt, &meta).await?;
        attempt.leave(INPUT, &input);
        if !meta.fresh && meta.recipe.is_repeatable() {
            let work = work_of(attempt, &input, &meta.recipe).await?;
            if let Some(owner) = borrow(attempt, &work).await? {
                if meta.publish_to.is_some() {
                    attempt.context.spawn(Spawn::jobs([publish(attempt.job.priority)]));
                }
                return Ok(json!({ "sha256": input.sha256, "bytes": input.bytes, "borrowed_from": owner }));
            }
        }
        attempt.tell_of(&input);
        let capabilities = attempt.shop.capabilities(&attempt.cancel).await?;
        let planned = Planned::of(&meta.recipe, input.format, input.probe.as_ref(), capabilities)?;
        tell(&planned, attempt);
        let graph = Graph {
            recipe: &meta.recipe,
            plans: &planned.plans,
            left_out: &planned.left_out,
            priority: attempt.job.priority,
            probe: input.probe.as_ref(),
            source_bytes: input.bytes,
            store_is_remote: attempt.shop.store_is_remote(&input),
            publishes: meta.publish_to.is_some(),
        };
        let jobs = graph.jobs();
        let answer = json!({ "sha256": input.sha256, "bytes": input.bytes, "jobs": jobs.len() });
        attempt.context.spawn(Spawn::jobs(jobs));
        Ok(answer)
    }
}

/// The jobs of a run follow from its input once. A second look would find another file under the same name, and other
/// jobs beside those that are there.
async fn require_first(attempt: &Attempt<'_>) -> Attempted<()> {
    let filter = JobFilter { run: Some(attempt.run.clone()), ..JobFilter::default() };
    let jobs = attempt.shop.queue.list(&filter, Page::first(2)).await?.data;
    if jobs.iter().all(|job| job.id == attempt.job.id) {
        return Ok(());
    }
    let message = "the run has taken its input in already";
    Err(Failed::for_good("run_planned", message, "submit the input again, or retry other steps of the run"))
}

/// The input with its hash and what is in it; refused where it passes the limits.
async fn described(attempt: &Attempt<'_>, meta: &RunMeta) -> Attempted<InputRecord> {
    let shop = attempt.shop;
    let (taken, source) = take(attempt, &meta.input).await?;
    let (format, probe) = examine(&attempt.toolbox, source.path(), &shop.limits, &attempt.cancel).await?;
    Ok(InputRecord {
        uri: meta.input.to_string(),
        bytes: taken.bytes,
        sha256: taken.sha256,
        at: taken.at,
        format,
        probe,
    })
}

/// Leaves what was decided for the jobs that do it.
fn tell(planned: &Planned, attempt: &Attempt<'_>) {
    for (step, plan) in &planned.plans {
        attempt.leave(step.clone(), &PlanRecord { plan: plan.clone() });
    }
    for warning in &planned.warnings {
        attempt.leave(format!("{}/{}", warning.step, warning.code), warning);
    }
}
