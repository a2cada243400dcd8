//! The verbs of tus 1.0: create, offset, append, terminate.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use telecine_pipeline::{CompletedUpload, keys};

use super::form::too_large;
use super::headers::{
    self, Checksum, Metadata, OFFSET_STREAM, TUS_RESUMABLE, UPLOAD_CONCAT, UPLOAD_DEFER_LENGTH,
    UPLOAD_EXPIRES, UPLOAD_LENGTH, UPLOAD_METADATA, UPLOAD_OFFSET, content_type, require_version,
};
use super::receive::{Broken, Sink, arriving, batch, on_disk, unwritable};
use super::stage::{Held, Hold, Seen, Told};
use super::under_way::{Entered, Writing};
use super::whole::{self, Whole};
use super::{at, document, new_id};
use crate::app::App;
use crate::extract::created;
use crate::problem::{Code, Problem};

/// Who asks where to go on has lost its connection; one that was silent for so long is the lost one.
const LOST_AFTER: Duration = Duration::from_secs(2);

/// Whether a POST begins an upload, and is no file by itself.
pub(super) fn is_meant(headers: &HeaderMap) -> bool {
    [TUS_RESUMABLE, UPLOAD_LENGTH, UPLOAD_DEFER_LENGTH, UPLOAD_CONCAT]
        .iter()
        .any(|name| headers.contains_key(name))
        || content_type(headers) == OFFSET_STREAM
}

