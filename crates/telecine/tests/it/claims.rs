//! Remote claims outlive the process that gave them.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::serve::Serving;
use crate::telecine::{Place, until};
use crate::worker::Worker;

/// A worker that sweeps often.
fn start_sweeper(place: &Place, name: &str) -> Worker {
    let scratch = place.path("scratch-of-worker");
    let variables = [("TELECINE_SCRATCH", scratch.to_str().unwrap()), ("TELECINE_SWEEP_MS", "100")];
    let worker = Worker::start_with(place, &["--name", name], &variables);
    until("the worker is there", || is_alive(place, name) == Some(true));
    worker
}

fn is_alive(place: &Place, name: &str) -> Option<bool> {
    let workers = place.json(&["workers", "ls"]);
    workers["data"].as_array()?.iter().find(|worker| worker["name"] == name)?["alive"].as_bool()
}

#[test]
fn a_server_that_is_killed_takes_no_remote_claim_with_it() {
    let place = Place::new();
    let mut first = Serving::start(&place, &["serve"]);
    let post = |serve: &Serving, path: &str, body: Value| serve.ask("POST", path, None, Some(&body));
    let (status, job) = post(&first, "/v1/jobs", json!({"kind": "far_away"}));
    assert_eq!(status, 201, "{job}");
    let asked = json!({"kinds": ["far_away"], "lease_ms": 600_000, "name": "far"});
    let (status, claim) = post(&first, "/v1/claims", asked);
    assert_eq!(status, 200, "{claim}");
    let _sweeper = start_sweeper(&place, "sweeper");

    first.signal(Signal::KILL);
    first.is_gone();
    // A worker of this host that is killed is noticed by the next sweep, long before its lease ends.
    drop(start_sweeper(&place, "witness"));
    until("a sweep has been", || is_alive(&place, "witness") == Some(false));

    assert_eq!(is_alive(&place, "far"), Some(true), "only its lease tells whether it lives");
    let second = Serving::start(&place, &["serve"]);
    let path = |verb: &str| format!("/v1/claims/{}/{verb}", claim["job"]["id"]);
    let (status, beaten) = post(&second, &path("beat"), json!({"token": claim["token"], "progress": 0.5}));
    assert_eq!(status, 200, "{beaten}");
    let outcome = json!({"token": claim["token"], "outcome": {"complete": {"result": 7}}});
    let (status, finished) = post(&second, &path("finish"), outcome);
    assert_eq!(status, 200, "{finished}");
    let shown = place.json(&["jobs", "show", &claim["job"]["id"].to_string()]);
    assert_eq!(
        (&shown["state"], &shown["result"], &shown["lost"]),
        (&json!("completed"), &json!(7), &json!(0))
    );
}
