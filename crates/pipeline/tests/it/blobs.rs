//! What a store promises, in a folder and on a real S3 server.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::TryStreamExt;
use libtest_mimic::Trial;
use telecine_pipeline::{BlobMeta, Blobs};

use crate::http_server::{HttpServer, meddle, respond};
use crate::s3_server::{BUCKET, S3Server, options_for, unsigned_options_for};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    macro_rules! everywhere {
        ($($promise:ident),+ $(,)?) => {$(
            trials.push(trial(concat!("folder::", stringify!($promise)), || async {
                let folder = tempfile::tempdir().unwrap();
                $promise(Blobs::in_folder(&folder.path().join("store")).unwrap()).await;
            }));
            trials.push(trial(concat!("bucket::", stringify!($promise)), || async {
                let server = S3Server::start();
                $promise(server.open("some/prefix")).await;
                assert_eq!(server.unfinished(), Vec::<String>::new());
            }));
        )+};
    }
    everywhere![
        what_is_put_is_found_again,
        a_listing_tells_sizes_and_times_below_a_prefix,
        many_blobs_are_deleted_at_once,
        a_large_file_is_stored_whole,
        of_those_who_put_something_new_one_is_first,
        a_link_is_never_stored,
        a_key_cannot_leave_the_store,
        a_blob_is_read_in_part,
    ];
    macro_rules! alone {
        ($($promise:ident),+ $(,)?) => {$(trials.push(trial(stringify!($promise), $promise));)+};
    }
    alone![
        a_store_is_opened_by_its_address,
        prefixes_of_a_bucket_do_not_see_each_other,
        an_upload_that_is_given_up_leaves_nothing,
        an_upload_that_fails_leaves_nothing,
        uploads_that_nobody_ended_are_aborted_by_age,
        staged_files_of_the_dead_are_removed_by_age,
        what_a_store_makes_is_for_nobody_else,
        a_file_is_published_by_a_link_and_stays_when_the_scratch_goes,
        a_presigned_address_is_readable_without_credentials,
        wrong_credentials_are_told_as_such,
        a_missing_bucket_is_told_as_such,
        a_server_that_is_not_there_fails_in_bounded_time,
        a_server_that_never_answers_fails_in_bounded_time,
        a_server_that_is_full_is_told_as_such,
        a_busy_server_is_asked_again,
        a_byte_that_changes_on_the_way_is_noticed,
        a_store_that_overwrites_is_found_out,
    ];
    trials
}

fn trial<F: Future<Output = ()>>(name: &str, promise: impl FnOnce() -> F + Send + 'static) -> Trial {
    Trial::test(format!("blobs::{name}"), move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(Box::pin(promise()));
        Ok(())
    })
}

async fn what_a_store_makes_is_for_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("deep/store");
    let blobs = Blobs::in_folder(&root).unwrap();
    std::fs::write(folder.path().join("file"), "bytes").unwrap();

    blobs.put_bytes("a/bytes", "bytes".into()).await.unwrap();
    assert!(blobs.put_new("b/new", "bytes".into()).await.unwrap());
    blobs.put_file("c/d/file", &folder.path().join("file")).await.unwrap();

    let mode = |path: &str| root.join(path).metadata().unwrap().permissions().mode() & 0o777;
    for made in ["", "a", "b", "c", "c/d"] {
        assert_eq!(mode(made), 0o700, "{made}");
    }
    assert_eq!((mode("a/bytes"), mode("b/new")), (0o600, 0o600));
}

async fn what_is_put_is_found_again(blobs: Blobs) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, b"from a file").unwrap();

    blobs.check().await.unwrap();
    blobs.put_file("acme/run/file", &file).await.unwrap();
    blobs.put_bytes("acme/run/bytes", Bytes::from_static(b"old")).await.unwrap();
    blobs.put_bytes("acme/run/bytes", Bytes::from_static(b"of memory")).await.unwrap();

    assert_eq!(blobs.get_bytes("acme/run/file").await.unwrap(), "from a file");
    assert_eq!(blobs.get_bytes("acme/run/bytes").await.unwrap(), "of memory");
    assert_eq!(blobs.head("acme/run/file").await.unwrap().unwrap().bytes, 11);
    assert_eq!(blobs.head("acme/run/other").await.unwrap(), None);
    let missing = blobs.get_bytes("acme/run/other").await.unwrap_err();
    assert_eq!((missing.code(), missing.is_retryable()), ("blob_not_found", false));
    blobs.delete("acme/run/file").await.unwrap();
    blobs.delete("acme/run/file").await.unwrap();
    assert_eq!(blobs.head("acme/run/file").await.unwrap(), None);
}

