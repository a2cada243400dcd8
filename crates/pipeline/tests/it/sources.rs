//! Where inputs come from, and that every job reads the same bytes of them.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use libtest_mimic::Trial;
use telecine_pipeline::records::{INPUT, InputRecord, SourceAt, read};
use telecine_pipeline::{Blobs, CompletedUpload, Input, Published, PullPatience, Workshop, keys};
use telecine_queue::{RunId, RunState};

use crate::clips;
use crate::http_server::{HttpServer, meddle, respond};
use crate::s3_server::{BUCKET, S3Server};
use crate::studio::{Studio, hls, recipe};

pub(crate) fn trials() -> Vec<Trial> {
    macro_rules! all {
        ($($promise:ident),+ $(,)?) => { vec![$(trial(stringify!($promise), $promise)),+] };
    }
    all![
        a_film_in_a_bucket_has_the_bytes_of_one_in_a_folder,
        one_download_serves_all_jobs_of_a_worker,
        a_url_is_pulled_hashed_and_stored,
        a_pull_that_breaks_goes_on_where_it_stopped,
        a_pull_that_cannot_go_on_starts_over,
        a_file_that_changed_meanwhile_is_pulled_anew,
        an_endless_answer_is_cut_at_the_limit,
        a_redirect_is_not_followed,
        inner_addresses_are_never_visited,
        what_a_server_refuses_is_told,
        a_silent_server_is_left,
        a_server_without_a_certificate_is_left,
        an_object_of_an_allowed_bucket_is_taken,
        no_other_bucket_is_read,
        no_file_of_our_own_is_read,
        a_complete_upload_is_taken_and_may_go,
        an_upload_with_other_bytes_is_refused,
    ]
}

fn trial<F: Future<Output = ()>>(name: &str, promise: impl FnOnce() -> F + Send + 'static) -> Trial {
    Trial::test(format!("sources::{name}"), move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(Box::pin(promise()));
        Ok(())
    })
}

async fn a_film_in_a_bucket_has_the_bytes_of_one_in_a_folder() {
    let server = S3Server::start();
    let here = Studio::open().await;
    let there = Studio::with(server.open("deep/prefix"), |_| ()).await;
    clips::film(4, &here.file("film.mp4"));
    std::fs::copy(here.file("film.mp4"), there.file("film.mp4")).unwrap();

    let mut made = Vec::new();
    for studio in [&here, &there] {
        let run = studio.submit(&recipe(vec![hls()]), &studio.file("film.mp4")).await;
        let ended = studio.ended(&run).await;
        assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
        made.push(files(studio, &run).await);
    }

    assert!(made[0].len() > 10, "{:?}", made[0].keys());
    assert_eq!(made[0].keys().collect::<Vec<_>>(), made[1].keys().collect::<Vec<_>>());
    assert!(made[0] == made[1], "some bytes differ");
    // The source is kept once, and nothing else is left.
    let scratch = there.shop.scratch.root().to_owned();
    let kept = std::fs::read_dir(scratch.join("sources")).unwrap().count();
    assert_eq!((kept, server.unfinished()), (1, Vec::new()));
    here.close().await;
    there.close().await;
    let left: Vec<_> =
        std::fs::read_dir(&scratch).into_iter().flatten().map(|it| it.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "sources"), "{left:?}");
}

