//! The workers, whose ever jobs they run.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use telecine_queue::{Worker, WorkerId};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::{Json, Path};
use crate::problem::{Problem, ProblemDocument};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(drain))
}

#[derive(Debug, Serialize, ToSchema)]
struct WorkerList {
    data: Vec<Worker>,
    /// Always null: the list is whole.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Every worker that is registered, and for an hour those that are gone but for remote claims, which are forgotten at once.
#[utoipa::path(
    get, path = "/v1/workers", tag = "workers",
    responses((status = 200, body = WorkerList), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<WorkerList>, Problem> {
    caller.require(Scope::Admin)?;
    Ok(Json(WorkerList { data: app.queue().workers().await?, next_cursor: None }))
}

#[derive(Debug, Serialize, ToSchema)]
struct Drained {
    id: WorkerId,
    /// It takes nothing new, finishes what it runs and leaves.
    draining: bool,
}

/// Asks a worker to finish what it has, take nothing new and leave.
///
/// The worker of `telecine up` is one process with its API, and that process ends: to keep an API while workers come and go,
/// run `telecine serve` and `telecine worker`.
#[utoipa::path(
    post, path = "/v1/workers/{id}/drain", tag = "workers",
    params(("id" = i64, Path, minimum = 1)),
    responses((status = 200, body = Drained), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn drain(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<WorkerId>,
) -> Result<Json<Drained>, Problem> {
    caller.require(Scope::Admin)?;
    match app.queue().drain(id).await? {
        true => Ok(Json(Drained { id, draining: true })),
        false => Err(Problem::not_found("worker that lives")),
    }
}
