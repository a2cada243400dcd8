//! The files of a run: published ones, and those of a film that is still being made.

pub(super) mod kind;
mod range;
mod rounds;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use moka::future::Cache;
use telecine_pipeline::records::StoredFile;
use telecine_pipeline::{LiveFilm, Shelf, StoreError, live_film, live_name};
use telecine_queue::{QueueError, Run, RunId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::runs::run_of;
use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::Path;
use crate::problem::{Code, Problem, ProblemDocument};
use kind::Kind;
use range::{Wanted, wanted};
use rounds::Rounds;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(get))
}

/// Files of runs whose names are remembered.
const MOST_NAMES: u64 = 300_000;
/// What has its content in its name never changes. Whoever may see it asked with a key, or a signed address.
const FOREVER: HeaderValue = HeaderValue::from_static("private, max-age=31536000, immutable");
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("private, no-cache");
const NEVER: HeaderValue = HeaderValue::from_static("no-store");

/// A file of a run by its step and path, such as `hls/master.m3u8`: whole, or a range of its bytes.
///
/// Playlists of a film that is still being made are drawn as far as it is: they only grow.
#[utoipa::path(
    get, path = "/v1/runs/{id}/files/{*path}", tag = "files", operation_id = "get_file",
    params(
        ("id" = String, Path, description = "The run's id"),
        ("path" = String, Path, description = "The step and the path below it, as the run document tells them"),
        ("Range" = Option<String>, Header, description = "One range of bytes; several are answered with the whole file"),
        ("If-Range" = Option<String>, Header, description = "The range is wanted only of the file with this ETag"),
        ("If-None-Match" = Option<String>, Header, description = "The file is wanted only if it has none of these ETags"),
    ),
    responses(
        (status = 200, description = "The file", body = [u8], content_type = "*/*",
            headers(("etag" = String, description = "The SHA-256 of the file; live playlists have none"))),
        (status = 206, description = "A range of it", body = [u8], content_type = "*/*",
            headers(("content-range" = String, description = "Which bytes, and of how many"))),
        (status = 304, description = "The caller has it"),
        (status = 404, description = "The caller has no such run, or the run no such file", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 416, description = "The file has no such range", body = ProblemDocument, content_type = "application/problem+json",
            headers(("content-range" = String, description = "How many bytes there are"))),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    method: Method,
    headers: HeaderMap,
    Path((id, path)): Path<(String, String)>,
) -> Result<Response, Problem> {
    caller.require(Scope::Read)?;
    let run = run_of(&app, &caller, &id).await?;
    answer(&app, &run, &path, &method, &headers).await
}

/// What a name of a run stands for, sent.
pub(super) async fn answer(
    app: &App,
    run: &Run,
    path: &str,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let mut response = match app.shelves.find(app, run, path).await? {
        Found::Stored(file) => stored(app, &file, method, headers).await?,
        Found::Playlist(text) => {
            let cache = [(header::CACHE_CONTROL, NEVER)];
            (cache, text).into_response()
        }
    };
    guard(response.headers_mut(), path);
    Ok(response)
}

/// Names of files that were looked up a moment ago: the records of a film of hours are megabytes, and a player asks for
/// thousands of segments.
#[derive(Debug)]
pub(crate) struct Shelves {
    known: Cache<RunId, Arc<Shelf>>,
    /// Of runs that go on, and of their films by their steps: many players ask at the same moment.
    read: Rounds<RunId, Arc<Shelf>>,
    films: Rounds<(RunId, String), Option<Arc<LiveFilm>>>,
}

enum Found {
    Stored(StoredFile),
    Playlist(String),
}

impl Shelves {
    pub(crate) fn new() -> Self {
        let weigher = |_: &RunId, shelf: &Arc<Shelf>| u32::try_from(shelf.len() + 1).unwrap_or(u32::MAX);
        let known = Cache::builder().max_capacity(MOST_NAMES).weigher(weigher).build();
        Self { known, read: Rounds::new(), films: Rounds::new() }
    }

