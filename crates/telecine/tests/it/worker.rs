//! A worker process from its start to its end.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::telecine::Place;

/// A worker that has said that it is ready. Killed when the test ends early.
pub(crate) struct Worker {
    child: Child,
    talk: BufReader<std::process::ChildStderr>,
}

impl Worker {
    fn start(place: &Place) -> Self {
        Self::start_with(place, &[], &[])
    }

    /// With more arguments and variables.
    pub(crate) fn start_with(place: &Place, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = place
            .command(&[&["worker", "--log", "error"], arguments].concat())
            .env("TELECINE_BEAT_MS", "100")
            .env("TELECINE_LEASE_MS", "10000")
            .envs(variables.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be started");
        let talk = BufReader::new(child.stderr.take().expect("stderr is a pipe"));
        let mut worker = Self { child, talk };
        worker.hears("Ctrl-C drains it");
        worker
    }

    /// Reads what the worker says up to the line that contains `expected`.
    fn hears(&mut self, expected: &str) {
        let mut heard = String::new();
        while !heard.lines().last().is_some_and(|line| line.contains(expected)) {
            let read = self.talk.read_line(&mut heard).expect("stderr is text");
            assert!(read > 0, "the worker ended before it said {expected:?}: {heard}");
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process has an id");
        kill_process(pid, signal).expect("the worker is still there");
    }

    /// Waits for the end; the exit code and the rest of what it said.
    pub(crate) fn ends(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.talk.read_to_string(&mut rest).expect("stderr is text");
        (self.child.wait().expect("the worker ends").code(), rest)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_until_running(place: &Place) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while place.json(&["jobs", "ls", "--state", "running"])["data"].as_array().is_none_or(Vec::is_empty) {
        assert!(Instant::now() < give_up, "no job was claimed within a minute");
    }
}

#[test]
fn a_terminated_worker_finishes_what_it_has_and_exits_0() {
    let place = Place::new();
    place.run(&["jobs", "push", "pause", "--payload", r#"{"ms": 1500}"#]);
    let mut worker = Worker::start(&place);
    wait_until_running(&place);

    worker.signal(Signal::TERM);
    worker.hears("draining: 1 job still running");
    let (code, talk) = worker.ends();

    assert_eq!(code, Some(0), "{talk}");
    assert!(talk.contains("1 completed"), "{talk}");
    assert_eq!(place.json(&["jobs", "show", "1"])["state"], "completed");
}

#[test]
fn a_second_signal_stops_a_worker_at_once_and_gives_the_job_back() {
    let place = Place::new();
    place.run(&["jobs", "push", "pause", "--payload", r#"{"ms": 600000}"#]);
    let mut worker = Worker::start(&place);
    wait_until_running(&place);

    worker.signal(Signal::TERM);
    worker.hears("draining");
    worker.signal(Signal::INT);
    let (code, talk) = worker.ends();

    assert_eq!(code, Some(1), "{talk}");
    let job = place.json(&["jobs", "show", "1"]);
    assert_eq!((&job["state"], &job["attempt"]), (&"pending".into(), &0.into()), "{job}");
}

#[test]
fn a_worker_that_is_asked_to_drain_leaves_by_itself() {
    let place = Place::new();
    let worker = Worker::start(&place);
    let id = place.json(&["workers", "ls"])["data"][0]["id"].to_string();

    assert_eq!(place.run(&["workers", "drain", &id]).code, Some(0));
    let (code, talk) = worker.ends();

    assert_eq!(code, Some(0), "{talk}");
    assert_eq!(place.run(&["workers", "drain", "4711"]).code, Some(1));
}

#[test]
fn a_worker_for_a_kind_that_nobody_knows_does_not_start() {
    let place = Place::new();

    let refused = place.run(&["worker", "--kinds", "encode"]);

    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("pause"), "{refused:?}");
}