async fn a_listing_tells_sizes_and_times_below_a_prefix(blobs: Blobs) {
    for key in ["a/run/x", "a/run/y/z", "a/runner", "b/run/x"] {
        blobs.put_bytes(key, Bytes::from_static(b"12345")).await.unwrap();
    }

    let mut found: Vec<BlobMeta> = blobs.entries("a/run").try_collect().await.unwrap();

    found.sort_by(|a, b| a.key.cmp(&b.key));
    let keys: Vec<&str> = found.iter().map(|meta| meta.key.as_str()).collect();
    assert_eq!(keys, ["a/run/x", "a/run/y/z"]);
    assert!(found.iter().all(|meta| meta.bytes == 5 && meta.modified_at.elapsed().unwrap() < PATIENCE));
    assert_eq!(blobs.list("c").await.unwrap(), Vec::<String>::new());
}

async fn many_blobs_are_deleted_at_once(blobs: Blobs) {
    let keys: Vec<String> = (0..30).map(|n| format!("a/run/{n}")).collect();
    for key in &keys {
        blobs.put_bytes(key, Bytes::from_static(b"x")).await.unwrap();
    }

    blobs.delete_all(keys.iter().skip(1).cloned().chain(["a/run/none".to_owned()])).await.unwrap();

    assert_eq!(blobs.list("a").await.unwrap(), ["a/run/0"]);
}

async fn a_large_file_is_stored_whole(blobs: Blobs) {
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("file"), folder.path().join("copy"));
    let written = noise(20 << 20, &file);

    blobs.put_file("a/run/source", &file).await.unwrap();
    let fetched = blobs.fetch("a/run/source", &copy).await.unwrap();

    assert_eq!(fetched.bytes, 20 << 20);
    assert!(std::fs::read(&copy).unwrap() == written, "other bytes came back");
    let middle = blobs.get_range("a/run/source", (8 << 20) - 2..(8 << 20) + 2).await.unwrap();
    assert_eq!(middle, written[(8 << 20) - 2..(8 << 20) + 2]);
}

async fn of_those_who_put_something_new_one_is_first(blobs: Blobs) {
    let mut tasks = tokio::task::JoinSet::new();
    assert!(blobs.put_new("a/cache/first", Bytes::from_static(b"x")).await.unwrap());
    for n in 0..6 {
        let blobs = blobs.clone();
        tasks.spawn(async move {
            // None of these is the first: s3s-fs looks and writes in two steps, so of two firsts at once both would be.
            blobs.put_new("a/cache/first", Bytes::from(vec![n])).await.unwrap()
        });
    }

    let was_new: Vec<bool> = tasks.join_all().await;

    assert!(was_new.iter().all(|new| !new), "{was_new:?}");
    assert_eq!(blobs.get_bytes("a/cache/first").await.unwrap(), "x");
}

async fn a_link_is_never_stored(blobs: Blobs) {
    let folder = tempfile::tempdir().unwrap();
    let (secret, link) = (folder.path().join("secret"), folder.path().join("link"));
    std::fs::write(&secret, b"secret").unwrap();
    std::os::unix::fs::symlink(&secret, &link).unwrap();

    let error = blobs.put_file("a/run/x", &link).await.unwrap_err();

    assert_eq!(error.code(), "storage_invalid");
    assert_eq!(blobs.head("a/run/x").await.unwrap(), None);
}

async fn a_key_cannot_leave_the_store(blobs: Blobs) {
    for key in ["../x", "a/../../x", "a/./x", "a//x"] {
        let put = blobs.put_bytes(key, Bytes::from_static(b"x")).await;

        assert_eq!(put.map_err(|error| error.code()), Err("storage_invalid"), "{key}");
        assert_eq!(blobs.local_path(key), None, "{key}");
    }
}

async fn a_blob_is_read_in_part(blobs: Blobs) {
    blobs.put_bytes("a/run/x", Bytes::from_static(b"0123456789")).await.unwrap();

    let reader = blobs.read("a/run/x", Some(2..5)).await.unwrap();

    assert_eq!((reader.meta.bytes, reader.range.clone()), (10, 2..5));
    let parts: Vec<Bytes> = reader.parts.try_collect().await.unwrap();
    assert_eq!(parts.concat(), b"234");
    assert_eq!(blobs.get_range("a/run/x", 8..100).await.unwrap(), "89");
}

