//! Files of runs: whole or in ranges, of films that are whole or still being made, and by addresses for players.

use std::collections::BTreeMap;

use libtest_mimic::Trial;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use telecine_pipeline::records::{OutputRecord, StoredFile, read_all};
use telecine_queue::{NewRecord, Pausable, Record, RunId};
use telecine_server::Scope;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::clips;
use crate::runs::{create, ended, get, hold, thumbnail};
use crate::s3_server::S3Server;
use crate::support::{Served, client, problem, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("files::a_file_comes_whole_and_in_ranges", || a_file_comes_whole_and_in_ranges(None)),
        trial("files::a_file_of_a_bucket_comes_whole_and_in_ranges", || {
            let server = S3Server::start();
            a_file_comes_whole_and_in_ranges(Some(server))
        }),
        trial("files::no_name_leads_out_of_a_run", no_name_leads_out_of_a_run),
        trial("files::playlists_of_a_film_only_grow", playlists_of_a_film_only_grow),
        trial("files::a_film_is_played_while_it_is_made", a_film_is_played_while_it_is_made),
        trial("files::borrowed_outputs_are_files_too", borrowed_outputs_are_files_too),
        trial(
            "files::a_signed_address_opens_one_run_for_a_while",
            a_signed_address_opens_one_run_for_a_while,
        ),
    ]
}

/// A body that asks for a film of so many seconds in two small rungs, in segments of a second.
pub(crate) fn film(served: &Served, seconds: u32) -> Value {
    let film = served.file("film.mp4");
    clips::film(seconds, &film);
    json!({
        "recipe": "web-video",
        "input": { "path": film },
        "params": {
            "hls": { "ladder": { "heights": [180, 120] }, "segment_seconds": 1, "allow_copy": false },
            "pictures": { "storyboard": null, "preview": null },
        },
    })
}

