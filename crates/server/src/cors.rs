//! Which pages of other origins may call, by a browser's rules (the Fetch standard's CORS protocol).
//!
//! None, unless the operator names them; those that are named come with a key, never with a cookie. An `OPTIONS` that
//! asks for no method is not the browser's question, and goes on to whoever answers it: uploads do.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use crate::app::App;

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
const REQUEST_HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, idempotency-key, last-event-id, range, if-range, if-match, if-none-match, x-request-id, \
     traceparent, tus-resumable, upload-length, upload-offset, upload-metadata, upload-checksum, upload-concat, \
     upload-defer-length, telecine-sha256, x-http-method-override",
);
const RESPONSE_HEADERS: HeaderValue = HeaderValue::from_static(
    "location, etag, content-range, accept-ranges, retry-after, x-request-id, tus-resumable, tus-version, \
     tus-extension, tus-max-size, tus-checksum-algorithm, upload-offset, upload-length, upload-metadata, upload-expires",
);
const MAX_AGE_SECONDS: HeaderValue = HeaderValue::from_static("600");

pub(crate) async fn allow_named_origins(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let named = &app.options.cors_origins;
    if named.is_empty() {
        return next.run(request).await;
    }
    let origin = request.headers().get(header::ORIGIN).cloned();
    let origin = origin.filter(|origin| named.iter().any(|name| name.as_bytes() == origin.as_bytes()));
    let asks = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match (&origin, asks) {
        (Some(_), true) => permission(),
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    // What one origin may see must not be kept for another.
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, RESPONSE_HEADERS);
    }
    response
}

fn permission() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE_SECONDS);
    response
}
