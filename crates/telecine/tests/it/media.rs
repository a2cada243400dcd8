//! Commands that run FFmpeg: in the sandbox unless somebody says otherwise.

use std::process::Command;

use crate::telecine::Place;

fn with_clip() -> Place {
    let place = Place::new();
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=1"]);
    let done = ffmpeg.args(["-c:v", "mpeg4", "-y"]).arg(place.path("clip.mp4")).status();
    assert!(done.expect("ffmpeg is installed (make setup)").success());
    place
}

#[test]
fn the_doctor_finds_a_sandbox_that_holds() {
    let place = Place::new();

    let found = place.json(&["doctor"]);

    let checks = found["checks"].as_array().expect("a list");
    let check = |name: &str| checks.iter().find(|check| check["name"] == name).expect(name);
    assert_eq!(check("sandbox")["state"], "ok", "{found}");
    for name in ["ffmpeg", "ffprobe", "vips", "codecs needed", "landlock", "seccomp", "configuration"] {
        assert_ne!(check(name)["state"], "fail", "{found}");
    }
    assert!(check("sandbox")["detail"].as_str().is_some_and(|detail| detail.contains("connect over TCP")));
    assert_eq!(check("database")["state"], "warn", "a new place has no database: {found}");
    assert!(!place.holds("telecine.db"), "looking must not make one");
}

#[test]
fn the_doctor_works_on_a_broken_configuration_and_answers_no() {
    let place = Place::new();
    place.write("telecine.toml", "lease_ms = \"soon\"");

    let found = place.run(&["doctor"]);

    assert_eq!(found.code, Some(1), "{found:?}");
    assert!(found.stdout.contains("telecine.toml:1:1"), "{found:?}");
    assert!(found.stderr.contains("fail configuration: correct it"), "{found:?}");
}

#[test]
fn the_doctor_says_what_is_missing_and_how_to_get_it() {
    let place = Place::new();

    let mut command = place.command(&["doctor"]);
    let found: crate::telecine::Ended =
        command.env("PATH", "/nonexistent").output().expect("it starts").into();

    assert_eq!(found.code, Some(1), "{found:?}");
    assert!(found.stderr.contains("fail ffmpeg: install it"), "{found:?}");
    assert!(found.stderr.contains("warn vips: install it"), "{found:?}");
}

#[test]
fn the_doctor_says_that_a_database_cannot_be_reached() {
    let place = Place::new();

    let found = place.run(&["doctor", "--database", "postgres://nobody@127.0.0.1:1/none"]);

    assert_eq!(found.code, Some(1), "{found:?}");
    assert!(found.stderr.contains("fail database: check that it is up"), "{found:?}");
}

#[test]
fn the_doctor_looks_at_the_configured_scratch_and_store_and_makes_neither() {
    let place = Place::new();
    place.write("telecine.toml", "scratch = \"work\"\nstore = \"results\"");
    place.write("file", "");

    let found = place.run(&["doctor", "--json"]);
    let refused = place.run(&["doctor", "--store", "file/store"]);

    for expected in ["in work (telecine.toml:1:1)", "in results (telecine.toml:2:1)"] {
        assert!(found.stdout.contains(expected), "{expected}: {found:?}");
    }
    assert!(!place.holds("work") && !place.holds("results"), "looking must not make them");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("fail store: set `store` (TELECINE_STORE)"), "{refused:?}");
}

#[test]
fn a_probe_is_confined_and_says_nothing_about_it() {
    let place = with_clip();

    let probed = place.run(&["probe", "clip.mp4"]);

    assert_eq!((probed.code, probed.stderr.as_str()), (Some(0), ""), "{probed:?}");
    assert!(probed.stdout.contains("320x180"), "{probed:?}");
}

#[test]
fn the_memory_of_a_program_is_what_was_configured() {
    let place = with_clip();

    place.write("telecine.toml", "tool_memory_mb = 128");
    assert_eq!(place.run(&["probe", "clip.mp4"]).code, Some(0));

    place.write("telecine.toml", "tool_memory_mb = 1");
    let refused = place.run(&["probe", "clip.mp4"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("must be a number of mebibytes from 128"), "{refused:?}");
}

#[test]
fn leaving_the_sandbox_is_said_loudly_wherever_it_was_asked_for() {
    let place = with_clip();

    let by_flag = place.run(&["probe", "clip.mp4", "--no-sandbox"]);
    let mut command = place.command(&["probe", "clip.mp4"]);
    let by_variable: crate::telecine::Ended =
        command.env("TELECINE_SANDBOX", "off").output().expect("it starts").into();
    place.write("telecine.toml", "sandbox = false");
    let by_file = place.run(&["probe", "clip.mp4"]);
    let doctor = place.run(&["doctor"]);

    for (ended, origin) in
        [(by_flag, "--no-sandbox"), (by_variable, "TELECINE_SANDBOX"), (by_file, "telecine.toml:1:1")]
    {
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.contains(&format!("WARNING: the sandbox is off ({origin})")), "{ended:?}");
    }
    assert!(doctor.stderr.contains("warn sandbox: leave out --no-sandbox"), "{doctor:?}");
}

#[test]
fn a_mistyped_wish_does_not_open_the_sandbox() {
    let place = with_clip();
    place.write("telecine.toml", "sandbox = \"of\"");

    let refused = place.run(&["probe", "clip.mp4"]);

    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("must be on or off"), "{refused:?}");
}

#[test]
fn a_playlist_named_as_a_film_is_refused() {
    let place = Place::new();
    place.write("film.mp4", "#EXTM3U\n#EXTINF:1,\n/etc/passwd\n");

    let refused = place.run(&["probe", "film.mp4"]);

    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("names other files"), "{refused:?}");
}

#[test]
fn the_doctor_says_whether_threads_are_bounded() {
    let place = Place::new();

    let found = place.json(&["doctor"]);

    let checks = found["checks"].as_array().expect("a list");
    let threads = checks.iter().find(|check| check["name"] == "threads").expect("a check of threads");
    assert!(matches!(threads["state"].as_str(), Some("ok" | "warn")), "{found}");
}

#[test]
fn what_a_failed_program_said_is_shown() {
    let place = Place::new();
    let broken = [
        &b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xff\xff\xff\xff\xff\xff\xff\x08\x02\0\0\0AAAA"[..],
        b"\0\0\0\0IEND\xae\x42\x60\x82",
    ]
    .concat();
    std::fs::write(place.path("broken.png"), broken).expect("it can be written");

    let found = place.run(&["probe", "broken.png"]);

    assert_ne!(found.code, Some(0), "{found:?}");
    assert!(found.stderr.lines().any(|line| line.starts_with("  | [png")), "{found:?}");
}

#[test]
fn a_file_that_is_not_there_is_not_blamed_on_the_scratch_folder() {
    let place = Place::new();

    let found = place.run(&["probe", "absent.mp4"]);

    assert!(found.stderr.contains("next: check that the file is there"), "{found:?}");
}
