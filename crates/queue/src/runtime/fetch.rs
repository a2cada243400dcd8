//! One fetcher feeds all slots: it claims what free slots can run, and sleeps when there is nothing.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::time::Instant;
use tracing::{Instrument, Span, field};

use super::held::{HeldClaim, JobContext, StopReason, TakenAlong};
use super::settle::Ended;
use super::slots::Reserved;
use super::{Failure, Kind, MAX_BATCH, Shared, is_worth_another};
use crate::claim::{Finish, Outcome};
use crate::error::{QueueError, Result};
use crate::job::{Job, JobError};
use crate::worker::{Claimed, Pull};

/// What a kind panicked with.
type Panic = Box<dyn Any + Send>;

/// How long to wait before asking a database again that did not answer.
const AFTER_ERROR: Duration = Duration::from_millis(250);

pub(super) async fn fetch_until_drained(shared: Arc<Shared>) {
    let mut wakes = shared.queue.wakes();
    let mut phase = shared.phase.subscribe();
    // Lanes that had fewer jobs than we asked for: not asked again before something new may be there.
    let mut dry = BTreeSet::new();
    let (mut poll_at, mut seen) = (Instant::now(), wakes.borrow().ready);
    let mut pulls = FuturesUnordered::new();
    while shared.is_working() {
        // A wake-up or a poll is for every lane, also while another lane keeps us busy.
        let ready = wakes.borrow_and_update().ready;
        if ready != seen || Instant::now() >= poll_at {
            seen = ready;
            dry.clear();
            poll_at = Instant::now() + shared.options.poll_every;
        }
        if let Some(reserved) = slots_to_fill(&shared, &dry, pulls.len()) {
            pulls.push(pull(&shared, reserved, seen));
            continue;
        }
        let pulled = tokio::select! {
            Some(pulled) = pulls.next() => Some(pulled),
            () = shared.slots.wait_for_free() => None,
            _ = wakes.wait_for(|now| now.ready != seen) => None,
            () = tokio::time::sleep_until(poll_at) => None,
            _ = phase.changed() => None,
        };
        if let Some(pulled) = pulled {
            take_in(&shared, pulled, seen, &mut dry).await;
        }
    }
    // What they claim is ours to run.
    while let Some(pulled) = pulls.next().await {
        take_in(&shared, pulled, seen, &mut dry).await;
    }
}

fn slots_to_fill(shared: &Shared, dry: &BTreeSet<String>, under_way: usize) -> Option<Reserved> {
    let wanted = |lane: &str| !dry.contains(lane);
    is_worth_another(under_way, shared.slots.free(wanted)).then(|| shared.slots.reserve(wanted, MAX_BATCH))
}

/// What came of a pull, and what it was for.
struct Pulled {
    reserved: Reserved,
    /// The last wake-up before it: a later one may be for jobs that it has not seen.
    seen: u64,
    claimed: Result<Vec<Claimed>>,
}

async fn pull(shared: &Shared, reserved: Reserved, seen: u64) -> Pulled {
    let pull = Pull {
        worker: shared.worker(),
        lanes: reserved.lanes(),
        kinds: shared.kinds.names().into_iter().map(str::to_owned).collect(),
        free_scratch_bytes: shared.options.free_scratch.as_ref().map_or(u64::MAX, |free| free()),
    };
    Pulled { claimed: shared.queue.pull(pull).await, reserved, seen }
}

async fn take_in(shared: &Arc<Shared>, pulled: Pulled, seen: u64, dry: &mut BTreeSet<String>) {
    let Pulled { mut reserved, claimed, seen: seen_before } = pulled;
    match claimed {
        Ok(claimed) => {
            for claimed in claimed {
                let slot = shared.slots.take(&mut reserved, &claimed.job.lane);
                let slot = slot.expect("no more jobs than were asked for");
                start(shared, claimed, slot);
            }
            if seen == seen_before {
                dry.extend(reserved.lanes().into_keys());
            }
            shared.slots.put_back(reserved);
            shared.slots.tell();
        }
        Err(error) => {
            shared.slots.put_back(reserved);
            // What it had locked, another pull may have passed over.
            dry.clear();
            wait_out(shared, &error).await;
        }
    }
}

async fn wait_out(shared: &Shared, error: &QueueError) {
    match error {
        // The beat registers the worker again.
        QueueError::WorkerGone => shared.held.news.notify_one(),
        error => tracing::warn!(%error, "could not pull; trying again"),
    }
    tokio::time::sleep(AFTER_ERROR.min(shared.options.poll_every)).await;
}

