//! Jobs: what a tenant's runs consist of, and jobs of kinds that workers in other languages run.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use telecine_connect::webhooks;
use telecine_pipeline::{kinds, whole};
use telecine_queue::{
    Attempt, Backoff, Fence, Job, JobError, JobFilter, JobId, JobState, NewJob, Page, Push, RunId, Timestamp,
    WorkerId,
};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::{Json, Path, Query, created, printable};
use crate::problem::{Code, Mistake, Problem, ProblemDocument};

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 500;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list, push)).routes(routes!(get))
}

/// Which jobs, and which part of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Asked {
    state: Option<JobState>,
    #[serde(default, deserialize_with = "printable")]
    #[param(pattern = "^[^\\x00]*$")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "printable")]
    #[param(pattern = "^[^\\x00]*$")]
    lane: Option<String>,
    /// Only the jobs of this run.
    run: Option<RunId>,
    /// `next_cursor` of the page before.
    #[param(pattern = "^[1-9][0-9]{0,17}$")]
    cursor: Option<String>,
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
struct JobList {
    data: Vec<JobBrief>,
    /// Pass it as `cursor` for the next page; null on the last one.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// A job without its payload, checkpoint and result, which may be large: `GET /v1/jobs/{id}` has them.
#[derive(Debug, Serialize, ToSchema)]
struct JobBrief {
    id: JobId,
    tenant: String,
    run: Option<RunId>,
    step: Option<String>,
    kind: String,
    lane: String,
    #[schema(maximum = 100)]
    priority: u8,
    state: JobState,
    run_at: Option<Timestamp>,
    generation: u32,
    attempt: u32,
    max_attempts: u32,
    lost: u32,
    max_lost: u32,
    backoff: Backoff,
    timeout_ms: Option<u64>,
    unique_key: Option<String>,
    limit_key: Option<String>,
    fence: Fence,
    worker: Option<WorkerId>,
    slot: Option<u32>,
    /// 0.0 to 1.0, as last told by a beat.
    #[schema(minimum = 0, maximum = 1)]
    progress: Option<f64>,
    error: Option<JobError>,
    required: bool,
    /// Jobs it still waits for.
    needs_left: u32,
    created_at: Timestamp,
    claimed_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
}

impl JobBrief {
    fn of(job: Job) -> Self {
        Self {
            id: job.id,
            tenant: job.tenant,
            run: job.run,
            step: job.step,
            kind: job.kind,
            lane: job.lane,
            priority: job.priority,
            state: job.state,
            run_at: job.run_at,
            generation: job.generation,
            attempt: job.attempt,
            max_attempts: job.max_attempts,
            lost: job.lost,
            max_lost: job.max_lost,
            backoff: job.backoff,
            timeout_ms: job.timeout_ms,
            unique_key: job.unique_key,
            limit_key: job.limit_key,
            fence: job.fence,
            worker: job.worker,
            slot: job.slot,
            progress: job.progress,
            error: job.error,
            required: job.required,
            needs_left: job.needs_left,
            created_at: job.created_at,
            claimed_at: job.claimed_at,
            finished_at: job.finished_at,
        }
    }
}

/// The tenant's jobs, newest first, without what may be large of them.
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", params(Asked),
    responses((status = 200, body = JobList), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(asked): Query<Asked>,
) -> Result<Json<JobList>, Problem> {
    caller.require(Scope::Read)?;
    let page =
        Page { before: cursor(asked.cursor.as_deref())?, limit: page_limit(asked.limit)?, brief: true };
    let filter = JobFilter {
        states: asked.state.into_iter().collect(),
        kind: asked.kind,
        lane: asked.lane,
        tenant: Some(caller.tenant),
        run: asked.run,
    };
    let listed = app.queue().list(&filter, page).await?;
    let next_cursor = listed.next_cursor.map(|id| id.to_string());
    Ok(Json(JobList { data: listed.data.into_iter().map(JobBrief::of).collect(), next_cursor }))
}

fn cursor(text: Option<&str>) -> Result<Option<JobId>, Problem> {
    let Some(text) = text else { return Ok(None) };
    match text.parse::<JobId>() {
        Ok(id) if id.0 > 0 && text == id.to_string() => Ok(Some(id)),
        _ => Err(Problem::invalid("cursor", "is not a `next_cursor` of this list")),
    }
}

fn page_limit(limit: Option<u32>) -> Result<u32, Problem> {
    match limit.unwrap_or(DEFAULT_LIMIT) {
        limit @ 1..=MAX_LIMIT => Ok(limit),
        _ => Err(Problem::invalid("limit", format!("is 1 to {MAX_LIMIT}"))),
    }
}

/// A job and what became of each attempt.
#[derive(Debug, Serialize, ToSchema)]
struct JobShown {
    #[serde(flatten)]
    job: Job,
    /// Oldest first. A claim that still runs is not among them.
    attempts: Vec<Attempt>,
}

/// One job with its attempts.
#[utoipa::path(
    get, path = "/v1/jobs/{id}", tag = "jobs",
    params(("id" = i64, Path, minimum = 1)),
    responses((status = 200, body = JobShown), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<JobId>,
) -> Result<Json<JobShown>, Problem> {
    caller.require(Scope::Read)?;
    let job = app.queue().get(id).await?.filter(|job| job.tenant == caller.tenant);
    let job = job.ok_or_else(|| Problem::not_found("job"))?;
    let attempts = app.queue().attempts(id).await?;
    Ok(Json(JobShown { job, attempts }))
}

/// A job for workers in other languages.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewJob)]
struct JobAsked {
    /// None of our own kinds: those are jobs of runs.
    #[schema(pattern = "^[ -~]{1,200}$", examples("resize_svg"))]
    kind: String,
    /// For whoever runs it; at most 256 KiB of JSON, less than 100 levels deep, without U+0000.
    #[serde(default)]
    #[schema(value_type = Option<Value>)]
    payload: Value,
    /// Where it waits. The lanes of Telecine's own workers (`cpu`, `io`, `net`) need the scope `admin`.
    #[schema(pattern = "^[ -~]{1,200}$", default = "remote")]
    lane: Option<String>,
    /// Higher first. More than 50 needs the scope `admin`.
    #[schema(minimum = 0, maximum = 100, default = 50)]
    #[serde(default, deserialize_with = "whole")]
    priority: Option<u8>,
    /// Not before this instant.
    run_at: Option<Timestamp>,
    #[schema(minimum = 1, maximum = 1000, default = 5)]
    #[serde(default, deserialize_with = "whole")]
    max_attempts: Option<u16>,
    /// How long one attempt may take.
    #[schema(minimum = 1, maximum = 31_536_000_000u64)]
    #[serde(default, deserialize_with = "whole")]
    timeout_ms: Option<u64>,
    /// While a job of the same kind with this key is live or completed, that one is meant.
    #[schema(pattern = "^[ -~]{1,200}$")]
    unique_key: Option<String>,
    /// Counts against the limit of this key. Limits are everybody's, so this needs the scope `admin`.
    #[schema(pattern = "^[ -~]{1,200}$")]
    limit_key: Option<String>,
}

/// Where jobs wait that workers in other languages run, unless whoever pushes or claims them says otherwise.
pub(super) const REMOTE_LANE: &str = "remote";
/// What anybody may ask for; before that stands what the operator puts there.
const COMMON_PRIORITY: u8 = 50;
const MAX_PRIORITY: u8 = 100;
const MAX_ATTEMPTS: u16 = 1_000;
const MAX_TIMEOUT_MS: u64 = 365 * 24 * 60 * 60 * 1_000;

/// Pushes a job of a kind that a worker in another language runs (see `/v1/claims`).
///
/// With an `Idempotency-Key`, repeating the request gives the same job.
#[utoipa::path(
    post, path = "/v1/jobs", tag = "jobs", request_body = JobAsked,
    params(("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]{1,200}$")),
    responses(
        (status = 201, description = "It is stored, by this request or by an earlier one with the same unique key.", body = Job),
        (status = 200, description = "The idempotency key was known: this is the job as it is now.", body = Job),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")
    )
)]
async fn push(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    Json(asked): Json<JobAsked>,
) -> Result<Response, Problem> {
    caller.require(Scope::Write)?;
    if asked.limit_key.is_some() {
        caller.require(Scope::Admin)?;
    }
    require_priority(&caller, asked.priority)?;
    require_lane_of_others(&caller, asked.lane.as_deref())?;
    let idempotency_key = idempotency_key(&headers)?;
    let push = Push { idempotency_key, ..Push::from(new_job(&app, asked)?).tenant(caller.tenant) };
    let pushed = app.queue().push(vec![push]).await?;
    let pushed = pushed.into_iter().next();
    let id = pushed.as_ref().and_then(|pushed| pushed.jobs.first().copied());
    let job = match id {
        Some(id) => app.queue().get(id).await?,
        None => None,
    };
    // It was deleted in between, by somebody with the right to.
    let job = job.ok_or_else(|| Problem::not_found("job"))?;
    let is_replayed = pushed.is_some_and(|pushed| pushed.replayed);
    Ok(if is_replayed { Json(job).into_response() } else { created(job) })
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    match key
        .to_str()
        .ok()
        .filter(|key| !key.is_empty() && key.len() <= 200 && key.bytes().all(|b| b.is_ascii_graphic()))
    {
        Some(key) => Ok(Some(key.to_owned())),
        None => Err(Problem::invalid("Idempotency-Key", "is 1 to 200 visible characters of ASCII")),
    }
}

