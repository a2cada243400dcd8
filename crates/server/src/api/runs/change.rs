//! What may be done with a run: cancelled, retried, moved in the line, forgotten.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use telecine_pipeline::{RunDocument, delete_everywhere, forget, priority};
use telecine_queue::QueueError;
use utoipa::{IntoParams, ToSchema};

use super::{document, no_such_run, run_of};
use crate::api::jobs::require_priority;
use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::{Json, Path, Query};
use crate::problem::{Code, Mistake, Problem, ProblemDocument};

/// Ends a run now: whatever of it runs is killed, and what it published is removed.
#[utoipa::path(
    post, path = "/v1/runs/{id}/cancel", tag = "runs", operation_id = "cancel_run",
    params(("id" = String, Path, description = "The run's id")),
    responses(
        (status = 200, description = "It is cancelled", body = RunDocument),
        (status = 404, description = "The caller has no such run", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "It has ended already", body = ProblemDocument, content_type = "application/problem+json"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<RunDocument>, Problem> {
    caller.require(Scope::Write)?;
    let run = run_of(&app, &caller, &id).await?;
    app.queue().cancel_run(&run.id).await?;
    Ok(Json(document(&app, &run.id).await?))
}

/// Which steps to start over.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Retry {
    /// Steps of the run, or parts of them (`hls.audio`), with all that needs them; without any, what did not complete.
    #[serde(default)]
    #[schema(max_items = 100)]
    steps: Vec<String>,
}

/// Starts steps of a run over, as a new generation.
#[utoipa::path(
    post, path = "/v1/runs/{id}/retry", tag = "runs", operation_id = "retry_run",
    params(("id" = String, Path, description = "The run's id")),
    request_body = Retry,
    responses(
        (status = 200, description = "It goes on", body = RunDocument),
        (status = 404, description = "The caller has no such run", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "There is nothing to be tried again", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "The run has no such step, or not one that can be retried", body = ProblemDocument, content_type = "application/problem+json"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(super) async fn retry(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Json(Retry { steps }): Json<Retry>,
) -> Result<Json<RunDocument>, Problem> {
    caller.require(Scope::Write)?;
    if steps.len() > 100 {
        return Err(Problem::invalid("steps", "at most 100 steps can be named"));
    }
    let run = run_of(&app, &caller, &id).await?;
    match telecine_pipeline::retry(app.queue(), &run.id, &steps).await {
        Ok(0) => {
            let detail = "nothing of the run is to be tried again; name steps that are to be made anew";
            Err(Problem::new(Code::Conflict, detail))
        }
        Ok(_) => Ok(Json(document(&app, &run.id).await?)),
        Err(QueueError::Invalid { reason }) => {
            let mistake =
                Mistake { path: "steps".into(), code: "unknown_step".into(), message: reason.clone() };
            Err(Problem::new(Code::Unprocessable, reason).with_errors(vec![mistake]))
        }
        Err(error) => Err(error.into()),
    }
}

/// What of a run may be changed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    /// 0 to 100, higher first. More than 50 needs the scope `admin`.
    #[serde(deserialize_with = "priority")]
    #[schema(minimum = 0, maximum = 100)]
    priority: u8,
}

/// Moves a run in the line. What of it runs already goes on.
#[utoipa::path(
    patch, path = "/v1/runs/{id}", tag = "runs", operation_id = "change_run",
    params(("id" = String, Path, description = "The run's id")),
    request_body = Change,
    responses(
        (status = 200, body = RunDocument),
        (status = 404, description = "The caller has no such run", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "It has ended already", body = ProblemDocument, content_type = "application/problem+json"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(super) async fn prioritise(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Json(Change { priority }): Json<Change>,
) -> Result<Json<RunDocument>, Problem> {
    caller.require(Scope::Write)?;
    require_priority(&caller, Some(priority))?;
    let run = run_of(&app, &caller, &id).await?;
    app.queue().prioritise_run(&run.id, priority).await?;
    Ok(Json(document(&app, &run.id).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Along {
    /// Whether what the run published is removed from the store too. Otherwise it stays there, by the keys that the run
    /// document told, and is its owner's to remove.
    #[serde(default)]
    outputs: bool,
}

/// Forgets a run that has ended.
#[utoipa::path(
    delete, path = "/v1/runs/{id}", tag = "runs", operation_id = "delete_run",
    params(("id" = String, Path, description = "The run's id"), Along),
    responses(
        (status = 204, description = "It is gone. Outputs that other runs share with it live on with them"),
        (status = 404, description = "The caller has no such run", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "It has not ended; cancel it first", body = ProblemDocument, content_type = "application/problem+json"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(Along { outputs }): Query<Along>,
) -> Result<StatusCode, Problem> {
    caller.require(Scope::Write)?;
    let run = run_of(&app, &caller, &id).await?;
    if run.finished_at.is_none() {
        let detail = format!("the run is {}; cancel it first", run.state);
        return Err(Problem::new(Code::Conflict, detail));
    }
    let ended = match outputs {
        true => delete_everywhere(app.queue(), app.blobs(), &app.shop.published, &run.id).await,
        false => forget(app.queue(), app.blobs(), &run.id).await,
    };
    match ended {
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        // Somebody else was faster, with this or with a retry.
        Err(failed) if failed.code == "run_not_found" => Err(no_such_run()),
        Err(failed) if failed.code == "run_not_ended" => Err(Problem::new(Code::Conflict, failed.message)),
        Err(failed) => Err(failed.into()),
    }
}
