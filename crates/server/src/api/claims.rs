//! Claims for workers in other languages: take a job, beat while it runs, settle it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use telecine_pipeline::whole;
use telecine_queue::{Fence, Job, JobError, JobId, Outcome};
use tokio::time::Instant;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::jobs::{refuse_own_kind, require_name};
use crate::app::App;
use crate::caller::{Caller, Scope, Standing};
use crate::extract::{Json, Path};
use crate::problem::{Code, Problem, ProblemDocument};
use crate::remote::{ClaimToken, News, Taken, Wanted, gone};

/// The backstop for wake-ups that did not come.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const MAX_KINDS: usize = 100;
const MAX_WAIT_MS: u64 = 60_000;
const MIN_LEASE_MS: u64 = 500;
const MAX_LEASE_MS: u64 = 3_600_000;
const MAX_SNOOZE_MS: u64 = 365 * 24 * 60 * 60 * 1_000;
/// A worker that beats this often within its lease may miss two.
const BEATS_PER_LEASE: u64 = 3;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(claim)).routes(routes!(beat)).routes(routes!(finish))
}

/// What a worker can run, and how long it wants to wait for it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ClaimAsked {
    /// Kinds of jobs it runs; none of Telecine's own.
    #[schema(min_items = 1, max_items = 100, inline)]
    kinds: Vec<KindName>,
    #[schema(pattern = "^[ -~]{1,200}$", default = "cpu")]
    lane: Option<String>,
    /// How long the answer may take when nothing is ready.
    #[schema(minimum = 0, maximum = 60_000, default = 0)]
    #[serde(default, deserialize_with = "whole")]
    wait_ms: Option<u64>,
    /// Silence after which the job is given to others.
    #[schema(minimum = 500, maximum = 3_600_000, default = 30_000)]
    #[serde(default, deserialize_with = "whole")]
    lease_ms: Option<u64>,
    /// What to call this worker in lists.
    #[schema(pattern = "^[ -~]{1,200}$", default = "remote")]
    name: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(pattern = "^[ -~]{1,200}$")]
struct KindName(String);

/// A job, and what its worker needs to keep and to settle it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Claim)]
struct ClaimShown {
    job: Job,
    /// Proof of the claim, for beats and the finish. Keep it from others.
    token: String,
    fence: Fence,
    lease_ms: u64,
    /// Beat at least this often; later than `lease_ms` after the last one, the job may be another's.
    beat_within_ms: u64,
}

/// Claims one job.
///
/// Needs the scope `work` and a key of the operator (one without a tenant, or with the scope `admin`): a claim takes the
/// best job of its kinds, whose ever it is.
#[utoipa::path(
    post, path = "/v1/claims", tag = "claims", request_body = ClaimAsked,
    responses(
        (status = 200, description = "A job was claimed.", body = ClaimShown),
        (status = 204, description = "Nothing was ready within the wait."),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")
    )
)]
async fn claim(
    State(app): State<Arc<App>>,
    caller: Caller,
    standing: Standing,
    Json(asked): Json<ClaimAsked>,
) -> Result<Response, Problem> {
    require_operator(&caller)?;
    let wait = Duration::from_millis(bounded("wait_ms", asked.wait_ms.unwrap_or(0), 0, MAX_WAIT_MS)?);
    let wanted = wanted(asked)?;
    let secret = app.remote.secret().await?;
    let lease_ms = u64::try_from(wanted.lease.as_millis()).unwrap_or(MAX_LEASE_MS);
    let Some(job) = wait_for_one(&app, &wanted, wait, (&standing, &caller)).await?.and_then(Taken::send)
    else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let token = ClaimToken {
        job: job.id,
        fence: job.fence,
        attempt: job.attempt,
        lost: job.lost,
        tenant: caller.tenant,
        lease_ms,
    };
    Ok(Json(ClaimShown {
        fence: job.fence,
        job: Arc::unwrap_or_clone(job),
        token: token.signed(secret),
        lease_ms,
        beat_within_ms: lease_ms / BEATS_PER_LEASE,
    })
    .into_response())
}

