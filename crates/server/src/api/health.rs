//! Whether this process lives, and whether it can work.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::extract::Json;
use crate::problem::{Code, Mistake, Problem, ProblemDocument};
use crate::readiness::Check;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(live)).routes(routes!(ready))
}

#[derive(Debug, Serialize, ToSchema)]
struct Live {
    #[schema(examples("ok"))]
    status: &'static str,
}

/// The process answers. Looks at nothing else, so it is cheap and never wrong about a restart.
#[utoipa::path(get, path = "/health/live", tag = "health", security(()), responses((status = 200, body = Live)))]
async fn live() -> Json<Live> {
    Json(Live { status: "ok" })
}

#[derive(Debug, Serialize, ToSchema)]
struct Ready {
    #[schema(examples("ok"))]
    status: &'static str,
    checks: Vec<Check>,
}

/// The process can work: its database, store, scratch space and programs are there, and the brokers and topics of Kafka
/// where it is configured.
///
/// Needs no key and tells no secret. What it says is a moment old at the most, however often it is asked.
#[utoipa::path(
    get, path = "/health/ready", tag = "health", security(()),
    responses(
        (status = 200, body = Ready),
        (status = 503, description = "`errors` says what is missing.", body = ProblemDocument, content_type = "application/problem+json")
    )
)]
async fn ready(State(app): State<Arc<App>>) -> Result<Json<Ready>, Problem> {
    let checks = app.readiness.look().await;
    let errors: Vec<Mistake> = checks.iter().filter_map(mistake).collect();
    if errors.is_empty() {
        return Ok(Json(Ready { status: "ok", checks }));
    }
    let told: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
    Err(Problem::new(Code::Unavailable, format!("not ready: {}", told.join("; "))).with_errors(errors))
}

fn mistake(check: &Check) -> Option<Mistake> {
    let error = check.error?;
    Some(Mistake { path: check.name.into(), code: "unavailable".into(), message: error.into() })
}
