//! Uploads: tus 1.0 for what may be cut and goes on later, or a file in one request.
//!
//! ```text
//!   POST, PATCH … ──► stage: on the disk before it is answered ──► whole: hashed, into the store ──► {"input": {"upload": id}}
//! ```
//! An upload is of one tenant; for all others there is none. One that is torn is never in the store.

mod document;
pub(crate) mod form;
mod headers;
mod keep;
pub(crate) mod receive;
mod stage;
mod tus;
mod under_way;
mod whole;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use telecine_pipeline::Workshop;
use ulid::Ulid;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::{Json, Path, created};
use crate::problem::{Code, Problem, ProblemDocument};
use document::UploadDocument;
use headers::{METHOD_OVERRIDE, TUS_RESUMABLE, TUS_VERSION, VERSION, require_version};
use receive::{Sink, on_disk};
use stage::Stage;
use under_way::UnderWay;
use whole::Whole;

pub(crate) use keep::keep_uploads;

/// What an operator may set of uploads.
#[derive(Clone, Debug)]
pub struct UploadOptions {
    /// Where they are until they are whole; it has to outlive the process. `None` is a folder in scratch.
    pub folder: Option<PathBuf>,
    /// `None` is the largest input that a run may have.
    pub max_bytes: Option<u64>,
    /// How long an upload to which nothing is added is kept.
    pub keep_unfinished: Duration,
}

impl Default for UploadOptions {
    fn default() -> Self {
        Self { folder: None, max_bytes: None, keep_unfinished: Duration::from_hours(24) }
    }
}

/// The uploads of this process.
#[derive(Debug)]
pub(crate) struct Uploads {
    stage: Stage,
    under_way: UnderWay,
    max_bytes: u64,
}

impl Uploads {
    pub(crate) fn new(options: &UploadOptions, shop: &Workshop) -> Self {
        let folder = options.folder.clone().unwrap_or_else(|| shop.scratch.root().join("uploads"));
        Self {
            stage: Stage::new(folder, options.keep_unfinished),
            under_way: UnderWay::default(),
            max_bytes: options.max_bytes.unwrap_or(shop.limits.file_bytes),
        }
    }
}

fn new_id() -> String {
    format!("upl_{}", Ulid::generate())
}

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(create, announce))
        .routes(routes!(show, offset, append, terminate, overridden))
        .layer(axum::middleware::map_response(speak_tus))
}

/// Every answer says which version is spoken, also one that refuses.
async fn speak_tus(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(TUS_RESUMABLE, VERSION);
    if response.status() == StatusCode::PRECONDITION_FAILED {
        response.headers_mut().insert(TUS_VERSION, VERSION);
    }
    response
}

