//! `GET /v1/runs` and `GET /v1/runs/{id}`.

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;
use telecine_pipeline::{RunDocument, SummarisedRuns, describe_run, summarise};
use telecine_queue::{RunFilter, RunId, RunPage, RunState};
use utoipa::IntoParams;

use super::run_of;
use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::{Json, Path, Query, printable};
use crate::problem::{Problem, ProblemDocument};

/// A run as it is now.
#[utoipa::path(
    get, path = "/v1/runs/{id}", tag = "runs", operation_id = "get_run",
    params(("id" = String, Path, description = "The run's id")),
    responses(
        (status = 200, body = RunDocument),
        (status = 404, description = "The caller has no such run", body = ProblemDocument, content_type = "application/problem+json"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<RunDocument>, Problem> {
    caller.require(Scope::Read)?;
    let run = run_of(&app, &caller, &id).await?;
    Ok(Json(describe_run(app.queue(), run).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Those in this state alone.
    status: Option<RunState>,
    /// Those of the recipe of this name.
    #[serde(default, deserialize_with = "printable")]
    #[param(pattern = "^[^\\x00]*$")]
    recipe: Option<String>,
    /// Those to which their caller gave this id.
    #[serde(default, deserialize_with = "printable")]
    #[param(pattern = "^[^\\x00]*$")]
    external_id: Option<String>,
    /// Where the page before ended: its `next_cursor`.
    cursor: Option<RunId>,
    #[serde(default)]
    #[param(value_type = u32, minimum = 1, maximum = 200, default = 50)]
    limit: PageLimit,
}

/// How many a page has at most.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "u32")]
pub(in crate::api) struct PageLimit(pub(in crate::api) u32);

impl Default for PageLimit {
    fn default() -> Self {
        Self(50)
    }
}

impl TryFrom<u32> for PageLimit {
    type Error = String;

    fn try_from(limit: u32) -> Result<Self, String> {
        match limit {
            1..=200 => Ok(Self(limit)),
            _ => Err(format!("{limit} is not from 1 to 200")),
        }
    }
}

/// Runs, newest first, in their short form: what their rows tell. The whole document of one is at its own address.
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", operation_id = "list_runs",
    params(Wanted),
    responses(
        (status = 200, body = SummarisedRuns),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
) -> Result<Json<SummarisedRuns>, Problem> {
    caller.require(Scope::Read)?;
    let filter = RunFilter {
        states: wanted.status.into_iter().collect(),
        name: wanted.recipe,
        external_id: wanted.external_id,
        tenant: Some(caller.tenant),
    };
    let page = RunPage { before: wanted.cursor, limit: wanted.limit.0 };
    let listed = app.queue().list_runs(&filter, page).await?;
    Ok(Json(summarise(app.queue(), listed).await?))
}
