//! `plan`: the rest of `ingest`, for an input that a scan has let through.

use async_trait::async_trait;
use serde_json::{Value, json};
use telecine_queue::Spawn;

use super::ingest::require_unplanned;
use super::{Attempt, Work};
use crate::cache::{borrow, work_of};
use crate::failure::{Attempted, Failed};
use crate::graph::{Graph, publish};
use crate::planned::{Planned, examine};
use crate::records::{INPUT, InputRecord, PlanRecord, ScanRecord, TAKEN, TakenRecord, read};
use crate::source::{Readers, Source};
use crate::submission::RunMeta;

pub(super) struct PlanOfInput;

#[async_trait]
impl Work for PlanOfInput {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        require_unplanned(attempt).await?;
        require_let_through(attempt).await?;
        let meta = attempt.meta().await?;
        let taken: TakenRecord = attempt.read(TAKEN).await?;
        let source = Source::taken_in(attempt, &taken, Readers::Everybody).await?;
        fan_out(attempt, &meta, taken, &source).await
    }
}

/// The graph has the scan come first, and whoever starts this job over by its name goes past the graph: what counts is what
/// the scan has left.
async fn require_let_through(attempt: &Attempt<'_>) -> Attempted<()> {
    let scan: Option<ScanRecord> = read(&*attempt.shop.queue, attempt.run, TAKEN).await?;
    match scan {
        Some(scan) if scan.lets_through() => Ok(()),
        Some(_) => Err(Failed::for_good("infected", "the input is infected", "submit another file")),
        None => Err(Failed::for_good(
            "unscanned",
            "no scan has let the input through",
            "retry the step scan, and see why it does not",
        )),
    }
}

/// From the bytes of an input to the jobs of its run: sniff, probe, limits, plan.
pub(super) async fn fan_out(
    attempt: &Attempt<'_>,
    meta: &RunMeta,
    taken: TakenRecord,
    source: &Source,
) -> Attempted<Value> {
    let input = described(attempt, meta, taken, source).await?;
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

/// The input with what is in it; refused where it passes the limits.
async fn described(
    attempt: &Attempt<'_>,
    meta: &RunMeta,
    taken: TakenRecord,
    source: &Source,
) -> Attempted<InputRecord> {
    let limits = &attempt.shop.limits;
    let (format, probe) = examine(&attempt.toolbox, source.path(), limits, &attempt.cancel).await?;
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