    async fn find(&self, app: &App, run: &Run, path: &str) -> Result<Found, Problem> {
        let known = self.known.get(&run.id).await.filter(|shelf| shelf.is_of(run));
        // Of a run that goes on, only what can never be other than it was.
        let is_certain = |file: &&StoredFile| run.finished_at.is_some() || file.is_named_by_content();
        if let Some(file) = known.as_ref().and_then(|shelf| shelf.get(path)).filter(is_certain) {
            return Ok(Found::Stored(file.clone()));
        }
        let no_such_file = || Problem::not_found("file");
        if known.is_some() && run.finished_at.is_some() {
            return Err(no_such_file());
        }
        if let Some(file) = self.read(app, run).await?.get(path) {
            return Ok(Found::Stored(file.clone()));
        }
        let (step, rendition) = live_name(run, path).ok_or_else(no_such_file)?;
        let read = async { live_film(app.queue(), &run.id, step).await.map(|film| film.map(Arc::new)) };
        let film = self.films.ask((run.id.clone(), step.to_owned()), read).await?;
        film.and_then(|film| film.rendered(rendition)).map(Found::Playlist).ok_or_else(no_such_file)
    }

    async fn read(&self, app: &App, run: &Run) -> Result<Arc<Shelf>, QueueError> {
        let read = async || Shelf::read(app.queue(), run).await.map(Arc::new);
        let mut shelf = self.read.ask(run.id.clone(), read()).await?;
        // Whoever read for all may have seen the run before it ended, or was retried.
        if !shelf.is_of(run) {
            shelf = read().await?;
        }
        self.known.insert(run.id.clone(), Arc::clone(&shelf)).await;
        Ok(shelf)
    }
}

async fn stored(
    app: &App,
    file: &StoredFile,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let etag = format!("\"{}\"", file.sha256);
    let cache = if file.is_named_by_content() { FOREVER } else { ASK_AGAIN };
    let mut response = if range::is_known(headers, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        match wanted(headers, &etag, file.bytes) {
            Wanted::Unsatisfiable => return Ok(unsatisfiable(file.bytes)),
            Wanted::All => {
                let body = body(app, file, None, method).await?;
                (sized(file.bytes), body).into_response()
            }
            Wanted::Part { first, last } => {
                let body = body(app, file, Some(first..last + 1), method).await?;
                let range = format!("bytes {first}-{last}/{}", file.bytes);
                let sized = sized(last + 1 - first);
                (StatusCode::PARTIAL_CONTENT, [(header::CONTENT_RANGE, range)], sized, body).into_response()
            }
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, cache);
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Ok(etag) = HeaderValue::try_from(etag) {
        headers.insert(header::ETAG, etag);
    }
    Ok(response)
}

fn sized(bytes: u64) -> [(HeaderName, HeaderValue); 1] {
    [(header::CONTENT_LENGTH, HeaderValue::from(bytes))]
}

/// The bytes as the store gives them, never the whole file at once.
async fn body(
    app: &App,
    file: &StoredFile,
    range: Option<std::ops::Range<u64>>,
    method: &Method,
) -> Result<Body, Problem> {
    if *method == Method::HEAD || file.bytes == 0 {
        return Ok(Body::empty());
    }
    let reader = app.blobs().read(&file.key, range).await.map_err(|error| match error {
        StoreError::NotFound { .. } => Problem::new(Code::NotFound, "the file is not in the store any more"),
        error => error.into(),
    })?;
    if reader.meta.bytes != file.bytes {
        tracing::error!(key = file.key, bytes = reader.meta.bytes, "a stored file is not as long as it was");
        return Err(Problem::new(Code::Internal, "the file in the store is not as it was stored"));
    }
    let parts = reader.parts.map(|part: Result<Bytes, StoreError>| {
        part.inspect_err(|error| tracing::error!(%error, "a file could not be sent to its end"))
    });
    Ok(Body::from_stream(parts))
}

fn unsatisfiable(bytes: u64) -> Response {
    let detail = format!("the file has {bytes} bytes; ask for a range that begins in it");
    let mut response = Problem::new(Code::RangeNotSatisfiable, detail).into_response();
    if let Ok(range) = HeaderValue::try_from(format!("bytes */{bytes}")) {
        response.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    response
}

/// What is in a file may be anybody's: no browser may take it for a page of ours, nor run anything of it.
fn guard(headers: &mut HeaderMap, path: &str) {
    let kind = Kind::of(path);
    // A problem has its own.
    if headers.get(header::CONTENT_TYPE).is_none_or(|known| known != crate::problem::MEDIA_TYPE) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind.content_type));
        headers.insert(header::CONTENT_DISPOSITION, kind.disposition(path));
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
}
