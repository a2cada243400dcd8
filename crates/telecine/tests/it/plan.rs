//! `telecine plan`, on the real programs.

use std::process::Command;

use crate::telecine::Place;

/// A second of 640x360 without sound, in that place.
fn clip(place: &Place) {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-nostdin", "-f", "lavfi", "-i", "testsrc2=size=640x360:rate=25:duration=1"]);
    ffmpeg
        .args(["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p"])
        .arg(place.path("clip.mp4"));
    let made = ffmpeg.status().expect("ffmpeg is installed (make setup)").success();
    assert!(made);
}

#[test]
fn a_plan_tells_its_decisions_their_reasons_and_its_jobs() {
    let place = Place::new();
    clip(&place);

    let shown = place.run(&["plan", "clip.mp4"]);
    let json = place.json(&["plan", "clip.mp4", "--recipe", "web-video"]);

    assert_eq!(shown.code, Some(0), "{shown:?}");
    for words in ["ABOUT", "DECISION", "WHY", "360p 640x360", "the source has none", "never enlarged"] {
        assert!(shown.stdout.contains(words), "{words}: {}", shown.stdout);
    }
    for words in ["poster, storyboard, preview", "JOBS", "encode_range", "hls.package", "partial"] {
        assert!(shown.stdout.contains(words), "{words}: {}", shown.stdout);
    }
    let plan = &json["steps"][0]["plan"];
    assert_eq!(
        (&json["steps"][0]["name"], &plan["video"]["timeline"]["fps"]),
        (&"hls".into(), &"25/1".into())
    );
    assert_eq!(plan["video"]["rungs"][0]["name"], "360p");
    assert!(plan["decisions"].as_array().is_some_and(|all| all.iter().all(|one| one["reason"] != "")));
    let jobs = json["jobs"].as_array().expect("a list");
    assert_eq!((&jobs[0]["kind"], &jobs[0]["count"]), (&"encode_range".into(), &1.into()), "{json}");
    assert_eq!(jobs[0]["ranges"], serde_json::json!([[0, 1]]));
    let package = jobs.iter().find(|job| job["kind"] == "package").expect("a package");
    assert_eq!(package["needs"], serde_json::json!(["hls"]));
}

#[test]
fn settings_change_what_is_planned() {
    let place = Place::new();
    clip(&place);

    let settings = ["--set", "hls.ladder.heights=[240]", "--set", "mp4.enabled=true"];
    let json = place.json(&[&["plan", "clip.mp4"], &settings[..]].concat());
    let wrong = place.run(&["plan", "clip.mp4", "--set", "hls.laddr=auto", "--set", "poster.enabled=true"]);

    assert_eq!(json["steps"][0]["plan"]["video"]["rungs"][0]["name"], "240p");
    assert!(
        json["jobs"].as_array().is_some_and(|jobs| jobs.iter().any(|job| job["kind"] == "mp4")),
        "{json}"
    );
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("hls.laddr: unknown key `laddr`; did you mean `ladder`?"), "{wrong:?}");
    assert!(wrong.stderr.contains("poster: the recipe `web-video` has no such step"), "{wrong:?}");
}

#[test]
fn a_recipe_in_a_file_is_followed_and_a_wrong_one_named() {
    let place = Place::new();
    clip(&place);
    let small = "[steps.hls]\nkind = \"hls\"\nwith = { ladder = { heights = [240] }, segment_seconds = 2 }\n";
    place.write("small.toml", small);
    place.write("wrong.toml", "[steps.hls]\nkind = \"hls\"\nwith.segment_secnods = 2\n");

    let small = place.json(&["plan", "clip.mp4", "--recipe", "small.toml"]);
    let wrong = place.run(&["plan", "clip.mp4", "--recipe", "wrong.toml"]);
    let unknown = place.run(&["plan", "clip.mp4", "--recipe", "web-vidoe"]);

    let video = &small["steps"][0]["plan"]["video"];
    assert_eq!(video["grid"]["frames_per_segment"], 50);
    assert_eq!(video["rungs"].as_array().map(Vec::len), Some(1));
    assert_eq!((wrong.code, unknown.code), (Some(2), Some(2)));
    assert!(wrong.stderr.contains("wrong.toml:3:6: unknown key `segment_secnods`"), "{wrong:?}");
    assert!(unknown.stderr.contains("did you mean `web-video`?"), "{unknown:?}");
}

#[test]
fn a_step_that_the_input_cannot_give_is_refused_or_left_out() {
    let place = Place::new();
    clip(&place);

    let refused = place.run(&["plan", "clip.mp4", "--recipe", "audio"]);
    let optional = "[steps.mp4]\nkind = \"mp4\"\n[steps.sound]\nkind = \"audio\"\nrequired = false\n";
    place.write("optional.toml", optional);
    let left_out = place.json(&["plan", "clip.mp4", "--recipe", "optional.toml"]);

    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("step `audio`") && refused.stderr.contains("no sound"), "{refused:?}");
    assert!(
        left_out["steps"][1]["left_out"].as_str().is_some_and(|why| why.contains("no sound")),
        "{left_out}"
    );
}

#[test]
fn what_is_no_media_is_refused_with_exit_code_1() {
    let place = Place::new();
    place.write("list.mp4", "#EXTM3U\n/etc/passwd\n");

    let refused = place.run(&["plan", "list.mp4"]);

    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("input_hostile"), "{refused:?}");
}
