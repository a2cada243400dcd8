//! `ingest`: fetch and hash; then sniff, probe, limits, plan and everything else there is to do. Where the input is to be
//! scanned first, all but the fetching is left to a job behind the scan ([`super::plan`]).

use async_trait::async_trait;
use serde_json::{Value, json};
use telecine_queue::{Backoff, JobFilter, NewJob, Page, Spawn};

use super::plan::fan_out;
use super::{Attempt, INGEST, PLAN, PLAN_STEP, PUBLISH, SCAN, Work, lane_of, sign_in};
use crate::failure::{Attempted, Failed};
use crate::graph::MAX_LOST;
use crate::records::{SourceAt, TAKEN, TakenRecord};
use crate::scan::{ScanPolicy, ScanRules};
use crate::source::{Readers, take};

/// A scanner that is away is asked again soon, and for about a week.
const SCAN_AGAIN: Backoff = Backoff { base_ms: 1_000, factor: 2, cap_ms: 60_000 };
const SCAN_ATTEMPTS: u16 = 10_000;

pub(super) struct Ingest;

#[async_trait]
impl Work for Ingest {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        require_unplanned(attempt).await?;
        let meta = attempt.meta().await?;
        sign_in(attempt.shop).await?;
        let rules = attempt.shop.scanning.rules_for(&meta.recipe);
        let (taken, source) = take(attempt, &meta.input, Readers::under(rules)).await?;
        let taken = TakenRecord { at: taken.at, bytes: taken.bytes, sha256: taken.sha256 };
        if rules.scan == ScanPolicy::Off {
            return fan_out(attempt, &meta, taken, &source).await;
        }
        let answer = json!({ "sha256": taken.sha256, "bytes": taken.bytes, "scan": rules.scan });
        attempt.context.spawn(Spawn::jobs(vec![scan(attempt, rules, &taken), plan(attempt).after(0)]));
        attempt.leave(TAKEN, &taken);
        Ok(answer)
    }
}

fn scan(attempt: &Attempt<'_>, rules: ScanRules, taken: &TakenRecord) -> NewJob {
    let payload = json!({ "step": INGEST, "scan": rules.scan, "unscanned": rules.unscanned });
    let is_remote =
        matches!(&taken.at, SourceAt::Blob { key } if attempt.shop.blobs.local_path(key).is_none());
    NewJob {
        backoff: SCAN_AGAIN,
        max_attempts: attempt.shop.scanning.attempts.unwrap_or(SCAN_ATTEMPTS),
        scratch_bytes: if is_remote { taken.bytes } else { 0 },
        ..following(attempt, SCAN, SCAN, payload)
    }
}

fn plan(attempt: &Attempt<'_>) -> NewJob {
    following(attempt, PLAN, PLAN_STEP, json!({ "step": INGEST }))
}

fn following(attempt: &Attempt<'_>, kind: &str, step: &str, payload: Value) -> NewJob {
    let job = NewJob::new(kind, payload).lane(lane_of(kind).unwrap_or("io")).step(step);
    NewJob { max_lost: MAX_LOST, priority: attempt.job.priority, ..job }
}

/// The jobs of a run follow from its input once. A second look would find another file under the same name, and other
/// jobs beside those that are there.
pub(super) async fn require_unplanned(attempt: &Attempt<'_>) -> Attempted<()> {
    let filter = JobFilter { run: Some(attempt.run.clone()), ..JobFilter::default() };
    // The newest first: nothing follows from this one yet, but that what was borrowed was published.
    let newest = attempt.shop.queue.list(&filter, Page::first(2)).await?.data;
    if newest.iter().filter(|job| job.kind != PUBLISH).all(|job| job.id <= attempt.job.id) {
        return Ok(());
    }
    let message = "the run has taken its input in already";
    Err(Failed::for_good("run_planned", message, "submit the input again, or retry other steps of the run"))
}
