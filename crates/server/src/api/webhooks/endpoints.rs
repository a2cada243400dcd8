//! Endpoints, and the secrets that deliveries are signed with.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use telecine_connect::webhooks::{
    DeliveryShown, Endpoint, EndpointChange, EndpointId, EventPattern, MAX_DESCRIPTION_CHARS, MAX_EVENTS,
    ManagedBy, NewEndpoint, Secrets,
};
use telecine_queue::Timestamp;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::webhooks;
use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::{Json, Path, created};
use crate::problem::{Problem, ProblemDocument};

const MAX_URL_CHARS: usize = 2_048;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, change, delete))
        .routes(routes!(rotate))
        .routes(routes!(test))
        .routes(routes!(rotate_secret_of_runs))
}

/// Who is told of a tenant's runs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookEndpoint)]
struct EndpointShown {
    id: EndpointId,
    #[schema(value_type = String, examples("webhook_endpoint"))]
    object: &'static str,
    url: String,
    /// Empty: all. `run.progress` is sent to no webhook.
    events: Vec<EventPattern>,
    description: String,
    enabled: bool,
    /// Why it is disabled: by somebody, or because it answered 410.
    #[schema(required)]
    disabled_reason: Option<String>,
    #[schema(required)]
    disabled_at: Option<Timestamp>,
    managed_by: ManagedBy,
    created_at: Timestamp,
    /// Until then deliveries are also signed with the secret before the current one.
    #[schema(required)]
    previous_secret_until: Option<Timestamp>,
}

impl From<Endpoint> for EndpointShown {
    fn from(endpoint: Endpoint) -> Self {
        let previous = endpoint.secrets.previous(Timestamp::now());
        let previous_secret_until = previous.and_then(|retired| retired.valid_until);
        let (disabled_reason, disabled_at) = endpoint.disabled.map(|it| (it.reason, it.at)).unzip();
        Self {
            id: endpoint.id,
            object: "webhook_endpoint",
            url: endpoint.url,
            events: endpoint.events,
            description: endpoint.description,
            enabled: disabled_at.is_none(),
            disabled_reason,
            disabled_at,
            managed_by: endpoint.managed_by,
            created_at: endpoint.created_at,
            previous_secret_until,
        }
    }
}

/// The only answers in which a secret is.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookEndpointWithSecret)]
struct EndpointWithSecret {
    #[serde(flatten)]
    endpoint: EndpointShown,
    /// What deliveries are signed with. Keep it: it is not shown again.
    #[schema(examples("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))]
    secret: String,
}

impl From<Endpoint> for EndpointWithSecret {
    fn from(endpoint: Endpoint) -> Self {
        Self { secret: endpoint.secret().reveal(), endpoint: endpoint.into() }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookEndpointList)]
struct EndpointList {
    data: Vec<EndpointShown>,
    /// A tenant has at most 100 endpoints: they are one page.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// The tenant's endpoints, oldest first.
#[utoipa::path(
    get, path = "/v1/webhooks", tag = "webhooks",
    responses((status = 200, body = EndpointList), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<EndpointList>, Problem> {
    caller.require(Scope::Read)?;
    let endpoints = webhooks(&app).endpoints(&caller.tenant).await?;
    Ok(Json(EndpointList { data: endpoints.into_iter().map(Into::into).collect(), next_cursor: None }))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewWebhookEndpoint)]
struct EndpointAsked {
    /// Where deliveries are sent: at a public address, on any port.
    #[schema(
        max_length = 2048,
        pattern = "^https?://[^\\s\\x00-\\x1f\\x7f-\\x9f]+$",
        examples("https://app.example/hooks/telecine")
    )]
    url: String,
    /// Nothing: all. `run.progress` is sent to no webhook.
    #[serde(default)]
    #[schema(max_items = 50)]
    events: Vec<EventPattern>,
    #[serde(default)]
    #[schema(max_length = 500, pattern = "^[^\\x00]*$")]
    description: String,
}

/// Makes an endpoint. The answer has its secret, which no other answer has.
#[utoipa::path(
    post, path = "/v1/webhooks", tag = "webhooks", request_body = EndpointAsked,
    responses((status = 201, body = EndpointWithSecret), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(asked): Json<EndpointAsked>,
) -> Result<Response, Problem> {
    caller.require(Scope::Write)?;
    let EndpointAsked { url, events, description } = asked;
    require_shape(Some(&url), Some(&events), Some(&description))?;
    let new = NewEndpoint { url, events, description };
    let endpoint = webhooks(&app).add_endpoint(&caller.tenant, new).await?;
    Ok(created(EndpointWithSecret::from(endpoint)))
}

/// One endpoint.
#[utoipa::path(
    get, path = "/v1/webhooks/{id}", tag = "webhooks", params(("id" = EndpointId, Path)),
    responses((status = 200, body = EndpointShown), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<EndpointId>,
) -> Result<Json<EndpointShown>, Problem> {
    caller.require(Scope::Read)?;
    let endpoint = webhooks(&app).endpoint(&caller.tenant, &id).await?;
    Ok(Json(endpoint.ok_or_else(|| Problem::not_found("webhook"))?.into()))
}