async fn one_download_serves_all_jobs_of_a_worker() {
    let (server, downloads) = (S3Server::start(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&downloads);
    let port = meddle(server.port, move |part| {
        let head = part.split(|byte| *byte == b'\r').next().unwrap_or_default();
        if head.starts_with(b"GET ") && head.windows(7).any(|word| word == b"/source") {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let studio = Studio::with(server.open_through(port), |_| ()).await;
    clips::film(4, &studio.file("film.mp4"));

    let run = studio.submit(&recipe(vec![hls()]), &studio.file("film.mp4")).await;
    let ended = studio.ended(&run).await;

    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    assert_eq!(downloads.load(Ordering::SeqCst), 1);
    studio.close().await;
}

/// Every published file by its path, as the store has it; each has the hash that is recorded.
async fn files(studio: &Studio, run: &RunId) -> BTreeMap<String, Bytes> {
    let mut files = BTreeMap::new();
    for file in studio.outputs(run).await.into_iter().flat_map(|output| output.files) {
        let bytes = studio.shop.blobs.get_bytes(&file.key).await.unwrap();
        assert_eq!((bytes.len() as u64, sha256(&bytes)), (file.bytes, file.sha256));
        files.insert(file.path, bytes);
    }
    files
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A small picture: what is asked here is only how it gets in.
pub(crate) fn picture() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("picture.png");
    clips::ffmpeg(&["-f", "lavfi", "-i", "testsrc2=size=320x180", "-frames:v", "1"], &file);
    std::fs::read(file).unwrap()
}

/// A studio that may pull from this machine.
async fn open_to_loopback() -> Studio {
    in_folder(|shop| shop.allow_private_urls = true).await
}

async fn in_folder(arrange: impl FnOnce(&mut Workshop)) -> Studio {
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", folder.path().join("queue.db").display());
    let queue = telecine_queue::open(&database).await.unwrap();
    let blobs = Blobs::in_folder(&folder.path().join("store")).unwrap();
    let scratch = folder.path().join("scratch");
    Studio::arranged(queue, blobs, folder, &scratch, arrange).await
}

/// What was taken in; the recipe has no steps.
async fn taken(studio: &Studio, input: Input) -> InputRecord {
    let run = studio.submit_input(&recipe(Vec::new()), input).await;
    let ended = studio.ended(&run).await;
    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    read(&*studio.queue, &run, INPUT).await.unwrap().unwrap()
}

async fn refusal(studio: &Studio, input: Input) -> (String, String, bool) {
    let run = studio.submit_input(&recipe(Vec::new()), input).await;
    let failure = studio.failed(&run).await;
    (failure.code, failure.message, failure.retryable)
}

async fn stored(studio: &Studio, input: &InputRecord) -> Bytes {
    let SourceAt::Blob { key } = &input.at else { panic!("{input:?}") };
    studio.shop.blobs.get_bytes(key).await.unwrap()
}

async fn a_url_is_pulled_hashed_and_stored() {
    let picture = picture();
    let served = picture.clone();
    let server = HttpServer::start(move |_, stream| respond(stream, "200 OK", &[], &served));
    let studio = open_to_loopback().await;

    let input = taken(&studio, Input::Url(server.url("/a.png?signature=hush"))).await;

    assert_eq!(input.sha256, sha256(&picture));
    assert_eq!(stored(&studio, &input).await, picture);
    assert_eq!(input.uri, server.url("/a.png?…"));
    studio.close().await;
}

async fn a_pull_that_breaks_goes_on_where_it_stopped() {
    let picture = picture();
    let (served, half) = (picture.clone(), picture.len() / 2);
    let server = HttpServer::start(move |request, stream| match request.header("range") {
        None => cut(stream, &[("ETag", "\"one\"")], &served, half),
        Some(_) => {
            let range = format!("bytes {half}-{}/{}", served.len() - 1, served.len());
            respond(stream, "206 Partial Content", &[("Content-Range", &range)], &served[half..]);
        }
    });
    let studio = open_to_loopback().await;

    let input = taken(&studio, Input::Url(server.url("/a.png"))).await;

    assert_eq!(input.sha256, sha256(&picture));
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1].header("range"), Some(format!("bytes={half}-").as_str()));
    assert_eq!(seen[1].header("if-range"), Some("\"one\""));
    studio.close().await;
}

async fn a_pull_that_cannot_go_on_starts_over() {
    let picture = picture();
    let (served, half) = (picture.clone(), picture.len() / 2);
    let asked = AtomicU32::new(0);
    let server = HttpServer::start(move |_, stream| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => cut(stream, &[], &served, half),
        _ => respond(stream, "200 OK", &[], &served),
    });
    let studio = open_to_loopback().await;

    let input = taken(&studio, Input::Url(server.url("/a.png"))).await;

    assert_eq!(input.sha256, sha256(&picture));
    assert!(server.seen().iter().all(|request| request.header("range").is_none()));
    studio.close().await;
}

/// `If-Range` makes the server send the new file whole.
async fn a_file_that_changed_meanwhile_is_pulled_anew() {
    let picture = picture();
    let (served, old) = (picture.clone(), vec![b'x'; 5_000]);
    let server = HttpServer::start(move |request, stream| match request.header("range") {
        None => cut(stream, &[("ETag", "\"old\"")], &old, 3_000),
        Some(_) => respond(stream, "200 OK", &[("ETag", "\"new\"")], &served),
    });
    let studio = open_to_loopback().await;

    let input = taken(&studio, Input::Url(server.url("/a.png"))).await;

    assert_eq!(input.sha256, sha256(&picture));
    studio.close().await;
}

/// Promises all of it and sends some.
fn cut(stream: &mut std::net::TcpStream, headers: &[(&str, &str)], body: &[u8], sent: usize) {
    let mut head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(&[head.as_bytes(), b"\r\n", &body[..sent]].concat()).unwrap();
}

async fn an_endless_answer_is_cut_at_the_limit() {
    let endless = HttpServer::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        while stream.write_all(&[b"1000\r\n", &[b'x'; 0x1000][..], b"\r\n"].concat()).is_ok() {}
    });
    let large = HttpServer::start(|_, stream| respond(stream, "200 OK", &[], &[0; 200_001]));
    let studio = in_folder(|shop| {
        shop.allow_private_urls = true;
        shop.limits.file_bytes = 200_000;
    })
    .await;

    for server in [endless, large] {
        let (code, _, retryable) = refusal(&studio, Input::Url(server.url("/x"))).await;
        assert_eq!((code.as_str(), retryable), ("limit_size", false));
    }
    studio.close().await;
}

