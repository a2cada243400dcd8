//! tus 1.0, verb by verb.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use libtest_mimic::Trial;
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use sha2::Digest as _;
use telecine_pipeline::{Input, Recipes, Submission, submit};
use telecine_queue::RunState;
use telecine_server::Scope;

use super::{Tus, header, id_of, noise, sha256, staged, stored};
use crate::clips;
use crate::support::{Served, problem, trial};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("uploads::what_is_spoken_is_announced", what_is_spoken_is_announced),
        trial(
            "uploads::an_upload_in_pieces_is_the_input_of_a_run",
            an_upload_in_pieces_is_the_input_of_a_run,
        ),
        trial("uploads::creation_takes_the_first_bytes_along", creation_takes_the_first_bytes_along),
        trial("uploads::metadata_is_given_back_and_an_empty_file_is_one", metadata_is_given_back),
        trial("uploads::what_is_not_tus_is_refused_with_its_reason", what_is_not_tus_is_refused),
        trial("uploads::bytes_belong_where_the_upload_ends", bytes_belong_where_the_upload_ends),
        trial("uploads::bytes_with_another_checksum_do_not_count", bytes_with_another_checksum_do_not_count),
        trial("uploads::a_file_with_another_hash_is_void", a_file_with_another_hash_is_void),
        trial("uploads::what_nobody_adds_to_expires", what_nobody_adds_to_expires),
        trial("uploads::an_upload_can_be_removed_at_any_time", an_upload_can_be_removed_at_any_time),
        trial("uploads::a_method_may_be_overridden", a_method_may_be_overridden),
        trial("uploads::what_is_anothers_is_as_if_it_were_not_there", what_is_anothers_is_not_there),
    ]
}

async fn what_is_spoken_is_announced() {
    let served = Served::with(|_, options| options.uploads.max_bytes = Some(5000)).await;

    let announced = served.client.request(Method::OPTIONS, served.url("/v1/uploads")).send().await.unwrap();

    assert_eq!(announced.status(), 204);
    assert_eq!(header(&announced, "tus-version"), "1.0.0");
    assert_eq!(header(&announced, "tus-max-size"), "5000");
    assert_eq!(header(&announced, "tus-checksum-algorithm"), "sha1,sha256");
    let extensions = header(&announced, "tus-extension");
    for extension in ["creation", "creation-with-upload", "expiration", "checksum", "termination"] {
        assert!(extensions.split(',').any(|known| known == extension), "{extensions}");
    }
    served.stop().await;
}

async fn an_upload_in_pieces_is_the_input_of_a_run() {
    let served = Served::start().await;
    clips::film(2, &served.file("film.mp4"));
    let film = std::fs::read(served.file("film.mp4")).unwrap();
    let tus = Tus::of(&served);

    let path = tus.create(film.len()).await;
    let mut offset = 0;
    for piece in film.chunks(film.len() / 3 + 1) {
        assert_eq!(tus.offset(&path).await, offset as u64);
        assert_eq!(tus.document(&path).await["state"], "receiving");
        assert_eq!(stored(&served).await, Vec::<String>::new(), "a part of a file is nobody's input");
        offset = tus.add(&path, offset, piece).await as usize;
    }

    let document = tus.document(&path).await;
    assert_eq!(document["state"], "complete", "{document}");
    assert_eq!(document["sha256"], sha256(&film), "{document}");
    assert_eq!(document["offset"], film.len(), "{document}");
    assert_eq!(tus.offset(&path).await, film.len() as u64);
    assert_eq!(staged(&served), Vec::<String>::new());
    let recipe = Recipes::built_in().get("thumbnail").unwrap().clone();
    let submission = Submission::new(recipe, Input::Upload(id_of(&path).to_owned()));
    let run = submit(&*served.queue, submission).await.unwrap().run;
    let now = async || served.queue.get_run(&run).await.unwrap().unwrap();
    served.until(async || now().await.finished_at.is_some()).await;
    assert_eq!(now().await.state, RunState::Succeeded);
    served.stop().await;
}

