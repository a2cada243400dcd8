//! Bodies, queries and paths, parsed; what is wrong in them is said with its place.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{StatusCode, header};
use http_body_util::LengthLimitError;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use tower_http::timeout::TimeoutError;

use crate::app::App;
use crate::problem::{Code, Mistake, Problem};

/// A body of JSON, and an answer of it.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        require_json(&request)?;
        let body = read_bounded(request, app.options.max_json_bytes, app.options.json_within).await?;
        parse_json(&body).map(Self)
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => {
                tracing::error!(%error, "an answer could not be written as JSON");
                Problem::new(Code::Internal, "the answer could not be written").into_response()
            }
        }
    }
}

/// `201` beside a body.
pub(crate) fn created<T: Serialize>(body: T) -> Response {
    (StatusCode::CREATED, Json(body)).into_response()
}

fn require_json(request: &Request) -> Result<(), Problem> {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let is_json = essence.eq_ignore_ascii_case("application/json");
    if is_json {
        return Ok(());
    }
    Err(Problem::new(Code::UnsupportedMediaType, "send the body as `Content-Type: application/json`"))
}

/// The whole body, unless it says or turns out that it is larger, or takes longer: a byte now and then is no standstill,
/// and would hold a connection for months.
async fn read_bounded(request: Request, max_bytes: usize, within: Duration) -> Result<Bytes, Problem> {
    let too_large = || {
        Problem::new(
            Code::TooLarge,
            format!("the body is larger than the {max_bytes} bytes that are allowed"),
        )
    };
    let told = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if told.and_then(|told| told.parse::<u64>().ok()).is_some_and(|told| told > max_bytes as u64) {
        return Err(too_large());
    }
    let arriving = axum::body::to_bytes(request.into_body(), max_bytes);
    let Ok(arrived) = tokio::time::timeout(within, arriving).await else {
        return Err(Problem::new(Code::RequestTimeout, "the body took too long to arrive"));
    };
    arrived.map_err(|error| if has_cause::<LengthLimitError>(&error) { too_large() } else { cut_off(&error) })
}

/// Why a body did not arrive whole.
pub(crate) fn cut_off(error: &axum::Error) -> Problem {
    if has_cause::<TimeoutError>(error) {
        return Problem::new(Code::RequestTimeout, "the body stood still for too long");
    }
    Problem::new(Code::InvalidRequest, "the body ended before it was whole")
}

fn has_cause<E: std::error::Error + 'static>(error: &axum::Error) -> bool {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    causes.into_iter().any(|cause| cause.is::<E>())
}

pub(crate) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // serde would also take the fields of a struct as an array, in the order in which we happen to write them.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(Problem::invalid("", "the body is an array, and should be an object"));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| mistaken(&error))?;
    json.end().map_err(|error| Problem::invalid("", format!("the body goes on after its end: {error}")))?;
    Ok(parsed)
}

fn mistaken<E: std::error::Error>(error: &serde_path_to_error::Error<E>) -> Problem {
    let path = error.path().to_string();
    // `?` stands for a name that was not read to its end, `.` for the whole.
    let path = path.trim_end_matches('?').trim_end_matches('.');
    Problem::invalid(path, error.inner().to_string())
}

/// The query of the address.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        let pairs = serde_urlencoded::Deserializer::new(form_urlencoded::parse(query.as_bytes()));
        serde_path_to_error::deserialize(pairs).map(Self).map_err(|error| mistaken(&error))
    }
}

/// A text that every database can hold: without U+0000.
pub(crate) fn printable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    match text {
        Some(text) if text.contains('\0') => Err(D::Error::custom("a text has no U+0000")),
        text => Ok(text),
    }
}

/// The parts of the path; what is no id of ours names nothing that is there.
#[derive(Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<App>> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        axum::extract::Path::from_request_parts(parts, app)
            .await
            .map(|axum::extract::Path(path)| Self(path))
            .map_err(|_| Problem::new(Code::NotFound, "there is nothing by this id"))
    }
}

#[expect(dead_code, reason = "for handlers that check several places")]
pub(crate) fn mistake(path: &str, message: impl Into<String>) -> Mistake {
    Mistake { path: path.to_owned(), code: "invalid".into(), message: message.into() }
}