async fn a_redirect_is_not_followed() {
    let canary = HttpServer::start(|_, stream| respond(stream, "200 OK", &[], b"caught"));
    let target = canary.url("/inner");
    let to = target.clone();
    let server = HttpServer::start(move |_, stream| respond(stream, "302 Found", &[("Location", &to)], b""));
    let studio = open_to_loopback().await;

    let (code, message, retryable) = refusal(&studio, Input::Url(server.url("/x"))).await;

    assert_eq!((code.as_str(), retryable), ("input_redirected", false));
    assert!(message.contains(&target), "{message}");
    assert!(canary.seen().is_empty());
    studio.close().await;
}

async fn inner_addresses_are_never_visited() {
    let canary = HttpServer::start(|_, stream| respond(stream, "200 OK", &[], b"caught"));
    let port = canary.port;
    let studio = in_folder(|_| ()).await;
    let hosts = ["127.0.0.1", "localhost", "0x7f.1", "2130706433", "0", "[::1]", "[::ffff:7f00:1]"];

    for host in hosts {
        let address = format!("http://{host}:{port}/x");
        let (code, message, retryable) = refusal(&studio, Input::Url(address)).await;
        assert_eq!((code.as_str(), retryable), ("input_denied", false), "{host}: {message}");
    }

    for address in ["file:///etc/passwd", "ftp://a.example/x", "gopher://a.example/x"] {
        let (code, ..) = refusal(&studio, Input::Url(address.to_owned())).await;
        assert_eq!(code, "input_denied", "{address}");
    }
    assert!(canary.seen().is_empty());
    studio.close().await;
}

async fn what_a_server_refuses_is_told() {
    let server = HttpServer::start(|request, stream| {
        let status = request.target.trim_start_matches('/');
        respond(stream, &format!("{status} Told"), &[], b"");
    });
    let studio = open_to_loopback().await;

    let expected =
        [(404, "input_not_found", false), (403, "input_denied", false), (503, "input_unavailable", true)];
    for (status, code, retryable) in expected {
        let (told, message, retried) = refusal(&studio, Input::Url(server.url(&format!("/{status}")))).await;
        assert_eq!((told.as_str(), retried), (code, retryable), "{message}");
    }
    studio.close().await;
}

async fn a_silent_server_is_left() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let short = Duration::from_millis(200);
    let stalled = HttpServer::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").unwrap();
        // Until the other end leaves.
        let _ = std::io::Read::read(stream, &mut [0]);
    });
    let studio = in_folder(|shop| {
        shop.allow_private_urls = true;
        shop.pull_patience = PullPatience { head: short, idle: short, tries: 2, ..PullPatience::default() };
    })
    .await;

    for port in [silent.local_addr().unwrap().port(), stalled.port] {
        let address = format!("http://127.0.0.1:{port}/x");
        let (code, message, retryable) = refusal(&studio, Input::Url(address)).await;
        assert_eq!((code.as_str(), retryable), ("input_unavailable", true), "{message}");
    }
    studio.close().await;
}

async fn a_server_without_a_certificate_is_left() {
    let server = HttpServer::start(|_, stream| respond(stream, "200 OK", &[], b"in the clear"));
    let studio = in_folder(|shop| {
        shop.allow_private_urls = true;
        shop.pull_patience.tries = 1;
    })
    .await;

    let address = format!("https://127.0.0.1:{}/x", server.port);
    let (code, message, retryable) = refusal(&studio, Input::Url(address)).await;

    assert_eq!((code.as_str(), retryable), ("input_unavailable", true), "{message}");
    assert!(server.seen().is_empty());
    studio.close().await;
}

async fn an_object_of_an_allowed_bucket_is_taken() {
    let server = S3Server::start();
    let picture = picture();
    server.open("inputs").put_bytes("a/b.png", picture.clone().into()).await.unwrap();
    let allowed = format!("s3://{BUCKET}/inputs");
    let studio = Studio::with(server.open("store"), |shop| shop.input_buckets.push(allowed.clone())).await;

    let input = taken(&studio, Input::S3(format!("{allowed}/a/b.png"))).await;
    let missing = refusal(&studio, Input::S3(format!("{allowed}/a/none.png"))).await;

    assert_eq!(input.sha256, sha256(&picture));
    assert_eq!(stored(&studio, &input).await, picture);
    assert_eq!((missing.0.as_str(), missing.2), ("input_not_found", false));
    studio.close().await;
}

