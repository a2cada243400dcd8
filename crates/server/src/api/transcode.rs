//! `POST /v1/transcode`: one small file in, one file out, in one request.
//!
//! ```text
//!   body ──► a file ──► a slot, or `busy` ──► a studio of its own: database, store, scratch, worker ──► the one file
//! ```
//! It goes the way of every run, by the same recipes and kinds, but not through the shared queue: nothing that waits
//! there delays it, and it takes nothing away from what runs there but the processor's time. A slot is taken when the body is
//! there: who sends slowly holds up nobody.

mod studio;
mod wanted;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, header};
use serde::Deserialize;
use serde_json::{Map, Value};
use telecine_pipeline::{Failed, JobFolder, NoRecipe, Recipe};
use tokio::time::Instant;
use tokio_util::io::ReaderStream;
use tokio_util::sync::CancellationToken;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::files::kind::Kind;
use super::uploads::form::{self, Came};
use super::uploads::receive::{Sink, unwritable};
use super::uploads::{FileBytes, FileForm};
use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::Query;
use crate::problem::{Code, Mistake, Problem, ProblemDocument};
use crate::turns::Turns;
use studio::{Made, Studio};
use wanted::Wanted;

/// What an operator may set of synchronous work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TranscodeOptions {
    /// So many requests at once.
    pub slots: usize,
    /// Of the input.
    pub max_bytes: u64,
    /// From the first byte of the body to the answer.
    pub within: Duration,
}

impl Default for TranscodeOptions {
    fn default() -> Self {
        Self { slots: 2, max_bytes: 64 << 20, within: Duration::from_secs(60) }
    }
}

/// Where synchronous work is done. A studio that was left in order is used again.
#[derive(Debug)]
pub(crate) struct Bench {
    options: TranscodeOptions,
    slots: Turns,
    /// Bodies that arrive or wait for a slot: each is a file as large as is allowed.
    arrivals: Turns,
    idle: Mutex<Vec<Studio>>,
}

impl Bench {
    pub(crate) fn new(options: TranscodeOptions) -> Self {
        let arrivals = Turns::of(options.slots.saturating_mul(ARRIVALS_PER_SLOT));
        Self { options, slots: Turns::of(options.slots), arrivals, idle: Mutex::default() }
    }

    async fn studio(&self, app: &App) -> Result<Studio, Problem> {
        let idle = self.lock().pop();
        match idle {
            Some(studio) => Ok(studio),
            None => Studio::open(&app.shop).await,
        }
    }

    /// One that cannot be put in order is closed, and another opened for the next.
    async fn leave(&self, studio: Studio, stopping: &CancellationToken) {
        let closed = match studio.tidied().await {
            Ok(tidy) if stopping.is_cancelled() => tidy,
            Ok(tidy) => return self.lock().push(tidy),
            Err(untidy) => untidy,
        };
        closed.close().await;
    }