/// Begins an upload; with a body, that is its first bytes.
pub(super) async fn create(app: &Arc<App>, tenant: String, request: Request) -> Result<Response, Problem> {
    require_version(request.headers())?;
    let told = told(app, tenant.clone(), request.headers())?;
    let has_bytes = content_type(request.headers()) == OFFSET_STREAM;
    let checksum = Checksum::of(request.headers())?;
    if headers::bytes(request.headers(), &header::CONTENT_LENGTH)?.is_some_and(|sent| sent > told.length) {
        return Err(too_long(told.length));
    }
    let (stage, id, length) = (app.uploads.stage.clone(), new_id(), told.length);
    let named = id.clone();
    let held = on_disk(move || {
        if stage.left_bytes()? < told.length {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        stage.create(&named, told)
    });
    let held = held.await?;
    let expires_at = held.expires_at().map_err(|error| unwritable(&error))?;
    let entered = app.uploads.under_way.enter(&id, &app.stopping);
    let received = if has_bytes || length == 0 {
        let body = if has_bytes { request.into_body() } else { Body::empty() };
        let received = add(app, entered, held, body, checksum).await;
        if received.is_err() {
            // Nobody knows its id: it would only wait to expire.
            let _ = terminate(app, &tenant, &id).await;
        }
        Some(received?)
    } else {
        drop(held);
        drop(entered);
        None
    };
    let mut response = at(&id, created(document::of(app, &tenant, &id).await?));
    if let Some(offset) = received {
        response.headers_mut().insert(UPLOAD_OFFSET, HeaderValue::from(offset));
    }
    if received != Some(length) {
        insert_expiry(&mut response, expires_at);
    }
    Ok(response)
}

fn told(app: &App, tenant: String, headers: &HeaderMap) -> Result<Told, Problem> {
    for (name, detail) in [
        (UPLOAD_DEFER_LENGTH, "an upload whose length is not known yet cannot be made; send Upload-Length"),
        (UPLOAD_CONCAT, "uploads cannot be joined; send one"),
    ] {
        if headers.contains_key(&name) {
            return Err(Problem::invalid(name.as_str(), detail));
        }
    }
    let length = headers::bytes(headers, &UPLOAD_LENGTH)?
        .ok_or_else(|| Problem::invalid(UPLOAD_LENGTH.as_str(), "say how long the whole file is"))?;
    if length > app.uploads.max_bytes {
        return Err(too_large(app.uploads.max_bytes));
    }
    let Metadata { sent, name, sha256 } = Metadata::of(headers)?;
    Ok(Told { tenant, length, metadata: sent, name, sha256, unverified_from: None })
}

/// Where an upload goes on. Whoever asks has lost a connection, so one that is silent is given up.
pub(super) async fn offset(app: &Arc<App>, tenant: &str, id: &str) -> Result<Response, Problem> {
    let id = proper(tenant, id)?;
    // Nobody may stop what is another's, nor wait for it.
    let is_staged = look(app, tenant, id).await?.is_some();
    if let Some(writing) = app.uploads.under_way.of(id).filter(|_| is_staged) {
        if writing.is_storing() {
            writing.ended().await;
        } else if writing.silent_for() >= LOST_AFTER {
            writing.stop.cancel();
            writing.ended().await;
        }
    }
    let Some(seen) = look(app, tenant, id).await? else {
        let completed = whole::completed(app.blobs(), tenant, id).await?;
        let (completed, _) = completed.ok_or_else(|| Problem::not_found("upload"))?;
        return Ok(offset_of(completed.bytes, completed.bytes, None));
    };
    if seen.has_expired() {
        return Err(expired());
    }
    if seen.is_whole() {
        // Only what is stored may be taken for complete.
        let stored = store_if_free(app, tenant, id).await?.ok_or_else(busy)?;
        return Ok(offset_of(stored.bytes, stored.bytes, seen.told.metadata.as_deref()));
    }
    let mut response = offset_of(seen.offset, seen.told.length, seen.told.metadata.as_deref());
    insert_expiry(&mut response, seen.expires_at);
    Ok(response)
}

fn offset_of(offset: u64, length: u64, metadata: Option<&str>) -> Response {
    let numbers = [(UPLOAD_OFFSET, HeaderValue::from(offset)), (UPLOAD_LENGTH, HeaderValue::from(length))];
    let mut response = (StatusCode::OK, numbers).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(metadata) = metadata.and_then(|metadata| HeaderValue::from_str(metadata).ok()) {
        response.headers_mut().insert(UPLOAD_METADATA, metadata);
    }
    response
}

/// Adds the bytes of a body.
pub(super) async fn append(
    app: &Arc<App>,
    tenant: &str,
    id: &str,
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers();
    if content_type(headers) != OFFSET_STREAM {
        let detail = format!("send the bytes as `Content-Type: {OFFSET_STREAM}`");
        return Err(Problem::new(Code::UnsupportedMediaType, detail));
    }
    let from = headers::bytes(headers, &UPLOAD_OFFSET)?
        .ok_or_else(|| Problem::invalid(UPLOAD_OFFSET.as_str(), "say where these bytes belong"))?;
    let (checksum, sent) = (Checksum::of(headers)?, headers::bytes(headers, &header::CONTENT_LENGTH)?);
    let (id, is_empty) =
        (proper(tenant, id)?, !headers.contains_key(header::TRANSFER_ENCODING) && sent.unwrap_or(0) == 0);
    let held = match hold(app, tenant, id).await? {
        Hold::Held(held) => held,
        Hold::Busy => return Err(locked()),
        Hold::Missing => return append_to_complete(app, tenant, id, from, is_empty).await,
    };
    let offset = held.offset().map_err(|error| unwritable(&error))?;
    if held.has_expired().map_err(|error| unwritable(&error))? {
        return Err(expired());
    }
    if from != offset {
        return Err(elsewhere(offset, from));
    }
    if sent.is_some_and(|sent| sent > held.told.length - offset) {
        return Err(too_long(held.told.length));
    }
    let entered = app.uploads.under_way.enter(id, &app.stopping);
    let offset = add(app, entered, held, request.into_body(), checksum).await?;
    let mut response = (StatusCode::NO_CONTENT, [(UPLOAD_OFFSET, HeaderValue::from(offset))]).into_response();
    if let Some(seen) = look(app, tenant, id).await? {
        insert_expiry(&mut response, seen.expires_at);
    }
    Ok(response)
}

/// Nothing can be added to it; who asks for nothing else gets that.
async fn append_to_complete(
    app: &App,
    tenant: &str,
    id: &str,
    from: u64,
    is_empty: bool,
) -> Result<Response, Problem> {
    let completed = whole::completed(app.blobs(), tenant, id).await?;
    let (completed, _) = completed.ok_or_else(|| Problem::not_found("upload"))?;
    match (from == completed.bytes, is_empty) {
        (true, true) => {
            Ok((StatusCode::NO_CONTENT, [(UPLOAD_OFFSET, HeaderValue::from(from))]).into_response())
        }
        (true, false) => Err(too_long(completed.bytes)),
        (false, _) => Err(elsewhere(completed.bytes, from)),
    }
}

/// Adds bytes and says where they end. It goes on when the client does not: what has arrived is kept, and what is whole is
/// stored.
async fn add(
    app: &Arc<App>,
    entered: Entered,
    held: Held,
    body: Body,
    checksum: Option<Checksum>,
) -> Result<u64, Problem> {
    let app = Arc::clone(app);
    let adding = tokio::spawn(async move {
        let added = receive(&app, held, &entered.writing, body, checksum).await;
        let added = match added {
            Ok((held, offset)) if offset == held.told.length => {
                entered.writing.storing();
                store_held(&app, held).await.map(|stored| stored.bytes)
            }
            Ok((held, offset)) => {
                drop(held);
                Ok(offset)
            }
            Err(problem) => Err(problem),
        };
        // Only now may others look.
        drop(entered);
        added
    });
    adding.await.unwrap_or_else(|error| Err(unwritable(&std::io::Error::other(error))))
}

/// How the bytes of a body ended.
enum Ended {
    AtEnd,
    Broken(Broken),
    TooLong,
    Stopped,
    Unwritable(std::io::Error),
}

/// Writes a body to an upload and to the disk. Without an error, all of it has arrived.
async fn receive(
    app: &App,
    mut held: Held,
    writing: &Writing,
    body: Body,
    checksum: Option<Checksum>,
) -> Result<(Held, u64), Problem> {
    let from = held.offset().map_err(|error| unwritable(&error))?;
    let is_checked = checksum.is_some();
    if is_checked {
        held = on_disk(move || held.unverified(from).map(|()| held)).await?;
    }
    let mut sink = Sink::from(Arc::clone(held.file()), from, checksum);
    let ended = pump(body, &mut sink, held.told.length, writing).await;
    let (offset, holds) = (sink.at(), sink.holds());
    let is_kept = match &ended {
        // Who sends more than the file has does not know what it sends.
        Ended::TooLong => false,
        Ended::AtEnd => holds,
        Ended::Broken(_) | Ended::Stopped | Ended::Unwritable(_) => !is_checked,
    };
    let held = on_disk(move || {
        if is_kept {
            held.file().sync_data()?;
        } else {
            held.cut(from)?;
        }
        if is_checked {
            held.verified()?;
        }
        Ok(held)
    });
    let held = held.await?;
    let is_whole = is_kept && offset == held.told.length;
    match ended {
        Ended::AtEnd if is_kept => Ok((held, offset)),
        Ended::AtEnd => Err(Problem::new(
            Code::ChecksumMismatch,
            "these bytes do not have the checksum of Upload-Checksum; send them again",
        )),
        // Nothing is missing but the end of the request.
        Ended::Broken(_) if is_whole => Ok((held, offset)),
        Ended::Broken(broken) => Err(broken.into()),
        Ended::TooLong => Err(too_long(held.told.length)),
        Ended::Stopped if app.stopping.is_cancelled() => Err(Problem::new(
            Code::Unavailable,
            "the server stops; what has arrived is kept, go on with HEAD",
        )
        .retry_after(Duration::from_secs(1))),
        Ended::Stopped => Err(Problem::new(Code::Conflict, "another request goes on with this upload")),
        Ended::Unwritable(error) => Err(unwritable(&error)),
    }
}

async fn pump(body: Body, sink: &mut Sink, length: u64, writing: &Writing) -> Ended {
    let mut parts = arriving(body);
    loop {
        let (batch, end) = tokio::select! {
            biased;
            () = writing.stop.cancelled() => return Ended::Stopped,
            batch = batch(&mut parts) => batch,
        };
        writing.heard();
        let bytes: u64 = batch.iter().map(|part| part.len() as u64).sum();
        if bytes > length - sink.at() {
            return Ended::TooLong;
        }
        if let Err(error) = sink.write(batch).await {
            return Ended::Unwritable(error);
        }
        match end {
            Some(Ok(())) => return Ended::AtEnd,
            Some(Err(broken)) => return Ended::Broken(broken),
            None => {}
        }
    }
}

/// Stores an upload that is whole, unless somebody is at it. That it was whole when somebody looked is not enough: who
/// held it then may have cut it since.
pub(super) async fn store_if_free(
    app: &Arc<App>,
    tenant: &str,
    id: &str,
) -> Result<Option<CompletedUpload>, Problem> {
    let Hold::Held(held) = hold(app, tenant, id).await? else { return Ok(None) };
    if !held.is_whole().map_err(|error| unwritable(&error))? {
        return Ok(None);
    }
    let entered = app.uploads.under_way.enter(id, &app.stopping);
    entered.writing.storing();
    let app = Arc::clone(app);
    let storing = tokio::spawn(async move {
        let stored = store_held(&app, held).await;
        drop(entered);
        stored
    });
    storing.await.unwrap_or_else(|error| Err(unwritable(&std::io::Error::other(error)))).map(Some)
}

/// What is not the file that was told is gone; what the store does not take now stays.
async fn store_held(app: &App, held: Held) -> Result<CompletedUpload, Problem> {
    if !held.is_whole().map_err(|error| unwritable(&error))? {
        return Err(unwritable(&std::io::Error::other("an upload that is not whole was to be stored")));
    }
    let whole = Whole {
        tenant: held.told.tenant.clone(),
        id: held.id.clone(),
        file: held.data_path(),
        name: held.told.name.clone(),
        sha256: held.told.sha256.clone(),
    };
    let stored = whole::store(app.blobs(), whole, &app.stopping).await;
    let is_over = match &stored {
        Ok(_) => true,
        Err(problem) => problem.code() == Code::ChecksumMismatch,
    };
    if is_over {
        on_disk(move || held.remove()).await?;
    }
    stored
}

/// Removes an upload, whole or not.
pub(super) async fn terminate(app: &App, tenant: &str, id: &str) -> Result<(), Problem> {
    let id = proper(tenant, id)?;
    // Nobody may stop what is another's.
    let is_staged = look(app, tenant, id).await?.is_some();
    if let Some(writing) = app.uploads.under_way.of(id).filter(|_| is_staged) {
        if !writing.is_storing() {
            writing.stop.cancel();
        }
        writing.ended().await;
    }
    match hold(app, tenant, id).await? {
        Hold::Held(held) => on_disk(move || held.remove()).await?,
        Hold::Busy => return Err(locked()),
        Hold::Missing if whole::completed(app.blobs(), tenant, id).await?.is_some() => {}
        Hold::Missing if is_staged => return Ok(()),
        Hold::Missing => return Err(Problem::not_found("upload")),
    }
    whole::remove(app.blobs(), tenant, id).await
}

/// What cannot be an id of ours names nothing, least of all a file elsewhere.
pub(super) fn proper<'a>(tenant: &str, id: &'a str) -> Result<&'a str, Problem> {
    keys::upload(tenant, id).map(|_| id).ok_or_else(|| Problem::not_found("upload"))
}

