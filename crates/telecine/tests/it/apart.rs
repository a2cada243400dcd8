//! The API and the worker as two processes that know each other by one database alone.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::json;

use crate::clips::film;
use crate::postgres_server::PostgresServer;
use crate::serve::Serving;
use crate::telecine::Place;
use crate::worker::Worker;

#[test]
fn serve_and_worker_share_a_sqlite_file() {
    a_run_is_submitted_watched_and_played("sqlite:queue.db");
}

#[test]
fn serve_and_worker_share_a_postgres() {
    let postgres = PostgresServer::start();

    a_run_is_submitted_watched_and_played(&postgres.new_database());
    postgres.stop();
}

fn a_run_is_submitted_watched_and_played(database: &str) {
    let place = Place::new();
    let folder = place.path("").canonicalize().unwrap();
    place.write(
        "telecine.toml",
        &format!("input_folders = [{:?}]\nstore = \"store\"", folder.to_str().unwrap()),
    );
    film(4, &place.path("film.mp4"));
    let serve = Serving::start(&place, &["serve", "--database", database]);
    let worker = start_worker(&place, database);

    let request = json!({ "recipe": "web-video", "input": { "path": folder.join("film.mp4") } });
    let (status, run) = serve.ask("POST", "/v1/runs", None, Some(&request));
    assert_eq!(status, 201, "{run}");
    let id = run["id"].as_str().unwrap();
    let events = read_to_end(&serve, &format!("/v1/runs/{id}/events"));
    let master = read_to_end(&serve, &format!("/v1/runs/{id}/files/hls/master.m3u8"));

    // Each stored event once and in order, though another process made all but the first.
    let told: Vec<&str> = events
        .lines()
        .filter_map(|line| line.strip_prefix("event: "))
        .filter(|name| *name != "run.progress")
        .collect();
    let (ready, told): (Vec<&str>, Vec<&str>) = told.into_iter().partition(|name| *name == "output.ready");
    assert_eq!(told, ["run.created", "run.started", "run.playable", "run.succeeded"], "{events}");
    assert_eq!(ready.len(), 4, "the film, its poster, storyboard and preview: {events}");
    assert!(master.contains("#EXT-X-STREAM-INF"), "{master}");
    let (_, run) = serve.ask("GET", &format!("/v1/runs/{id}"), None, None);
    assert_eq!(run["status"], "succeeded", "{run}");
    worker.signal(Signal::TERM);
    let (code, talk) = worker.ends();
    assert_eq!(code, Some(0), "{talk}");
    serve.signal(Signal::TERM);
    let (code, talk) = serve.ends();
    assert_eq!(code, Some(0), "{talk}");
}

fn start_worker(place: &Place, database: &str) -> Worker {
    let scratch = place.path("scratch-of-the-worker");
    Worker::start_with(place, &["--database", database], &[("TELECINE_SCRATCH", scratch.to_str().unwrap())])
}

/// The whole answer as text; of a stream, when it has ended.
fn read_to_end(serve: &Serving, path: &str) -> String {
    let mut stream = TcpStream::connect(&serve.address).expect("somebody listens");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", serve.address)
        .expect("a request can be sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer is text");
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    answer
}
