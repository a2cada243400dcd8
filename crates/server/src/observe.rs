//! What every request gets, whatever becomes of it: an id, a span, a line in the log, and an answer even after a panic.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use tracing::{Instrument, Span, field};

use crate::app::App;
use crate::meter::answered;
use crate::problem::{Code, Problem};
use crate::traces;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const MAX_ID_BYTES: usize = 128;

/// What the caller and the log call one request.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(HeaderValue);

impl RequestId {
    /// The caller's own, if it can do no harm in a log; else a new one.
    fn of(headers: &HeaderMap) -> Self {
        let is_harmless = |id: &&HeaderValue| {
            let bytes = id.as_bytes();
            let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
            !bytes.is_empty() && bytes.len() <= MAX_ID_BYTES && bytes.iter().all(fits)
        };
        Self(headers.get(REQUEST_ID).filter(is_harmless).cloned().unwrap_or_else(made))
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

fn made() -> HeaderValue {
    HeaderValue::from_str(&new_request_id()).unwrap_or_else(|_| HeaderValue::from_static("req"))
}

pub(crate) fn new_request_id() -> String {
    format!("req_{}", ulid::Ulid::generate())
}

/// The outermost layer.
pub(crate) async fn observe(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let id = RequestId::of(request.headers());
    request.extensions_mut().insert(id.clone());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let method = request.method().clone();
    let span = span_of(&request, route, &id);
    traces::join(&span, request.headers_mut());
    let began = Instant::now();
    let may_stay_unread = has_large_body(request.headers());
    let is_looked_at_often = is_looked_at_often(request.uri().path());
    let answer = async {
        match refuse_large_headers(&request, app.options.max_header_bytes) {
            Ok(()) => AssertUnwindSafe(next.run(request)).catch_unwind().await.unwrap_or_else(panicked),
            Err(problem) => problem.into_response(),
        }
    };
    let mut response = finish(answer.instrument(span.clone()).await, &id);
    if may_stay_unread && !response.status().is_success() {
        // The connection ends with bytes that nobody read; a client that is told so does not use it again.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    span.record("http.status", response.status().as_u16());
    answered(&method, route, response.status(), began.elapsed());
    let _within = span.enter();
    let ms = began.elapsed().as_secs_f64() * 1_000.0;
    if is_looked_at_often && response.status().is_success() {
        tracing::debug!(ms, "answered");
    } else {
        tracing::info!(ms, "answered");
    }
    drop(_within);
    response
}

/// More than is read for the sake of the connection.
fn has_large_body(headers: &HeaderMap) -> bool {
    const LARGE: u64 = 64 * 1024;
    let told = headers.get(header::CONTENT_LENGTH).and_then(|told| told.to_str().ok()?.parse::<u64>().ok());
    headers.contains_key(header::TRANSFER_ENCODING) || told.is_some_and(|bytes| bytes > LARGE)
}

fn span_of(request: &Request, route: &str, id: &RequestId) -> Span {
    tracing::info_span!(
        "http.request",
        http.method = %request.method(),
        http.route = route,
        http.status = field::Empty,
        tenant = field::Empty,
        request.id = id.as_str(),
    )
}

/// A log of nothing but these would hide the rest.
fn is_looked_at_often(path: &str) -> bool {
    path.starts_with("/health/") || path == "/metrics"
}

fn refuse_large_headers(request: &Request, max_bytes: usize) -> Result<(), Problem> {
    // As they were sent: `name: value\r\n`, and the first line.
    let of_headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let bytes = path + of_headers.sum::<usize>();
    if bytes <= max_bytes {
        return Ok(());
    }
    Err(Problem::new(
        Code::HeadersTooLarge,
        format!("the address and the headers are larger than the {max_bytes} bytes that are allowed"),
    ))
}

/// The bug is ours; what it was stays in the log.
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let message = panic
        .downcast_ref::<&str>()
        .map(|message| (*message).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    tracing::error!(panic = message, "a request made the server panic");
    Problem::new(Code::Internal, "the server made a mistake; its log has more by the request's id")
        .into_response()
}

fn finish(response: Response, id: &RequestId) -> Response {
    let mut response = with_id_in_problem(response, id);
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id.0.clone());
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // What is no page of ours must not act as one; pages and files say their own.
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
    response
}

fn with_id_in_problem(mut response: Response, id: &RequestId) -> Response {
    let Some(problem) = response.extensions_mut().remove::<Problem>() else { return response };
    // What other layers added to the headers stays.
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    if parts.status == StatusCode::INTERNAL_SERVER_ERROR {
        parts.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    Response::from_parts(parts, Body::from(problem.with_request_id(id.as_str()).to_bytes()))
}
