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
fn a_plan_tells_its_decisions_and_their_reasons() {
    let place = Place::new();
    clip(&place);

    let shown = place.run(&["plan", "clip.mp4"]);
    let json = place.json(&["plan", "clip.mp4", "--recipe", "web-video"]);

    assert_eq!(shown.code, Some(0), "{shown:?}");
    for words in ["ABOUT", "DECISION", "WHY", "360p 640x360", "the source has none", "never enlarged"] {
        assert!(shown.stdout.contains(words), "{words}: {}", shown.stdout);
    }
    assert_eq!(json["video"]["timeline"]["fps"], "25/1");
    assert_eq!(json["video"]["rungs"][0]["name"], "360p");
    assert!(json["decisions"].as_array().is_some_and(|all| all.iter().all(|one| one["reason"] != "")));
}

#[test]
fn a_recipe_in_a_file_is_followed_and_a_wrong_one_named() {
    let place = Place::new();
    clip(&place);
    place.write(
        "small.toml",
        "[steps.hls]\nkind = \"hls\"\nwith = { ladder = { heights = [240] }, segment_seconds = 2 }\n",
    );
    place.write("wrong.toml", "[steps.hls]\nkind = \"hls\"\nwith = { segment_secnods = 2 }\n");

    let small = place.json(&["plan", "clip.mp4", "--recipe", "small.toml"]);
    let wrong = place.run(&["plan", "clip.mp4", "--recipe", "wrong.toml"]);
    let unknown = place.run(&["plan", "clip.mp4", "--recipe", "web-vidoe"]);

    assert_eq!(small["video"]["grid"]["frames_per_segment"], 50);
    assert_eq!(small["video"]["rungs"].as_array().map(Vec::len), Some(1));
    assert_eq!((wrong.code, unknown.code), (Some(2), Some(2)));
    assert!(wrong.stderr.contains("segment_secnods"), "{wrong:?}");
    assert!(unknown.stderr.contains("did you mean `web-video`?"), "{unknown:?}");
}

#[test]
fn what_is_no_media_is_refused_with_exit_code_1() {
    let place = Place::new();
    place.write("list.mp4", "#EXTM3U\n/etc/passwd\n");

    let refused = place.run(&["plan", "list.mp4"]);

    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("input_hostile"), "{refused:?}");
}
