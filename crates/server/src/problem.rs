//! Everything that is not a success: RFC 9457 `application/problem+json` with a stable code.

use std::borrow::Cow;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use telecine_pipeline::{Failed, StoreError};
use telecine_queue::QueueError;
use utoipa::{PartialSchema, ToSchema};

pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// The reasons that a caller can tell apart. Stable: a client may match on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The body, the query or a header is not as documented; `errors` says where.
    InvalidRequest,
    /// No key, or one that is not valid (any more).
    Unauthorized,
    /// The key's scopes do not allow it.
    Forbidden,
    NotFound,
    MethodNotAllowed,
    /// The thing is in a state in which this cannot be done.
    Conflict,
    /// The idempotency key was used for another request.
    KeyReused,
    /// A remote claim is over: the job was settled, or belongs to another claim. Drop what was made.
    ClaimLost,
    /// The job of a remote claim was cancelled. Stop, and drop what was made.
    Cancelled,
    TooLarge,
    /// The address and the headers of the request.
    HeadersTooLarge,
    UnsupportedMediaType,
    /// The caller sent too many requests; see `Retry-After`.
    RateLimited,
    /// The request took too long to arrive.
    RequestTimeout,
    /// An upload's bytes do not have the hash that was told.
    ChecksumMismatch,
    /// An upload goes on at another offset.
    OffsetMismatch,
    /// Somebody else writes to it.
    Locked,
    /// The upload has expired.
    Expired,
    /// The range asked for is not in the file.
    RangeNotSatisfiable,
    /// The version of the protocol is not spoken here.
    UnsupportedVersion,
    /// The input was refused or could not be processed; `detail` says why.
    Unprocessable,
    /// No virus scanner is configured, or it does not answer.
    ScanUnavailable,
    /// All slots for synchronous work are taken; see `Retry-After`.
    Busy,
    /// The work did not end within the time that a synchronous request has.
    Timeout,
    /// The database, the store or a tool does not answer.
    Unavailable,
    StorageFull,
    Internal,
}

impl Code {
    /// Every one, as the description lists them.
    pub(crate) fn all() -> Vec<Self> {
        let schema = serde_json::to_value(Self::schema()).unwrap_or_default();
        let names = schema["enum"].as_array().cloned().unwrap_or_default();
        names.into_iter().filter_map(|name| serde_json::from_value(name).ok()).collect()
    }

    /// As in the body.
    pub(crate) fn name(self) -> String {
        let name = serde_json::to_value(self).ok();
        name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
    }

    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::InvalidRequest => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Conflict | Self::KeyReused | Self::ClaimLost | Self::OffsetMismatch => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::HeadersTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Locked => StatusCode::LOCKED,
            // tus: "460 Checksum Mismatch".
            Self::ChecksumMismatch => StatusCode::from_u16(460).unwrap_or(StatusCode::BAD_REQUEST),
            Self::Cancelled | Self::Expired => StatusCode::GONE,
            Self::RangeNotSatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::UnsupportedVersion => StatusCode::PRECONDITION_FAILED,
            Self::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Busy | Self::ScanUnavailable | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::StorageFull => StatusCode::INSUFFICIENT_STORAGE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// What is sent instead of an answer. Boxed: it is the error of nearly every function here.
#[derive(Clone, Debug)]
pub struct Problem(Box<ProblemDocument>);

/// `request_id` is put in by the outermost layer, which alone knows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemDocument {
    /// Where the code is documented.
    #[serde(rename = "type")]
    kind: String,
    /// The reason phrase of the status.
    title: Cow<'static, str>,
    status: u16,
    code: Code,
    /// What happened, why, and what to do.
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    /// Where in the request, when it can be said.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Mistake>,
    #[serde(skip)]
    retry_after: Option<Duration>,
}

