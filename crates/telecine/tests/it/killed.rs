//! A server that is killed while somebody submits: whoever asks again with the same key has one run.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::serve::Serving;
use crate::telecine::{Place, until};

/// Kills at instants that are spread over a request's whole life: before its COMMIT, after it, after the answer.
const KILLS: u32 = 12;
const SPREAD: Duration = Duration::from_millis(12);

#[test]
fn a_submission_that_is_repeated_after_a_kill_is_one_run() {
    let place = Place::new();
    let folder = place.path("").canonicalize().unwrap();
    place.write("telecine.toml", &format!("input_folders = [{folder:?}]\nstore = \"store\""));
    place.write("film.mp4", "nobody looks at it here");
    let mut unanswered = 0;
    for kill in 0..KILLS {
        let request = json!({
            "recipe": "web-video",
            "input": { "path": folder.join("film.mp4") },
            "external_id": format!("film-{kill}"),
        });
        let mut first = Serving::start(&place, &["serve"]);
        let waiting = submit(&first, kill, &request);
        if kill + 1 == KILLS {
            // Certainly after the COMMIT.
            until_there_is_a_run(&place, kill);
        } else {
            let killed_at = Instant::now() + SPREAD * kill / KILLS;
            while Instant::now() < killed_at {
                std::hint::spin_loop();
            }
        }
        first.signal(Signal::KILL);
        first.is_gone();
        unanswered += u32::from(read(waiting).is_empty());

        let second = Serving::start(&place, &["serve"]);
        let answer = read(submit(&second, kill, &request));
        let is_made = answer.starts_with("HTTP/1.1 201") || answer.starts_with("HTTP/1.1 200");
        assert!(is_made, "{answer}");
        let (_, runs) = second.ask("GET", &format!("/v1/runs?external_id=film-{kill}"), None, None);
        assert_eq!(runs["data"].as_array().map(Vec::len), Some(1), "kill {kill}: {runs}");
        second.signal(Signal::TERM);
        second.ends();
    }
    assert!(unanswered > 0, "no kill came before an answer");
}

/// A request that is on its way; nobody has read its answer yet.
fn submit(serving: &Serving, kill: u32, request: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(&serving.address).expect("somebody listens");
    let body = request.to_string();
    write!(
        stream,
        "POST /v1/runs HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nidempotency-key: kill-{kill}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        serving.address,
        body.len()
    )
    .expect("a request can be sent");
    stream
}

/// Empty where the connection broke before an answer.
fn read(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn until_there_is_a_run(place: &Place, kill: u32) {
    let name = format!("film-{kill}");
    until("the run is committed", || {
        let runs = place.json(&["runs", "ls"]);
        runs["data"].as_array().is_some_and(|runs| runs.iter().any(|run| run["external_id"] == name))
    });
}
