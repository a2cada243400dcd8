//! The dashboard's login: a key becomes a cookie, which a page can use without having the key.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, Uri, header};
use serde::{Deserialize, Serialize};
use telecine_queue::Timestamp;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::Json;
use crate::origin::is_of_another_site;
use crate::problem::{Code, Problem, ProblemDocument};
use crate::{keys, sessions};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(begin, show, end))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct BeginSession {
    /// As `telecine key new` printed it.
    #[schema(max_length = 200)]
    key: String,
}

/// Who asks, and what that allows.
#[derive(Debug, Serialize, ToSchema)]
struct SessionShown {
    #[schema(pattern = "^session$")]
    object: &'static str,
    /// Empty: of no tenant.
    tenant: String,
    scopes: Vec<Scope>,
    /// The public part of the key; none when a caller from this machine is trusted without one.
    key: Option<String>,
    /// Of a session that has just begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    expires_at: Option<Timestamp>,
}

impl SessionShown {
    fn of(caller: Caller, expires_at: Option<Timestamp>) -> Self {
        let Caller { tenant, scopes, key } = caller;
        Self { object: "session", tenant, scopes, key, expires_at }
    }
}

/// Exchanges a key for a cookie that lasts a week, until the key is revoked, or until the key has begun 32 others.
#[utoipa::path(
    post, path = "/v1/session", tag = "session", request_body = BeginSession, security(()),
    responses(
        (status = 201, body = SessionShown, headers(("set-cookie" = String, description = "the session"))),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn begin(
    State(app): State<Arc<App>>,
    uri: Uri,
    headers: HeaderMap,
    Json(begin): Json<BeginSession>,
) -> Result<Response, Problem> {
    // Or another site could make a browser work under a key of its own.
    if is_of_another_site(app.options.public_url.as_deref(), &uri, &headers) {
        return Err(Problem::new(Code::Forbidden, "a session begins on a page of this server"));
    }
    let caller = keys::caller_by_text(app.queue(), &begin.key).await?;
    let (caller, key) = caller
        .and_then(|caller| caller.key.clone().map(|key| (caller, key)))
        .ok_or_else(|| Problem::new(Code::Unauthorized, "the key is not valid, or not any more"))?;
    let session = sessions::begin(app.queue(), &key).await?;
    let cookie = [(header::SET_COOKIE, session.cookie(is_https(&app, &headers)))];
    let shown = Json(SessionShown::of(caller, Some(session.expires_at)));
    Ok((StatusCode::CREATED, cookie, shown).into_response())
}

/// Who asks: the key's tenant and scopes.
#[utoipa::path(
    get, path = "/v1/session", tag = "session",
    responses(
        (status = 200, body = SessionShown),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn show(caller: Caller) -> Json<SessionShown> {
    Json(SessionShown::of(caller, None))
}

/// Ends the session whose cookie is sent; without one there is nothing to end.
#[utoipa::path(
    delete, path = "/v1/session", tag = "session",
    responses(
        (status = 204, description = "it has ended"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn end(State(app): State<Arc<App>>, _: Caller, headers: HeaderMap) -> Result<Response, Problem> {
    if let Some(text) = sessions::text_in(&headers, is_https(&app, &headers)) {
        sessions::end(app.queue(), text).await?;
        app.known.forget(text).await;
    }
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, sessions::no_cookie(is_https(&app, &headers)))])
        .into_response())
}

fn is_https(app: &App, headers: &HeaderMap) -> bool {
    sessions::is_https(app.options.public_url.as_deref(), headers)
}
