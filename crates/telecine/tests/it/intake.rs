//! Which inputs are taken is the operator's to say.

use crate::clips::film;
use crate::telecine::Place;

#[test]
fn an_input_beyond_a_limit_is_refused_with_the_setting_that_lets_it_in() {
    let place = Place::new();
    film(3, &place.path("film.mp4"));
    place.write("telecine.toml", "max_duration_s = 2");

    let refused = place.run(&["run", "film.mp4", "--out", "out"]);
    let probed = place.run(&["probe", "film.mp4"]);
    let raised = place.command(&["probe", "film.mp4"]).env("TELECINE_MAX_DURATION_S", "10").output();

    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("code: input_too_long"), "{refused:?}");
    assert!(refused.stderr.contains("raise max_duration_s"), "{refused:?}");
    assert_eq!(probed.code, Some(1), "{probed:?}");
    assert!(raised.expect("it starts").status.success());
}

#[test]
fn an_object_is_submitted_only_from_a_bucket_that_is_named() {
    let place = Place::new();

    let refused = place.run(&["submit", "s3://films/a/b.mov"]);
    place.write("telecine.toml", "input_buckets = [\"s3://films/a\"]");
    let taken = place.run(&["submit", "s3://films/a/b.mov"]);
    let beside = place.run(&["submit", "s3://films/ab.mov"]);

    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("TELECINE_INPUT_BUCKETS to s3://films"), "{refused:?}");
    assert_eq!(taken.code, Some(0), "{taken:?}");
    assert_eq!(beside.code, Some(2), "{beside:?}");
}

#[test]
fn settings_of_inputs_are_shown_with_their_origin() {
    let place = Place::new();
    place.write("telecine.toml", "keep_runs_days = 7\nmax_video_size = \"1920x1080\"");

    let shown = place.json(&["config", "show"]);

    let of = |key: &str| {
        let settings = shown["data"].as_array().expect("a list");
        settings.iter().find(|setting| setting["key"] == key).cloned().expect("it is listed")
    };
    assert_eq!(
        (of("keep_runs_days")["value"].as_str(), of("max_video_size")["value"].as_str()),
        (Some("7"), Some("1920x1080"))
    );
    assert_eq!(of("keep_runs_days")["origin"], "telecine.toml:1:1");
    assert_eq!(
        (of("max_input_mb")["origin"].as_str(), of("input_buckets")["origin"].as_str()),
        (Some("default"), None)
    );
}