async fn a_store_is_opened_by_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/store");
    let url = url::Url::from_file_path(&path).unwrap();

    let by_url = Blobs::open(url.as_str()).unwrap();
    by_url.put_bytes("a/x", Bytes::from_static(b"x")).await.unwrap();

    let by_path = Blobs::open(path.to_str().unwrap()).unwrap();
    assert_eq!(by_path.get_bytes("a/x").await.unwrap(), "x");
    assert_eq!(by_path.local_path("a/x"), Some(path.canonicalize().unwrap().join("a/x")));
    for wrong in ["gs://bucket/x", "http://films/x", "s3://"] {
        assert_eq!(Blobs::open(wrong).map(drop).unwrap_err().code(), "storage_invalid", "{wrong}");
    }
}

async fn prefixes_of_a_bucket_do_not_see_each_other() {
    let server = S3Server::start();
    let (one, two, all) = (server.open("one"), server.open("two"), server.open(""));
    one.put_bytes("a/x", Bytes::from_static(b"1")).await.unwrap();
    two.put_bytes("a/x", Bytes::from_static(b"2")).await.unwrap();

    assert_eq!(one.get_bytes("a/x").await.unwrap(), "1");
    assert_eq!(one.list("").await.unwrap(), ["a/x"]);
    let mut everything = all.list("").await.unwrap();
    everything.sort();
    assert_eq!(everything, ["one/a/x", "two/a/x"]);
}

async fn an_upload_that_is_given_up_leaves_nothing() {
    let server = S3Server::start();
    let blobs = server.open("");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    noise(48 << 20, &file);

    let upload = tokio::spawn({
        let blobs = blobs.clone();
        async move { blobs.put_file("a/run/source", &file).await }
    });
    until("parts arrive", || server.unfinished().len() > 1).await;
    upload.abort();

    assert!(upload.await.unwrap_err().is_cancelled());
    until("the parts are gone", || server.unfinished().is_empty()).await;
    assert_eq!(blobs.head("a/run/source").await.unwrap(), None);
}

/// The file becomes shorter while it is being stored.
async fn an_upload_that_fails_leaves_nothing() {
    let server = S3Server::start();
    let blobs = server.open("");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    noise(80 << 20, &file);
    let cut = std::fs::OpenOptions::new().write(true).open(&file).unwrap();

    let upload = tokio::spawn({
        let blobs = blobs.clone();
        async move { blobs.put_file("a/run/source", &file).await }
    });
    until("parts arrive", || server.unfinished().len() > 1).await;
    cut.set_len(1 << 20).unwrap();

    assert_eq!(upload.await.unwrap().unwrap_err().code(), "storage_invalid");
    assert_eq!(server.unfinished(), Vec::<String>::new());
    assert_eq!(blobs.head("a/run/source").await.unwrap(), None);
}

/// s3s-fs cannot list them; this server answers as AWS documents it.
async fn uploads_that_nobody_ended_are_aborted_by_age() {
    let server = HttpServer::start(|request, stream| match request.method.as_str() {
        "GET" if request.target.contains("uploads=") && !request.target.contains("key-marker=") => {
            let body = r#"<?xml version="1.0" encoding="UTF-8"?>
                <ListMultipartUploadsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Bucket>films</Bucket>
                <KeyMarker></KeyMarker><UploadIdMarker></UploadIdMarker><NextKeyMarker>mine/a/run_01JD0000000000000000000000/old</NextKeyMarker>
                <NextUploadIdMarker>OLD</NextUploadIdMarker><MaxUploads>1</MaxUploads><IsTruncated>true</IsTruncated>
                <Upload><Key>mine/a/run_01JD0000000000000000000000/old</Key><UploadId>OLD</UploadId><StorageClass>STANDARD</StorageClass>
                <Initiated>2020-11-10T20:48:33.000Z</Initiated></Upload>
                <Upload><Key>mine/backups//huge.tar</Key><UploadId>OF_OTHERS</UploadId>
                <Initiated>2020-11-10T20:48:33.000Z</Initiated></Upload></ListMultipartUploadsResult>"#;
            respond(stream, "200 OK", &[("Content-Type", "application/xml")], body.as_bytes());
        }
        "GET" => {
            let body = r#"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated><Upload>
                <Key>mine/a/run_01JD0000000000000000000000/new</Key><UploadId>NEW</UploadId><Initiated>2999-11-10T20:48:33.000Z</Initiated></Upload>
                </ListMultipartUploadsResult>"#;
            respond(stream, "200 OK", &[("Content-Type", "application/xml")], body.as_bytes());
        }
        _ => respond(stream, "204 No Content", &[], b""),
    });
    let blobs = Blobs::open_with(&format!("s3://{BUCKET}/mine"), &options_for(server.port, "x")).unwrap();

    let aborted = blobs.sweep_unfinished(Duration::from_hours(24)).await.unwrap();

    assert_eq!(aborted, 1);
    let seen = server.seen();
    assert!(seen[0].target.contains("prefix=mine%2F") && seen[0].target.contains("X-Amz-Signature="));
    let deleted: Vec<&str> =
        seen.iter().filter(|it| it.method == "DELETE").map(|it| it.target.as_str()).collect();
    assert_eq!(deleted, ["/films/mine/a/run_01JD0000000000000000000000/old?uploadId=OLD"]);
}

