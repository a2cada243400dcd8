//! That the schemas say what is serialised: whoever describes an API with them must not lie.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use utoipa::{OpenApi, ToSchema};

use crate::{
    Age, Attempt, AttemptOutcome, Backoff, Count, Entry, Event, Fed, FedEvent, Fence, Job, JobError, JobId,
    JobState, Limit, LimitState, Listed, ListedRuns, Missed, NewJob, NewRun, OutboxDepth, Pausable, Paused,
    Push, Record, Run, RunId, RunState, Schedule, StepCount, TenantPolicy, TenantState, Timestamp, Worker,
    WorkerId,
};

#[derive(OpenApi)]
#[openapi(components(schemas(
    Age,
    Attempt,
    Count,
    Entry,
    Event,
    Fed,
    Job,
    LimitState,
    Listed,
    ListedRuns,
    OutboxDepth,
    Paused,
    Record,
    Run,
    Schedule,
    StepCount,
    TenantState,
    Worker
)))]
struct Schemas;

/// Whether a value is what a schema says, as far as types and names of fields go.
fn fits(value: &Value, schema: &Value, all: &Value) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or_default();
        let target = all.get(name).ok_or_else(|| format!("no schema {name}"))?;
        return fits(value, target, all).map_err(|why| format!("{name}: {why}"));
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        return match choices.iter().any(|choice| fits(value, choice, all).is_ok()) {
            true => Ok(()),
            false => Err(format!("{value} is none of {choices:?}")),
        };
    }
    if let Some(parts) = schema["allOf"].as_array() {
        return parts.iter().try_for_each(|part| fits(value, part, all));
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        // Anything.
        _ => return Ok(()),
    };
    let is_number = kind == "integer" && kinds.contains(&"number");
    if !is_number && !kinds.contains(&kind) {
        return Err(format!("{value} is not {kinds:?}"));
    }
    if let Some(known) = schema["enum"].as_array()
        && !known.contains(value)
    {
        return Err(format!("{value} is none of {known:?}"));
    }
    if let Some(items) = value.as_array() {
        return items.iter().try_for_each(|item| fits(item, &schema["items"], all));
    }
    let Some(fields) = value.as_object() else { return Ok(()) };
    let missing = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if let Some(name) = missing.into_iter().find(|name| !fields.contains_key(*name)) {
        return Err(format!("no field {name}"));
    }
    let described = schema["properties"].as_object();
    described.into_iter().flatten().try_for_each(|(name, field)| match fields.get(name) {
        Some(value) => fits(value, field, all).map_err(|why| format!("{name}: {why}")),
        None => Ok(()),
    })
}

/// The names that a schema knows.
fn names(schema: &Value, all: &Value) -> BTreeSet<String> {
    let target = schema["$ref"].as_str().and_then(|name| all.get(name.rsplit('/').next()?));
    let parts = ["allOf", "oneOf"].iter().filter_map(|of| schema[*of].as_array()).flatten().chain(target);
    let own = schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone());
    own.chain(parts.flat_map(|part| names(part, all))).collect()
}

fn check<T: ToSchema + serde::Serialize>(value: &T, all: &Value) {
    let name = T::name();
    let (schema, value) = (&all[name.as_ref()], serde_json::to_value(value).expect("plain data"));
    assert!(schema.is_object(), "{name} has a schema");
    fits(&value, schema, all).unwrap_or_else(|why| panic!("{name}: {why}"));
    let written: BTreeSet<String> = value.as_object().expect("an object").keys().cloned().collect();
    assert_eq!(written, names(schema, all), "{name}: fields and described fields");
}

fn job() -> Job {
    let now = Timestamp::now();
    Job {
        id: JobId(1),
        tenant: "us".into(),
        run: Some(RunId::new()),
        step: None,
        kind: "work".into(),
        lane: "cpu".into(),
        priority: 50,
        state: JobState::Running,
        payload: json!({ "n": 1 }),
        run_at: None,
        generation: 1,
        attempt: 1,
        max_attempts: 5,
        lost: 0,
        max_lost: 3,
        backoff: Backoff::default(),
        timeout_ms: Some(1),
        unique_key: None,
        limit_key: Some("key".into()),
        fence: Fence(1),
        worker: Some(WorkerId(1)),
        slot: None,
        progress: Some(0.5),
        checkpoint: Some(json!([1])),
        result: None,
        error: Some(JobError::new("code", "message")),
        required: true,
        needs_left: 0,
        created_at: now,
        claimed_at: Some(now),
        finished_at: None,
    }
}