/// What is left out or null stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WebhookEndpointChange)]
struct ChangeAsked {
    #[schema(max_length = 2048, pattern = "^https?://[^\\s\\x00-\\x1f\\x7f-\\x9f]+$")]
    url: Option<String>,
    /// An empty list: all. `run.progress` is sent to no webhook.
    #[schema(max_items = 50)]
    events: Option<Vec<EventPattern>>,
    #[schema(max_length = 500, pattern = "^[^\\x00]*$")]
    description: Option<String>,
    /// Enabling also forgets why it was disabled. What happened meanwhile is not told later.
    enabled: Option<bool>,
}

/// Changes an endpoint. Deliveries on their way follow it.
#[utoipa::path(
    patch, path = "/v1/webhooks/{id}", tag = "webhooks", params(("id" = EndpointId, Path)), request_body = ChangeAsked,
    responses((status = 200, body = EndpointShown), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn change(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<EndpointId>,
    Json(asked): Json<ChangeAsked>,
) -> Result<Json<EndpointShown>, Problem> {
    caller.require(Scope::Write)?;
    let ChangeAsked { url, events, description, enabled } = asked;
    require_shape(url.as_deref(), events.as_deref(), description.as_deref())?;
    let change = EndpointChange { url, events, description, enabled };
    Ok(Json(webhooks(&app).change_endpoint(&caller.tenant, &id, &change).await?.into()))
}

/// Deletes an endpoint. Deliveries on their way to it are skipped.
#[utoipa::path(
    delete, path = "/v1/webhooks/{id}", tag = "webhooks", params(("id" = EndpointId, Path)),
    responses((status = 204, description = "It is gone."), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<EndpointId>,
) -> Result<StatusCode, Problem> {
    caller.require(Scope::Write)?;
    webhooks(&app).delete_endpoint(&caller.tenant, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Gives an endpoint another secret and shows it. For 24 hours deliveries are signed with both.
#[utoipa::path(
    post, path = "/v1/webhooks/{id}/rotate", tag = "webhooks", params(("id" = EndpointId, Path)),
    responses((status = 200, body = EndpointWithSecret), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn rotate(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<EndpointId>,
) -> Result<Json<EndpointWithSecret>, Problem> {
    caller.require(Scope::Write)?;
    Ok(Json(webhooks(&app).rotate_endpoint(&caller.tenant, &id).await?.into()))
}

/// Sends a `ping` to an endpoint, once, also if it is disabled. What came of it is in the log of deliveries.
#[utoipa::path(
    post, path = "/v1/webhooks/{id}/test", tag = "webhooks", params(("id" = EndpointId, Path)),
    responses((status = 202, body = DeliveryShown), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn test(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<EndpointId>,
) -> Result<(StatusCode, Json<DeliveryShown>), Problem> {
    caller.require(Scope::Write)?;
    let delivery = webhooks(&app).ping(&caller.tenant, &id).await?;
    Ok((StatusCode::ACCEPTED, Json(delivery)))
}

/// What the webhooks that runs name are signed with.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookSecret)]
struct SecretOfRuns {
    /// Keep it: it is not shown again.
    #[schema(examples("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))]
    secret: String,
    /// Until then they are also signed with the secret before this one.
    #[schema(required)]
    previous_secret_until: Option<Timestamp>,
}

impl From<Secrets> for SecretOfRuns {
    fn from(secrets: Secrets) -> Self {
        let previous = secrets.previous(Timestamp::now());
        Self {
            previous_secret_until: previous.and_then(|retired| retired.valid_until),
            secret: secrets.current.reveal(),
        }
    }
}

/// Makes a new secret for the webhooks that runs name in `webhook.url`, and shows it. For 24 hours they are signed with
/// the one before as well.
#[utoipa::path(
    post, path = "/v1/webhooks/secret", tag = "webhooks",
    responses((status = 200, body = SecretOfRuns), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn rotate_secret_of_runs(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<Json<SecretOfRuns>, Problem> {
    caller.require(Scope::Write)?;
    Ok(Json(webhooks(&app).rotate_tenant_secret(&caller.tenant).await?.into()))
}

/// As it is documented; whether it can be used is found out later.
fn require_shape(
    url: Option<&str>,
    events: Option<&[EventPattern]>,
    description: Option<&str>,
) -> Result<(), Problem> {
    if url.is_some_and(|url| !is_web_address(url)) {
        let message = format!("is an http or https address of at most {MAX_URL_CHARS} characters");
        return Err(Problem::invalid("url", message));
    }
    if events.is_some_and(|events| events.len() > MAX_EVENTS) {
        return Err(Problem::invalid("events", format!("are at most {MAX_EVENTS}")));
    }
    if description.is_some_and(|text| text.chars().count() > MAX_DESCRIPTION_CHARS || text.contains('\0')) {
        let message = format!("is at most {MAX_DESCRIPTION_CHARS} characters, none of which is NUL");
        return Err(Problem::invalid("description", message));
    }
    Ok(())
}

fn is_web_address(url: &str) -> bool {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty())
        && url.chars().count() <= MAX_URL_CHARS
        && !url.chars().any(|c| c.is_whitespace() || c.is_control())
}
