//! What a rolling upgrade asks of the program, as far as one version of it can show that.

use std::process::Command;

use rustix::process::Signal;

use crate::clips::film;
use crate::postgres_server::PostgresServer;
use crate::telecine::{Ended, Place};
use crate::worker::Worker;

#[test]
fn migrating_disturbs_nobody_who_is_at_work() {
    let place = Place::new();
    place.write(
        "telecine.toml",
        &format!("input_folders = [{:?}]\nstore = \"store\"\nscratch = \"scratch\"", place.path("")),
    );
    film(4, &place.path("film.mp4"));
    let run = place.run(&["submit", "film.mp4", "--recipe", "mp4"]).stdout.trim().to_owned();
    let workers = [Worker::start_with(&place, &[], &[]), Worker::start_with(&place, &[], &[])];

    let mut looks = 0;
    while place.json(&["runs", "show", &run])["finished_at"].is_null() {
        let (migrated, checked) = (place.run(&["migrate"]), place.run(&["migrate", "--check"]));
        assert_eq!((migrated.code, checked.code), (Some(0), Some(0)), "{migrated:?} {checked:?}");
        looks += 1;
    }

    assert!(looks > 0);
    assert_eq!(place.json(&["runs", "show", &run])["status"], "succeeded");
    for worker in workers {
        worker.signal(Signal::TERM);
        let (code, said) = worker.ends();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(" 0 failed"), "{said}");
    }
}

#[test]
fn an_older_program_refuses_a_newer_sqlite_schema() {
    let place = Place::new();
    assert_eq!(place.run(&["migrate"]).code, Some(0));
    let newer = "import sqlite3; c = sqlite3.connect('telecine.db'); \
                 c.execute(\"INSERT INTO schema_version VALUES (999, '0999_later', 'x')\"); c.commit()";
    let made = Command::new("python3")
        .args(["-c", newer])
        .current_dir(place.path(""))
        .output()
        .expect("python3 runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

    for command in [&["migrate"][..], &["worker"], &["serve"], &["runs", "ls"], &["reconcile", "--mend"]] {
        assert_refused(&place.run(command));
    }
}

#[test]
fn an_older_program_refuses_a_newer_postgres_schema() {
    let postgres = PostgresServer::start();
    let place = Place::new();
    let database = postgres.new_database();
    assert_eq!(place.run(&["migrate", "--database", &database]).code, Some(0));
    let name = database.rsplit('/').next().unwrap();
    let newer = "INSERT INTO telecine.schema_version VALUES (999, '0999_later', 'x', now())";
    let made = postgres.psql(name, newer);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

    for command in [&["migrate"][..], &["worker"], &["serve"], &["runs", "ls"], &["reconcile", "--mend"]] {
        assert_refused(&place.run(&[command, &["--database", &database]].concat()));
    }
    postgres.stop();
}

/// With what to do, and before anything was touched.
fn assert_refused(ended: &Ended) {
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("newer than this program knows"), "{ended:?}");
    assert!(ended.stderr.contains("run a newer telecine"), "{ended:?}");
}
