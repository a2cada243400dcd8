//! `telecine run`: from a file to results that play, whatever comes between.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::clips::{film, frames};
use crate::telecine::{Ended, Place};

const PATIENCE: Duration = Duration::from_secs(300);

fn run<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["run", "film.mp4", "--out", "out"], more].concat()
}

fn document(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

#[test]
fn a_file_becomes_a_film_that_plays_and_is_made_once() {
    let place = Place::new();
    film(3, &place.path("film.mp4"));

    let first = place.run(&run(&[]));
    let again = place.run(&run(&["--json", "--quiet"]));
    let fresh = place.run(&run(&["--json", "--fresh"]));

    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(first.stdout.contains("out/film/hls/master.m3u8"), "{first:?}");
    assert!(first.stdout.contains("0:03"), "{first:?}");
    assert_eq!(frames(&place.path("out/film/hls/master.m3u8")), [75]);
    assert_eq!((again.code, again.stderr.as_str()), (Some(0), ""), "{again:?}");
    let (again, fresh) = (document(&again), document(&fresh));
    assert_eq!(again["runs"][0]["status"], "succeeded");
    assert_eq!(again["runs"][0]["outputs"][0]["path"], "out/film/hls/master.m3u8");
    assert_ne!(again["runs"][0]["id"], fresh["runs"][0]["id"]);
    assert_eq!(std::fs::read_dir(place.path("out/.telecine/scratch")).expect("scratch").count(), 0);
}

#[test]
fn files_of_the_same_name_do_not_get_into_each_others_way() {
    let place = Place::new();
    std::fs::create_dir(place.path("other")).expect("a folder");
    film(2, &place.path("film.mp4"));
    film(3, &place.path("other/film.mp4"));

    let ended = place.run(&["run", "film.mp4", "other/film.mp4", "--out", "out", "--json"]);

    assert_eq!(ended.code, Some(0), "{ended:?}");
    let document = document(&ended);
    let mut lengths: Vec<Vec<u32>> = Vec::new();
    for run in document["runs"].as_array().expect("a list") {
        let master = run["outputs"][0]["path"].as_str().expect("a path");
        lengths.push(frames(&place.path(master)));
    }
    lengths.sort();
    assert_eq!(lengths, [[50], [75]]);
}

#[test]
fn what_is_no_media_file_is_refused_before_anything_is_started() {
    let place = Place::new();
    film(2, &place.path("film.mp4"));
    place.write("notes.mp4", "these are notes");
    std::fs::create_dir(place.path("folder")).expect("a folder");

    for (file, expected) in [
        ("missing.mp4", "there is no such file"),
        ("folder", "telecine watch"),
        ("notes.mp4", "no known type"),
    ] {
        let alone = place.run(&["run", file, "--out", "out"]);
        let beside = place.run(&["run", "film.mp4", file, "--out", "out"]);

        for refused in [alone, beside] {
            assert_eq!(refused.code, Some(2), "{refused:?}");
            assert!(refused.stderr.contains(expected) && refused.stderr.contains("next: "), "{refused:?}");
        }
    }
    assert!(!place.holds("out"), "nothing is started");
}

#[test]
fn a_failure_says_what_failed_and_what_to_do() {
    let place = Place::new();
    film(4, &place.path("film.mp4"));
    let whole = std::fs::read(place.path("film.mp4")).expect("the clip");
    std::fs::write(place.path("film.mp4"), &whole[..whole.len() / 2]).expect("half of it");

    let ended = place.run(&run(&[]));

    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("failed: film.mp4: ingest: "), "{ended:?}");
    assert!(ended.stderr.contains("  code: input_") && ended.stderr.contains("  next: "), "{ended:?}");
}

/// A run that has stored a segment and has more to do. Killed when the test ends early.
struct Begun<'a> {
    place: &'a Place,
    child: Child,
}

impl<'a> Begun<'a> {
    fn start(place: &'a Place, more: &[&str]) -> Self {
        let mut before = BTreeMap::new();
        collect(&place.path("out/.telecine/store"), &mut before);
        // One slot: the other ranges are still to be done when the first is stored.
        let mut command = place.command(&run(&[&["--slots", "cpu=1,io=1"], more].concat()));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut begun = Self { place, child };
        let until = Instant::now() + PATIENCE;
        while begun.segments().len() == before.len() {
            assert!(Instant::now() < until, "no segment was stored");
            assert_eq!(
                begun.child.try_wait().expect("a child"),
                None,
                "it ended before a segment was stored"
            );
            // A breath between two looks: the encoders need the cores.
            std::thread::park_timeout(Duration::from_millis(20));
        }
        begun
    }

    /// Those of the picture, and which file each is.
    fn segments(&self) -> BTreeMap<PathBuf, u64> {
        let mut found = BTreeMap::new();
        collect(&self.place.path("out/.telecine/store"), &mut found);
        found
    }