async fn creation_takes_the_first_bytes_along() {
    let served = Served::start().await;
    let (tus, bytes) = (Tus::of(&served), noise(50_000));
    let create = |body: &[u8]| {
        tus.request(Method::POST, "/v1/uploads")
            .header("Upload-Length", 50_000)
            .header("Content-Type", "application/offset+octet-stream")
            .body(body.to_vec())
            .send()
    };

    let begun = create(&bytes[..20_000]).await.unwrap();
    let whole = create(&bytes).await.unwrap();
    let too_long = create(&[bytes.as_slice(), b"x"].concat()).await.unwrap();

    assert_eq!((begun.status().as_u16(), header(&begun, "upload-offset").as_str()), (201, "20000"));
    let path = header(&begun, "location");
    assert_eq!(tus.add(&path, 20_000, &bytes[20_000..]).await, 50_000);
    assert_eq!((whole.status().as_u16(), header(&whole, "upload-offset").as_str()), (201, "50000"));
    let document: serde_json::Value = whole.json().await.unwrap();
    assert_eq!((&document["state"], &document["sha256"]), (&"complete".into(), &sha256(&bytes).into()));
    assert_eq!(tus.document(&path).await["sha256"], sha256(&bytes));
    assert_eq!(problem(too_long).await["code"], "too_large");
    served.stop().await;
}

async fn metadata_is_given_back() {
    let served = Served::start().await;
    let tus = Tus::of(&served);
    let metadata = format!("filename {},private", BASE64_STANDARD.encode("Mein Film.mp4"));

    let path = tus.create_with(4, |request| request.header("Upload-Metadata", &metadata)).await;
    let empty = tus.request(Method::POST, "/v1/uploads").header("Upload-Length", 0).send().await.unwrap();

    assert_eq!(header(&tus.head(&path).await, "upload-metadata"), metadata);
    tus.add(&path, 0, b"film").await;
    assert_eq!(tus.document(&path).await["name"], "Mein Film.mp4");
    let empty = tus.document(&header(&empty, "location")).await;
    assert_eq!((&empty["state"], &empty["sha256"]), (&"complete".into(), &sha256(b"").into()), "{empty}");
    served.stop().await;
}

