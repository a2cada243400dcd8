//! `POST /v1/scan`: is a file harmless? Its bytes go on to the scanner as they come; nothing of them is kept.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use bytes::Bytes;
use serde::Serialize;
use telecine_pipeline::{NoVerdict, Scanned, Sending, Verdict};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::uploads::receive::Destination;
use super::uploads::{FileBytes, FileForm, form};
use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::Json;
use crate::problem::{Code, Problem, ProblemDocument};
use crate::turns::Turns;

/// Beyond the scanner's own time, for a client that is slow rather than the scanner.
const GRACE: Duration = Duration::from_secs(1);

/// What an operator may set of scans that a caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanOptions {
    /// So many requests at once.
    pub slots: usize,
    /// Of a file. What is larger than the scanner takes, and no larger than this, is `unscanned`.
    pub max_bytes: u64,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self { slots: 4, max_bytes: 256 << 20 }
    }
}

/// The slots of this process.
#[derive(Debug)]
pub(crate) struct Scans {
    slots: Turns,
    max_bytes: u64,
}

impl Scans {
    pub(crate) fn new(options: ScanOptions) -> Self {
        Self { slots: Turns::of(options.slots), max_bytes: options.max_bytes }
    }
}

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(scan))
}

/// What a scanner says of a file.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Scan)]
struct ScanDocument {
    status: ScanStatus,
    /// What was found, as the scanner calls it; only of an infected file.
    signature: Option<String>,
    /// Why it was not looked at as a whole; only of an unscanned file.
    reason: Option<String>,
    #[schema(pattern = "^[0-9a-f]{64}$")]
    sha256: String,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ScanStatus {
    /// Nothing was found.
    Clean,
    /// `signature` says what was found.
    Infected,
    /// It was not looked at as a whole: too large for the scanner, or encrypted. Not to be taken for clean.
    Unscanned,
}

/// Looks for viruses in a file while the caller waits.
///
/// Nothing of the file is kept. Without a scanner it answers `scan_unavailable` and reads nothing of the body. A tenant has
/// at most all but one of the slots.
#[utoipa::path(
    post, path = "/v1/scan", tag = "scan", operation_id = "scan",
    request_body(content((FileForm = "multipart/form-data"), (FileBytes = "application/octet-stream"))),
    responses(
        (status = 200, body = ScanDocument),
        (status = 413, description = "`too_large`: the file is larger than `max_scan_mb`", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 503, description = "`scan_unavailable`: no scanner is configured, or it does not answer; `busy`: all slots are taken", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 504, description = "`timeout`: the file did not come in time", body = ProblemDocument, content_type = "application/problem+json"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn scan(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> Result<Json<ScanDocument>, Problem> {
    caller.require(Scope::Write)?;
    form::require_file(request.headers())?;
    let Some(clamd) = &app.shop.scanning.clamd else {
        let detail = "no scanner is configured; set clamd";
        return Err(Problem::new(Code::ScanUnavailable, detail).retry_after(Duration::from_secs(60)));
    };
    let Some(_slot) = app.scans.slots.take(&caller.tenant, Duration::ZERO).await else {
        let detail = "all slots for scans are taken; try again";
        return Err(Problem::new(Code::Busy, detail).retry_after(Duration::from_secs(1)));
    };
    let scanning = async {
        let mut sent = Sent(clamd.begin(None).await.map_err(unavailable)?);
        let came = form::take(request, &mut sent, app.scans.max_bytes).await?;
        let scanned = sent.0.end().await.map_err(unavailable)?;
        match came.sha256 {
            Some(told) if told != scanned.sha256 => {
                let detail = format!("the file does not have the SHA-256 {told}; send it again");
                Err(Problem::new(Code::ChecksumMismatch, detail))
            }
            _ => Ok(scanned),
        }
    };
    let scanned = tokio::time::timeout(clamd.within + GRACE, Box::pin(scanning)).await;
    let scanned =
        scanned.unwrap_or_else(|_| Err(Problem::new(Code::Timeout, "the file did not come in time")))?;
    Ok(Json(scanned.into()))
}

/// A file on its way to the scanner.
struct Sent<'a>(Sending<'a>);

impl Destination for Sent<'_> {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    async fn take(&mut self, parts: Vec<Bytes>) -> Result<(), Problem> {
        for part in parts {
            self.0.push(&part).await.map_err(unavailable)?;
        }
        Ok(())
    }
}

/// Where the scanner is, is nobody's business.
fn unavailable(error: NoVerdict) -> Problem {
    tracing::warn!(%error, "a file could not be scanned");
    Problem::new(Code::ScanUnavailable, "the scanner does not answer; try again")
        .retry_after(Duration::from_secs(5))
}

impl From<Scanned> for ScanDocument {
    fn from(scanned: Scanned) -> Self {
        let (status, signature, reason) = match scanned.verdict {
            Verdict::Clean => (ScanStatus::Clean, None, None),
            Verdict::Infected { signature } => (ScanStatus::Infected, Some(signature), None),
            Verdict::Unscanned { reason } => (ScanStatus::Unscanned, None, Some(reason)),
        };
        Self { status, signature, reason, sha256: scanned.sha256, bytes: scanned.bytes }
    }
}