/// One mistake in a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Mistake {
    /// As in `input.url` or `params.hls.heights[0]`; of the query and the headers, the name.
    pub path: String,
    pub code: String,
    pub message: String,
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let status = code.status();
        Self(Box::new(ProblemDocument {
            kind: format!("/docs/errors#{}", code.name()),
            title: status.canonical_reason().unwrap_or("Checksum Mismatch").into(),
            status: status.as_u16(),
            code,
            detail: detail.into(),
            request_id: None,
            errors: Vec::new(),
            retry_after: None,
        }))
    }

    /// One place of the request that is not as documented.
    pub fn invalid(path: impl Into<String>, message: impl Into<String>) -> Self {
        let (path, message) = (path.into(), message.into());
        let mistake = Mistake { path: path.clone(), code: "invalid".into(), message: message.clone() };
        let detail = if path.is_empty() { message } else { format!("{path}: {message}") };
        Self::new(Code::InvalidRequest, detail).with_errors(vec![mistake])
    }

    /// The same for what does not exist and for what belongs to another tenant.
    pub fn not_found(what: &str) -> Self {
        Self::new(Code::NotFound, format!("there is no such {what}"))
    }

    /// As documented, but nothing that can be done with what is here.
    pub fn impossible(mistakes: Vec<Mistake>) -> Self {
        let told: Vec<String> =
            mistakes.iter().map(|mistake| format!("{}: {}", mistake.path, mistake.message)).collect();
        Self::new(Code::Unprocessable, told.join("\n")).with_errors(mistakes)
    }

    #[must_use]
    pub fn with_errors(mut self, errors: Vec<Mistake>) -> Self {
        self.0.errors = errors;
        self
    }

    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    pub fn code(&self) -> Code {
        self.0.code
    }

    #[cfg(test)]
    pub(crate) fn document(&self) -> &ProblemDocument {
        &self.0
    }

    pub(crate) fn with_request_id(mut self, id: &str) -> Self {
        self.0.request_id = Some(id.to_owned());
        self
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).unwrap_or_default()
    }
}

/// What the queue refuses is the caller's doing, but for the database itself.
impl From<QueueError> for Problem {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::NoSuchRun(_) => Self::not_found("run"),
            QueueError::NotFound(_) => Self::not_found("job"),
            QueueError::Invalid { reason } => Self::new(Code::InvalidRequest, reason),
            error @ QueueError::KeyReused { .. } => Self::new(Code::KeyReused, error.to_string()),
            error @ (QueueError::WrongRunState { .. } | QueueError::WrongState { .. }) => {
                Self::new(Code::Conflict, error.to_string())
            }
            QueueError::Full { .. } => {
                Self::new(Code::StorageFull, "the database's disk is full; try again later")
                    .retry_after(Duration::from_secs(10))
            }
            // Waiting mends neither: what is stored cannot be read, or a write of ours forgot that others write too.
            error @ (QueueError::Unexpected { .. } | QueueError::Stale { .. }) => {
                tracing::error!(%error, "a request could not be answered");
                Self::new(
                    Code::Internal,
                    "something went wrong here; the log says what, by this request's id",
                )
            }
            error => {
                tracing::error!(%error, "the database did not do what was asked");
                Self::new(Code::Unavailable, "the database does not answer; try again")
                    .retry_after(Duration::from_secs(1))
            }
        }
    }
}

/// What a store, a tool or an input did not do.
impl From<Failed> for Problem {
    fn from(failed: Failed) -> Self {
        let code = match failed.code.as_str() {
            "storage_full" | "disk_full" => Code::StorageFull,
            "blob_not_found" => Code::NotFound,
            "scan_unavailable" => Code::ScanUnavailable,
            _ if failed.retryable => Code::Unavailable,
            "unexpected" => Code::Internal,
            _ => Code::Unprocessable,
        };
        if code == Code::Unavailable || code == Code::Internal {
            tracing::error!(failed.code, failed.message, "a request could not be answered");
        }
        let problem = Self::new(code, format!("{}; {}", failed.message, failed.hint));
        if failed.retryable { problem.retry_after(Duration::from_secs(1)) } else { problem }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Failed::from(error).into()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, [(header::CONTENT_TYPE, MEDIA_TYPE)], self.to_bytes()).into_response();
        if let Some(after) = self.0.retry_after {
            let seconds = after.as_secs_f64().ceil().max(1.0) as u64;
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.0.code == Code::Unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // So that the outermost layer can add the request's id.
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_database_that_does_not_answer_is_to_be_asked_again() {
        let code = |error: QueueError| Problem::from(error).code();

        assert_eq!(code(QueueError::Unavailable { reason: "it restarts".into() }), Code::Unavailable);
        assert_eq!(code(QueueError::Unexpected { reason: "a torn row".into() }), Code::Internal);
        assert_eq!(code(QueueError::Stale { key: "k".into(), expected: 1, found: 2 }), Code::Internal);
    }
}