    /// Closes what nobody uses when the process stops; the rest is closed by who does.
    pub(crate) async fn close_when(&self, stopping: &CancellationToken) {
        stopping.cancelled().await;
        let idle = std::mem::take(&mut *self.lock());
        for studio in idle {
            studio.close().await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Studio>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const SLOT_WITHIN: Duration = Duration::from_millis(500);
const ARRIVALS_PER_SLOT: usize = 16;
/// What the body is called in its folder.
const BODY: &str = "body";

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(transcode))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct TranscodeQuery {
    /// The name of a recipe.
    #[param(min_length = 1, max_length = 200, example = "thumbnail")]
    recipe: String,
    /// The output to answer with, `poster`; or one file of it, `image/0-320x180.webp`. Not needed where the recipe has one.
    #[param(min_length = 1, max_length = 400, example = "poster")]
    output: Option<String>,
    /// Values of the recipe's steps, as a run has them: `{"pictures": {"poster": {"long_side": 320}}}`.
    #[param(max_length = 2048)]
    params: Option<String>,
}

/// The bytes of the file that was made.
#[derive(Debug, ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "it describes what is sent as it is read")]
struct MadeBytes(Vec<u8>);

/// Processes a small file while the caller waits, and answers with one file that the recipe makes of it.
///
/// It has slots of its own: what waits in the queue does not delay it. Where all of them are taken when the file
/// has arrived, it says so at once. A tenant has at most all but one of them.
#[utoipa::path(
    post, path = "/v1/transcode", tag = "transcode", operation_id = "transcode",
    params(TranscodeQuery),
    request_body(content((FileForm = "multipart/form-data"), (FileBytes = "application/octet-stream"))),
    responses(
        (status = 200, body = MadeBytes, content_type = "*/*", description = "The file, with its own type",
            headers(("ETag" = String, description = "The SHA-256 of the file"))),
        (status = 422, description = "The input cannot be processed: `errors` has the code", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 503, description = "`busy`: all slots are taken", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 504, description = "`timeout`: submit it as a run", body = ProblemDocument, content_type = "application/problem+json"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn transcode(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<TranscodeQuery>,
    request: Request,
) -> Result<Response, Problem> {
    caller.require(Scope::Write)?;
    let recipe = app.shop.scanning.settled(chosen_recipe(&app, &query)?)?;
    let wanted = Wanted::of(&recipe, query.output.as_deref())?;
    form::require_file(request.headers())?;
    let until = Instant::now() + app.bench.options.within;
    let arrival = app.bench.arrivals.take(&caller.tenant, SLOT_WITHIN).await.ok_or_else(busy)?;
    let arriving = Arrived::of(&app, request);
    let arrived = tokio::time::timeout_at(until, arriving).await.unwrap_or_else(|_| Err(timed_out()))?;
    // A moment of patience: an answer is sent before its slot is tidied up.
    let slot = app.bench.slots.take(&caller.tenant, SLOT_WITHIN).await.ok_or_else(busy)?;
    // A client that goes away drops this function, and with it the guard.
    let gone = CancellationToken::new();
    let _guard = gone.clone().drop_guard();
    let making = tokio::spawn(async move {
        let studio = app.bench.studio(&app).await?;
        let made = studio.make(Order { tenant: caller.tenant, arrived, wanted, until, gone }).await;
        drop(arrival);
        // The answer need not wait for it, the next one for this slot has to.
        tokio::spawn(async move {
            app.bench.leave(studio, &app.stopping).await;
            drop(slot);
        });
        made
    });
    let made = making.await.map_err(|error| {
        tracing::error!(%error, "synchronous work ended in the middle");
        Problem::new(Code::Internal, "the work ended in the middle; see the server's log")
    })??;
    Ok(answer(made))
}

/// What a studio is to do.
#[derive(Debug)]
struct Order {
    tenant: String,
    arrived: Arrived,
    wanted: Wanted,
    until: Instant,
    /// Cancelled when nobody waits for it any more.
    gone: CancellationToken,
}

/// A body that is on the disk, and gone when it is dropped.
#[derive(Debug)]
struct Arrived {
    folder: JobFolder,
    came: Came,
}

impl Arrived {
    async fn of(app: &App, request: Request) -> Result<Self, Problem> {
        let folder = app.shop.scratch.job().map_err(|error| unwritable(&error))?;
        let file = std::fs::File::create_new(folder.path().join(BODY)).map_err(|error| unwritable(&error))?;
        let came = form::take(request, &mut Sink::new(Arc::new(file)), app.bench.options.max_bytes).await?;
        Ok(Self { folder, came })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(BODY)
    }
}

fn chosen_recipe(app: &App, query: &TranscodeQuery) -> Result<Recipe, Problem> {
    let recipe = app.recipes.get(&query.recipe).map_err(|error| {
        let code = match &error {
            NoRecipe::Unknown { .. } => "unknown_recipe",
            NoRecipe::Invalid(_) => "invalid_recipe",
        };
        Problem::impossible(vec![mistake("recipe", code, error.told_to_callers())])
    })?;
    let Some(params) = &query.params else { return Ok(recipe.clone()) };
    let mut json = serde_json::Deserializer::from_str(params);
    let params: BTreeMap<String, Map<String, Value>> =
        serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = format!("params.{}", error.path());
            Problem::impossible(vec![mistake(
                path.trim_end_matches('.'),
                "invalid",
                error.inner().to_string(),
            )])
        })?;
    let params = params.into_iter().map(|(step, values)| (step, Value::Object(values))).collect();
    recipe.with_params(&params).map_err(|errors| {
        let told = |error: telecine_pipeline::ParamError| {
            mistake(&format!("params.{}", error.path), "invalid", error.message)
        };
        Problem::impossible(errors.0.into_iter().map(told).collect())
    })
}

fn mistake(path: &str, code: &str, message: impl Into<String>) -> Mistake {
    Mistake { path: path.to_owned(), code: code.to_owned(), message: message.into() }
}

fn busy() -> Problem {
    Problem::new(Code::Busy, "all slots for synchronous work are taken; try again, or submit a run")
        .retry_after(Duration::from_secs(1))
}

/// Why a run failed, by whose doing it was.
fn failed(error: &Failed) -> Problem {
    match error.code.as_str() {
        "disk_full" | "storage_full" => {
            Problem::new(Code::StorageFull, "there is no room for the work at the moment; try again later")
        }
        "timeout" | "stalled" => timed_out(),
        "scan_unavailable" => {
            Problem::new(Code::ScanUnavailable, &error.message).retry_after(Duration::from_secs(5))
        }
        "io_failed"
        | "killed"
        | "poison"
        | "worker_lost"
        | "database_unavailable"
        | "unexpected"
        | "storage_denied"
        | "storage_unavailable"
        | "storage_corrupt"
        | "storage_invalid"
        | "capability_missing" => {
            tracing::error!(code = error.code, message = error.message, "synchronous work failed");
            Problem::new(
                Code::Unavailable,
                "the work failed for no reason of the input; see the server's log",
            )
            .retry_after(Duration::from_secs(5))
        }
        _ => Problem::impossible(vec![mistake(
            "body",
            &error.code,
            format!("{}; {}", error.message, error.hint),
        )]),
    }
}

fn timed_out() -> Problem {
    Problem::new(Code::Timeout, "the work takes too long to wait for; submit it as a run")
}

/// The file is open and has no name any more: it is gone when it is sent.
fn answer(made: Made) -> Response {
    let kind = Kind::of(&made.path);
    let mut response = Body::from_stream(ReaderStream::new(made.file)).into_response();
    let headers = [
        (header::CONTENT_TYPE, kind.content_type.to_owned()),
        (header::CONTENT_LENGTH, made.bytes.to_string()),
        (header::ETAG, format!("\"{}\"", made.sha256)),
        // It is somebody's file: a browser that opens it here must not run what is in it.
        (header::CONTENT_SECURITY_POLICY, "sandbox".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    response.headers_mut().insert(header::CONTENT_DISPOSITION, kind.disposition(&made.path));
    let valued = |(name, value): (HeaderName, String)| Some((name, HeaderValue::try_from(value).ok()?));
    response.headers_mut().extend(headers.into_iter().filter_map(valued));
    response
}
