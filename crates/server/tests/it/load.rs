//! Many at once: `make load`. Two hundred runs a second for a minute while others watch. Every answer is a success, and
//! whoever watches hears of every run, each event once and in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::clips;
use crate::events::Events;
use crate::support::{Served, trial};

const RUNS_PER_SECOND: usize = 200;
const SECONDS: usize = 60;
const SENDERS: usize = 8;
const WATCHERS: usize = 4;

pub(crate) fn trials() -> Vec<Trial> {
    let load = trial("load::whoever_watches_hears_of_every_run", whoever_watches_hears_of_every_run);
    vec![load.with_ignored_flag(true)]
}

async fn whoever_watches_hears_of_every_run() {
    let served = Arc::new(Served::start().await);
    let picture = served.file("picture.png");
    clips::ffmpeg(&["-f", "lavfi", "-i", "testsrc2=size=16x16", "-frames:v", "1"], &picture);
    let body = json!({ "recipe": "image", "input": { "path": picture } });
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS {
        watchers.push(tokio::spawn(hear_of_all(Events::open(&served, "/v1/events", None).await)));
    }

    let started = Instant::now();
    let senders: Vec<_> =
        (0..SENDERS).map(|nth| tokio::spawn(send(Arc::clone(&served), nth, body.clone()))).collect();
    let mut sent = 0;
    for sender in senders {
        sent += sender.await.expect("every run is accepted");
    }
    let took = started.elapsed();
    println!("{sent} runs in {:.1} s, {:.0} a second", took.as_secs_f64(), sent as f64 / took.as_secs_f64());

    for watcher in watchers {
        let heard = watcher.await.expect("nothing is lost, nothing comes twice");
        println!("a watcher heard {} events of {} runs", heard.values().sum::<u64>(), heard.len());
        assert_eq!(heard.len(), sent);
    }
    assert_eq!(sent, RUNS_PER_SECOND * SECONDS);
    Arc::into_inner(served).expect("nobody else has it").stop().await;
}

/// A sender's share, each at its time: one that is late does not wait.
async fn send(served: Arc<Served>, nth: usize, body: Value) -> usize {
    let begun = tokio::time::Instant::now();
    let share = (nth..RUNS_PER_SECOND * SECONDS).step_by(SENDERS);
    let mut sent = 0;
    for run in share {
        tokio::time::sleep_until(begun + Duration::from_secs(1) * run as u32 / RUNS_PER_SECOND as u32).await;
        let answer = served.post("/v1/runs").header("Idempotency-Key", format!("run-{run}")).json(&body);
        let answer = answer.send().await.expect("an answer");
        assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
        sent += 1;
    }
    sent
}

/// How many events came of each run, until all runs have been heard of.
async fn hear_of_all(mut events: Events) -> BTreeMap<String, u64> {
    let mut heard = BTreeMap::new();
    while heard.len() < RUNS_PER_SECOND * SECONDS {
        let frame = events.next().await.expect("the stream has no end");
        let Some(seq) = frame.data["seq"].as_u64() else { continue };
        let run = frame.data["run_id"].as_str().expect("a run").to_owned();
        let last = heard.entry(run).or_insert(0);
        *last += 1;
        assert_eq!(seq, *last, "an event is missing or came twice: {}", frame.data);
    }
    heard
}