/// Takes a file, or begins an upload that can be cut and go on.
///
/// With `Tus-Resumable: 1.0.0` and `Upload-Length` this is the creation of tus 1.0 (with or without the first bytes).
/// Otherwise the request has the whole file: as the one file of a form, or as its body. With `Telecine-Sha256`, a file
/// that has another hash is refused.
#[utoipa::path(
    post, path = "/v1/uploads", tag = "uploads", operation_id = "create_upload",
    request_body(content(
        (FileForm = "multipart/form-data"),
        (FileBytes = "application/octet-stream"),
        (FileBytes = "application/offset+octet-stream"),
    )),
    responses(
        (status = 201, body = UploadDocument, headers(("Location" = String, description = "Of the upload"))),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn create(State(app): State<Arc<App>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    caller.require(Scope::Write)?;
    if tus::is_meant(request.headers()) {
        return tus::create(&app, caller.tenant, request).await;
    }
    form::require_file(request.headers())?;
    let stage = app.uploads.stage.clone();
    let part = on_disk(move || stage.part()).await?;
    let file = part.reopen().map_err(|error| receive::unwritable(&error))?;
    let mut sink = Sink::new(Arc::new(file));
    let came = form::take(request, &mut sink, app.uploads.max_bytes).await?;
    let (id, name) = (new_id(), came.name);
    let whole = Whole {
        tenant: caller.tenant.clone(),
        id: id.clone(),
        file: part.path().to_owned(),
        name,
        sha256: came.sha256,
    };
    whole::store(app.blobs(), whole, &app.stopping).await?;
    let document = document::of(&app, &caller.tenant, &id).await?;
    Ok(at(&id, created(document)))
}

fn at(id: &str, mut response: Response) -> Response {
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/uploads/{id}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// A form with one file.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it describes what is parsed as it arrives")]
pub(super) struct FileForm {
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
    /// What the file has to have.
    #[schema(value_type = String, required = false, pattern = "^[0-9a-fA-F]{64}$")]
    sha256: Option<String>,
}

#[derive(Debug, utoipa::ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "it describes what is written as it arrives")]
pub(super) struct FileBytes(Vec<u8>);

/// What of tus is spoken here.
#[utoipa::path(
    options, path = "/v1/uploads", tag = "uploads", operation_id = "announce_uploads", security(()),
    responses(
        (status = 204, description = "The version, the extensions and the limit", headers(
            ("Tus-Version" = String), ("Tus-Extension" = String), ("Tus-Max-Size" = String),
            ("Tus-Checksum-Algorithm" = String),
        )),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn announce(State(app): State<Arc<App>>) -> Response {
    let announced = [
        (headers::TUS_VERSION, VERSION),
        (headers::TUS_EXTENSION, headers::EXTENSIONS),
        (headers::TUS_MAX_SIZE, HeaderValue::from(app.uploads.max_bytes)),
        (headers::TUS_CHECKSUM_ALGORITHM, headers::CHECKSUM_ALGORITHMS),
    ];
    (StatusCode::NO_CONTENT, announced).into_response()
}

/// How far an upload is.
#[utoipa::path(
    get, path = "/v1/uploads/{id}", tag = "uploads", operation_id = "get_upload",
    params(("id" = String, Path, pattern = "^[0-9A-Za-z_-]{1,64}$")),
    responses(
        (status = 200, body = UploadDocument),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<UploadDocument>, Problem> {
    caller.require(Scope::Read)?;
    document::of(&app, &caller.tenant, &id).await.map(Json)
}

/// Where an upload goes on (tus).
#[utoipa::path(
    head, path = "/v1/uploads/{id}", tag = "uploads", operation_id = "get_upload_offset",
    params(
        ("id" = String, Path, pattern = "^[0-9A-Za-z_-]{1,64}$"),
        ("Tus-Resumable" = inline(TusVersion), Header),
    ),
    responses(
        (status = 200, description = "It is there", headers(
            ("Upload-Offset" = u64, description = "So many bytes are on the disk"),
            ("Upload-Length" = u64), ("Upload-Metadata" = String), ("Upload-Expires" = String),
        )),
        (status = "default", description = "As for GET, without the body"),
    )
)]
async fn offset(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.require(Scope::Write)?;
    require_version(&headers)?;
    tus::offset(&app, &caller.tenant, &id).await
}

/// Adds bytes to an upload (tus). When it has all of them, it is hashed and stored before this is answered.
#[utoipa::path(
    patch, path = "/v1/uploads/{id}", tag = "uploads", operation_id = "append_to_upload",
    params(
        ("id" = String, Path, pattern = "^[0-9A-Za-z_-]{1,64}$"),
        ("Tus-Resumable" = inline(TusVersion), Header),
        ("Upload-Offset" = u64, Header, description = "Where these bytes belong: what HEAD says"),
    ),
    request_body(content = FileBytes, content_type = "application/offset+octet-stream"),
    responses(
        (status = 204, description = "They are on the disk", headers(
            ("Upload-Offset" = u64), ("Upload-Expires" = String),
        )),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn append(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    caller.require(Scope::Write)?;
    require_version(request.headers())?;
    tus::append(&app, &caller.tenant, &id, request).await
}

/// Removes an upload, whole or not (tus).
#[utoipa::path(
    delete, path = "/v1/uploads/{id}", tag = "uploads", operation_id = "delete_upload",
    params(("id" = String, Path, pattern = "^[0-9A-Za-z_-]{1,64}$")),
    responses(
        (status = 204, description = "It is gone"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn terminate(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    caller.require(Scope::Write)?;
    if headers.contains_key(TUS_RESUMABLE) {
        require_version(&headers)?;
    }
    tus::terminate(&app, &caller.tenant, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// PATCH, HEAD or DELETE, for clients behind something that knows only GET and POST (tus).
#[utoipa::path(
    post, path = "/v1/uploads/{id}", tag = "uploads", operation_id = "override_upload_method",
    params(
        ("id" = String, Path, pattern = "^[0-9A-Za-z_-]{1,64}$"),
        ("X-HTTP-Method-Override" = inline(MeantMethod), Header),
        ("Tus-Resumable" = inline(TusVersion), Header),
        ("Upload-Offset" = Option<u64>, Header, description = "For PATCH: where these bytes belong"),
    ),
    request_body(content = FileBytes, content_type = "application/offset+octet-stream"),
    responses(
        (status = 200, description = "As for HEAD"),
        (status = 204, description = "As for PATCH or DELETE"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn overridden(
    app: State<Arc<App>>,
    caller: Caller,
    id: Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let meant = request.headers().get(METHOD_OVERRIDE).and_then(|method| method.to_str().ok());
    match meant {
        Some("PATCH") => append(app, caller, id, request).await,
        Some("HEAD") => offset(app, caller, id, request.headers().clone()).await,
        Some("DELETE") => {
            terminate(app, caller, id, request.headers().clone()).await.map(IntoResponse::into_response)
        }
        _ => Err(Problem::new(
            Code::MethodNotAllowed,
            "POST here needs `X-HTTP-Method-Override: PATCH`, HEAD or DELETE",
        )),
    }
}

#[derive(Debug, utoipa::ToSchema)]
#[schema(rename_all = "UPPERCASE")]
#[expect(dead_code, reason = "it describes a header")]
enum MeantMethod {
    Patch,
    Head,
    Delete,
}

#[derive(Debug, utoipa::ToSchema)]
#[expect(dead_code, reason = "it describes a header")]
enum TusVersion {
    #[schema(rename = "1.0.0")]
    V1,
}
