//! One file per resource. Each has `routes()`; the same line routes a handler and documents it.

mod claims;
mod health;
mod jobs;
mod lanes;
mod limits;
mod metrics;
mod recipes;
mod workers;

use std::sync::Arc;

use axum::{Router, middleware};
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Description;
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;
use crate::extract::Json;
use crate::problem::{Code, Problem, ProblemDocument};
use crate::{caller, cors, observe};

#[derive(OpenApi)]
#[openapi(
    info(title = "Telecine", description = "Media in, verified outputs out; no accepted run is lost."),
    components(schemas(ProblemDocument))
)]
struct Base;

/// Every resource, each under its own path.
fn resources() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Base::openapi())
        .merge(claims::routes())
        .merge(health::routes())
        .merge(jobs::routes())
        .merge(lanes::routes())
        .merge(limits::routes())
        .merge(metrics::routes())
        .merge(recipes::routes())
        .merge(workers::routes())
}

/// The API, ready to be served.
pub fn router(app: &Arc<App>) -> Router {
    let (router, description) = resources().split_for_parts();
    router
        .route("/openapi.json", axum::routing::get(move || std::future::ready(Json(description.clone()))))
        .fallback(async || {
            Problem::new(Code::NotFound, "there is nothing at this address; see /openapi.json")
        })
        .method_not_allowed_fallback(async || {
            Problem::new(Code::MethodNotAllowed, "this address does not take this method; see /openapi.json")
        })
        .layer(middleware::from_fn_with_state(Arc::clone(app), caller::recognise))
        .layer(middleware::from_fn_with_state(Arc::clone(app), cors::allow_named_origins))
        .layer(middleware::from_fn_with_state(Arc::clone(app), observe::observe))
        .with_state(Arc::clone(app))
}

/// What `openapi.json` says.
pub fn openapi() -> Description {
    resources().into_openapi()
}
