//! A backup that was made while everybody was busy, restored elsewhere as docs/runbook.md says it.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::clips::film;
use crate::postgres_server::PostgresServer;
use crate::telecine::{Place, until};
use crate::worker::Worker;

#[test]
fn a_backup_of_sqlite_is_restored_and_its_runs_complete() {
    let here = busy_place();
    let database = format!("sqlite:{}", here.path("queue.db").display());

    backed_up_while_busy(&here, &database, |there| {
        let copy = there.path("queue.db");
        let made = here.run(&["backup", copy.to_str().unwrap(), "--database", &database]);
        assert_eq!(made.code, Some(0), "{made:?}");
        let again = here.run(&["backup", copy.to_str().unwrap(), "--database", &database]);
        assert_eq!(again.code, Some(2), "a backup is not overwritten: {again:?}");
        format!("sqlite:{}", copy.display())
    });
}

#[test]
fn a_dump_of_postgres_is_restored_and_its_runs_complete() {
    let postgres = PostgresServer::start();
    let here = busy_place();
    let database = postgres.new_database();

    let refused = here.run(&["backup", "copy.db", "--database", &database]);
    assert!(refused.code == Some(2) && refused.stderr.contains("pg_dump"), "{refused:?}");
    backed_up_while_busy(&here, &database, |there| dumped_and_restored(&postgres, &database, there));
    postgres.stop();
}

/// The address of the copy.
fn dumped_and_restored(postgres: &PostgresServer, database: &str, there: &Place) -> String {
    let (copy, file) = (postgres.new_database(), there.path("dump.sql"));
    let dumped = postgres.program("pg_dump").args(["-d", database, "-f"]).arg(&file).output().unwrap();
    assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
    let mut restore = postgres.program("psql");
    let restored =
        restore.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &copy, "-f"]).arg(&file).output().unwrap();
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    copy
}

fn busy_place() -> Place {
    let place = Place::new();
    place.write("telecine.toml", &settings(&place.path(""), "store"));
    film(12, &place.path("film.mp4"));
    film(2, &place.path("clip.mp4"));
    place
}

fn settings(inputs: &Path, store: &str) -> String {
    format!("input_folders = [{inputs:?}]\nstore = {store:?}\nscratch = \"scratch\"")
}

/// `back_up` copies the database to the other place, and gives the address of the copy.
fn backed_up_while_busy(here: &Place, database: &str, back_up: impl FnOnce(&Place) -> String) {
    let there = Place::new();
    there.write("telecine.toml", &settings(&here.path(""), "store"));
    let worker = start(here, database);
    let done = submit(here, database, "clip.mp4");
    until("the clip is done", || status(here, database, &done) == "succeeded");
    let under_way = submit(here, database, "film.mp4");
    until("some of the film is stored", || has_segments(&here.path("store/_").join(&under_way)));

    // The database first and the store after it: what the copy tells of is in the other copy, too.
    let copy = back_up(&there);
    assert_eq!(status(&there, &copy, &under_way), "running");
    let unknown = submit(here, database, "clip.mp4 --fresh");
    until("it goes on", || status(here, database, &unknown) == "succeeded");
    copy_folder(&here.path("store"), &there.path("store"));
    worker.signal(Signal::KILL);
    drop(worker);
    // A copy of a store that is used is seldom whole.
    let lost = first_output(&there, &copy, &done);
    std::fs::remove_file(there.path("store").join(&lost)).unwrap();

    // A sweep of the first one may have marked the store since.
    let claim = ["reconcile", "--claim-store", "--older-than", "0s", "--database", &copy];
    let found = there.json_of(&claim, 1);
    let mend = ["reconcile", "--mend", "--older-than", "0s", "--database", &copy];
    let mended = there.run(&mend);
    let worker = start(&there, &copy);

    let has = |trouble: &str, at: &str| {
        let findings = found["findings"].as_array().unwrap();
        findings.iter().any(|it| it["trouble"] == trouble && it["at"].as_str().unwrap().ends_with(at))
    };
    assert!(has("damaged", &done) && has("orphan", &unknown), "{found}");
    assert!(!has("damaged", &under_way) && !has("orphan", &under_way), "{found}");
    assert_eq!(mended.code, Some(0), "{mended:?}");
    for run in [&done, &under_way] {
        until("it completes", || status(&there, &copy, run) == "succeeded");
    }
    let is_there = || there.path("store/_").join(&unknown).exists();
    assert!(is_there(), "nobody had the time to look at what the copy does not know");
    assert_eq!(there.run(&mend).code, Some(0));
    assert!(!is_there(), "it was noted before");
    assert!(there.path("store").join(&lost).exists());
    let whole = there.run(&["reconcile", "--deep", "--older-than", "0s", "--database", &copy]);
    assert_eq!((whole.code, whole.stdout.as_str()), (Some(0), ""), "{whole:?}");
    worker.signal(Signal::TERM);
    let (code, said) = worker.ends();
    assert_eq!(code, Some(0), "{said}");
}

fn start(place: &Place, database: &str) -> Worker {
    // One encoder at a time, so that a film takes a while.
    Worker::start_with(place, &["--database", database, "--slots", "cpu=1,io=4,net=1"], &[])
}

fn submit(place: &Place, database: &str, what: &str) -> String {
    let words: Vec<&str> = what.split(' ').collect();
    let arguments = [&["submit", "--recipe", "web-video", "--database", database], &words[..]].concat();
    let submitted = place.run(&arguments);
    assert_eq!(submitted.code, Some(0), "{submitted:?}");
    submitted.stdout.trim().to_owned()
}

fn status(place: &Place, database: &str, run: &str) -> String {
    let shown = place.json(&["runs", "show", run, "--database", database]);
    assert_ne!(shown["status"], "failed", "{shown}");
    shown["status"].as_str().unwrap().to_owned()
}

fn first_output(place: &Place, database: &str, run: &str) -> String {
    let shown = place.json(&["runs", "show", run, "--database", database]);
    let files = |output: &Value| output["files"].as_array().cloned().unwrap_or_default();
    let mut files = shown["outputs"].as_array().unwrap().iter().flat_map(files);
    files.next().unwrap()["key"].as_str().unwrap().to_owned()
}

fn has_segments(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder.join("hls")) else { return false };
    let mut rungs = entries.map(|entry| entry.unwrap().path());
    rungs.any(|rung| std::fs::read_dir(rung).is_ok_and(|files| files.count() > 1))
}

fn copy_folder(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").arg(from).arg(to).output().unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
}
