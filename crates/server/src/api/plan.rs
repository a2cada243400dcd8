//! `POST /v1/plan`: what a run would do, and why.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use telecine_pipeline::{Failed, Input, NoSubmission, Outlook, RunRequest, look_ahead};
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::runs::refused;
use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::Json;
use crate::problem::{Code, Mistake, Problem, ProblemDocument};
use crate::turns::Turns;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(plan))
}

/// Looks that go on at the same time: each runs a program, and may fetch an input.
const SLOTS: usize = 2;
/// How long one waits for its turn, and how long it may take.
const TURN_WITHIN: Duration = Duration::from_secs(10);
const DONE_WITHIN: Duration = Duration::from_secs(60);

/// Turns of those who want to look ahead.
#[derive(Debug)]
pub(crate) struct Looks(Turns);

impl Looks {
    pub(crate) fn new() -> Self {
        Self(Turns::of(SLOTS))
    }
}

/// One input and one recipe.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PlanRequest {
    #[schema(min_length = 1, max_length = 200, examples("web-video"))]
    recipe: String,
    input: Input,
    /// As of a run.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, Object>)]
    params: BTreeMap<String, Map<String, Value>>,
}

/// What a run would do.
#[derive(Debug, Serialize, ToSchema)]
struct PlanShown {
    recipe: String,
    /// The input's type, by its content.
    format: Value,
    /// What is in the input; null of pictures that are only looked at when they are made.
    #[schema(value_type = Option<Object>)]
    probe: Value,
    /// The recipe's steps, each with its plan: chosen rungs, every decision and its reason.
    #[schema(value_type = Vec<Object>)]
    steps: Value,
    /// What will be left out or lost.
    #[schema(value_type = Vec<Object>)]
    warnings: Value,
    /// Which jobs that comes to.
    #[schema(value_type = Vec<Object>)]
    jobs: Value,
    /// Command lines, word by word.
    #[schema(value_type = Vec<Object>)]
    commands: Value,
    estimate: EstimateShown,
}

/// As far as it can be told beforehand.
#[derive(Debug, Serialize, ToSchema)]
struct EstimateShown {
    /// The time of one core.
    cpu_ms: u64,
    jobs: usize,
    /// Of the films, at most.
    film_bytes: u64,
}

/// Says what a run of an input would do, and why. Nothing is encoded and nothing is kept.
#[utoipa::path(
    post, path = "/v1/plan", tag = "runs", operation_id = "plan",
    request_body = PlanRequest,
    responses(
        (status = 200, body = PlanShown),
        (status = 422, description = "It cannot be done: `errors` says where", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 503, description = "`busy`: too many look at the same time", body = ProblemDocument, content_type = "application/problem+json"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn plan(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(PlanRequest { recipe, input, params }): Json<PlanRequest>,
) -> Result<Json<PlanShown>, Problem> {
    caller.require(Scope::Write)?;
    let request = RunRequest { params, ..RunRequest::new(recipe, input) };
    request.require_well_formed().map_err(refused)?;
    let recipe =
        request.chosen_recipe(&app.recipes).map_err(|faults| refused(NoSubmission::Impossible(faults)))?;
    let Some(_turn) = app.looks.0.take(&caller.tenant, TURN_WITHIN).await else {
        let detail = "too many look at inputs at the same time; try again";
        return Err(Problem::new(Code::Busy, detail).retry_after(Duration::from_secs(5)));
    };
    // Ends the programs however this ends.
    let cancel = app.stopping.child_token();
    let _ending = cancel.clone().drop_guard();
    let looked = look(&app, &caller, &recipe, &request.input, &cancel).await;
    looked.map_err(|failed| told(failed, &request.input)).and_then(shown).map(Json)
}

async fn look(
    app: &App,
    caller: &Caller,
    recipe: &telecine_pipeline::Recipe,
    input: &Input,
    cancel: &CancellationToken,
) -> Result<Outlook, Failed> {
    let looking = Box::pin(look_ahead(&app.shop, &caller.tenant, recipe, input, cancel));
    tokio::time::timeout(DONE_WITHIN, looking).await.unwrap_or_else(|_| {
        let message = format!("it takes longer than {} s to look at the input", DONE_WITHIN.as_secs());
        Err(Failed::for_good("timeout", message, "submit a run of it instead"))
    })
}

fn told(failed: Failed, input: &Input) -> Problem {
    if failed.retryable || failed.code == "unexpected" {
        return failed.into();
    }
    let mistake = Mistake {
        path: format!("input.{}", input.kind()),
        code: failed.code.clone(),
        message: failed.message.clone(),
    };
    Problem::new(Code::Unprocessable, format!("{}; {}", failed.message, failed.hint))
        .with_errors(vec![mistake])
}

fn shown(outlook: Outlook) -> Result<PlanShown, Problem> {
    let json = |value: Result<Value, serde_json::Error>| {
        value.map_err(|error| {
            tracing::error!(%error, "a plan could not be written as JSON");
            Problem::new(Code::Internal, "the plan could not be written")
        })
    };
    Ok(PlanShown {
        format: json(serde_json::to_value(outlook.format))?,
        probe: json(serde_json::to_value(&outlook.probe))?,
        steps: json(serde_json::to_value(&outlook.steps))?,
        warnings: json(serde_json::to_value(&outlook.warnings))?,
        jobs: json(serde_json::to_value(&outlook.jobs))?,
        commands: json(serde_json::to_value(&outlook.commands))?,
        estimate: EstimateShown {
            cpu_ms: outlook.estimate.cpu_ms,
            jobs: outlook.estimate.jobs,
            film_bytes: outlook.estimate.film_bytes,
        },
        recipe: outlook.recipe,
    })
}