async fn what_is_not_tus_is_refused() {
    let served = Served::with(|_, options| options.uploads.max_bytes = Some(5000)).await;
    let tus = Tus::of(&served);
    let path = tus.create(100).await;
    let plain = |method: Method, path: &str| served.client.request(method, served.url(path));
    let create = || tus.request(Method::POST, "/v1/uploads");
    let patch = || tus.patch(&path, 0, b"abc");
    let nobodys = "/v1/uploads/upl_01K00000000000000000000000";

    for (asked, request, status, code) in [
        ("no version", plain(Method::PATCH, &path), 412, "unsupported_version"),
        (
            "another version",
            plain(Method::POST, "/v1/uploads").header("Tus-Resumable", "0.2.2").header("Upload-Length", 1),
            412,
            "unsupported_version",
        ),
        (
            "no version but tus",
            plain(Method::POST, "/v1/uploads").header("Upload-Length", 1),
            412,
            "unsupported_version",
        ),
        ("no length", create(), 400, "invalid_request"),
        ("no number", create().header("Upload-Length", "ten"), 400, "invalid_request"),
        ("a length below zero", create().header("Upload-Length", "-1"), 400, "invalid_request"),
        ("too large", create().header("Upload-Length", "5001"), 413, "too_large"),
        (
            "larger than anything",
            create().header("Upload-Length", "18446744073709551616"),
            400,
            "invalid_request",
        ),
        ("a length to come", create().header("Upload-Defer-Length", "1"), 400, "invalid_request"),
        (
            "joined",
            create().header("Upload-Length", "1").header("Upload-Concat", "partial"),
            400,
            "invalid_request",
        ),
        (
            "metadata",
            create().header("Upload-Length", 1).header("Upload-Metadata", "a ?"),
            400,
            "invalid_request",
        ),
        (
            "hash",
            create().header("Upload-Length", 1).header("Telecine-Sha256", "abc"),
            400,
            "invalid_request",
        ),
        (
            "another type",
            tus.request(Method::PATCH, &path).header("Upload-Offset", 0).body("abc"),
            415,
            "unsupported_media_type",
        ),
        (
            "no offset",
            tus.request(Method::PATCH, &path)
                .header("Content-Type", "application/offset+octet-stream")
                .body("abc"),
            400,
            "invalid_request",
        ),
        ("an unknown checksum", patch().header("Upload-Checksum", "crc99 AAAA"), 400, "invalid_request"),
        ("more than it has", tus.patch(&path, 0, &noise(101)), 413, "too_large"),
        ("nobody's", tus.patch(nobodys, 0, b"abc"), 404, "not_found"),
        ("no id", tus.patch("/v1/uploads/..%2f..%2fqueue.db", 0, b"abc"), 404, "not_found"),
        ("a long id", tus.patch(&format!("/v1/uploads/{}", "x".repeat(3000)), 0, b"abc"), 404, "not_found"),
        ("nobody's to be seen", plain(Method::GET, nobodys), 404, "not_found"),
        ("nobody's to be removed", tus.request(Method::DELETE, nobodys), 404, "not_found"),
        ("no method", plain(Method::POST, &path), 405, "method_not_allowed"),
    ] {
        let answer = request.send().await.unwrap();
        assert_eq!(header(&answer, "tus-resumable"), "1.0.0", "{asked}");
        if status == 412 {
            assert_eq!(header(&answer, "tus-version"), "1.0.0", "{asked}");
        }
        let body = problem(answer).await;
        assert_eq!((&body["status"], &body["code"]), (&status.into(), &code.into()), "{asked}: {body}");
    }
    assert_eq!(tus.offset(&path).await, 0);
    assert_eq!(tus.head(nobodys).await.status(), 404);
    served.stop().await;
}

async fn bytes_belong_where_the_upload_ends() {
    let served = Served::start().await;
    let (tus, bytes) = (Tus::of(&served), noise(300));
    let path = tus.create(300).await;
    tus.add(&path, 0, &bytes[..100]).await;

    for (offset, code) in [(0, "offset_mismatch"), (99, "offset_mismatch"), (101, "offset_mismatch")] {
        let refused = tus.patch(&path, offset, &bytes[100..]).send().await.unwrap();
        let body = problem(refused).await;
        assert_eq!((&body["status"], &body["code"]), (&409.into(), &code.into()), "{offset}");
    }
    // Without a length, it shows only on the way that it is too much.
    let endless = futures_util::stream::iter([noise(150), noise(150)].map(Ok::<_, std::io::Error>));
    let too_long = tus.patch(&path, 100, b"").body(reqwest::Body::wrap_stream(endless)).send().await.unwrap();
    assert_eq!(problem(too_long).await["code"], "too_large");

    assert_eq!(tus.offset(&path).await, 100, "nothing of what was refused is there");
    assert_eq!(tus.add(&path, 100, &[]).await, 100);
    assert_eq!(tus.add(&path, 100, &bytes[100..]).await, 300);
    assert_eq!(tus.document(&path).await["sha256"], sha256(&bytes));
    assert_eq!(tus.add(&path, 300, &[]).await, 300, "to add nothing to a complete one is no error");
    assert_eq!(problem(tus.patch(&path, 0, &bytes).send().await.unwrap()).await["code"], "offset_mismatch");
    served.stop().await;
}