fn run() -> Run {
    Run {
        id: RunId::new(),
        tenant: String::new(),
        name: "film".into(),
        external_id: None,
        state: RunState::Partial,
        generation: 1,
        priority: Some(100),
        meta: json!(null),
        jobs_total: 1,
        jobs_left: 0,
        jobs_failed: 0,
        jobs_cancelled: 0,
        jobs_degraded: 1,
        created_at: Timestamp::now(),
        started_at: None,
        playable_at: None,
        finished_at: Some(Timestamp::now()),
    }
}

fn schedule() -> Schedule {
    let push = Push::run(
        NewRun::new("film"),
        [NewJob::new("work", json!({})), NewJob::new("work", json!(1)).after(0)],
    );
    Schedule {
        name: "nightly".into(),
        cron: "0 3 * * *".into(),
        missed: Missed::All { at_most: 3 },
        push,
        next_at: Timestamp::now(),
        last_at: None,
    }
}

#[test]
fn what_is_serialised_fits_its_schema() {
    let now = Timestamp::now();
    let schemas = serde_json::to_value(Schemas::openapi()).expect("a document");
    let all = &schemas["components"]["schemas"];
    let (lane, kind) = (|| "cpu".to_owned(), || "work".to_owned());
    let event = Event { run: RunId::new(), seq: 1, name: "run.created".into(), at: now, body: json!({}) };

    check(&job(), all);
    check(&Listed { data: vec![job()], next_cursor: Some(JobId(1)) }, all);
    check(&run(), all);
    check(&ListedRuns { data: vec![run()], next_cursor: None }, all);
    check(&schedule(), all);
    check(&event, all);
    let cursor: crate::FeedCursor = "s1".parse().expect("a cursor");
    let fed = FedEvent { cursor: cursor.clone(), tenant: "us".into(), event };
    check(&Fed { events: vec![fed], next: cursor }, all);
    check(&Count { lane: lane(), kind: kind(), state: JobState::Pending, jobs: 1 }, all);
    check(&Age { lane: lane(), kind: kind(), oldest_ready_at: now }, all);
    check(&StepCount { step: None, state: JobState::Running, jobs: 1, progress: 0.5 }, all);
    check(&OutboxDepth { sink: "here".into(), waiting: 1, oldest_at: Some(now) }, all);
    for what in [Pausable::Lane(lane()), Pausable::Kind(kind())] {
        check(&Paused { what, paused_at: now }, all);
    }
    let policy = TenantPolicy::new("us").weight(2.0);
    check(&TenantState { policy, running: 1, pending: 0, parked: 0 }, all);
    let limit = Limit::new("key").max_running(2);
    check(&LimitState { limit, pace: 1.0, running: 1, pending: 0, parked: 0, changed_at: now }, all);
    let (entry, body) = ("one".to_owned(), json!({ "a": 1 }));
    check(&Entry { kind: kind(), key: entry.clone(), version: 1, body: body.clone(), updated_at: now }, all);
    check(&Record { run: RunId::new(), kind: kind(), key: entry, version: 1, json: body }, all);
    let (job, fence, worker) = (JobId(1), Fence(1), Some(WorkerId(1)));
    let (outcome, error) = (AttemptOutcome::Lost, None);
    let (started_at, ended_at) = (now, now);
    check(
        &Attempt { job, fence, generation: 1, worker, slot: None, started_at, ended_at, outcome, error },
        all,
    );
    let slots = BTreeMap::from([(lane(), 2)]);
    let (id, name, host) = (WorkerId(1), "one".to_owned(), "here".to_owned());
    let (draining, alive) = (false, true);
    let kinds = vec![kind()];
    check(
        &Worker {
            id,
            name,
            host,
            pid: 1,
            slots,
            kinds,
            running: 0,
            draining,
            alive,
            started_at,
            seen_at: now,
        },
        all,
    );
}
