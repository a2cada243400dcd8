//! Figures for Prometheus.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::meter::Meter;
use crate::problem::{Problem, ProblemDocument};

/// The text format, by its version.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(metrics))
}

/// Figures in Prometheus' text format. Needs the scope `admin`, unless the operator has made them public.
#[utoipa::path(
    get, path = "/metrics", tag = "health",
    responses(
        (status = 200, body = String, content_type = "text/plain"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")
    )
)]
async fn metrics(State(app): State<Arc<App>>, caller: Result<Caller, Problem>) -> Result<Response, Problem> {
    if !app.options.metrics_public {
        caller?.require(Scope::Admin)?;
    }
    let meter =
        Meter::installed().ok_or_else(|| Problem::not_found("figure: this process counts nothing"))?;
    app.stock.take().await;
    Ok(([(header::CONTENT_TYPE, TEXT)], meter.render()).into_response())
}
