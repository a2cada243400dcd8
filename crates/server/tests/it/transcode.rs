//! Synchronous work: an answer, or at once the reason why there is none; and nothing is left of it.

use std::path::Path;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use reqwest::multipart::{Form, Part};
use reqwest::{RequestBuilder, Response};
use telecine_pipeline::{Input, Recipes, Submission, submit};
use telecine_queue::Pausable;
use telecine_server::Scope;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::clips;
use crate::support::{PATIENCE, Served, problem, trial};
use crate::uploads::sha256;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("transcode::one_file_in_gives_one_file_out", one_file_in_gives_one_file_out),
        trial("transcode::what_cannot_be_done_is_said_before_it_is_tried", what_cannot_be_done_is_said),
        trial("transcode::an_input_that_is_none_is_told_with_its_code", an_input_that_is_none_is_told),
        trial(
            "transcode::a_queue_that_stands_still_delays_nothing",
            a_queue_that_stands_still_delays_nothing,
        ),
        trial("transcode::ten_at_once_get_an_answer_or_busy", ten_at_once_get_an_answer_or_busy),
        trial("transcode::what_takes_too_long_is_stopped", what_takes_too_long_is_stopped),
        trial(
            "transcode::nobody_works_for_a_client_that_went_away",
            nobody_works_for_a_client_that_went_away,
        ),
        trial("transcode::who_sends_slowly_holds_no_slot", who_sends_slowly_holds_no_slot),
        trial("transcode::no_tenant_has_all_slots", no_tenant_has_all_slots),
        trial("transcode::a_scan_waits_for_a_scanner", a_scan_waits_for_a_scanner),
    ]
}

fn send(served: &Served, query: &str, body: Vec<u8>) -> RequestBuilder {
    served.post(&format!("/v1/transcode?{query}")).header("Content-Type", "video/mp4").body(body)
}