    fn end(mut self, signal: Signal) -> (Option<i32>, String, BTreeMap<PathBuf, u64>) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process has an id");
        kill_process(pid, signal).expect("it still runs");
        let mut talk = String::new();
        std::io::Read::read_to_string(self.child.stderr.as_mut().expect("a pipe"), &mut talk).expect("text");
        let code = self.child.wait().expect("it ends").code();
        let segments = self.segments();
        (code, talk, segments)
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(folder: &Path, found: &mut BTreeMap<PathBuf, u64>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        let is_segment = path.extension().is_some_and(|extension| extension == "m4s");
        let is_picture = !path.to_string_lossy().contains("/audio/");
        match path.symlink_metadata() {
            Ok(meta) if meta.is_dir() => collect(&path, found),
            Ok(meta) if is_segment && is_picture => drop(found.insert(path, meta.ino())),
            _ => {}
        }
    }
}

fn goes_on_where_it_stopped(signal: Signal, expected: Option<i32>) {
    let place = Place::new();
    film(30, &place.path("film.mp4"));
    let (code, talk, before) = Begun::start(&place, &[]).end(signal);
    assert_eq!(code, expected, "{talk}");

    let ended = place.run(&run(&["--json"]));

    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("goes on where it stopped"), "{ended:?}");
    assert_eq!(frames(&place.path("out/film/hls/master.m3u8")), [750]);
    let mut after = BTreeMap::new();
    collect(&place.path("out/.telecine/store"), &mut after);
    let made_again = before.iter().filter(|(path, file)| after.get(*path) != Some(file)).count();
    assert!(made_again <= 1, "{made_again} of {} were made again by one slot", before.len());
    assert!(after.len() > before.len(), "it was stopped before its end");
    if signal == Signal::INT {
        assert!(talk.contains("interrupted: film.mp4 is at") && talk.contains("to go on: "), "{talk}");
    }
}

#[test]
fn after_ctrl_c_the_same_command_goes_on_where_it_stopped() {
    goes_on_where_it_stopped(Signal::INT, Some(130));
}

#[test]
fn after_a_kill_the_same_command_goes_on_where_it_stopped() {
    goes_on_where_it_stopped(Signal::KILL, None);
}

#[test]
fn after_ctrl_c_of_a_fresh_run_the_command_that_is_told_goes_on_with_it() {
    let place = Place::new();
    film(24, &place.path("film.mp4"));
    let first = document(&place.run(&run(&["--json"])));
    let (code, talk, _) = Begun::start(&place, &["--fresh"]).end(Signal::INT);
    assert_eq!(code, Some(130), "{talk}");

    let told = talk.lines().find_map(|line| line.strip_prefix("to go on: ")).expect("it says how to go on");
    let arguments: Vec<&str> = told.split(' ').skip(1).chain(["--json"]).collect();
    let ended = place.run(&arguments);

    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("goes on where it stopped"), "{ended:?}");
    let listed = place.json(&["runs", "ls", "--database", "sqlite:out/.telecine/queue.db"]);
    let ids: Vec<&Value> = listed["data"].as_array().expect("a list").iter().map(|run| &run["id"]).collect();
    let resumed = document(&ended);
    assert_eq!(ids, [&resumed["runs"][0]["id"], &first["runs"][0]["id"]], "the fresh one, and no third");
}

#[test]
fn a_result_that_is_edited_in_place_is_no_blob_and_is_put_back() {
    let place = Place::new();
    film(2, &place.path("film.mp4"));
    assert_eq!(place.run(&run(&[])).code, Some(0));
    let master = place.path("out/film/hls/master.m3u8");
    let text = std::fs::read_to_string(&master).expect("a playlist");
    let mut opened = std::fs::File::options().append(true).open(&master).expect("a file of the user's own");
    std::io::Write::write_all(&mut opened, b"# edited").expect("written");

    assert_eq!(place.run(&run(&[])).code, Some(0));

    assert_eq!(std::fs::read_to_string(&master).expect("a playlist"), text);
}

#[test]
fn a_hidden_file_has_results_that_can_be_seen() {
    let place = Place::new();
    film(2, &place.path(".film.mp4"));

    let ended = place.run(&["run", ".film.mp4", "--out", "out"]);

    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(frames(&place.path("out/film/hls/master.m3u8")), [50]);
}

#[test]
fn what_can_do_without_an_optional_step_is_partial_and_says_so() {
    let place = Place::new();
    film(2, &place.path("film.mp4"));
    place.write(
        "labelled.toml",
        "[steps.thumbnail]\nkind = \"pictures\"\nwith = { poster = {} }\n\n\
         [steps.label]\nkind = \"exec\"\nrequired = false\nwith = { command = [\"/bin/false\"] }\n",
    );

    let ended = place.run(&run(&["--recipe", "labelled.toml"]));
    let told = place.run(&run(&["--recipe", "labelled.toml", "--json"]));

    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("film.mp4 partial after"), "{ended:?}");
    assert!(
        ended.stderr.contains("not made: film.mp4: label: ") && ended.stderr.contains("next: "),
        "{ended:?}"
    );
    assert!(place.holds("out/film/thumbnail/poster.jpg"), "what could be made is there");
    assert_eq!(told.code, Some(3), "{told:?}");
    assert_eq!(document(&told)["runs"][0]["status"], "partial");
}