/// A pull takes the best job of a kind, whose ever it is: only whoever may see all tenants may do that.
fn require_operator(caller: &Caller) -> Result<(), Problem> {
    caller.require(Scope::Work)?;
    match caller.tenant.is_empty() || caller.scopes.contains(&Scope::Admin) {
        true => Ok(()),
        false => Err(Problem::new(
            Code::Forbidden,
            "jobs of all tenants are claimed here: use a key without a tenant, or one with the scope `admin`",
        )),
    }
}

fn wanted(asked: ClaimAsked) -> Result<Wanted, Problem> {
    if asked.kinds.is_empty() || asked.kinds.len() > MAX_KINDS {
        return Err(Problem::invalid("kinds", format!("has 1 to {MAX_KINDS} names")));
    }
    let mut kinds = Vec::with_capacity(asked.kinds.len());
    for (at, KindName(kind)) in asked.kinds.into_iter().enumerate() {
        let path = format!("kinds[{at}]");
        require_name(&path, &kind)?;
        refuse_own_kind(&path, &kind)?;
        kinds.push(kind);
    }
    let lane = asked.lane.unwrap_or_else(|| "cpu".into());
    let name = asked.name.unwrap_or_else(|| "remote".into());
    require_name("lane", &lane)?;
    require_name("name", &name)?;
    let lease_ms = bounded("lease_ms", asked.lease_ms.unwrap_or(30_000), MIN_LEASE_MS, MAX_LEASE_MS)?;
    Ok(Wanted { name, kinds, lane, lease: Duration::from_millis(lease_ms) })
}

fn bounded(path: &str, value: u64, least: u64, most: u64) -> Result<u64, Problem> {
    match (least..=most).contains(&value) {
        true => Ok(value),
        false => Err(Problem::invalid(path, format!("is {least} to {most}"))),
    }
}

