//! A file in one request: as the one file of a form, or as the body itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, Stream};
use http::{HeaderMap, header};
use multer::{Constraints, Field, Multipart, SizeLimit};

use super::headers::{self, content_type, file_name, sha256_of, told_sha256};
use super::receive::{Broken, Sink, arriving, batch, unwritable};
use crate::problem::{Code, Problem};

const FORM: &str = "multipart/form-data";
/// Beside its file, a form has only a few small fields.
const FORM_BYTES: u64 = 64 << 10;
/// Of what no part was made of yet: its headers, or what stands before the first one.
const HELD_BYTES: u64 = 256 << 10;

/// What came with the bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Came {
    pub(crate) name: Option<String>,
    pub(crate) sha256: Option<String>,
}

/// Whether a body of that type is a file, or a form with one.
pub(crate) fn require_file(headers: &HeaderMap) -> Result<(), Problem> {
    let told = content_type(headers);
    let is_media = ["video/", "audio/", "image/"].iter().any(|media| told.starts_with(media));
    if is_media || told == FORM || told == "application/octet-stream" {
        return Ok(());
    }
    let detail = "send the file as multipart/form-data, or as the body with a type such as video/mp4 or \
                  application/octet-stream";
    Err(Problem::new(Code::UnsupportedMediaType, detail))
}

/// Writes the one file of a request into a file. What is too large is refused before it is read, where it says so.
pub(crate) async fn take(request: Request, sink: &mut Sink, max_bytes: u64) -> Result<Came, Problem> {
    require_file(request.headers())?;
    let is_form = content_type(request.headers()) == FORM;
    let room = if is_form { max_bytes.saturating_add(FORM_BYTES) } else { max_bytes };
    if headers::bytes(request.headers(), &header::CONTENT_LENGTH)?.is_some_and(|told| told > room) {
        return Err(too_large(max_bytes));
    }
    let sha256 = told_sha256(request.headers())?;
    let mut came = if is_form {
        let boundary = header_text(request.headers()).and_then(|told| multer::parse_boundary(told).ok());
        let boundary =
            boundary.ok_or_else(|| Problem::invalid("content-type", "the form has no boundary"))?;
        take_form(request.into_body(), boundary, sink, max_bytes).await?
    } else {
        take_raw(request.into_body(), sink, max_bytes).await?;
        Came::default()
    };
    if came.sha256.is_some() && sha256.is_some() && came.sha256 != sha256 {
        return Err(Problem::invalid(
            "sha256",
            "the form and the header `Telecine-Sha256` tell different hashes",
        ));
    }
    came.sha256 = came.sha256.or(sha256);
    Ok(came)
}

fn header_text(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::CONTENT_TYPE)?.to_str().ok()
}

async fn take_raw(body: Body, sink: &mut Sink, max_bytes: u64) -> Result<(), Problem> {
    let mut parts = arriving(body);
    loop {
        let (parts, end) = batch(&mut parts).await;
        write(sink, parts, max_bytes).await?;
        match end {
            Some(ended) => return Ok(ended?),
            None => continue,
        }
    }
}

async fn take_form(body: Body, boundary: String, sink: &mut Sink, max_bytes: u64) -> Result<Came, Problem> {
    let held = Arc::new(AtomicU64::new(0));
    let parts = one_at_a_time(arriving(body), Arc::clone(&held));
    let whole = max_bytes.saturating_add(FORM_BYTES);
    let limits = Constraints::new().size_limit(SizeLimit::new().whole_stream(whole));
    let mut form = Multipart::with_constraints(parts, boundary, limits);
    let broken = |error| broken_form(error, max_bytes);
    let (mut came, mut has_file) = (Came::default(), false);
    while let Some(mut field) = form.next_field().await.map_err(broken)? {
        held.store(0, Ordering::Relaxed);
        let name = field.name().unwrap_or_default().to_owned();
        let is_file = field.file_name().is_some() || name == "file";
        if is_file && has_file {
            return Err(Problem::invalid("file", "a form has one file; send another request for the next"));
        } else if is_file {
            has_file = true;
            came.name = field.file_name().and_then(file_name);
            while let Some(part) = field.chunk().await.map_err(broken)? {
                held.store(0, Ordering::Relaxed);
                write(sink, vec![part], max_bytes).await?;
            }
        } else if name == "sha256" {
            let text = small_text(&mut field).await.map_err(broken)?;
            came.sha256 = Some(sha256_of("sha256", &text)?);
        } else {
            return Err(Problem::invalid(name, "a form has `file` and, if you like, `sha256`"));
        }
    }
    if has_file { Ok(came) } else { Err(Problem::invalid("file", "the form has no file")) }
}