async fn bytes_with_another_checksum_do_not_count() {
    let served = Served::start().await;
    let (tus, bytes) = (Tus::of(&served), noise(2000));
    let path = tus.create(2000).await;
    let sha256_of = |bytes: &[u8]| format!("sha256 {}", BASE64_STANDARD.encode(sha2::Sha256::digest(bytes)));
    let sha1_of = |bytes: &[u8]| format!("sha1 {}", BASE64_STANDARD.encode(sha1::Sha1::digest(bytes)));
    let patch = |offset: usize, bytes: &[u8], checksum: String| {
        tus.patch(&path, offset, bytes).header("Upload-Checksum", checksum).send()
    };

    let right = patch(0, &bytes[..500], sha1_of(&bytes[..500])).await.unwrap();
    let wrong = patch(500, &bytes[500..1000], sha1_of(b"something else")).await.unwrap();
    assert_eq!(right.status(), 204);
    let body = problem(wrong).await;
    assert_eq!((&body["status"], &body["code"]), (&460.into(), &"checksum_mismatch".into()));
    assert_eq!(tus.offset(&path).await, 500);
    let wrong_to_the_end = patch(500, &bytes[500..], sha256_of(b"something else")).await.unwrap();
    assert_eq!(problem(wrong_to_the_end).await["code"], "checksum_mismatch");

    assert_eq!(tus.document(&path).await["state"], "receiving");
    assert_eq!(patch(500, &bytes[500..], sha256_of(&bytes[500..])).await.unwrap().status(), 204);
    assert_eq!(tus.document(&path).await["sha256"], sha256(&bytes));
    served.stop().await;
}

async fn a_file_with_another_hash_is_void() {
    let served = Served::start().await;
    let (tus, bytes) = (Tus::of(&served), noise(1000));
    let metadata = |hash: &str| format!("sha256 {}", BASE64_STANDARD.encode(hash));
    let other = sha256(b"another file");
    let by_metadata =
        tus.create_with(1000, |request| request.header("Upload-Metadata", metadata(&other))).await;
    let by_header = tus.create_with(1000, |request| request.header("Telecine-Sha256", &other)).await;
    let right = sha256(&bytes).to_uppercase();
    let right = tus.create_with(1000, |request| request.header("Upload-Metadata", metadata(&right))).await;

    for path in [&by_metadata, &by_header] {
        let refused = tus.patch(path, 0, &bytes).send().await.unwrap();

        assert_eq!(problem(refused).await["code"], "checksum_mismatch");
        assert_eq!(tus.head(path).await.status(), 404);
        assert_eq!(tus.patch(path, 0, &bytes).send().await.unwrap().status(), 404);
    }
    assert_eq!((stored(&served).await, staged(&served).len()), (Vec::new(), 2));
    tus.add(&right, 0, &bytes).await;
    assert_eq!(tus.document(&right).await["state"], "complete");
    served.stop().await;
}

async fn what_nobody_adds_to_expires() {
    let keep = Duration::from_millis(400);
    let served = Served::with(|_, options| options.uploads.keep_unfinished = keep).await;
    let tus = Tus::of(&served);

    let path = tus.create(1000).await;

    served.until(async || staged(&served).is_empty()).await;
    let answer = tus.patch(&path, 0, b"late").send().await.unwrap();
    assert!([404, 410].contains(&answer.status().as_u16()), "{answer:?}");
    assert!([404, 410].contains(&tus.head(&path).await.status().as_u16()));
    served.stop().await;
}

async fn an_upload_can_be_removed_at_any_time() {
    let served = Served::start().await;
    let (tus, bytes) = (Tus::of(&served), noise(1000));
    let remove = async |path: &str| tus.request(Method::DELETE, path).send().await.unwrap().status().as_u16();
    let begun = tus.create(1000).await;
    tus.add(&begun, 0, &bytes[..500]).await;
    let complete = tus.create(1000).await;
    tus.add(&complete, 0, &bytes).await;
    let busy = tus.create(1000).await;
    let _writing = tus.begin(&busy, 0, 1000, &bytes[..10], "").await;
    served.until(async || tus.offset(&busy).await == 10).await;

    for path in [&begun, &complete, &busy] {
        assert_eq!(remove(path).await, 204, "{path}");
        assert_eq!(tus.head(path).await.status(), 404);
        assert_eq!(remove(path).await, 404);
    }

    assert_eq!((stored(&served).await, staged(&served)), (Vec::new(), Vec::new()));
    served.stop().await;
}

