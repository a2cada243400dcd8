//! The log of deliveries.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use telecine_connect::webhooks::{DeliveryFilter, DeliveryId, DeliveryShown, DeliveryStatus, EndpointId};
use telecine_queue::{JobId, RunId};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::webhooks;
use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::{Json, Path, Query};
use crate::problem::{Problem, ProblemDocument};

const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 200;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get)).routes(routes!(replay))
}

/// Which deliveries, and which part of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Asked {
    endpoint: Option<EndpointId>,
    run: Option<RunId>,
    status: Option<DeliveryStatus>,
    /// `next_cursor` of the page before.
    #[param(pattern = "^[1-9][0-9]{0,17}$")]
    cursor: Option<String>,
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookDeliveryList)]
struct DeliveryList {
    /// A page may be shorter than asked for, even empty, where much had to be passed over.
    data: Vec<DeliveryShown>,
    /// Pass it as `cursor` for the next page; null on the last one.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// What was sent, or is to be sent, newest first. Kept for as long as the history of jobs.
#[utoipa::path(
    get, path = "/v1/webhooks/deliveries", tag = "webhooks", params(Asked),
    responses((status = 200, body = DeliveryList), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(asked): Query<Asked>,
) -> Result<Json<DeliveryList>, Problem> {
    caller.require(Scope::Read)?;
    let (before, limit) = (cursor(asked.cursor.as_deref())?, page_limit(asked.limit)?);
    let filter = DeliveryFilter { endpoint: asked.endpoint, run: asked.run, status: asked.status };
    let page = webhooks(&app).deliveries(&caller.tenant, &filter, before, limit).await?;
    Ok(Json(DeliveryList { data: page.data, next_cursor: page.next.map(|id| id.to_string()) }))
}

/// One delivery with all its attempts.
#[utoipa::path(
    get, path = "/v1/webhooks/deliveries/{id}", tag = "webhooks", params(("id" = String, Path, pattern = "^dlv_[1-9][0-9]{0,17}$")),
    responses((status = 200, body = DeliveryShown), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<DeliveryShown>, Problem> {
    caller.require(Scope::Read)?;
    Ok(Json(webhooks(&app).delivery(&caller.tenant, named(&id)?).await?))
}

/// Sends a delivery that has ended again: the same body under the same `webhook-id`, with all its tries anew.
#[utoipa::path(
    post, path = "/v1/webhooks/deliveries/{id}/replay", tag = "webhooks",
    params(("id" = String, Path, pattern = "^dlv_[1-9][0-9]{0,17}$")),
    responses((status = 202, body = DeliveryShown), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn replay(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<DeliveryShown>), Problem> {
    caller.require(Scope::Write)?;
    let delivery = webhooks(&app).replay(&caller.tenant, named(&id)?).await?;
    Ok((StatusCode::ACCEPTED, Json(delivery)))
}

fn named(id: &str) -> Result<DeliveryId, Problem> {
    id.parse().map_err(|_| Problem::not_found("delivery"))
}

fn cursor(text: Option<&str>) -> Result<Option<JobId>, Problem> {
    let Some(text) = text else { return Ok(None) };
    match text.parse::<JobId>() {
        Ok(id) if id.0 > 0 && text == id.to_string() => Ok(Some(id)),
        _ => Err(Problem::invalid("cursor", "is not a `next_cursor` of this list")),
    }
}

fn page_limit(limit: Option<usize>) -> Result<usize, Problem> {
    match limit.unwrap_or(DEFAULT_LIMIT) {
        limit @ 1..=MAX_LIMIT => Ok(limit),
        _ => Err(Problem::invalid("limit", format!("is 1 to {MAX_LIMIT}"))),
    }
}
