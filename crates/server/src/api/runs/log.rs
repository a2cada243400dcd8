//! `GET /v1/runs/{id}/log`.

use std::sync::Arc;

use axum::extract::State;
use telecine_pipeline::{RunLog, run_log};

use super::run_of;
use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::{Json, Path};
use crate::problem::{Problem, ProblemDocument};

/// What was tried for each job of a run: attempts, the programs with their exact arguments, and what they said.
///
/// Arguments of an operator's own programs are shown to keys with the scope `admin`.
#[utoipa::path(
    get, path = "/v1/runs/{id}/log", tag = "runs", operation_id = "get_run_log",
    params(("id" = String, Path, description = "The run's id")),
    responses(
        (status = 200, body = RunLog),
        (status = 404, description = "The caller has no such run", body = ProblemDocument, content_type = "application/problem+json"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(super) async fn log(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<RunLog>, Problem> {
    caller.require(Scope::Read)?;
    let run = run_of(&app, &caller, &id).await?;
    let for_operator = caller.require(Scope::Admin).is_ok();
    Ok(Json(run_log(app.queue(), &run, for_operator).await?))
}
