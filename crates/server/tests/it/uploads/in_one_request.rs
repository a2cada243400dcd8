//! A file in one request: a form, or the body itself.

use libtest_mimic::Trial;
use reqwest::multipart::{Form, Part};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{header, id_of, noise, sha256, staged, stored};
use crate::support::{Served, problem, trial};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("uploads::a_form_or_a_body_is_an_upload", a_form_or_a_body_is_an_upload),
        trial("uploads::a_form_that_is_wrong_or_torn_leaves_nothing", a_wrong_form_leaves_nothing),
        trial("uploads::ten_gigabytes_are_refused_unread", ten_gigabytes_are_refused_unread),
    ]
}

async fn a_form_or_a_body_is_an_upload() {
    let served = Served::start().await;
    let bytes = noise(3_000_000);
    let file = || Part::bytes(bytes.clone()).file_name("../Film 1.mp4");
    let post = || served.post("/v1/uploads");

    for (name, request) in [
        (Some("Film 1.mp4"), post().multipart(Form::new().part("film", file()))),
        (
            Some("Film 1.mp4"),
            post().multipart(Form::new().text("sha256", sha256(&bytes)).part("file", file())),
        ),
        (None, post().header("Content-Type", "video/mp4").body(bytes.clone())),
        (
            None,
            post()
                .header("Content-Type", "application/octet-stream")
                .header("Telecine-Sha256", sha256(&bytes))
                .body(bytes.clone()),
        ),
    ] {
        let made = request.send().await.unwrap();

        assert_eq!(made.status(), 201, "{}", made.text().await.unwrap());
        let path = header(&made, "location");
        let document: Value = made.json().await.unwrap();
        assert_eq!((&document["id"], &document["state"]), (&id_of(&path).into(), &"complete".into()));
        assert_eq!((&document["sha256"], &document["length"]), (&sha256(&bytes).into(), &bytes.len().into()));
        assert_eq!(document["name"].as_str(), name);
        assert_eq!(served.get(&path).send().await.unwrap().json::<Value>().await.unwrap(), document);
    }
    assert_eq!((stored(&served).await.len(), staged(&served).len()), (8, 0));
    served.stop().await;
}

async fn a_wrong_form_leaves_nothing() {
    let served = Served::with(|_, options| options.uploads.max_bytes = Some(10_000)).await;
    let file = |bytes: usize| Part::bytes(noise(bytes)).file_name("a.mp4");
    let post = || served.post("/v1/uploads");

    for (asked, request, status, code) in [
        ("no file", post().multipart(Form::new().text("other", "x")), 400, "invalid_request"),
        (
            "two files",
            post().multipart(Form::new().part("a", file(9)).part("b", file(9))),
            400,
            "invalid_request",
        ),
        ("too large", post().multipart(Form::new().part("a", file(10_001))), 413, "too_large"),
        ("far too large", post().multipart(Form::new().part("a", file(1_000_000))), 413, "too_large"),
        (
            "two hashes",
            post()
                .header("Telecine-Sha256", sha256(&noise(9)))
                .multipart(Form::new().text("sha256", sha256(b"x")).part("a", file(9))),
            400,
            "invalid_request",
        ),
        (
            "another hash",
            post().multipart(Form::new().text("sha256", sha256(b"x")).part("a", file(9))),
            460,
            "checksum_mismatch",
        ),
        (
            "no form",
            post().header("Content-Type", "multipart/form-data; boundary=x").body("abc"),
            400,
            "invalid_request",
        ),
        (
            "no boundary",
            post().header("Content-Type", "multipart/form-data").body("abc"),
            400,
            "invalid_request",
        ),
        ("JSON", post().json(&serde_json::json!({})), 415, "unsupported_media_type"),
        ("nothing", post(), 415, "unsupported_media_type"),
    ] {
        let body = problem(request.send().await.unwrap()).await;
        assert_eq!((&body["status"], &body["code"]), (&status.into(), &code.into()), "{asked}: {body}");
    }
    let torn = begin(&served, 9000, &noise(4000)).await;
    served.until(async || staged(&served).len() == 1).await;
    drop(torn);

    served.until(async || staged(&served).is_empty()).await;
    assert_eq!(stored(&served).await, Vec::<String>::new());
    served.stop().await;
}

async fn ten_gigabytes_are_refused_unread() {
    let served = Served::with(|_, options| options.uploads.max_bytes = Some(1 << 30)).await;

    let mut stream = begin(&served, 10 << 30, b"").await;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();

    assert_eq!(&answer, b"HTTP/1.1 413", "without a single byte of the body");
    served.stop().await;
}

/// A request that says it will send so many bytes, and has sent only these.
async fn begin(served: &Served, says: u64, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let head = format!(
        "POST /v1/uploads HTTP/1.1\r\nHost: {}\r\nContent-Type: video/mp4\r\nContent-Length: {says}\r\n\r\n",
        served.address
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}
