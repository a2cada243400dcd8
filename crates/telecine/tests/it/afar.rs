//! The same commands on a Postgres and a bucket, which are real ones.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::clips::{film, frames};
use crate::postgres_server::PostgresServer;
use crate::s3_server::{BUCKET, S3Server};
use crate::telecine::Place;
use crate::watch::Watcher;

/// A database and a store that are elsewhere.
struct Afar {
    place: Place,
    postgres: PostgresServer,
    bucket: S3Server,
    variables: BTreeMap<String, String>,
}

impl Afar {
    fn new() -> Self {
        let (postgres, bucket) = (PostgresServer::start(), S3Server::start());
        let mut variables = bucket.options().variables;
        variables.insert("TELECINE_DATABASE".into(), postgres.new_database());
        variables.insert("TELECINE_STORE".into(), format!("s3://{BUCKET}/store"));
        variables.insert("TELECINE_INPUT_BUCKETS".into(), format!("s3://{BUCKET}/inputs"));
        Self { place: Place::new(), postgres, bucket, variables }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.command(arguments);
        command.envs(&self.variables);
        command
    }

    fn run(&self, arguments: &[&str]) -> crate::telecine::Ended {
        self.command(arguments).output().expect("the binary can be started").into()
    }

    /// What lies in the bucket below the store's prefix.
    fn stored(&self, extension: &str) -> usize {
        let mut folders = vec![self.bucket.file("store")];
        let mut found = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder of the server").map(Result::unwrap) {
                match entry.path() {
                    path if path.is_dir() => folders.push(path),
                    path => found += usize::from(path.extension().is_some_and(|it| it == extension)),
                }
            }
        }
        found
    }
}

impl Drop for Afar {
    fn drop(&mut self) {
        self.postgres.stop();
    }
}

#[test]
fn a_file_is_processed_on_postgres_and_a_bucket_and_found_again() {
    let afar = Afar::new();
    film(3, &afar.place.path("film.mp4"));

    let first = afar.run(&["run", "film.mp4", "--out", "out"]);
    let again = afar.run(&["run", "film.mp4", "--out", "elsewhere", "--json"]);

    assert_eq!(first.code, Some(0), "{first:?}");
    assert_eq!(frames(&afar.place.path("out/film/hls/master.m3u8")), [75]);
    assert!(!afar.place.holds("out/.telecine/queue.db") && !afar.place.holds("out/.telecine/store"));
    assert!(afar.stored("m4s") > 0, "the bucket has the segments");
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.stderr.contains("was done before"), "{again:?}");
    assert_eq!(frames(&afar.place.path("elsewhere/film/hls/master.m3u8")), [75]);
}

#[test]
fn files_that_appear_are_processed_on_postgres_and_a_bucket() {
    let afar = Afar::new();
    std::fs::create_dir(afar.place.path("in")).expect("a folder");
    let mut watcher = Watcher::start_with(&afar.place, &afar.variables);

    film(2, &afar.place.path("film.mp4"));
    std::fs::rename(afar.place.path("film.mp4"), afar.place.path("in/one.mp4")).expect("a move");
    watcher.hears("one.mp4 succeeded");
    let (code, heard) = watcher.stop();

    assert_eq!(code, Some(0), "{heard:?}");
    assert_eq!(frames(&afar.place.path("out/one/hls/master.m3u8")), [50]);
    assert!(afar.stored("m3u8") > 0, "the bucket has the playlists");
}

/// A worker process. Killed when the test ends early.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_object_of_an_allowed_bucket_is_submitted_and_processed_by_a_worker() {
    let afar = Afar::new();
    std::fs::create_dir_all(afar.bucket.file("inputs")).expect("a folder of the server");
    film(2, &afar.bucket.file("inputs/film.mp4"));
    let mut worker = Worker(afar.command(&["worker"]).stderr(Stdio::null()).spawn().expect("it starts"));

    let address = format!("s3://{BUCKET}/inputs/film.mp4");
    let ended = afar.run(&["submit", &address, "--watch"]);
    let denied = afar.run(&["submit", &format!("s3://{BUCKET}/store/film.mp4")]);

    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(afar.stored("m3u8") > 0, "the bucket has the playlists");
    assert_eq!(denied.code, Some(2), "{denied:?}");
    let pid = Pid::from_child(&worker.0);
    kill_process(pid, Signal::TERM).expect("it still runs");
    assert!(worker.0.wait().expect("it ends").success());
}
