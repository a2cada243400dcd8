//! `POST /v1/scan`: is a file harmless? Nobody here can tell until a scanner is configured.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::uploads::{FileBytes, FileForm, form};
use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::Json;
use crate::problem::{Code, Problem, ProblemDocument};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(scan))
}

/// What a scanner says of a file.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Scan)]
struct ScanDocument {
    result: ScanResult,
    /// What was found, as the scanner calls it; only of an infected file.
    signature: Option<String>,
    #[schema(pattern = "^[0-9a-f]{64}$")]
    sha256: String,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "no scanner is there yet that says any of it")]
enum ScanResult {
    /// Nothing was found.
    Clean,
    /// `signature` says what was found.
    Infected,
    /// It was not looked at as a whole: too large for the scanner, or encrypted.
    Unscanned,
}

/// Looks for viruses in a file while the caller waits.
///
/// Without a scanner it answers `scan_unavailable` and reads nothing of the body.
#[utoipa::path(
    post, path = "/v1/scan", tag = "scan", operation_id = "scan",
    request_body(content((FileForm = "multipart/form-data"), (FileBytes = "application/octet-stream"))),
    responses(
        (status = 200, body = ScanDocument),
        (status = 503, description = "`scan_unavailable`: no scanner is configured, or it does not answer", body = ProblemDocument, content_type = "application/problem+json"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn scan(caller: Caller, request: Request) -> Result<Json<ScanDocument>, Problem> {
    caller.require(Scope::Write)?;
    form::require_file(request.headers())?;
    Err(Problem::new(Code::ScanUnavailable, "no scanner is configured").retry_after(Duration::from_secs(60)))
}