async fn a_method_may_be_overridden() {
    let served = Served::start().await;
    let (tus, bytes) = (Tus::of(&served), noise(100));
    let path = tus.create(100).await;
    let meant = |method: &str| tus.request(Method::POST, &path).header("X-HTTP-Method-Override", method);

    let added = meant("PATCH")
        .header("Upload-Offset", 0)
        .header("Content-Type", "application/offset+octet-stream")
        .body(bytes[..60].to_vec());
    assert_eq!(added.send().await.unwrap().status(), 204);
    assert_eq!(header(&meant("HEAD").send().await.unwrap(), "upload-offset"), "60");
    assert_eq!(meant("DELETE").send().await.unwrap().status(), 204);

    assert_eq!(tus.head(&path).await.status(), 404);
    served.stop().await;
}

async fn what_is_anothers_is_not_there() {
    let served = Served::with(|_, options| options.trust_loopback = false).await;
    let (tus, bytes) = (Tus::of(&served), noise(100));
    let (_, ours) = served.key("ours", &[Scope::Read, Scope::Write]).await;
    let (_, theirs) = served.key("theirs", &[Scope::Read, Scope::Write]).await;
    let (_, reader) = served.key("ours", &[Scope::Read]).await;
    let begun = tus.create_with(200, |request| request.bearer_auth(&ours)).await;
    let complete = tus.create_with(100, |request| request.bearer_auth(&ours)).await;
    let added = tus.patch(&complete, 0, &bytes).bearer_auth(&ours).send().await.unwrap();
    assert_eq!(added.status(), 204);
    let nobodys = "/v1/uploads/upl_01K00000000000000000000000";
    let asked = |method: Method, path: &str, key: &str| {
        let request = tus.patch(path, 0, &bytes).build().unwrap();
        let request = RequestBuilder::from_parts(served.client.clone(), request).bearer_auth(key);
        let (client, request) = request.build_split();
        let mut request = request.unwrap();
        *request.method_mut() = method;
        client.execute(request)
    };

    for method in [Method::GET, Method::PATCH, Method::DELETE] {
        let mut answers = Vec::new();
        for path in [&begun, &complete, nobodys] {
            let mut body = problem(asked(method.clone(), path, &theirs).await.unwrap()).await;
            body["request_id"].take();
            answers.push(body);
        }
        assert_eq!(answers[0]["status"], 404, "{method}");
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{method}: {answers:?}");
    }
    let auth = format!("Authorization: Bearer {ours}\r\n");
    let _writing = tus.begin(&begun, 0, 200, &bytes[..10], &auth).await;
    served
        .until(async || header(&asked(Method::HEAD, &begun, &ours).await.unwrap(), "upload-offset") == "10")
        .await;
    for path in [&begun, &complete] {
        assert_eq!(asked(Method::HEAD, path, &theirs).await.unwrap().status(), 404);
        assert_eq!(asked(Method::HEAD, path, &ours).await.unwrap().status(), 200);
        assert_eq!(asked(Method::GET, path, &reader).await.unwrap().status(), 200);
        assert_eq!(problem(asked(Method::PATCH, path, &reader).await.unwrap()).await["code"], "forbidden");
        assert_eq!(tus.patch(path, 0, &bytes).send().await.unwrap().status(), 401);
    }
    let run = json!({"recipe": "thumbnail", "input": {"upload": id_of(&complete)}});
    let refused = served.post("/v1/runs").bearer_auth(&theirs).json(&run).send().await.unwrap();
    assert_eq!(problem(refused).await["errors"][0]["code"], "input_not_found");
    served.stop().await;
}