async fn look(app: &App, tenant: &str, id: &str) -> Result<Option<Seen>, Problem> {
    let (stage, tenant, id) = (app.uploads.stage.clone(), tenant.to_owned(), id.to_owned());
    on_disk(move || stage.look(&tenant, &id)).await
}

async fn hold(app: &App, tenant: &str, id: &str) -> Result<Hold, Problem> {
    let (stage, tenant, id) = (app.uploads.stage.clone(), tenant.to_owned(), id.to_owned());
    on_disk(move || stage.hold(&tenant, &id)).await
}

fn insert_expiry(response: &mut Response, at: SystemTime) {
    if let Ok(date) = HeaderValue::from_str(&httpdate::fmt_http_date(at)) {
        response.headers_mut().insert(UPLOAD_EXPIRES, date);
    }
}

pub(super) fn expired() -> Problem {
    Problem::new(Code::Expired, "nothing was added to the upload for too long; begin another")
}

fn elsewhere(offset: u64, told: u64) -> Problem {
    Problem::new(Code::OffsetMismatch, format!("the upload goes on at {offset}, not at {told}"))
}

fn too_long(length: u64) -> Problem {
    Problem::new(Code::TooLarge, format!("the upload has {length} bytes and no more"))
}

fn locked() -> Problem {
    Problem::new(Code::Locked, "another request writes to this upload").retry_after(Duration::from_secs(1))
}

fn busy() -> Problem {
    Problem::new(Code::Unavailable, "the upload is being written or stored; ask again")
        .retry_after(Duration::from_secs(1))
}
