//! Limits: how many jobs of a key run at once or start in a minute, over all workers.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use telecine_pipeline::whole;
use telecine_queue::{Limit, LimitState};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::jobs::require_name;
use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::{Json, Path};
use crate::problem::{Problem, ProblemDocument};

/// As many as there can be jobs in a table.
const MAX_RUNNING: u32 = 1_000_000;
/// One in sixteen hours: less is meant by nobody.
const MIN_PER_MINUTE: f64 = 0.001;
const MAX_PER_MINUTE: f64 = 1e9;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(put, delete))
}

#[derive(Debug, Serialize, ToSchema)]
struct LimitList {
    data: Vec<LimitState>,
    /// Always null: the list is whole.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Every limit, and how its jobs stand.
#[utoipa::path(
    get, path = "/v1/limits", tag = "limits",
    responses((status = 200, body = LimitList), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<LimitList>, Problem> {
    caller.require(Scope::Admin)?;
    Ok(Json(LimitList { data: app.queue().limits().await?, next_cursor: None }))
}

/// What is left out or null bounds nothing.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Bounds {
    /// How many run at once; 0 lets nothing run.
    #[schema(minimum = 0, maximum = 1_000_000)]
    #[serde(default, deserialize_with = "whole")]
    max_running: Option<u32>,
    /// How many start in a minute.
    #[schema(minimum = 0.001, maximum = 1_000_000_000)]
    per_minute: Option<f64>,
}

/// Sets a limit, whether or not there was one. Running jobs are never stopped.
#[utoipa::path(
    put, path = "/v1/limits/{key}", tag = "limits", request_body = Bounds,
    params(("key" = String, Path, pattern = "^[ -~]{1,200}$")),
    responses(
        (status = 200, body = LimitState),
        (status = 204, description = "Without a bound there is no limit."),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")
    )
)]
async fn put(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(key): Path<String>,
    Json(bounds): Json<Bounds>,
) -> Result<Response, Problem> {
    caller.require(Scope::Admin)?;
    require_name("key", &key)?;
    let Bounds { max_running, per_minute } = bounds;
    if max_running.is_some_and(|jobs| jobs > MAX_RUNNING) {
        return Err(Problem::invalid("max_running", format!("is 0 to {MAX_RUNNING}")));
    }
    if per_minute.is_some_and(|jobs| !(MIN_PER_MINUTE..=MAX_PER_MINUTE).contains(&jobs)) {
        return Err(Problem::invalid("per_minute", "is 0.001 to 1000000000"));
    }
    app.queue().limit(Limit { key: key.clone(), max_running, per_minute }).await?;
    if max_running.is_none() && per_minute.is_none() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(Json(find(&app, &key).await?).into_response())
}

async fn find(app: &App, key: &str) -> Result<LimitState, Problem> {
    let limits = app.queue().limits().await?;
    limits.into_iter().find(|state| state.limit.key == key).ok_or_else(|| Problem::not_found("limit"))
}

/// Takes a limit away; what waited for it goes on.
#[utoipa::path(
    delete, path = "/v1/limits/{key}", tag = "limits",
    params(("key" = String, Path, pattern = "^[ -~]{1,200}$")),
    responses((status = 204, description = "It is gone."), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(key): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.require(Scope::Admin)?;
    find(&app, &key).await?;
    app.queue().limit(Limit::new(key)).await?;
    Ok(StatusCode::NO_CONTENT)
}
