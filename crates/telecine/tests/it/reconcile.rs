//! `telecine reconcile` as an operator types it.

use serde_json::{Value, json};

use crate::clips::film;
use crate::s3_server::{BUCKET, S3Server, options_for};
use crate::telecine::Place;

/// A place with a run that has succeeded, and the keys of its files.
fn place_with_run() -> (Place, String, Vec<String>) {
    let place = Place::new();
    place.write(
        "telecine.toml",
        &format!("input_folders = [{:?}]\nstore = \"store\"\nscratch = \"scratch\"", place.path("")),
    );
    film(2, &place.path("a.mp4"));
    let submitted = place.run(&["submit", "a.mp4", "--recipe", "mp4"]);
    assert_eq!(submitted.code, Some(0), "{submitted:?}");
    let id = submitted.stdout.trim().to_owned();
    let run = finish(&place, &id);
    let files =
        run["outputs"].as_array().unwrap().iter().flat_map(|output| output["files"].as_array().unwrap());
    let keys = files.map(|file| file["key"].as_str().unwrap().to_owned()).collect();
    (place, id, keys)
}

/// Has a worker do what there is; the run as it is then.
fn finish(place: &Place, id: &str) -> Value {
    let mut worker = place.command(&["worker", "--log", "error"]).spawn().unwrap();
    let watched = place.run(&["runs", "watch", id]);
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert_eq!(watched.code, Some(0), "{watched:?}");
    place.json(&["runs", "show", id])
}

#[test]
fn a_look_changes_nothing_and_a_mend_makes_the_output_again() {
    let (place, id, keys) = place_with_run();
    let whole = place.run(&["reconcile"]);
    assert_eq!((whole.code, whole.stdout.as_str()), (Some(0), ""), "{whole:?}");
    assert!(whole.stderr.contains("looked at 1 run"), "{whole:?}");
    std::fs::remove_file(place.path("store").join(&keys[0])).unwrap();

    let look = place.run(&["reconcile"]);
    let listed = place.run(&["reconcile", "--json"]);
    let mended = place.run(&["reconcile", "--mend"]);

    assert_eq!(look.code, Some(1), "{look:?}");
    assert!(look.stdout.starts_with("found   damaged     ") && look.stdout.contains(&id), "{look:?}");
    assert!(look.stderr.contains("next: `telecine reconcile --mend`"), "{look:?}");
    let report: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!((listed.code, &report["mendable"], &report["is_cut"]), (Some(1), &json!(1), &json!(false)));
    assert_eq!(report["findings"][0]["trouble"], "damaged", "{report}");
    assert_eq!(report["findings"][0]["outcome"], "mendable", "{report}");
    assert_eq!(mended.code, Some(0), "{mended:?}");
    assert_eq!(finish(&place, &id)["status"], "succeeded");
    assert!(place.path("store").join(&keys[0]).exists());
    assert_eq!(place.run(&["reconcile", "--deep"]).code, Some(0));
}

#[test]
fn what_cannot_be_mended_is_a_negative_answer() {
    let (place, _, keys) = place_with_run();
    std::fs::remove_file(place.path("store").join(&keys[0])).unwrap();
    std::fs::remove_file(place.path("a.mp4")).unwrap();

    let lost = place.run(&["reconcile", "--mend"]);

    assert_eq!(lost.code, Some(1), "{lost:?}");
    assert!(lost.stdout.starts_with("lost ") && lost.stdout.contains("submit the input again"), "{lost:?}");
}

#[test]
fn a_mistyped_database_is_an_error_and_removes_nothing() {
    let (place, _, keys) = place_with_run();

    let mistyped = place.run(&["reconcile", "--mend", "--older-than", "0s", "--database", "sqlite:other.db"]);

    assert_eq!(mistyped.code, Some(2), "{mistyped:?}");
    assert!(!place.holds("other.db"));
    // Nor does a database that is there and has nothing to do with the store.
    assert_eq!(place.run(&["migrate", "--database", "sqlite:other.db"]).code, Some(0));
    let other = place.run(&["reconcile", "--mend", "--older-than", "0s", "--database", "sqlite:other.db"]);
    assert_eq!(other.code, Some(0), "{other:?}");
    assert!(other.stderr.contains("not looked at: blobs and cache entries of unknown runs"), "{other:?}");
    assert!(keys.iter().all(|key| place.path("store").join(key).exists()));
}

#[test]
fn wrong_credentials_are_told_with_what_to_do() {
    let server = S3Server::start();
    let place = Place::new();
    assert_eq!(place.run(&["migrate"]).code, Some(0));
    let mut command = place.command(&["reconcile", "--store", &format!("s3://{BUCKET}")]);

    let refused = command.envs(options_for(server.port, "some-other-secret").variables).output().unwrap();

    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("the store refuses") && said.contains("next: check the store's credentials"),
        "{said}"
    );
    assert!(!said.contains("some-other-secret"), "{said}");
}
