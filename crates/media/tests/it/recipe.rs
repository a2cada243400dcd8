use telecine_media::{ImageFormat, Ladder, Packaging, Recipe, VideoCodec};

#[test]
fn what_is_left_out_has_a_sensible_default() {
    let recipe: Recipe = serde_json::from_str(r#"{"video": {}, "images": {}}"#).unwrap();

    recipe.check().unwrap();
    let (video, images) = (recipe.video.unwrap(), recipe.images.unwrap());
    assert_eq!(
        (video.codec, video.ladder, video.packaging),
        (VideoCodec::H264, Ladder::Auto, vec![Packaging::Hls])
    );
    assert_eq!(images.variants[0].formats, [ImageFormat::Jpeg, ImageFormat::Webp]);
    assert!(!images.keep_metadata && recipe.pictures.is_none() && recipe.audio.is_none());
}

#[test]
fn a_recipe_survives_being_written_and_read() {
    let text = r#"{"video": {"ladder": {"heights": [1080, 480]}, "codec": "av1", "trim": {"start_ms": 500},
        "watermark": {"image": "/srv/logo.png"}}, "pictures": {"poster": {}, "scenes": true}, "audio": {}}"#;
    let recipe: Recipe = serde_json::from_str(text).unwrap();

    let written = serde_json::to_string(&recipe).unwrap();

    assert_eq!(serde_json::from_str::<Recipe>(&written).unwrap(), recipe);
    recipe.check().unwrap();
}

#[test]
fn an_unknown_field_is_an_error_that_names_it() {
    for text in
        [r#"{"vidoe": {}}"#, r#"{"video": {"vidoe": 1}}"#, r#"{"images": {"variants": [{"vidoe": 1}]}}"#]
    {
        let error = serde_json::from_str::<Recipe>(text).unwrap_err();
        assert!(error.to_string().contains("vidoe"), "{error}");
    }
}

#[test]
fn what_no_input_can_satisfy_is_refused_by_field() {
    for (text, field) in [
        (r#"{"video": {"ladder": {"heights": []}}}"#, "video.ladder"),
        (r#"{"video": {"crf": 52}}"#, "video.crf"),
        (r#"{"video": {"packaging": []}}"#, "video.packaging"),
        (r#"{"video": {"trim": {"start_ms": 5, "end_ms": 5}}}"#, "video.trim"),
        (r#"{"pictures": {"storyboard": {"columns": 0}}}"#, "pictures.storyboard"),
        (r#"{"audio": {"formats": []}}"#, "audio.formats"),
        (
            r#"{"images": {"variants": [{"width": 9, "fit": "cover", "formats": ["jpeg"]}]}}"#,
            "images.variants.fit",
        ),
    ] {
        let error = serde_json::from_str::<Recipe>(text).unwrap().check().unwrap_err();
        assert_eq!(error.code(), "recipe_invalid");
        assert!(error.to_string().contains(field), "{error}");
    }
}

#[test]
fn times_that_no_clock_shows_are_refused() {
    for text in [
        r#"{"audio": {"trim": {"start_ms": 0, "end_ms": 18446744073709551615}}}"#,
        r#"{"video": {"trim": {"start_ms": 18446744073709551614}}}"#,
    ] {
        let recipe: Recipe = serde_json::from_str(text).unwrap();

        assert_eq!(recipe.check().unwrap_err().code(), "recipe_invalid", "{text}");
    }
}

#[test]
fn a_format_that_is_named_twice_is_refused() {
    let text = r#"{"images": {"variants": [{"width": 100, "formats": ["jpeg", "webp", "jpeg"]}]}}"#;
    let recipe: Recipe = serde_json::from_str(text).unwrap();

    assert_eq!(recipe.check().unwrap_err().code(), "recipe_invalid");
}
