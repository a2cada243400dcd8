//! `telecine watch`: files are processed as they appear.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::clips::{film, frames};
use crate::telecine::Place;

const PATIENCE: Duration = Duration::from_secs(300);

/// A watcher at work. Killed when the test ends early.
pub(crate) struct Watcher {
    child: Child,
    talk: Receiver<String>,
    heard: Vec<String>,
}

impl Watcher {
    fn start(place: &Place) -> Self {
        Self::start_with(place, &BTreeMap::new())
    }

    pub(crate) fn start_with(place: &Place, variables: &BTreeMap<String, String>) -> Self {
        let arguments = ["watch", "in", "--out", "out", "--settle", "300ms"];
        let mut command = place.command(&arguments);
        command.envs(variables);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let (tell, talk) = channel();
        let stderr: ChildStderr = child.stderr.take().expect("a pipe");
        let stdout = child.stdout.take().expect("a pipe");
        for stream in [Box::new(stderr) as Box<dyn std::io::Read + Send>, Box::new(stdout)] {
            let tell = tell.clone();
            std::thread::spawn(move || {
                BufReader::new(stream).lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
            });
        }
        let mut watcher = Self { child, talk, heard: Vec::new() };
        watcher.hears("watching in");
        watcher
    }

    /// Waits for a line with these words.
    pub(crate) fn hears(&mut self, expected: &str) {
        while !self.heard.iter().any(|line| line.contains(expected)) {
            let line = self.talk.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("it never said {expected:?}: {:?}", self.heard));
            self.heard.push(line);
        }
    }

    pub(crate) fn stop(mut self) -> (Option<i32>, Vec<String>) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process has an id");
        kill_process(pid, Signal::INT).expect("it still runs");
        let code = self.child.wait().expect("it ends").code();
        while let Ok(line) = self.talk.recv_timeout(PATIENCE) {
            self.heard.push(line);
        }
        (code, std::mem::take(&mut self.heard))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn files_are_processed_as_they_appear_each_once_and_others_are_skipped() {
    let place = Place::new();
    std::fs::create_dir(place.path("in")).expect("a folder");
    let mut watcher = Watcher::start(&place);

    place.write("in/notes.mp4", "these are notes");
    film(2, &place.path("film.mp4"));
    std::fs::rename(place.path("film.mp4"), place.path("in/one.mp4")).expect("a move");
    watcher.hears("one.mp4 succeeded");
    watcher.hears("skipped: ");
    let (code, heard) = watcher.stop();

    assert_eq!(code, Some(0), "{heard:?}");
    assert_eq!(frames(&place.path("out/one/hls/master.m3u8")), [50]);
    assert!(
        heard.iter().any(|line| line.contains("notes.mp4") && line.contains("no known type")),
        "{heard:?}"
    );

    let mut watcher = Watcher::start(&place);
    film(3, &place.path("film.mp4"));
    std::fs::rename(place.path("film.mp4"), place.path("in/two.mp4")).expect("a move");
    watcher.hears("two.mp4 succeeded");
    let (code, heard) = watcher.stop();

    assert_eq!(code, Some(0), "{heard:?}");
    assert_eq!(frames(&place.path("out/two/hls/master.m3u8")), [75]);
    assert!(!heard.iter().any(|line| line.contains("one.mp4")), "it was processed once: {heard:?}");
}

#[test]
fn results_are_not_taken_for_inputs() {
    let place = Place::new();
    std::fs::create_dir(place.path("in")).expect("a folder");

    let refused = place.run(&["watch", "in", "--out", "in", "--nested"]);
    let missing = place.run(&["watch", "nowhere", "--out", "out"]);

    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("next: leave out --nested"), "{refused:?}");
    assert_eq!(missing.code, Some(2), "{missing:?}");
}