/// Looks at once, whenever something became ready, and every second, for as long as the caller may.
async fn wait_for_one(
    app: &App,
    wanted: &Wanted,
    wait: Duration,
    (standing, caller): (&Standing, &Caller),
) -> Result<Option<Taken>, Problem> {
    let until = Instant::now() + wait;
    let mut wakes = app.queue().wakes();
    loop {
        let seen = wakes.borrow_and_update().ready;
        if let Some(taken) = app.remote.take(wanted.clone()).await? {
            return Ok(Some(taken));
        }
        let look_at = until.min(Instant::now() + LOOK_EVERY);
        tokio::select! {
            _ = wakes.wait_for(|now| now.ready != seen) => {}
            () = tokio::time::sleep_until(look_at) => {}
            () = app.stopping.cancelled() => return Ok(None),
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        if !standing.holds(app, caller).await {
            return Err(Problem::new(Code::Unauthorized, "the key is not valid any more"));
        }
    }
}

/// That the worker lives, and how far it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct BeatAsked {
    #[schema(min_length = 1, max_length = 4096)]
    token: String,
    /// 0 to 1.
    #[schema(minimum = 0, maximum = 1)]
    progress: Option<f64>,
    /// A small document that the job's next claim receives, should this one not finish.
    #[schema(value_type = Option<Value>)]
    checkpoint: Option<Value>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Beaten {
    lease_ms: u64,
    beat_within_ms: u64,
    /// Somebody asked this worker to finish what it has and claim nothing more.
    drain: bool,
}

/// Renews the claim's lease and saves progress and checkpoint.
///
/// `409 claim_lost` and `410 cancelled`: stop, and drop what was made.
#[utoipa::path(
    post, path = "/v1/claims/{job}/beat", tag = "claims", request_body = BeatAsked,
    params(("job" = i64, Path, minimum = 1)),
    responses((status = 200, body = Beaten), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn beat(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(job): Path<JobId>,
    Json(asked): Json<BeatAsked>,
) -> Result<Json<Beaten>, Problem> {
    require_operator(&caller)?;
    if asked.progress.is_some_and(|progress| !(0.0..=1.0).contains(&progress)) {
        return Err(Problem::invalid("progress", "is 0 to 1"));
    }
    let token = verified(&app, &caller, job, &asked.token).await?;
    let news = News { progress: asked.progress, checkpoint: asked.checkpoint };
    let drain = app.remote.beat(&token, news).await?.map_err(|over| gone(over, job))?;
    let lease_ms = token.lease_ms;
    Ok(Json(Beaten { lease_ms, beat_within_ms: lease_ms / BEATS_PER_LEASE, drain }))
}

/// The token of a claim of this job that this caller was given.
async fn verified(app: &App, caller: &Caller, job: JobId, text: &str) -> Result<ClaimToken, Problem> {
    let token = ClaimToken::verified(text, app.remote.secret().await?);
    token
        .filter(|token| token.job == job && token.tenant == caller.tenant)
        .ok_or_else(|| Problem::new(Code::ClaimLost, format!("this is no token of a claim of job {job}")))
}

/// How the claim ends.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct FinishAsked {
    #[schema(min_length = 1, max_length = 4096)]
    token: String,
    outcome: OutcomeAsked,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[schema(as = Outcome)]
enum OutcomeAsked {
    /// It is done.
    Complete {
        #[serde(default)]
        #[schema(value_type = Option<Value>)]
        result: Value,
    },
    /// It failed: to be tried again after its backoff, until its attempts are spent; or, for good, not at all.
    Fail {
        #[schema(pattern = "^[a-z][a-z0-9_]{0,63}$")]
        code: String,
        #[schema(max_length = 8192)]
        message: String,
        #[serde(default)]
        for_good: bool,
    },
    /// Not now: try again after this long, at no cost of an attempt.
    Snooze {
        #[schema(minimum = 0, maximum = 31_536_000_000u64)]
        #[serde(deserialize_with = "whole")]
        ms: u64,
    },
    /// Give the job back as it was, at once and at no cost.
    Release {},
}

impl OutcomeAsked {
    fn meant(self) -> Result<Outcome, Problem> {
        match self {
            Self::Complete { result } => Ok(Outcome::Complete { result }),
            Self::Fail { code, message, for_good } => {
                let error = JobError::new(error_code(code)?, message);
                Ok(if for_good { Outcome::FailForGood { error } } else { Outcome::Fail { error } })
            }
            Self::Snooze { ms } => {
                let ms = bounded("outcome.snooze.ms", ms, 0, MAX_SNOOZE_MS)?;
                Ok(Outcome::Snooze { delay: Duration::from_millis(ms) })
            }
            Self::Release {} => Ok(Outcome::Release),
        }
    }
}

fn error_code(code: String) -> Result<String, Problem> {
    let is_word = code.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    match is_word && code.len() <= 64 && code.starts_with(|first: char| first.is_ascii_lowercase()) {
        true => Ok(code),
        false => Err(Problem::invalid("outcome.fail.code", "is a word such as `encoder_failed`")),
    }
}

#[derive(Debug, Serialize, ToSchema)]
struct Finished {
    job: JobId,
    fence: Fence,
    /// This claim's outcome is stored, by this request or by one before it.
    settled: bool,
}

/// Settles the claim. Repeating it gives the same answer; the first outcome counts.
///
/// `409 claim_lost` and `410 cancelled`: the outcome does not count; drop what was made.
#[utoipa::path(
    post, path = "/v1/claims/{job}/finish", tag = "claims", request_body = FinishAsked,
    params(("job" = i64, Path, minimum = 1)),
    responses((status = 200, body = Finished), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn finish(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(job): Path<JobId>,
    Json(asked): Json<FinishAsked>,
) -> Result<Json<Finished>, Problem> {
    require_operator(&caller)?;
    let outcome = asked.outcome.meant()?;
    let token = verified(&app, &caller, job, &asked.token).await?;
    app.remote.finish(&token, outcome).await?.map_err(|over| gone(over, job))?;
    Ok(Json(Finished { job, fence: token.fence, settled: true }))
}