/// What is longer than any that we know is cut, and is refused then.
async fn small_text(field: &mut Field<'_>) -> multer::Result<String> {
    let mut text = Vec::new();
    while let Some(part) = field.chunk().await? {
        text.extend_from_slice(&part[..part.len().min(1024 - text.len())]);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

async fn write(sink: &mut Sink, parts: Vec<Bytes>, max_bytes: u64) -> Result<(), Problem> {
    let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
    if sink.at().saturating_add(bytes) > max_bytes {
        return Err(too_large(max_bytes));
    }
    sink.write(parts).await.map_err(|error| unwritable(&error))
}

pub(crate) fn too_large(max_bytes: u64) -> Problem {
    Problem::new(Code::TooLarge, format!("the file is larger than the {max_bytes} bytes that are allowed"))
}

fn broken_form(error: multer::Error, max_bytes: u64) -> Problem {
    match error {
        multer::Error::StreamReadFailed(cause) => {
            cause.downcast_ref::<Broken>().copied().unwrap_or(Broken::Gone).into()
        }
        multer::Error::StreamSizeExceeded { .. } => too_large(max_bytes),
        other => Problem::invalid("", format!("this is no form: {other}")),
    }
}

/// The parser of forms reads on for as long as something is there, and keeps all that it made no part of. So it is given
/// one thing at a time, and an end when it has kept too much.
fn one_at_a_time(
    mut parts: BoxStream<'static, Result<Bytes, Broken>>,
    held: Arc<AtomicU64>,
) -> impl Stream<Item = Result<Bytes, Broken>> + Send + 'static {
    let mut has_given = false;
    stream::poll_fn(move |context| {
        if std::mem::take(&mut has_given) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let polled = parts.poll_next_unpin(context);
        if let Poll::Ready(Some(Ok(part))) = &polled {
            has_given = true;
            let bytes = part.len() as u64;
            if held.fetch_add(bytes, Ordering::Relaxed) > HELD_BYTES {
                return Poll::Ready(Some(Err(Broken::Unending)));
            }
        }
        polled
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn taken(body: Body) -> (Result<Came, Problem>, Vec<u8>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut sink = Sink::new(Arc::new(file.reopen().unwrap()));
        let request = Request::post("/").header("content-type", "multipart/form-data; boundary=XX");
        let came = take(request.body(body).unwrap(), &mut sink, 1_000_000).await;
        (came, std::fs::read(file.path()).unwrap())
    }

    fn part(name: &str, rest: &str, content: &str) -> String {
        format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"{rest}\r\n\r\n{content}\r\n")
    }

    #[tokio::test]
    async fn the_one_file_of_a_form_is_taken_with_its_name_and_hash() {
        let digest = "0A".repeat(32);
        let form = part("sha256", "", &digest) + &part("f", "; filename=\"a/b.mp4\"", "bytes") + "--XX--\r\n";

        let (came, file) = taken(form.into()).await;

        let wanted = Came { name: Some("b.mp4".into()), sha256: Some("0a".repeat(32)) };
        assert_eq!((came.unwrap(), file.as_slice()), (wanted, b"bytes".as_slice()));
    }

    #[tokio::test]
    async fn what_is_no_form_with_one_file_is_refused() {
        let file = part("file", "; filename=\"a\"", "bytes");
        for (form, code) in [
            (format!("{file}{file}--XX--"), Code::InvalidRequest),
            (part("other", "", "x") + "--XX--", Code::InvalidRequest),
            ("--XX--".to_owned(), Code::InvalidRequest),
            (file.clone(), Code::InvalidRequest),
            (String::new(), Code::InvalidRequest),
            (part("sha256", "", "zz") + &file + "--XX--", Code::InvalidRequest),
            (part("file", "", &"x".repeat(1_000_001)) + "--XX--", Code::TooLarge),
            (part("file", "", &"x".repeat(2_000_001)) + "--XX--", Code::TooLarge),
        ] {
            let (came, _) = taken(Body::from_stream(pieces(form.clone()))).await;
            assert_eq!(came.unwrap_err().code(), code, "{}", &form[..form.len().min(90)]);
        }
    }

    #[tokio::test]
    async fn headers_without_an_end_are_not_kept_in_memory() {
        let endless = stream::repeat_with(|| Ok::<_, Broken>(Bytes::from_static(&[b'x'; 4096])));
        let head = stream::iter([Ok(Bytes::from_static(b"--XX\r\nContent-Disposition: form-data; "))]);

        let (came, _) = taken(Body::from_stream(head.chain(endless))).await;

        assert_eq!(came.unwrap_err().code(), Code::InvalidRequest);
    }

    /// As a network would deliver it, always ready.
    fn pieces(text: String) -> impl Stream<Item = Result<Bytes, Broken>> {
        let pieces: Vec<_> =
            text.as_bytes().chunks(1000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        stream::iter(pieces)
    }
}