fn new_job(app: &App, asked: JobAsked) -> Result<NewJob, Problem> {
    require_name("kind", &asked.kind)?;
    refuse_own_kind(app, "kind", &asked.kind)?;
    let names = [("lane", &asked.lane), ("unique_key", &asked.unique_key), ("limit_key", &asked.limit_key)];
    for (path, name) in names {
        name.as_deref().map_or(Ok(()), |name| require_name(path, name))?;
    }
    if asked.priority.is_some_and(|priority| priority > MAX_PRIORITY) {
        return Err(Problem::invalid("priority", format!("is 0 to {MAX_PRIORITY}")));
    }
    let attempts = asked.max_attempts.unwrap_or(5);
    if attempts == 0 || attempts > MAX_ATTEMPTS {
        return Err(Problem::invalid("max_attempts", format!("is 1 to {MAX_ATTEMPTS}")));
    }
    if asked.timeout_ms.is_some_and(|ms| ms == 0 || ms > MAX_TIMEOUT_MS) {
        return Err(Problem::invalid("timeout_ms", format!("is 1 to {MAX_TIMEOUT_MS}")));
    }
    let job = NewJob::new(asked.kind, asked.payload).max_attempts(attempts);
    Ok(NewJob {
        lane: asked.lane.unwrap_or_else(|| REMOTE_LANE.into()),
        priority: asked.priority.unwrap_or(job.priority),
        run_at: asked.run_at,
        timeout_ms: asked.timeout_ms,
        unique_key: asked.unique_key,
        limit_key: asked.limit_key,
        ..job
    })
}

