//! The figures of the API, and what every figure of the process means.

use std::time::Duration;

use http::{Method, StatusCode};
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

/// A request was answered. The route is the pattern that matched, never the path.
pub(crate) fn answered(method: &Method, route: &str, status: StatusCode, took: Duration) {
    let (method, route) = (known(method), route.to_owned());
    let durations =
        histogram!("telecine_http_request_duration_seconds", "method" => method, "route" => route.clone());
    durations.record(took);
    let status = status.as_str().to_owned();
    counter!("telecine_http_requests_total", "method" => method, "route" => route, "status" => status)
        .increment(1);
}

/// Anybody can invent methods; a label has to be one of a few.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

pub(super) fn describe() {
    let counters = [
        ("telecine_http_requests_total", "Requests answered, by route and status."),
        (
            "telecine_kafka_commit_failures_total",
            "Commits of offsets that failed; what they were of is read again.",
        ),
        ("telecine_kafka_publish_failures_total", "Records that the brokers did not take, by topic."),
        ("telecine_kafka_records_total", "Records read, by outcome: accepted, known or refused."),
        ("telecine_media_encoded_seconds_total", "Seconds of media that were encoded."),
        ("telecine_outbox_events_total", "Events that a sink has taken."),
        ("telecine_outbox_publish_failures_total", "Parcels of events that a sink did not take."),
        ("telecine_queue_claims_total", "Jobs claimed."),
        ("telecine_queue_fence_refusals_total", "Writes of stale or cancelled claims that were refused."),
        ("telecine_queue_lost_total", "Claims whose worker died or fell silent."),
        ("telecine_queue_outcomes_total", "Claims settled, by outcome."),
        ("telecine_queue_overdue_total", "Attempts that ran past their deadline."),
        ("telecine_queue_poisoned_total", "Jobs given up because they took too many workers with them."),
        ("telecine_queue_retries_total", "Jobs claimed that had been attempted before."),
        ("telecine_queue_verb_failures_total", "Calls of the database that failed."),
        ("telecine_scans_total", "Virus scans, by outcome: clean, infected, unscanned or unavailable."),
        ("telecine_store_bytes_total", "Bytes read from (in) and written to (out) the store."),
        ("telecine_store_failures_total", "Reads and writes of the store that failed."),
        ("telecine_webhook_deliveries_total", "Attempts to deliver a webhook, by outcome."),
        ("telecine_worker_lost_total", "Workers declared dead."),
    ];
    counters.into_iter().for_each(|(name, meaning)| describe_counter!(name, meaning));
    let gauges = [
        ("telecine_build_info", "The version of the program; always 1."),
        ("telecine_database_up", "Whether the database answered when this was asked for."),
        (
            "telecine_kafka_consumer_lag",
            "Records of a partition that the group has not committed, told by the member that reads it.",
        ),
        ("telecine_kafka_paused", "Whether this process takes nothing in from Kafka for now."),
        (
            "telecine_outbox_age_seconds",
            "How long the oldest event that a sink was not sent has been waiting.",
        ),
        ("telecine_outbox_depth", "Events that a sink was not sent yet."),
        ("telecine_queue_age_seconds", "How long the oldest ready job has been waiting."),
        ("telecine_queue_jobs", "Live jobs, by lane, kind and state."),
        ("telecine_queue_paused", "1 for each lane or kind that is paused."),
        ("telecine_worker_slots", "Slots of this process's worker."),
        ("telecine_worker_slots_busy", "Slots of this process's worker that run a job."),
        ("telecine_workers", "Workers that live, over all processes."),
    ];
    gauges.into_iter().for_each(|(name, meaning)| describe_gauge!(name, meaning));
    let histograms = [
        ("telecine_http_request_duration_seconds", "Time until the answer begins."),
        ("telecine_job_duration_seconds", "Time from claim to outcome."),
        ("telecine_media_encode_speed_ratio", "Seconds of media encoded per second."),
        ("telecine_queue_verb_duration_seconds", "Time that calls of the database took."),
        ("telecine_scan_duration_seconds", "Time that virus scans took."),
    ];
    histograms.into_iter().for_each(|(name, meaning)| describe_histogram!(name, meaning));
    gauge!("telecine_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
}