async fn staged_files_of_the_dead_are_removed_by_age() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::in_folder(folder.path()).unwrap();
    blobs.put_bytes("a/run/x", Bytes::from_static(b"x")).await.unwrap();
    std::fs::write(folder.path().join("a/run/y#123"), b"half").unwrap();
    assert_eq!(blobs.list("").await.unwrap(), ["a/run/x"]);

    assert_eq!(blobs.sweep_unfinished(Duration::from_hours(1)).await.unwrap(), 0);
    assert_eq!(blobs.sweep_unfinished(Duration::ZERO).await.unwrap(), 1);

    assert_eq!(names(&folder.path().join("a/run")), ["x"]);
}

async fn a_file_is_published_by_a_link_and_stays_when_the_scratch_goes() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::in_folder(&folder.path().join("store")).unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, b"made").unwrap();

    blobs.put_file("a/run/x", &file).await.unwrap();
    let stored = blobs.local_path("a/run/x").unwrap();
    assert_eq!(stored.metadata().unwrap().ino(), file.metadata().unwrap().ino());
    // A second time, both names are of one file already.
    blobs.put_file("a/run/x", &file).await.unwrap();
    std::fs::remove_file(&file).unwrap();

    assert_eq!(blobs.get_bytes("a/run/x").await.unwrap(), "made");
    assert_eq!(names(stored.parent().unwrap()), ["x"]);
}

async fn a_presigned_address_is_readable_without_credentials() {
    let server = S3Server::start();
    let blobs = server.open("deep");
    blobs.put_bytes("a/run/x.mp4", Bytes::from_static(b"0123456789")).await.unwrap();

    let url = blobs.presigned("a/run/x.mp4", PATIENCE).await.unwrap().unwrap();
    let ranged = get(url.clone(), Some("bytes=2-4")).await;
    let other = get(url.as_str().replace("x.mp4", "y.mp4").parse().unwrap(), None).await;

    assert_eq!((ranged.status().as_u16(), other.status().as_u16()), (206, 403));
    assert_eq!(ranged.headers()["content-type"], "video/mp4");
    assert_eq!(ranged.text().await.unwrap(), "234");
    let folder = tempfile::tempdir().unwrap();
    let local = Blobs::in_folder(folder.path()).unwrap();
    assert_eq!(local.presigned("a/run/x.mp4", PATIENCE).await.unwrap(), None);
}

async fn get(url: url::Url, range: Option<&str>) -> reqwest::Response {
    let mut request = reqwest::Client::builder().no_proxy().build().unwrap().get(url);
    if let Some(range) = range {
        request = request.header("Range", range);
    }
    request.send().await.unwrap()
}

async fn wrong_credentials_are_told_as_such() {
    let server = S3Server::start();
    let blobs = Blobs::open_with(&format!("s3://{BUCKET}"), &server.options_with_wrong_key()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    noise(17 << 20, &file);

    let errors = [
        blobs.check().await.unwrap_err(),
        blobs.put_bytes("a/x", Bytes::from_static(b"x")).await.unwrap_err(),
        blobs.put_file("a/x", &file).await.unwrap_err(),
        blobs.get_bytes("a/x").await.unwrap_err(),
        blobs.head("a/x").await.unwrap_err(),
        blobs.list("a").await.unwrap_err(),
        blobs.delete("a/x").await.unwrap_err(),
        blobs.put_new("a/x", Bytes::from_static(b"x")).await.unwrap_err(),
    ];

    for error in errors {
        assert_eq!(error.code(), "storage_denied", "{error}");
        let text = format!("{error} {error:?}");
        assert!(!text.contains("some-other-secret") && !text.contains("Signature="), "{text}");
    }
}

async fn a_missing_bucket_is_told_as_such() {
    let server = S3Server::start();
    let blobs = Blobs::open_with("s3://other", &server.options()).unwrap();

    let error = blobs.list("").await.unwrap_err();

    assert_eq!(error.code(), "storage_invalid", "{error}");
    assert!(error.to_string().contains("NoSuchBucket"), "{error}");
}

async fn a_server_that_is_not_there_fails_in_bounded_time() {
    let server = S3Server::start();
    let blobs = server.open("");
    server.kill();

    let began = Instant::now();
    let error = blobs.put_bytes("a/x", Bytes::from_static(b"x")).await.unwrap_err();

    assert_eq!((error.code(), error.is_retryable()), ("storage_unavailable", true), "{error}");
    assert!(began.elapsed() < PATIENCE);
    server.launch();
    blobs.put_bytes("a/x", Bytes::from_static(b"x")).await.unwrap();
}

async fn a_server_that_never_answers_fails_in_bounded_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut options = options_for(silent.local_addr().unwrap().port(), "x");
    options.idle_timeout = Duration::from_millis(200);
    options.retry_for = Duration::from_secs(1);
    let blobs = Blobs::open_with(&format!("s3://{BUCKET}"), &options).unwrap();

    let began = Instant::now();
    let error = blobs.get_bytes("a/x").await.unwrap_err();

    assert_eq!(error.code(), "storage_unavailable", "{error}");
    assert!(error.to_string().contains("no answer in time"), "{error}");
    assert!(began.elapsed() < PATIENCE);
}