fn file_path(run: &Value, name: &str) -> String {
    format!("/v1/runs/{}/files/{name}", run["id"].as_str().unwrap())
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

/// Every published file by its name.
async fn published(served: &Served, run: &Value) -> BTreeMap<String, StoredFile> {
    let id: RunId = run["id"].as_str().unwrap().parse().unwrap();
    let outputs = read_all::<OutputRecord>(&*served.queue, &id).await.unwrap();
    let files = outputs.into_iter().flat_map(|(_, output)| {
        let step = output.step;
        output.files.into_iter().map(move |file| (format!("{step}/{}", file.path), file))
    });
    files.collect()
}

async fn a_file_comes_whole_and_in_ranges(bucket: Option<S3Server>) {
    let served = Served::with(|shop, _| {
        if let Some(bucket) = &bucket {
            shop.blobs = bucket.open("store");
        }
    })
    .await;
    let run = create(&served, &film(&served, 3)).await;
    assert_eq!(ended(&served, &run).await["status"], "succeeded");
    let files = published(&served, &run).await;
    assert!(files.len() > 10, "{files:?}");

    // Whole, with its hash, type and guards.
    for (name, file) in &files {
        let response = served.get(&file_path(&run, name)).send().await.unwrap();
        assert_eq!(response.status(), 200, "{name}");
        assert_eq!(header(&response, "etag"), format!("\"{}\"", file.sha256));
        assert_eq!(header(&response, "content-length"), file.bytes.to_string());
        assert_eq!(header(&response, "x-content-type-options"), "nosniff");
        assert_eq!(header(&response, "content-security-policy"), "sandbox");
        assert_eq!(header(&response, "accept-ranges"), "bytes");
        assert!(header(&response, "content-disposition").starts_with("inline; filename="), "{name}");
        let kind = match name.rsplit('.').next().unwrap() {
            "m3u8" => "application/vnd.apple.mpegurl",
            "mpd" => "application/dash+xml",
            "m4s" => "video/iso.segment",
            "mp4" => "video/mp4",
            "jpg" | "jpeg" => "image/jpeg",
            other => panic!("{other}"),
        };
        assert_eq!(header(&response, "content-type"), kind);
        let is_segment = name.ends_with(".m4s") || name.contains("/init-");
        let cache = if is_segment { "private, max-age=31536000, immutable" } else { "private, no-cache" };
        assert_eq!(header(&response, "cache-control"), cache, "{name}");
        assert!(response.headers().get("access-control-allow-origin").is_none());
        assert_eq!(hash(&response.bytes().await.unwrap()), file.sha256, "{name}");
    }

    // In parts.
    let (name, file) = files.iter().max_by_key(|(_, file)| file.bytes).unwrap();
    let path = file_path(&run, name);
    let whole = served.get(&path).send().await.unwrap().bytes().await.unwrap();
    let bytes = file.bytes;
    let ask = async |range: &str| served.get(&path).header("Range", range).send().await.unwrap();
    for (range, first, last) in [
        ("bytes=0-0".to_owned(), 0, 0),
        ("bytes=10-99".to_owned(), 10, 99),
        (format!("bytes={}-", bytes - 7), bytes - 7, bytes - 1),
        ("bytes=-7".to_owned(), bytes - 7, bytes - 1),
        (format!("bytes=5-{}", bytes * 9), 5, bytes - 1),
        (format!("bytes=-{}", bytes * 9), 0, bytes - 1),
    ] {
        let response = ask(&range).await;
        assert_eq!(response.status(), 206, "{range}");
        assert_eq!(header(&response, "content-range"), format!("bytes {first}-{last}/{bytes}"));
        assert_eq!(header(&response, "content-length"), (last + 1 - first).to_string());
        assert_eq!(header(&response, "etag"), format!("\"{}\"", file.sha256));
        let part = &whole[first as usize..=last as usize];
        assert_eq!(response.bytes().await.unwrap(), part, "{range}");
    }
    for range in ["bytes=0-1,4-5", "bytes=9-2", "lines=0-1", "bytes=x"] {
        let response = ask(range).await;
        assert_eq!(response.status(), 200, "{range}");
        assert_eq!(response.bytes().await.unwrap().len() as u64, bytes);
    }
    for range in [format!("bytes={bytes}-"), "bytes=-0".to_owned()] {
        let response = ask(&range).await;
        assert_eq!(response.status(), 416);
        assert_eq!(header(&response, "content-range"), format!("bytes */{bytes}"));
        assert_eq!(problem(response).await["code"], "range_not_satisfiable");
    }
    let etag = format!("\"{}\"", file.sha256);
    for (of, status) in [(etag.as_str(), 206), ("\"other\"", 200)] {
        let response =
            served.get(&path).header("Range", "bytes=0-3").header("If-Range", of).send().await.unwrap();
        assert_eq!(response.status(), status, "{of}");
    }
    for (known, status) in [(etag.as_str(), 304), ("\"a\", \"b\"", 200), ("*", 304)] {
        let response = served.get(&path).header("If-None-Match", known).send().await.unwrap();
        assert_eq!(response.status(), status, "{known}");
        assert_eq!(header(&response, "etag"), etag);
    }
    let head = served.client.head(served.url(&path)).header("Range", "bytes=1-4").send().await.unwrap();
    assert_eq!((head.status(), header(&head, "content-length")), (StatusCode::PARTIAL_CONTENT, "4"));
    assert!(head.bytes().await.unwrap().is_empty());

    // What somebody removed from the store is missing, and no fault of ours.
    served.shop.blobs.delete(&file.key).await.unwrap();
    assert_eq!(served.get(&path).send().await.unwrap().status(), 404);
    served.stop().await;
}

async fn no_name_leads_out_of_a_run() {
    let served = Served::start().await;
    let run = create(&served, &thumbnail(&served)).await;
    assert_eq!(ended(&served, &run).await["status"], "succeeded");
    let other = create(&served, &film(&served, 2)).await;
    assert_eq!(ended(&served, &other).await["status"], "succeeded");
    let id = run["id"].as_str().unwrap();
    let theirs = format!("../../{}/files/hls/master.m3u8", other["id"].as_str().unwrap());

    for name in [
        "",
        "pictures",
        "pictures/",
        "/etc/passwd",
        "pictures/../source",
        "../source",
        "..%2f..%2f..%2fqueue.db",
        "%2e%2e/%2e%2e/queue.db",
        "pictures/%00",
        "pictures/poster.jpg%00.html",
        "pictures/./poster.jpg",
        "pictures//poster.jpg",
        "hls/master.m3u8",
        "pictures/..%5c..%5csource",
        &theirs,
    ] {
        // By hand: a client would tidy the path up.
        let mut socket = tokio::net::TcpStream::connect(served.address).await.unwrap();
        let request = format!(
            "GET /v1/runs/{id}/files/{name} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
            served.address
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 404 "), "{name}: {answer}");
        assert!(answer.contains("application/problem+json"), "{name}: {answer}");
    }
    let name = published(&served, &run).await.into_keys().next().unwrap();
    assert_eq!(served.get(&file_path(&run, &name)).send().await.unwrap().status(), 200, "{name}");
    served.stop().await;
}

async fn text(served: &Served, run: &Value, name: &str) -> Option<String> {
    let response = served.get(&file_path(run, name)).send().await.unwrap();
    match response.status().as_u16() {
        200 => {
            assert_eq!(header(&response, "content-type"), "application/vnd.apple.mpegurl");
            Some(response.text().await.unwrap())
        }
        404 => None,
        other => panic!("{name}: {other}"),
    }
}

/// What a playlist names.
fn uris(playlist: &str) -> Vec<&str> {
    playlist.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect()
}

/// Records of a film that is made, written one by one to a run that waits: so its playlists grow when the test says so.
async fn playlists_of_a_film_only_grow() {
    let served = Served::start().await;
    served.queue.pause(&Pausable::Kind("package".into())).await.unwrap();
    let body = film(&served, 5);
    let made = create(&served, &body).await;
    let id: RunId = made["id"].as_str().unwrap().parse().unwrap();
    let segments = async || served.queue.records(&id, Some("segment")).await.unwrap();
    served
        .until(async || {
            segments().await.len() == 5 && !served.queue.records(&id, Some("sound")).await.unwrap().is_empty()
        })
        .await;
    hold(&served).await;
    let growing = create(&served, &body).await;
    let growing_id: RunId = growing["id"].as_str().unwrap().parse().unwrap();
    let copy = async |record: &Record| {
        let copy = NewRecord::new(record.kind.clone(), record.key.clone(), record.json.clone());
        served.queue.put_record(&growing_id, copy, None).await.unwrap();
    };

    assert_eq!(text(&served, &growing, "hls/master.m3u8").await, None, "nothing is planned");
    for record in served.queue.records(&id, Some("plan")).await.unwrap() {
        copy(&record).await;
    }
    assert_eq!(text(&served, &growing, "hls/master.m3u8").await, None, "nothing can be played");
    // The third comes before the second: what follows a gap is not told of.
    let made_segments = segments().await;
    let mut before: BTreeMap<&str, String> = BTreeMap::new();
    for (nth, playable) in [(0, 0), (2, 0), (1, 3), (4, 3), (3, 5)] {
        copy(&made_segments[nth]).await;
        if nth == 2 {
            assert_eq!(
                text(&served, &growing, "hls/180p.m3u8").await,
                None,
                "without sound nothing is played"
            );
            for record in served.queue.records(&id, Some("sound")).await.unwrap() {
                copy(&record).await;
            }
        }
        if playable == 0 {
            continue;
        }
        let master = text(&served, &growing, "hls/master.m3u8").await.unwrap();
        assert_eq!(uris(&master), ["180p.m3u8", "120p.m3u8"]);
        for rendition in ["180p", "120p", "audio"] {
            let name = format!("hls/{rendition}.m3u8");
            let response = served.get(&file_path(&growing, &name)).send().await.unwrap();
            assert_eq!(header(&response, "cache-control"), "no-store");
            assert_eq!(header(&response, "x-content-type-options"), "nosniff");
            let playlist = response.text().await.unwrap();
            assert!(playlist.contains("#EXT-X-PLAYLIST-TYPE:EVENT"), "{playlist}");
            assert_eq!(uris(&playlist).len(), playable, "{playlist}");
            assert_eq!(playlist.contains("#EXT-X-ENDLIST"), playable == 5, "{playlist}");
            if let Some(shorter) = before.insert(rendition, playlist.clone()) {
                assert!(playlist.starts_with(&shorter), "{shorter}\n{playlist}");
            }
            let init = playlist.split("#EXT-X-MAP:URI=\"").nth(1).unwrap().split('"').next().unwrap();
            for uri in uris(&playlist).into_iter().chain([init]) {
                let segment = served.get(&file_path(&growing, &format!("hls/{uri}"))).send().await.unwrap();
                assert_eq!(segment.status(), 200, "{uri}");
                assert!(header(&segment, "cache-control").contains("immutable"));
                let etag = header(&segment, "etag").to_owned();
                assert_eq!(format!("\"{}\"", hash(&segment.bytes().await.unwrap())), etag);
            }
        }
    }
    // A run that was cancelled has nothing to show any more.
    served.post(&format!("/v1/runs/{growing_id}/cancel")).send().await.unwrap();
    assert_eq!(text(&served, &growing, "hls/180p.m3u8").await, None);

    // What is published goes on from where the growing one was.
    served.queue.resume(&Pausable::Kind("package".into())).await.unwrap();
    assert_eq!(ended(&served, &made).await["status"], "succeeded");
    let published = text(&served, &made, "hls/180p.m3u8").await.unwrap();
    assert_eq!(uris(&published), uris(&before["180p"]));
    assert!(published.contains("#EXT-X-ENDLIST"));
    served.stop().await;
}

async fn a_film_is_played_while_it_is_made() {
    let served = Served::start().await;
    let run = create(&served, &film(&served, 12)).await;

    let mut lengths: Vec<usize> = vec![0];
    while get(&served, &run).await["finished_at"].is_null() {
        if let Some(playlist) = text(&served, &run, "hls/120p.m3u8").await {
            let length = uris(&playlist).len();
            assert!(length >= lengths[lengths.len() - 1], "{lengths:?} {length}");
            lengths.push(length);
            let last = uris(&playlist)[length - 1];
            let segment = served.get(&file_path(&run, &format!("hls/{last}"))).send().await.unwrap();
            assert_eq!(segment.status(), 200, "{last}");
        }
    }
    let ended = get(&served, &run).await;
    assert_eq!(ended["status"], "succeeded", "{ended:#}");
    assert!(!ended["playable_at"].is_null());
    assert_eq!(uris(&text(&served, &run, "hls/120p.m3u8").await.unwrap()).len(), 12);
    served.stop().await;
}

async fn borrowed_outputs_are_files_too() {
    let served = Served::start().await;
    let body = thumbnail(&served);
    let owner = create(&served, &body).await;
    assert_eq!(ended(&served, &owner).await["status"], "succeeded");
    let borrower = create(&served, &body).await;
    assert_eq!(ended(&served, &borrower).await["status"], "succeeded");
    let files = published(&served, &borrower).await;
    let (name, file) = files.first_key_value().unwrap();
    assert!(file.key.contains(owner["id"].as_str().unwrap()), "{file:?}");

    for _ in 0..2 {
        let response = served.get(&file_path(&borrower, name)).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(hash(&response.bytes().await.unwrap()), file.sha256);
        // Whoever made it may be forgotten meanwhile.
        let owner = format!("/v1/runs/{}?outputs=true", owner["id"].as_str().unwrap());
        served.client.delete(served.url(&owner)).send().await.unwrap();
    }
    assert_eq!(served.get(&file_path(&owner, name)).send().await.unwrap().status(), 404);
    served.stop().await;
}

async fn a_signed_address_opens_one_run_for_a_while() {
    let served = Served::with(|_, options| options.trust_loopback = false).await;
    let (_, key) = served.key("films", &[Scope::Read, Scope::Write]).await;
    let (_, foreign) = served.key("others", &[Scope::Read, Scope::Write]).await;
    let post = async |path: &str, key: &str, body: &Value| {
        served.post(path).bearer_auth(key).json(body).send().await.unwrap()
    };
    let run: Value = post("/v1/runs", &key, &film(&served, 2)).await.json().await.unwrap();
    let path = format!("/v1/runs/{}", run["id"].as_str().unwrap());
    let document =
        async || -> Value { served.get(&path).bearer_auth(&key).send().await.unwrap().json().await.unwrap() };
    served.until(async || !document().await["finished_at"].is_null()).await;

    let signed = post(&format!("{path}/playback"), &key, &json!({ "expires_in_s": 600 })).await;
    assert_eq!(signed.status(), 200);
    let signed: Value = signed.json().await.unwrap();
    let (prefix, master) = (signed["url_prefix"].as_str().unwrap(), signed["master_url"].as_str().unwrap());
    assert_eq!(master, format!("{prefix}hls/master.m3u8"));
    assert!(signed["expires_at"].is_string());

    // Without a key, from any page; and only by that address.
    let nobody = client();
    let play = async |path: &str| {
        nobody.get(served.url(path)).header("Origin", "https://page.example").send().await.unwrap()
    };
    let playlist = play(master).await;
    assert_eq!(playlist.status(), 200);
    assert_eq!(header(&playlist, "access-control-allow-origin"), "*");
    assert!(header(&playlist, "access-control-expose-headers").contains("content-range"));
    let playlist = playlist.text().await.unwrap();
    let rendition = play(&format!("{prefix}hls/{}", uris(&playlist)[0])).await.text().await.unwrap();
    let segment = format!("{prefix}hls/{}", uris(&rendition)[0]);
    let part = nobody.get(served.url(&segment)).header("Range", "bytes=0-9").send().await.unwrap();
    assert_eq!((part.status(), part.bytes().await.unwrap().len()), (StatusCode::PARTIAL_CONTENT, 10));
    let asked =
        nobody.request(Method::OPTIONS, served.url(&segment)).header("Origin", "https://page.example");
    let allowed = asked.header("Access-Control-Request-Method", "GET").send().await.unwrap();
    assert_eq!(allowed.status(), 204);
    assert!(header(&allowed, "access-control-allow-headers").contains("range"));
    for closed in [format!("{path}/files/hls/master.m3u8"), path.clone(), "/v1/runs".into()] {
        let refused = play(&closed).await;
        assert_eq!(refused.status(), 401, "{closed}");
        assert!(refused.headers().get("access-control-allow-origin").is_none());
    }
    assert_eq!(nobody.put(served.url(master)).send().await.unwrap().status(), 405);

    // Nobody but the owner signs, and nothing but what was signed is taken.
    let theirs = post(&format!("{path}/playback"), &foreign, &json!({})).await;
    assert_eq!(
        (theirs.status().as_u16(), problem(theirs).await["detail"].clone()),
        (404, json!("there is no such run"))
    );
    for wrong in [json!({ "expires_in_s": 0 }), json!({ "expires_in_s": 604_801 }), json!({ "x": 1 })] {
        assert_eq!(post(&format!("{path}/playback"), &key, &wrong).await.status(), 400, "{wrong}");
    }
    let other: Value = post("/v1/runs", &key, &thumbnail(&served)).await.json().await.unwrap();
    let swapped = master.replace(run["id"].as_str().unwrap(), other["id"].as_str().unwrap());
    let torn = master.replace("/hls", "x/hls");
    for wrong in [swapped.as_str(), &torn, "/v1/playback/x/hls/master.m3u8", "/v1/playback/run_01J.1.x/a"] {
        let refused = play(wrong).await;
        assert_eq!(refused.status(), 404, "{wrong}");
        assert_eq!(header(&refused, "access-control-allow-origin"), "*");
        assert_eq!(problem(refused).await["detail"], "there is no such file");
    }

    // Another process on the database knows the secret; its store is another one here.
    let database = format!("sqlite:{}", served.folder.path().join("queue.db").display());
    let second = Served::on(&database).await;
    let known = nobody.get(second.url(master)).send().await.unwrap();
    assert_eq!(problem(known).await["detail"], "the file is not in the store any more");
    second.stop().await;

    let short: Value =
        post(&format!("{path}/playback"), &key, &json!({ "expires_in_s": 1 })).await.json().await.unwrap();
    let short = short["master_url"].as_str().unwrap();
    served.until(async || play(short).await.status() == 410).await;
    assert_eq!(problem(play(short).await).await["code"], "expired");
    served.client.delete(served.url(&path)).bearer_auth(&key).send().await.unwrap();
    assert_eq!(play(master).await.status(), 404, "what was deleted is not played");
    served.stop().await;
}
