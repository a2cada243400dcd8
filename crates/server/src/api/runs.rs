//! Runs: submitted, looked at, steered, forgotten.

mod change;
mod create;
mod log;
mod look;

use std::sync::Arc;

use telecine_pipeline::{RunDocument, describe_run, run_of_tenant};
use telecine_queue::{Run, RunId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::caller::Caller;
use crate::problem::Problem;

pub(super) use create::refused;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(create::create, look::list))
        .routes(routes!(look::get, change::prioritise, change::delete))
        .routes(routes!(change::cancel))
        .routes(routes!(change::retry))
        .routes(routes!(log::log))
}

/// The caller's run by that id. What is no id, what is not there and what is another tenant's answer alike.
pub(super) async fn run_of(app: &App, caller: &Caller, id: &str) -> Result<Run, Problem> {
    run_of_tenant_by(app, &caller.tenant, id).await
}

pub(super) async fn run_of_tenant_by(app: &App, tenant: &str, id: &str) -> Result<Run, Problem> {
    let Ok(id) = id.parse::<RunId>() else { return Err(no_such_run()) };
    run_of_tenant(app.queue(), tenant, &id).await?.ok_or_else(no_such_run)
}

pub(super) fn no_such_run() -> Problem {
    Problem::not_found("run")
}

/// The document of a run as it is by now.
async fn document(app: &App, id: &RunId) -> Result<RunDocument, Problem> {
    let run = app.queue().get_run(id).await?.ok_or_else(no_such_run)?;
    Ok(describe_run(app.queue(), run).await?)
}