async fn a_server_that_is_full_is_told_as_such() {
    let server = HttpServer::start(|_, stream| {
        let body = b"<Error><Code>XMinioStorageFull</Code><Message>no room</Message></Error>";
        respond(stream, "507 Insufficient Storage", &[], body);
    });
    let blobs = Blobs::open_with(&format!("s3://{BUCKET}"), &options_for(server.port, "x")).unwrap();

    let error = blobs.put_bytes("a/x", Bytes::from_static(b"x")).await.unwrap_err();

    assert_eq!((error.code(), error.is_retryable()), ("storage_full", true), "{error}");
    assert_eq!(server.seen().len(), 1);
}

async fn a_busy_server_is_asked_again() {
    let asked = std::sync::atomic::AtomicU32::new(0);
    let server = HttpServer::start(move |_, stream| {
        if asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 {
            let body = b"<Error><Code>SlowDown</Code><Message>less, please</Message></Error>";
            return respond(stream, "503 Slow Down", &[], body);
        }
        respond(stream, "200 OK", &[("ETag", "\"1\"")], b"");
    });
    let blobs = Blobs::open_with(&format!("s3://{BUCKET}"), &options_for(server.port, "x")).unwrap();

    blobs.put_bytes("a/x", Bytes::from_static(b"x")).await.unwrap();

    assert_eq!(server.seen().len(), 2);
}

async fn a_byte_that_changes_on_the_way_is_noticed() {
    let server = S3Server::start_open();
    let port = meddle(server.port, |part| swap(part, b"the true bytes", b"the fake bytes"));
    let blobs = Blobs::open_with(&format!("s3://{BUCKET}"), &unsigned_options_for(port)).unwrap();

    let error = blobs.put_bytes("a/x", Bytes::from_static(b"the true bytes")).await.unwrap_err();

    assert_eq!((error.code(), error.is_retryable()), ("storage_corrupt", true), "{error}");
    blobs.put_bytes("a/x", Bytes::from_static(b"other bytes")).await.unwrap();
}

async fn a_store_that_overwrites_is_found_out() {
    let server = S3Server::start_open();
    let deaf = meddle(server.port, |part| swap(part, b"if-none-match", b"if-none-natch"));
    let open = |port| Blobs::open_with(&format!("s3://{BUCKET}"), &unsigned_options_for(port)).unwrap();

    for blobs in [open(server.port), open(deaf)] {
        blobs.delete("a/x").await.unwrap();
        assert!(blobs.put_new("a/x", Bytes::from_static(b"first")).await.unwrap());
        assert!(!blobs.put_new("a/x", Bytes::from_static(b"second")).await.unwrap());
        assert_eq!(blobs.get_bytes("a/x").await.unwrap(), "first");
    }
}

fn swap(part: &mut [u8], from: &[u8], to: &[u8]) {
    let found = part.windows(from.len()).position(|window| window.eq_ignore_ascii_case(from));
    if let Some(at) = found {
        part[at..at + to.len()].copy_from_slice(to);
    }
}

/// Bytes of which no two parts are alike.
fn noise(bytes: usize, file: &Path) -> Vec<u8> {
    let words = (0..bytes as u64 / 8).flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    let made: Vec<u8> = words.collect();
    std::fs::write(file, &made).unwrap();
    made
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
