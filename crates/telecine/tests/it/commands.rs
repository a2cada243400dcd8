//! Commands that look and steer.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::json;

use crate::telecine::Place;

#[test]
fn a_pushed_job_is_listed_and_shown() {
    let place = Place::new();

    let pushed = place.run(&["jobs", "push", "pause", "--payload", r#"{"ms": 5}"#]);

    assert_eq!((pushed.code, pushed.stdout.as_str()), (Some(0), "1\n"), "{pushed:?}");
    let listed = place.json(&["jobs", "ls"]);
    assert_eq!(listed["data"][0]["id"], 1);
    assert_eq!(listed["data"][0]["state"], "pending");
    assert_eq!(listed["next_cursor"], json!(null));
    let shown = place.json(&["jobs", "show", "1"]);
    assert_eq!(shown["payload"], json!({ "ms": 5 }));
    assert_eq!(shown["attempts"], json!([]));
}

#[test]
fn a_job_that_nobody_runs_says_so_and_how_to_start_a_worker() {
    let place = Place::new();
    place.run(&["jobs", "push", "pause"]);

    let shown = place.run(&["jobs", "show", "1"]);

    assert!(shown.stdout.contains("no live worker runs kind `pause`"), "{shown:?}");
    assert!(shown.stdout.contains("`telecine worker`"), "{shown:?}");
}

#[test]
fn a_list_goes_on_at_its_cursor() {
    let place = Place::new();
    place.run(&["jobs", "push", "pause", "--count", "5"]);

    let first = place.json(&["jobs", "ls", "--limit", "3"]);
    let cursor = first["next_cursor"].to_string();
    let rest = place.json(&["jobs", "ls", "--limit", "3", "--cursor", &cursor]);

    assert_eq!(first["data"].as_array().map(Vec::len), Some(3));
    assert_eq!(rest["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(rest["next_cursor"], json!(null));
}

#[test]
fn an_unknown_kind_is_refused_with_the_nearest_one() {
    let place = Place::new();

    let refused = place.run(&["jobs", "push", "puase"]);
    let forced = place.run(&["jobs", "push", "puase", "--any-kind"]);

    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("did you mean `pause`?"), "{refused:?}");
    assert_eq!(forced.code, Some(0), "{forced:?}");
}

#[test]
fn a_repeated_push_with_one_idempotency_key_makes_one_job() {
    let place = Place::new();
    let push = ["jobs", "push", "pause", "--idempotency-key", "monday"];

    let first = place.run(&push);
    let again = place.run(&push);
    let other = place.run(&[&push[..], &["--priority", "9"]].concat());

    assert_eq!(first.stdout, again.stdout);
    assert!(again.stderr.contains("nothing new was pushed"), "{again:?}");
    assert_eq!(other.code, Some(2), "{other:?}");
    assert_eq!(place.json(&["jobs", "ls"])["data"].as_array().map(Vec::len), Some(1));
}

#[test]
fn cancel_retry_and_delete_steer_a_job_and_answer_no_where_they_do_not_apply() {
    let place = Place::new();
    place.run(&["jobs", "push", "pause"]);
    let state = || place.json(&["jobs", "show", "1"])["state"].clone();

    assert_eq!(place.run(&["jobs", "cancel", "1"]).code, Some(0));
    assert_eq!(state(), "cancelled");
    assert_eq!(place.run(&["jobs", "cancel", "1"]).code, Some(1));
    assert_eq!(place.run(&["jobs", "retry", "1"]).code, Some(0));
    assert_eq!(state(), "pending");
    assert_eq!(place.run(&["jobs", "retry", "1"]).code, Some(1));
    assert_eq!(place.run(&["jobs", "delete", "1", "77"]).code, Some(1));
    assert_eq!(place.run(&["jobs", "show", "1"]).code, Some(1));
}

#[test]
fn clear_needs_a_yes() {
    let place = Place::new();
    place.run(&["jobs", "push", "pause", "--count", "3"]);

    let asked = place.run(&["jobs", "clear", "--state", "pending"]);
    let done = place.run(&["jobs", "clear", "--state", "pending", "--yes"]);

    assert_eq!(asked.code, Some(2), "{asked:?}");
    assert!(asked.stderr.contains("--yes"), "{asked:?}");
    assert!(done.stderr.contains("3 jobs deleted"), "{done:?}");
    assert_eq!(place.json(&["jobs", "ls"])["data"], json!([]));
}

#[test]
fn counts_are_by_lane_kind_and_state() {
    let place = Place::new();
    place.run(&["jobs", "push", "pause", "--count", "2"]);
    place.run(&["jobs", "push", "pause", "--in", "1h"]);

    let counts = place.json(&["counts"]);

    let of = |state: &str| {
        let counts = counts["data"].as_array().expect("a list");
        counts.iter().find(|count| count["state"] == state).map(|count| count["jobs"].clone())
    };
    assert_eq!(of("pending"), Some(json!(2)));
    assert_eq!(of("scheduled"), Some(json!(1)));
}

#[test]
fn migrate_check_changes_nothing_and_answers_no_until_migrated() {
    let place = Place::new();

    let before = place.run(&["migrate", "--check"]);
    assert_eq!(before.code, Some(1), "{before:?}");
    assert!(!before.stdout.is_empty() && !place.holds("telecine.db"), "{before:?}");

    assert_eq!(place.run(&["migrate"]).code, Some(0));
    let after = place.run(&["migrate", "--check"]);
    assert_eq!((after.code, after.stdout.as_str()), (Some(0), ""), "{after:?}");
}

#[test]
fn looking_at_a_database_that_is_not_there_makes_none() {
    let place = Place::new();

    let looked = place.run(&["jobs", "ls"]);

    assert_eq!(looked.code, Some(2), "{looked:?}");
    assert!(looked.stderr.contains("telecine migrate"), "{looked:?}");
    assert!(!place.holds("telecine.db"));
}

#[test]
fn an_unreachable_database_is_an_error_with_a_next_step_and_without_the_password() {
    let place = Place::new();

    // Port 1 of this machine: nothing listens there.
    let failed = place.run(&["jobs", "ls", "--database", "postgres://me:hunter2@127.0.0.1:1/db"]);

    assert_eq!(failed.code, Some(2), "{failed:?}");
    assert!(failed.stderr.contains("next: "), "{failed:?}");
    assert!(!failed.stderr.contains("hunter2"), "{failed:?}");
}

#[test]
fn config_show_names_the_origin_of_each_value_and_masks_passwords() {
    let place = Place::new();
    place.write("telecine.toml", "# ours\npoll_ms = 50\ndatabase = \"postgres://me:hunter2@db/x\"\n");

    let mut command = place.command(&["config", "show"]);
    let shown: crate::telecine::Ended =
        command.env("TELECINE_LEASE_MS", "60000").output().expect("the binary can be started").into();

    assert_eq!(shown.code, Some(0), "{shown:?}");
    for expected in ["telecine.toml:2:1", "TELECINE_LEASE_MS", "postgres://me:***@db/x", "default"] {
        assert!(shown.stdout.contains(expected), "{expected}: {shown:?}");
    }
    assert!(!shown.stdout.contains("hunter2"), "{shown:?}");
}

#[test]
fn what_nobody_knows_in_the_configuration_is_an_error() {
    let place = Place::new();
    place.write("telecine.toml", "conurrency = 4");

    let refused = place.run(&["counts"]);

    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("telecine.toml:1:1"), "{refused:?}");
    assert!(refused.stderr.contains("did you mean `concurrency`?"), "{refused:?}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let place = Place::new();
    // More than a pipe holds, so that the writer meets the closed end.
    place.run(&["jobs", "push", "pause", "--count", "1000"]);
    let mut listing = place
        .command(&["jobs", "ls", "--limit", "1000", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary can be started");

    let mut first = String::new();
    let stdout = listing.stdout.take().expect("stdout is a pipe");
    BufReader::with_capacity(16, stdout).read_line(&mut first).expect("a line can be read");
    let ended: crate::telecine::Ended = listing.wait_with_output().expect("the binary ends").into();

    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
}

#[test]
fn job_data_cannot_drive_the_terminal() {
    let place = Place::new();
    place.run(&["jobs", "push", "pause", "--payload", r#"{"label": "\u009b2J\u202e"}"#]);

    let shown = place.run(&["jobs", "show", "1"]);

    assert!(!shown.stdout.contains(['\u{9b}', '\u{202e}', '\u{1b}']), "{shown:?}");
}

#[test]
fn a_schedule_is_added_listed_replaced_and_removed() {
    let place = Place::new();
    let add = ["schedules", "add", "nightly", "0 3 * * *", "pause", "--payload", r#"{"ms": 5}"#];

    let added = place.run(&add);
    let replaced = place.json(&[&add[..], &["--missed", "all:3"]].concat());
    let listed = place.json(&["schedules", "ls"]);
    let shown = place.run(&["schedules", "ls"]);

    assert_eq!(added.code, Some(0), "{added:?}");
    assert!(added.stderr.contains("T03:00:00Z"), "{added:?}");
    assert_eq!((&replaced["missed"], &replaced["cron"]), (&json!("all:3"), &json!("0 3 * * *")));
    assert_eq!(listed["data"], json!([replaced]));
    assert_eq!(listed["data"][0]["push"]["jobs"][0]["payload"], json!({ "ms": 5 }));
    assert!(shown.stdout.contains("nightly") && shown.stdout.contains("all:3"), "{shown:?}");
    assert_eq!(place.run(&["schedules", "rm", "nightly"]).code, Some(0));
    assert_eq!(place.run(&["schedules", "rm", "nightly"]).code, Some(1), "it is gone");
    assert_eq!(place.json(&["schedules", "ls"])["data"], json!([]));
}

#[test]
fn a_schedule_that_cannot_be_is_refused_with_a_reason() {
    let place = Place::new();

    let soon = place.run(&["schedules", "add", "nightly", "soon", "pause"]);
    let typo = place.run(&["schedules", "add", "nightly", "0 3 * * *", "puase"]);
    let policy = place.run(&["schedules", "add", "nightly", "0 3 * * *", "pause", "--missed", "sometimes"]);

    assert_eq!((soon.code, typo.code, policy.code), (Some(2), Some(2), Some(2)));
    assert!(soon.stderr.contains("`soon` is not a cron expression"), "{soon:?}");
    assert!(typo.stderr.contains("did you mean `pause`?"), "{typo:?}");
    assert!(policy.stderr.contains("skip, once or all:N"), "{policy:?}");
}

#[test]
fn a_bench_measures_and_leaves_nothing_behind() {
    let place = Place::new();
    place.run(&["jobs", "push", "pause"]);

    let figures = place.json(&["bench", "--jobs", "1000"]);

    let figures = figures["data"].as_array().expect("a list");
    let names: Vec<&str> = figures.iter().filter_map(|figure| figure["name"].as_str()).collect();
    assert_eq!(names, ["push_one", "push_bulk", "drain", "pickup_p50", "pickup_p99"]);
    assert!(
        figures.iter().all(|figure| figure["value"].as_f64().is_some_and(|value| value > 0.0)),
        "{figures:?}"
    );
    let left = place.json(&["counts"]);
    assert_eq!(left["data"].as_array().map(Vec::len), Some(1), "only what was there before: {left}");
    assert_eq!(left["data"][0]["kind"], "pause");
}