/// Whatever stands before all others makes them wait: that is for the operator to decide.
pub(in crate::api) fn require_priority(caller: &Caller, priority: Option<u8>) -> Result<(), Problem> {
    if priority.is_none_or(|priority| priority <= COMMON_PRIORITY) {
        return Ok(());
    }
    let wrong = format!("is at most {COMMON_PRIORITY}; more needs a key with the scope `admin`");
    require_admin_for("priority", wrong, caller)
}

/// Our own workers look through what waits in their lanes whenever they claim, also past jobs that are not for them.
fn require_lane_of_others(caller: &Caller, lane: Option<&str>) -> Result<(), Problem> {
    let is_own = |lane: &str| lane == webhooks::LANE || kinds::LANES.iter().any(|(_, own)| *own == lane);
    match lane.filter(|lane| is_own(lane)) {
        Some(lane) => {
            let wrong = format!(
                "`{lane}` is a lane of Telecine's own workers, which needs a key with the scope `admin`; \
                 choose another, or leave it out for `{REMOTE_LANE}`"
            );
            require_admin_for("lane", wrong, caller)
        }
        None => Ok(()),
    }
}

fn require_admin_for(path: &str, wrong: String, caller: &Caller) -> Result<(), Problem> {
    if caller.require(Scope::Admin).is_ok() {
        return Ok(());
    }
    let detail = format!("{path}: {wrong}");
    let mistake = Mistake { path: path.to_owned(), code: "forbidden".into(), message: wrong };
    Err(Problem::new(Code::Forbidden, detail).with_errors(vec![mistake]))
}

/// Names of kinds, lanes and keys are printable ASCII here, so that every tool can show and type them.
pub(super) fn require_name(path: &str, name: &str) -> Result<(), Problem> {
    let is_printable = name.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    match is_printable && (1..=200).contains(&name.len()) {
        true => Ok(()),
        false => Err(Problem::invalid(path, "is 1 to 200 printable characters of ASCII")),
    }
}

/// Our own kinds trust their payloads and belong to runs: nobody else makes or takes jobs of them.
pub(super) fn refuse_own_kind(app: &App, path: &str, kind: &str) -> Result<(), Problem> {
    let is_own =
        kinds::lane_of(kind).is_some() || kind == webhooks::KIND || app.options.own_kinds.contains(&kind);
    if !is_own {
        return Ok(());
    }
    let message = format!("`{kind}` is a kind of Telecine's own workers; choose another name");
    Err(Problem::impossible(vec![Mistake { path: path.to_owned(), code: "reserved".into(), message }]))
}
