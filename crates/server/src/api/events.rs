//! What happens to runs, as it happens: server-sent events that can be resumed.

mod of_all;
mod of_run;

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::State;
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::Deserialize;
use telecine_queue::FeedCursor;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::runs::run_of;
use crate::app::App;
use crate::caller::{Caller, Scope, Standing};
use crate::extract::{Path, Query};
use crate::hub::EventShown;
use crate::problem::{Problem, ProblemDocument};
use of_all::WatchOfAll;
use of_run::WatchOfRun;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(of_run)).routes(routes!(of_all))
}

const LAST_EVENT_ID: &str = "last-event-id";

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OfRun {
    /// Goes on after this event, for who cannot send the header.
    #[param(pattern = "^[0-9]{1,18}$")]
    last_event_id: Option<String>,
    /// Goes on after the run has ended: it may be retried. Ends when it is deleted.
    #[serde(default)]
    follow: bool,
}

/// The events of a run, from its first on: `id:` is the event's number in its run. Ends after the event that tells how the
/// run ended.
///
/// `run.progress` is told at most once a second while somebody watches, and has no `id:`.
#[utoipa::path(
    get, path = "/v1/runs/{id}/events", tag = "events", operation_id = "watch_run",
    params(
        ("id" = String, Path, description = "The run's id"),
        ("Last-Event-ID" = Option<String>, Header, description = "Goes on after this event"),
        OfRun,
    ),
    responses(
        (status = 200, description = "Events, each with a `RunEvent` as its data", body = EventShown, content_type = "text/event-stream"),
        (status = 204, description = "The run has ended and all of it was told"),
        (status = 404, description = "The caller has no such run", body = ProblemDocument, content_type = "application/problem+json"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn of_run(
    State(app): State<Arc<App>>,
    caller: Caller,
    standing: Standing,
    headers: HeaderMap,
    Path(id): Path<String>,
    Query(OfRun { last_event_id, follow }): Query<OfRun>,
) -> Result<Response, Problem> {
    caller.require(Scope::Read)?;
    let after_seq = match last_event(&headers, last_event_id) {
        Some(last) => last.parse().ok().filter(|seq| i64::try_from(*seq).is_ok()).ok_or_else(|| {
            Problem::invalid("Last-Event-ID", "the number of an event, as its `id:` line told it")
        })?,
        None => 0,
    };
    let run = run_of(&app, &caller, &id).await?;
    let mut watch = WatchOfRun::join(&app, run, after_seq, follow).await?;
    match watch.catch_up().await? {
        // An `EventSource` that is sent nothing at all comes back; this it takes for the end.
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => {
            let events = stream::unfold(watch, async |mut watch| Some((watch.next().await?, watch)));
            Ok(sent(&app, standing.lost(Arc::clone(&app), caller), events))
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OfAll {
    /// Goes on after this event, for who cannot send the header. `0` is the first that is still known.
    #[param(max_length = 200)]
    last_event_id: Option<String>,
    /// For keys with the scope `admin`: another tenant, or `*` for all.
    #[param(max_length = 200)]
    tenant: Option<String>,
}

/// The events of all of the caller's runs, from now on: `id:` is the event's place among those of all runs. Never ends.
#[utoipa::path(
    get, path = "/v1/events", tag = "events", operation_id = "watch_runs",
    params(
        ("Last-Event-ID" = Option<String>, Header, description = "Goes on after this event"),
        OfAll,
    ),
    responses(
        (status = 200, description = "Events, each with a `RunEvent` as its data", body = EventShown, content_type = "text/event-stream"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn of_all(
    State(app): State<Arc<App>>,
    caller: Caller,
    standing: Standing,
    headers: HeaderMap,
    Query(OfAll { last_event_id, tenant }): Query<OfAll>,
) -> Result<Response, Problem> {
    caller.require(Scope::Read)?;
    if tenant.as_ref().is_some_and(|tenant| *tenant != caller.tenant) {
        caller.require(Scope::Admin)?;
    }
    let tenant = match tenant.as_deref() {
        Some("*") => None,
        other => Some(other.unwrap_or(&caller.tenant).to_owned()),
    };
    let wrong = || Problem::invalid("Last-Event-ID", "the place of an event, as its `id:` line told it");
    let after = last_event(&headers, last_event_id).map(|last| last.parse::<FeedCursor>());
    let after = after.transpose().map_err(|_| wrong())?;
    let mut watch = WatchOfAll::join(&app, tenant, after).await?;
    // A place that this database does not have is told of before the stream begins.
    watch.catch_up().await.map_err(|error| match error {
        telecine_queue::QueueError::Invalid { reason } => Problem::invalid("Last-Event-ID", reason),
        error => error.into(),
    })?;
    let events = stream::unfold(watch, async |mut watch| Some((watch.next().await?, watch)));
    Ok(sent(&app, standing.lost(Arc::clone(&app), caller), events))
}

/// Who comes back sends the header, and the query as it was at first.
fn last_event(headers: &HeaderMap, asked: Option<String>) -> Option<String> {
    let header =
        headers.get(LAST_EVENT_ID).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    header.filter(|last| !last.is_empty()).or(asked)
}

/// Until the events end, or whoever hears them may not any more.
fn sent(
    app: &App,
    forbidden: impl Future<Output = ()> + Send + 'static,
    events: impl Stream<Item = Sent> + Send + 'static,
) -> Response {
    use futures_util::StreamExt;

    let events = events.take_until(Box::pin(forbidden));
    let keep_alive = KeepAlive::new().interval(app.options.event_keep_alive).text("");
    let mut response = Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(keep_alive).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // nginx would gather events until it has a page full of them.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}