fn start(shared: &Arc<Shared>, claimed: Claimed, slot: u32) {
    let Claimed { job, claim } = claimed;
    let Some(kind) = shared.kinds.get(&job.kind) else {
        // Only the kinds we named are claimed; should a database do otherwise, the job goes back.
        let ended = Ended::new(job, slot, Some(Finish::new(claim, Outcome::Release)));
        let _ = shared.ended.send(ended);
        return;
    };
    let context = shared.held.hold(&claim, slot, kind.acts_outside());
    let claim = claim.in_slot(slot);
    let held = Arc::clone(&context.claim);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let span = span_of(&job);
        if let Some(lineage) = &shared.options.lineage {
            lineage.adopt(&job, &span).await;
        }
        let outcome = run(&shared, kind, Arc::clone(&job), context, &span).await;
        tell_end(&span, outcome.as_ref());
        let finish = match outcome {
            Some(outcome) => {
                let TakenAlong { spawn, records, playable } = held.take_along().await;
                Some(Finish::new(claim, outcome).spawning(spawn).recording(records).playable(playable))
            }
            None => None,
        };
        let _ = shared.ended.send(Ended::new(job, slot, finish));
    });
}

/// What happens in an attempt, kinds' own words included, is said to be of this job. Kinds fill in what is theirs to know.
fn span_of(job: &Job) -> Span {
    let span = tracing::info_span!(
        "job.run",
        job.id = job.id.0,
        job.kind = %job.kind,
        job.retry_count = job.attempt.saturating_sub(1),
        run.id = field::Empty,
        input.key = field::Empty,
        "media.type" = field::Empty,
        processing.success = field::Empty,
        error.code = field::Empty,
        otel.status_code = field::Empty,
    );
    if let Some(run) = &job.run {
        span.record("run.id", run.as_str());
    }
    span
}

fn tell_end(span: &Span, outcome: Option<&Outcome>) {
    if span.is_disabled() {
        return;
    }
    span.record("processing.success", matches!(outcome, Some(Outcome::Complete { .. })));
    if let Some(Outcome::Fail { error } | Outcome::FailForGood { error }) = outcome {
        span.record("error.code", error.code.as_str());
        span.record("otel.status_code", "ERROR");
    }
}

/// Runs a kind under its timeout. `None`: the claim was refused, and there is nothing to settle.
async fn run(
    shared: &Shared,
    kind: Arc<dyn Kind>,
    job: Arc<Job>,
    context: JobContext,
    span: &Span,
) -> Option<Outcome> {
    let timeout = job.timeout_ms.map_or(kind.timeout(), |ms| kind.timeout().min(Duration::from_millis(ms)));
    let claim = Arc::clone(&context.claim);
    // A panic ends the attempt and not the worker.
    let attempt = AssertUnwindSafe(async move { kind.run(&job, &context).await }).catch_unwind();
    let mut attempt = Box::pin(attempt.instrument(span.clone()));
    // What ends at once needs neither a task of its own nor a timer.
    if let Some(ended) = (&mut attempt).now_or_never() {
        return outcome(Some(ended), claim.stop_reason(), timeout);
    }
    // In a task of its own it can be given up even if it blocks its thread from now on.
    let mut task = tokio::spawn(attempt);
    let ended = tokio::select! {
        biased;
        ended = &mut task => Some(ended),
        () = stopped_or_late(&claim, timeout) => None,
    };
    let ended = match ended {
        Some(ended) => Some(ended),
        None => tokio::time::timeout(shared.options.stop_within, &mut task).await.ok(),
    };
    if ended.is_none() {
        task.abort();
    }
    outcome(ended.and_then(Result::ok), claim.stop_reason(), timeout)
}

async fn stopped_or_late(claim: &HeldClaim, timeout: Duration) {
    tokio::select! {
        () = claim.stopped() => {}
        () = tokio::time::sleep(timeout) => claim.stop(StopReason::TimedOut),
    }
}

/// What the end of an attempt means, given why it was told to stop, if it was.
fn outcome(
    ended: Option<Result<Result<serde_json::Value, Failure>, Panic>>,
    stopped: Option<StopReason>,
    timeout: Duration,
) -> Option<Outcome> {
    if stopped == Some(StopReason::Refused) {
        return None;
    }
    let result = match ended {
        // It was done before it heard of the stop.
        Some(Ok(Ok(result))) => return Some(Outcome::Complete { result }),
        Some(Ok(Err(failure))) => Some(failure),
        Some(Err(panic)) => Some(Failure::Retry(JobError::new("panic", panic_message(&panic)))),
        None => None,
    };
    match (stopped, result) {
        (Some(StopReason::TimedOut), _) => Some(Outcome::Fail {
            error: JobError::new("timeout", format!("the attempt took longer than {timeout:?}")),
        }),
        (Some(StopReason::Leaving | StopReason::LeaseEnding | StopReason::Refused), _) | (None, None) => {
            Some(Outcome::Release)
        }
        (None, Some(Failure::Retry(error))) => Some(Outcome::Fail { error }),
        (None, Some(Failure::ForGood(error))) => Some(Outcome::FailForGood { error }),
        (None, Some(Failure::Snooze(delay))) => Some(Outcome::Snooze { delay }),
    }
}

fn panic_message(panic: &Panic) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "the kind panicked".into())
}