async fn no_other_bucket_is_read() {
    let server = S3Server::start();
    let blobs = server.open("store");
    blobs.put_bytes("other-tenant/run/source", Bytes::from_static(b"secret")).await.unwrap();
    let studio = Studio::with(blobs, |shop| {
        shop.input_buckets.extend([format!("s3://{BUCKET}/store"), format!("s3://{BUCKET}/inputs")]);
    })
    .await;

    for key in ["store/other-tenant/run/source", "elsewhere/x", "inputs/../store/other-tenant/run/source"] {
        let (code, message, _) = refusal(&studio, Input::S3(format!("s3://{BUCKET}/{key}"))).await;
        assert_eq!(code, "input_denied", "{message}");
    }
    studio.close().await;
}

/// Though they lie in a folder that inputs may come from.
async fn no_file_of_our_own_is_read() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    let (published, uploads) = (root.join("published"), root.join("uploads"));
    std::fs::create_dir(&uploads).unwrap();
    let studio = in_folder(|shop| {
        shop.published = Published::in_place(published.to_str().unwrap(), &shop.blobs).unwrap();
        shop.uploads = Some(uploads.clone());
        shop.input_folders.push(root.clone());
    })
    .await;
    let blobs = &studio.shop.blobs;
    blobs.put_bytes("other-tenant/run/picture.png", picture().into()).await.unwrap();
    let made = blobs.local_path("other-tenant/run/picture.png").unwrap();
    let (link, mine) = (root.join("link.png"), root.join("mine.png"));
    std::os::unix::fs::symlink(&made, &link).unwrap();
    let copies =
        [published.as_path(), &uploads, studio.shop.scratch.root()].map(|own| own.join("picture.png"));
    for copy in copies.iter().chain([&mine]) {
        std::fs::copy(&made, copy).unwrap();
    }

    for path in copies.into_iter().chain([made, link]) {
        let (code, message, _) = refusal(&studio, Input::Path(path)).await;
        assert_eq!(code, "input_denied", "{message}");
    }
    taken(&studio, Input::Path(mine)).await;
    studio.close().await;
}

async fn a_complete_upload_is_taken_and_may_go() {
    let server = S3Server::start();
    let folder = tempfile::tempdir().unwrap();
    for blobs in [server.open("store"), Blobs::in_folder(folder.path()).unwrap()] {
        let picture = picture();
        let studio = Studio::with(blobs.clone(), |_| ()).await;
        put_upload(&blobs, "01JX", &picture, &sha256(&picture)).await;

        let input = taken(&studio, Input::Upload("01JX".into())).await;
        let unknown = refusal(&studio, Input::Upload("01JY".into())).await;
        let foreign = refusal(&studio, Input::Upload("../../other/uploads/01JX".into())).await;

        for key in blobs.list("_/uploads").await.unwrap() {
            blobs.delete(&key).await.unwrap();
        }
        assert_eq!(input.sha256, sha256(&picture));
        assert_eq!(stored(&studio, &input).await, picture);
        assert_eq!((unknown.0.as_str(), foreign.0.as_str()), ("input_not_found", "input_not_found"));
        studio.close().await;
    }
}

async fn an_upload_with_other_bytes_is_refused() {
    let server = S3Server::start();
    let folder = tempfile::tempdir().unwrap();
    for blobs in [server.open("store"), Blobs::in_folder(folder.path()).unwrap()] {
        let (mut picture, studio) = (picture(), Studio::with(blobs.clone(), |_| ()).await);
        let promised = sha256(&picture);
        let last = picture.len() - 1;
        picture[last] ^= 1;
        put_upload(&blobs, "flipped", &picture, &promised).await;

        let (code, message, _) = refusal(&studio, Input::Upload("flipped".into())).await;

        assert_eq!(code, "storage_corrupt", "{message}");
        studio.close().await;
    }
}

pub(crate) async fn put_upload(blobs: &Blobs, id: &str, bytes: &[u8], sha256: &str) {
    let said =
        CompletedUpload { bytes: bytes.len() as u64, sha256: sha256.to_owned(), name: None, infected: None };
    let (key, sidecar) = (keys::upload("", id).unwrap(), keys::upload_sidecar("", id).unwrap());
    blobs.put_bytes(&key, Bytes::copy_from_slice(bytes)).await.unwrap();
    blobs.put_bytes(&sidecar, serde_json::to_vec(&said).unwrap().into()).await.unwrap();
}
