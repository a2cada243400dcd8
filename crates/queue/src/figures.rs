//! Every figure of the queue, in one place: what passes through the verbs is counted here, whoever calls them.
//!
//! Figures go to whatever recorder the process has installed; without one a call costs an atomic load. Labels are kinds,
//! lanes, verbs and outcomes, never ids. A batch looks each of its counters up once, so that a claim of 512 jobs of one
//! kind costs as much as that of one.

use std::collections::HashMap;
use std::time::Duration;

use metrics::{counter, gauge, histogram};

use crate::claim::{AttemptOutcome, Finish, Settled};
use crate::job::JobState;
use crate::queue::Reaped;
use crate::settle::Verdict;
use crate::worker::{BeatReply, Claimed};

/// A verb was called and has ended.
pub(crate) fn called(verb: &'static str, took: Duration, is_ok: bool) {
    histogram!("telecine_queue_verb_duration_seconds", "verb" => verb).record(took);
    if !is_ok {
        counter!("telecine_queue_verb_failures_total", "verb" => verb).increment(1);
    }
}

pub(crate) fn pulled(claimed: &[Claimed]) {
    let mut claims: HashMap<(&str, &str), (u64, u64)> = HashMap::new();
    for Claimed { job, .. } in claimed {
        let (all, again) = claims.entry((&job.lane, &job.kind)).or_default();
        *all += 1;
        *again += u64::from(job.attempt > 1);
    }
    for ((lane, kind), (all, again)) in claims {
        let (lane, kind) = (lane.to_owned(), kind.to_owned());
        counter!("telecine_queue_claims_total", "lane" => lane.clone(), "kind" => kind.clone())
            .increment(all);
        if again > 0 {
            counter!("telecine_queue_retries_total", "lane" => lane, "kind" => kind).increment(again);
        }
    }
}

pub(crate) fn finished(batch: &[Finish], settled: &[Settled]) {
    let mut took: HashMap<(&str, &'static str), Vec<Duration>> = HashMap::new();
    for (finish, settled) in batch.iter().zip(settled) {
        let took = took.entry((&finish.claim.job.kind, outcome(finish, *settled))).or_default();
        took.push(finish.claim.held_for());
    }
    for ((kind, outcome), took) in took {
        let kind = kind.to_owned();
        if outcome == REFUSED {
            counter!("telecine_queue_fence_refusals_total", "at" => "finish").increment(took.len() as u64);
        }
        let outcomes =
            counter!("telecine_queue_outcomes_total", "kind" => kind.clone(), "outcome" => outcome);
        outcomes.increment(took.len() as u64);
        let durations = histogram!("telecine_job_duration_seconds", "kind" => kind, "outcome" => outcome);
        for took in took {
            durations.record(took);
        }
    }
}

const REFUSED: &str = "refused";

fn outcome(finish: &Finish, settled: Settled) -> &'static str {
    match (settled, finish.verdict()) {
        (Settled::Refused, _) => REFUSED,
        (Settled::Accepted, Verdict::Done { state: JobState::Completed, .. }) => "completed",
        (Settled::Accepted, Verdict::Done { .. }) => "failed",
        (Settled::Accepted, Verdict::Back { outcome: AttemptOutcome::Failed, .. }) => "retried",
        (Settled::Accepted, Verdict::Back { outcome, .. }) => outcome.as_str(),
    }
}

pub(crate) fn beaten(reply: &BeatReply) {
    if !reply.refused.is_empty() {
        let refused = reply.refused.len() as u64;
        counter!("telecine_queue_fence_refusals_total", "at" => "beat").increment(refused);
    }
}

pub(crate) fn reaped(reaped: &Reaped) {
    let found = [
        ("telecine_worker_lost_total", reaped.workers),
        ("telecine_queue_lost_total", reaped.freed + reaped.poisoned),
        ("telecine_queue_poisoned_total", reaped.poisoned),
        ("telecine_queue_overdue_total", reaped.overdue),
    ];
    for (name, jobs) in found.into_iter().filter(|(_, jobs)| *jobs > 0) {
        counter!(name).increment(jobs);
    }
}

/// The slots of a lane of this process's worker.
pub(crate) fn slots(lane: &str, total: u32, busy: u32) {
    gauge!("telecine_worker_slots", "lane" => lane.to_owned()).set(f64::from(total));
    gauge!("telecine_worker_slots_busy", "lane" => lane.to_owned()).set(f64::from(busy));
}

/// A sink did not take what it was sent.
pub(crate) fn not_published(sink: &str) {
    counter!("telecine_outbox_publish_failures_total", "sink" => sink.to_owned()).increment(1);
}

pub(crate) fn published(sink: &str, events: usize) {
    counter!("telecine_outbox_events_total", "sink" => sink.to_owned()).increment(events as u64);
}