fn query(recipe: &str, params: &str) -> String {
    let pairs = [("recipe", recipe), ("params", params)];
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

fn film(served: &Served) -> Vec<u8> {
    clips::film(2, &served.file("film.mp4"));
    std::fs::read(served.file("film.mp4")).unwrap()
}

/// The bytes of an answer that must be a file of that type, with all that is said of it.
async fn made(answer: Response, content_type: &str) -> Vec<u8> {
    assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
    let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    let (kind, tag, length) = (header("content-type"), header("etag"), header("content-length"));
    let disposition = header("content-disposition");
    let bytes = answer.bytes().await.unwrap().to_vec();
    assert_eq!(kind, content_type);
    assert_eq!((tag, length), (format!("\"{}\"", sha256(&bytes)), bytes.len().to_string()));
    assert!(disposition.starts_with("inline; filename=\""), "{disposition}");
    bytes
}

async fn one_file_in_gives_one_file_out() {
    let served = Served::start().await;
    let film = film(&served);

    let poster = send(&served, "recipe=thumbnail", film.clone()).send().await.unwrap();
    let jpeg = made(poster, "image/jpeg").await;
    let form = Form::new().part("file", Part::bytes(film.clone()).file_name("film.mp4"));
    let by_form = served.post("/v1/transcode?recipe=web-video&output=poster").multipart(form);
    let by_form = made(by_form.send().await.unwrap(), "image/jpeg").await;
    let params = r#"{"audio":{"formats":[{"codec":"opus","kbits":64}]}}"#;
    let opus = send(&served, &query("audio", params), film);
    let opus = made(opus.send().await.unwrap(), "audio/ogg").await;
    let picture = served
        .post("/v1/transcode?recipe=image&output=image/0-320x180.webp")
        .header("Content-Type", "image/jpeg");
    let picture = made(picture.body(jpeg.clone()).send().await.unwrap(), "image/webp").await;

    assert!(jpeg.starts_with(b"\xff\xd8") && by_form.starts_with(b"\xff\xd8"));
    assert!(opus.starts_with(b"OggS"));
    assert!(picture.starts_with(b"RIFF"));
    assert!(
        served
            .queue
            .list_runs(&Default::default(), telecine_queue::RunPage::first(1))
            .await
            .unwrap()
            .data
            .is_empty()
    );
    is_left_clean(&served).await;
    served.stop().await;
}

async fn what_cannot_be_done_is_said() {
    let served = Served::with(|_, options| options.transcode.max_bytes = 1000).await;
    let ask = |query: &str| send(&served, query, b"x".to_vec());
    let wrong = r#"{"pictures":{"poster":{"long_side":"big"}}}"#;

    for (asked, request, status, code, told) in [
        ("no recipe", ask(""), 400, "invalid_request", "recipe"),
        ("an unknown key", ask("recipe=thumbnail&size=3"), 400, "invalid_request", "size"),
        ("an unknown recipe", ask("recipe=thumbnale"), 422, "unprocessable", "thumbnail"),
        ("one of several", ask("recipe=web-video"), 400, "invalid_request", "storyboard"),
        ("none of several", ask("recipe=web-video&output=postre"), 422, "unprocessable", "poster"),
        ("no JSON", ask("recipe=thumbnail&params=%7B"), 422, "unprocessable", "params"),
        (
            "no values",
            ask("recipe=thumbnail&params=%7B%22pictures%22:3%7D"),
            422,
            "unprocessable",
            "params.pictures",
        ),
        (
            "wrong values",
            ask(&query("thumbnail", wrong)),
            422,
            "unprocessable",
            "params.pictures.poster.long_side",
        ),
        ("too large", send(&served, "recipe=thumbnail", vec![0; 1001]), 413, "too_large", "1000"),
        (
            "no file",
            served.post("/v1/transcode?recipe=thumbnail").json(&1),
            415,
            "unsupported_media_type",
            "video/mp4",
        ),
    ] {
        let body = problem(request.send().await.unwrap()).await;
        assert_eq!((&body["status"], &body["code"]), (&status.into(), &code.into()), "{asked}: {body}");
        assert!(body.to_string().contains(told), "{asked}: {body}");
    }
    is_left_clean(&served).await;
    served.stop().await;
}

async fn an_input_that_is_none_is_told() {
    let served = Served::start().await;
    let film = film(&served);
    let sha = |request: RequestBuilder| request.header("Telecine-Sha256", sha256(b"another"));

    for (asked, request, status, code) in [
        (
            "garbage",
            send(&served, "recipe=thumbnail", b"no film at all".repeat(50)),
            422,
            "input_unrecognised",
        ),
        ("nothing", send(&served, "recipe=thumbnail", Vec::new()), 422, ""),
        ("half a film", send(&served, "recipe=thumbnail", film[..film.len() / 2].to_vec()), 422, ""),
        ("another file", sha(send(&served, "recipe=thumbnail", film.clone())), 460, "checksum_mismatch"),
    ] {
        let body = problem(request.send().await.unwrap()).await;
        assert_eq!(body["status"], status, "{asked}: {body}");
        assert!(body.to_string().contains(code), "{asked}: {body}");
        assert!(!body.to_string().contains("scratch"), "no path of this machine: {body}");
        assert!(status != 422 || body["errors"][0]["path"] == "body", "{body}");
    }
    is_left_clean(&served).await;
    served.stop().await;
}

async fn a_queue_that_stands_still_delays_nothing() {
    let served = Served::start().await;
    let film = film(&served);
    for lane in ["io", "cpu", "net"] {
        served.queue.pause(&Pausable::Lane(lane.into())).await.unwrap();
    }
    let recipe = Recipes::built_in().get("thumbnail").unwrap().clone();
    let mut waiting = Vec::new();
    for _ in 0..50 {
        let submission = Submission::new(recipe.clone(), Input::Path(served.file("film.mp4")));
        waiting.push(submit(&*served.queue, submission).await.unwrap().run);
    }

    let poster = send(&served, "recipe=thumbnail", film).send().await.unwrap();

    made(poster, "image/jpeg").await;
    for run in waiting {
        assert_eq!(
            served.queue.get_run(&run).await.unwrap().unwrap().started_at,
            None,
            "the queue stands still"
        );
    }
    served.stop().await;
}

async fn ten_at_once_get_an_answer_or_busy() {
    let served = Served::start().await;
    let film = film(&served);

    let asked = (0..10).map(|_| send(&served, "recipe=thumbnail", film.clone()).send());
    let answers = futures_util::future::join_all(asked).await;

    let (mut done, mut busy) = (0, 0);
    for answer in answers {
        let answer = answer.unwrap();
        if answer.status() == 200 {
            made(answer, "image/jpeg").await;
            done += 1;
        } else {
            assert_eq!(answer.headers()["retry-after"], "1");
            assert_eq!(problem(answer).await["code"], "busy");
            busy += 1;
        }
    }
    assert!(done >= 2 && busy >= 1, "{done} answers, {busy} times busy");
    is_left_clean(&served).await;
    // What was busy is free again.
    served
        .until(async || send(&served, "recipe=thumbnail", film.clone()).send().await.unwrap().status() == 200)
        .await;
    served.stop().await;
}

async fn what_takes_too_long_is_stopped() {
    let served = Served::with(|_, options| {
        options.transcode.within = Duration::from_secs(2);
        options.transcode.slots = 1;
    })
    .await;
    let long = long_film(&served);

    let late = send(&served, "recipe=web-video&output=hls", long).send().await.unwrap();

    let body = problem(late).await;
    assert_eq!((&body["status"], &body["code"]), (&504.into(), &"timeout".into()), "{body}");
    is_left_clean(&served).await;
    served.stop().await;
}

async fn nobody_works_for_a_client_that_went_away() {
    let served = Served::with(|_, options| options.transcode.slots = 1).await;
    let (short, long) = (film(&served), long_film(&served));
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let head = format!(
        "POST /v1/transcode?recipe=web-video&output=hls HTTP/1.1\r\nHost: {}\r\nContent-Type: video/mp4\r\n\
         Content-Length: {}\r\n\r\n",
        served.address,
        long.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&long).await.unwrap();
    served.until(async || !programs_at_work(&served).is_empty()).await;
    let refused = send(&served, "recipe=thumbnail", short.clone()).send().await.unwrap();
    assert_eq!(problem(refused).await["code"], "busy");

    drop(stream);

    is_left_clean(&served).await;
    served
        .until(async || {
            send(&served, "recipe=thumbnail", short.clone()).send().await.unwrap().status() == 200
        })
        .await;
    served.stop().await;
}

async fn who_sends_slowly_holds_no_slot() {
    let served = Served::with(|_, options| options.transcode.slots = 1).await;
    let film = film(&served);
    let mut slow = TcpStream::connect(served.address).await.unwrap();
    let head = format!(
        "POST /v1/transcode?recipe=thumbnail HTTP/1.1\r\nHost: {}\r\nContent-Type: video/mp4\r\n\
         Content-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        served.address,
        film.len()
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    // Its body is asked for, so the request is under way.
    let mut invited = [0; 25];
    slow.read_exact(&mut invited).await.unwrap();
    assert_eq!(&invited, b"HTTP/1.1 100 Continue\r\n\r\n");
    slow.write_all(&film[..100]).await.unwrap();

    let quick = send(&served, "recipe=thumbnail", film.clone()).send().await.unwrap();

    made(quick, "image/jpeg").await;
    drop(slow);
    is_left_clean(&served).await;
    served.stop().await;
}

async fn no_tenant_has_all_slots() {
    let served = Served::with(|_, options| options.trust_loopback = false).await;
    let (short, long) = (film(&served), long_film(&served));
    let (_, loud) = served.key("loud", &[Scope::Write]).await;
    let (_, quiet) = served.key("quiet", &[Scope::Write]).await;
    let working = send(&served, "recipe=web-video&output=hls", long.clone()).bearer_auth(&loud).send();
    let working = tokio::spawn(working);
    served.until(async || !programs_at_work(&served).is_empty()).await;

    let second = send(&served, "recipe=thumbnail", short.clone()).bearer_auth(&loud).send().await.unwrap();
    let other = send(&served, "recipe=thumbnail", short).bearer_auth(&quiet).send().await.unwrap();

    assert_eq!(problem(second).await["code"], "busy", "it has one of two");
    made(other, "image/jpeg").await;
    working.abort();
    is_left_clean(&served).await;
    served.stop().await;
}

async fn a_scan_waits_for_a_scanner() {
    let served = Served::start().await;

    let asked = served.post("/v1/scan").header("Content-Type", "application/octet-stream").body("x");
    let body = problem(asked.send().await.unwrap()).await;

    assert_eq!((&body["status"], &body["code"]), (&503.into(), &"scan_unavailable".into()));
    served.stop().await;
}

/// Takes many seconds to encode and few to make.
fn long_film(served: &Served) -> Vec<u8> {
    let path = served.file("long.mp4");
    let done = std::process::Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin", "-y", "-f", "lavfi", "-i"])
        .arg("testsrc2=size=1280x720:rate=25:duration=30")
        .args(["-vf", "noise=alls=20:allf=t", "-c:v", "libx264", "-preset", "ultrafast", "-crf", "40"])
        .args(["-pix_fmt", "yuv420p"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    std::fs::read(path).unwrap()
}

/// Waits until no program runs and nothing but the (empty) studios is left in scratch.
async fn is_left_clean(served: &Served) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = [programs_at_work(served), files_below(served.shop.scratch.root())].concat();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{left:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Command lines of programs that work in this server's scratch.
fn programs_at_work(served: &Served) -> Vec<String> {
    let scratch = served.shop.scratch.root().to_string_lossy().into_owned();
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .filter(|line| line.contains(&scratch))
        .collect()
}

/// Without databases and locks.
fn files_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("queue.db") || name == "lock" {
            continue;
        } else if entry.path().is_dir() {
            found.extend(files_below(&entry.path()));
        } else {
            found.push(entry.path().display().to_string());
        }
    }
    found
}
