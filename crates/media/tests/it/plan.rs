//! Plans of typical inputs, compared with files that a person can read. `TELECINE_RENEW_GOLDEN=1` writes them anew.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use telecine_media::{
    AudioStream, Capabilities, DecodeInputs, DecodeSpan, Delivery, Format, HdrKind, Limits, Plan, Probe,
    Rational, Recipe, Rotation, Size, VideoPlan, VideoStream, copy_obstacle, plan,
};

const WEB: &str = r#"{"video": {}}"#;

const ENCODERS: &[&str] = &["libx264", "libx265", "libsvtav1", "aac", "h264_nvenc", "pcm_f32le", "rawvideo"];
/// Of those that some plan needs.
const FILTERS: &[&str] = &[
    "aformat",
    "anullsink",
    "apad",
    "aresample",
    "asetpts",
    "asplit",
    "atrim",
    "bwdif",
    "colorchannelmixer",
    "crop",
    "ebur128",
    "format",
    "fps",
    "hflip",
    "loudnorm",
    "overlay",
    "pad",
    "scale",
    "setpts",
    "setsar",
    "settb",
    "showinfo",
    "split",
    "tonemap",
    "transpose",
    "vflip",
    "volumedetect",
    "zscale",
];

fn rational(text: &str) -> Rational {
    text.parse().unwrap()
}

fn capabilities() -> Capabilities {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    Capabilities {
        ffmpeg_version: Some("5.1.9".into()),
        encoders: names(ENCODERS),
        filters: names(FILTERS),
        ..Capabilities::default()
    }
}

/// Ten seconds of 1080p at 30 frames a second, as a camera writes it.
fn camera() -> VideoStream {
    VideoStream {
        index: 0,
        codec: "h264".into(),
        profile: Some("High".into()),
        level: Some(41),
        width: 1920,
        height: 1080,
        sample_aspect: Rational::ONE,
        rotation: Rotation::Upright,
        display: Size { width: 1920, height: 1080 },
        pixel_format: Some("yuv420p".into()),
        bit_depth: 8,
        colour_primaries: Some("bt709".into()),
        colour_transfer: Some("bt709".into()),
        colour_matrix: Some("bt709".into()),
        colour_range: None,
        hdr: None,
        avg_fps: Some(rational("30/1")),
        base_fps: Some(rational("30/1")),
        is_vfr: false,
        is_interlaced: false,
        bit_rate: Some(17_000_000),
        start_us: 0,
        duration_us: Some(10_000_000),
        frame_count: Some(300),
        time_base: rational("1/15360"),
        has_b_frames: true,
        is_default: true,
        is_attached_picture: false,
    }
}

fn stereo() -> AudioStream {
    AudioStream {
        index: 1,
        codec: "aac".into(),
        profile: Some("LC".into()),
        sample_rate: 48_000,
        channels: 2,
        layout: Some("stereo".into()),
        bit_rate: Some(128_000),
        language: None,
        start_us: 0,
        duration_us: Some(10_005_333),
        time_base: rational("1/48000"),
        is_default: true,
    }
}

fn file(video: Option<VideoStream>, audio: Option<AudioStream>) -> Probe {
    let (video_streams, audio_streams): (Vec<_>, Vec<_>) =
        (video.into_iter().collect(), audio.into_iter().collect());
    let bits = video_streams
        .iter()
        .filter_map(|v| v.bit_rate)
        .chain(audio_streams.iter().filter_map(|a| a.bit_rate));
    Probe {
        format: Format::Mp4,
        file_bytes: 21_000_000,
        duration_us: Some(10_005_333),
        start_us: 0,
        bit_rate: Some(bits.sum()),
        subtitle_count: 0,
        other_count: 0,
        stream_count: video_streams.len() + audio_streams.len(),
        video_streams,
        audio_streams,
        chapters: Vec::new(),
    }
}

fn planned(recipe: &str, probe: &Probe) -> Plan {
    let recipe: Recipe = serde_json::from_str(recipe).unwrap();
    plan(&recipe, probe, &capabilities()).unwrap()
}

/// The plan as its golden file has it: reasons, command lines, and all of the data.
fn told(recipe: &str, plan: &Plan) -> String {
    let mut text = format!("recipe {recipe}\n\n");
    for decision in &plan.decisions {
        let mark = if decision.is_warning { "! " } else { "" };
        writeln!(text, "{mark}{}: {} ({})", decision.about, decision.choice, decision.reason).unwrap();
    }
    let pieces: Vec<String> = plan.requires.iter().map(ToString::to_string).collect();
    writeln!(text, "\nrequires {}", pieces.join(", ")).unwrap();
    if let Some(video) = plan.video.as_ref().filter(|video| video.delivery == Delivery::Encode) {
        tell_commands(&mut text, video);
    }
    writeln!(text, "\n{}", serde_json::to_string_pretty(plan).unwrap()).unwrap();
    text
}

/// Of the second range or, where there is only one, the first.
fn tell_commands(text: &mut String, video: &VideoPlan) {
    let range = video.ranges.get(1).unwrap_or(&video.ranges[0]);
    let first_frame = video.grid.first_frame(range.start);
    let frames = range.segments().map(|segment| u64::from(video.grid.frames(segment))).sum();
    let seek_us =
        (first_frame > 0).then(|| video.timeline.time_us(first_frame - u64::from(video.lead_frames)));
    let span = DecodeSpan { seek_us, first_frame, frames };
    let mark_format = video.picture.mark.as_ref().map(|_| Format::Png);
    let inputs = DecodeInputs { source: Path::new("/in/source"), mark_format };
    let decoder = video.decoder_args(&inputs, &span, &Limits::default()).unwrap();
    let outputs: Vec<PathBuf> = video.rungs.iter().map(|rung| format!("/out/{}", rung.name).into()).collect();
    let encoder = video.encoder_args(range.start, &outputs);
    for (name, args) in [("decoder", decoder), ("encoder", encoder)] {
        writeln!(text, "\n{name}").unwrap();
        let mut line = String::new();
        for arg in args {
            let arg = arg.into_string().unwrap();
            if arg.starts_with('-') && !line.is_empty() {
                writeln!(text, "  {line}").unwrap();
                line.clear();
            }
            line += if line.is_empty() { "" } else { " " };
            line += &arg;
        }
        writeln!(text, "  {line}").unwrap();
    }
}

fn assert_golden(name: &str, recipe: &str, probe: &Probe) -> Plan {
    let plan = planned(recipe, probe);
    let told = told(recipe, &plan);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    if std::env::var_os("TELECINE_RENEW_GOLDEN").is_some() {
        std::fs::write(&path, &told).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    if told != golden {
        let differing = told.lines().zip(golden.lines()).find(|(now, then)| now != then);
        panic!("{name} is planned otherwise than in {}: {differing:?}", path.display());
    }
    let sent: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    assert_eq!(sent, plan, "a plan survives being written and read");
    plan
}

fn sizes(plan: &Plan) -> Vec<(u32, u32)> {
    plan.video.as_ref().unwrap().rungs.iter().map(|rung| (rung.size.width, rung.size.height)).collect()
}

#[test]
fn full_hd() {
    let plan = assert_golden("1080p", WEB, &file(Some(camera()), Some(stereo())));

    assert_eq!(sizes(&plan), [(1920, 1080), (1280, 720), (854, 480), (640, 360), (426, 240)]);
}

#[test]
fn a_phone_held_upright() {
    let video = VideoStream {
        rotation: Rotation::Clockwise90,
        display: Size { width: 1080, height: 1920 },
        avg_fps: Some(rational("2997/100")),
        ..camera()
    };

    let plan = assert_golden("portrait-phone", WEB, &file(Some(video), Some(stereo())));

    assert_eq!(sizes(&plan), [(1080, 1920), (720, 1280), (480, 854), (360, 640), (240, 426)]);
}

#[test]
fn ultra_hd_with_high_dynamic_range() {
    let video = VideoStream {
        codec: "hevc".into(),
        width: 3840,
        height: 2160,
        display: Size { width: 3840, height: 2160 },
        pixel_format: Some("yuv420p10le".into()),
        bit_depth: 10,
        colour_primaries: Some("bt2020".into()),
        colour_transfer: Some("smpte2084".into()),
        colour_matrix: Some("bt2020nc".into()),
        hdr: Some(HdrKind::Pq),
        bit_rate: Some(50_000_000),
        ..camera()
    };

    assert_golden("4k-hdr", WEB, &file(Some(video), Some(stereo())));
}

#[test]
fn a_screen_that_was_recorded_as_it_changed() {
    let video = VideoStream {
        width: 2560,
        height: 1440,
        display: Size { width: 2560, height: 1440 },
        avg_fps: Some(rational("1733/100")),
        base_fps: Some(rational("90000/1")),
        is_vfr: true,
        frame_count: Some(173),
        bit_rate: Some(900_000),
        ..camera()
    };

    let plan = assert_golden("vfr-screen", WEB, &file(Some(video), Some(stereo())));

    assert_eq!(plan.video.unwrap().timeline.fps, rational("30/1"));
}

#[test]
fn a_small_source_is_not_enlarged() {
    let video = VideoStream {
        width: 854,
        height: 480,
        display: Size { width: 854, height: 480 },
        colour_primaries: None,
        colour_transfer: None,
        colour_matrix: None,
        bit_rate: Some(800_000),
        ..camera()
    };

    let plan = assert_golden("480p", WEB, &file(Some(video), Some(stereo())));

    assert_eq!(sizes(&plan), [(854, 480), (640, 360), (428, 240)]);
}

#[test]
fn no_sound() {
    let plan = assert_golden("no-audio", WEB, &file(Some(camera()), None));

    assert!(plan.sound.is_none());
}

#[test]
fn sound_alone() {
    let probe = Probe { format: Format::M4a, ..file(None, Some(AudioStream { channels: 6, ..stereo() })) };

    let plan = assert_golden("audio-only", WEB, &probe);

    assert!(plan.video.is_none() && plan.sound.is_some());
}

#[test]
fn pixels_that_are_not_square() {
    let video = VideoStream {
        codec: "mpeg2video".into(),
        width: 720,
        height: 576,
        sample_aspect: rational("64/45"),
        display: Size { width: 1024, height: 576 },
        colour_primaries: Some("bt470bg".into()),
        colour_transfer: Some("smpte170m".into()),
        colour_matrix: Some("bt470bg".into()),
        avg_fps: Some(rational("25/1")),
        base_fps: Some(rational("25/1")),
        is_interlaced: true,
        frame_count: None,
        bit_rate: Some(6_000_000),
        ..camera()
    };

    assert_golden("anamorphic", WEB, &file(Some(video), Some(stereo())));
}

#[test]
fn sides_that_are_odd() {
    let video = VideoStream {
        width: 1279,
        height: 719,
        display: Size { width: 1279, height: 719 },
        pixel_format: Some("yuv444p".into()),
        ..camera()
    };

    let plan = assert_golden("odd-sizes", WEB, &file(Some(video), None));

    assert!(sizes(&plan).iter().all(|(width, height)| width % 2 == 0 && height % 2 == 0 && *height < 719));
}

#[test]
fn ntsc() {
    let video = VideoStream {
        avg_fps: Some(rational("30000/1001")),
        base_fps: Some(rational("30000/1001")),
        duration_us: Some(100_100_000),
        frame_count: Some(3000),
        ..camera()
    };

    let plan = assert_golden("29.97", WEB, &file(Some(video), Some(stereo())));

    let video = plan.video.unwrap();
    assert_eq!((video.timeline.timescale, video.timeline.ticks_per_frame), (30_000, 1001));
    assert_eq!((video.grid.frames_per_segment, video.timeline.ticks(120)), (120, 300_000 + 120_120));
}

#[test]
fn everything_that_can_be_edited() {
    let recipe = r#"{"video": {"ladder": {"heights": [1080, 640]}, "codec": "h265", "aspect": [9, 16], "fit": "cover",
        "trim": {"start_ms": 1500, "end_ms": 8000}, "loudness": "normalise", "hardware": "prefer", "mp4": true,
        "watermark": {"image": "/srv/logo.png", "corner": "top_left", "opacity_percent": 60}}}"#;

    let plan = assert_golden("edits", recipe, &file(Some(camera()), Some(stereo())));

    assert!(plan.decisions.iter().any(|decision| decision.about == "encoder" && decision.is_warning));
}

#[test]
fn streams_that_fit_are_copied_together_or_not_at_all() {
    let one_rung = r#"{"video": {"ladder": {"heights": [1080]}}}"#;
    let video = VideoStream { bit_rate: Some(4_000_000), ..camera() };
    let fits = file(Some(video.clone()), Some(stereo()));

    let copied = assert_golden("copy", one_rung, &fits);

    assert_eq!(copied.video.unwrap().delivery, Delivery::Copy);
    assert_eq!(copied.sound.unwrap().delivery, Delivery::Copy);
    let opus = AudioStream { codec: "opus".into(), ..stereo() };
    let encoded = planned(one_rung, &file(Some(video), Some(opus)));
    assert_eq!(encoded.video.unwrap().delivery, Delivery::Encode);
    assert_eq!(encoded.sound.unwrap().delivery, Delivery::Encode);
}

#[test]
fn a_plan_copies_exactly_what_can_be_copied() {
    let small = |codec: &str| VideoStream { codec: codec.into(), bit_rate: Some(4_000_000), ..camera() };
    let with = |change: &dyn Fn(&mut VideoStream)| {
        let mut video = small("h264");
        change(&mut video);
        file(Some(video), Some(stereo()))
    };
    let of_format = |codec: &str, format| Probe { format, ..file(Some(small(codec)), None) };
    let surround = AudioStream { channels: 6, ..stereo() };

    for (what, codec, probe, is_copied) in [
        ("H.264", "h264", file(Some(small("h264")), Some(stereo())), true),
        ("H.264 in Matroska", "h264", of_format("h264", Format::Matroska), true),
        ("H.264 in MPEG-TS", "h264", of_format("h264", Format::MpegTs), true),
        ("H.264 in FLV", "h264", of_format("h264", Format::Flv), false),
        ("H.265", "h265", file(Some(small("hevc")), Some(stereo())), true),
        ("H.265 in MPEG-TS", "h265", of_format("hevc", Format::MpegTs), false),
        (
            "H.265, level 5.1",
            "h265",
            file(Some(VideoStream { level: Some(153), ..small("hevc") }), None),
            false,
        ),
        ("AV1", "av1", file(Some(small("av1")), Some(stereo())), false),
        ("surround sound", "h264", file(Some(small("h264")), Some(surround)), false),
        ("interlaced", "h264", with(&|video| video.is_interlaced = true), false),
        ("no pace", "h264", with(&|video| video.is_vfr = true), false),
        ("fast", "h264", with(&|video| video.base_fps = Some(rational("120/1"))), false),
        ("HDR", "h264", with(&|video| video.hdr = Some(HdrKind::Hlg)), false),
        ("turned", "h264", with(&|video| video.rotation = Rotation::UpsideDown), false),
    ] {
        let recipe = format!(r#"{{"video": {{"ladder": {{"heights": [1080]}}, "codec": "{codec}"}}}}"#);

        let plan = planned(&recipe, &probe);

        let obstacle = copy_obstacle(&probe);
        let is_planned = plan.video.unwrap().delivery == Delivery::Copy;
        assert_eq!((is_planned, obstacle.is_none()), (is_copied, is_copied), "{what}: {obstacle:?}");
        let told = plan.decisions.iter().find(|decision| decision.about == "streams").unwrap();
        assert!(obstacle.is_none_or(|why| why == told.reason), "{what}: {told:?}");
    }
}

#[test]
fn hardware_is_used_when_asked_for_and_working() {
    let recipe: Recipe = serde_json::from_str(r#"{"video": {"hardware": "prefer"}}"#).unwrap();
    let probe = file(Some(camera()), None);
    let with = |name: &str| Capabilities { working_hardware: [name.to_owned()].into(), ..capabilities() };

    let hardware = plan(&recipe, &probe, &with("h264_nvenc")).unwrap().video.unwrap();
    let other_codec = plan(&recipe, &probe, &with("hevc_nvenc")).unwrap().video.unwrap();
    let not_asked =
        plan(&serde_json::from_str(WEB).unwrap(), &probe, &with("h264_nvenc")).unwrap().video.unwrap();

    assert_eq!((hardware.encoder.name.as_str(), hardware.encoder.is_repeatable), ("h264_nvenc", false));
    assert_eq!((other_codec.encoder.name.as_str(), other_codec.encoder.is_repeatable), ("libx264", true));
    assert_eq!(not_asked.encoder.name, "libx264");
}

#[test]
fn every_missing_piece_is_named() {
    let bare = Capabilities { ffmpeg_version: Some("5.1.9".into()), ..Capabilities::default() };

    let error =
        plan(&serde_json::from_str(WEB).unwrap(), &file(Some(camera()), Some(stereo())), &bare).unwrap_err();

    assert_eq!(error.code(), "capability_missing");
    for piece in ["aac", "libx264", "scale"] {
        assert!(error.to_string().contains(piece), "{error}");
    }
}

#[test]
fn without_the_filters_hdr_is_kept_and_the_loss_is_told() {
    let video = VideoStream { hdr: Some(HdrKind::Hlg), ..camera() };
    let mut capabilities = capabilities();
    capabilities.filters.remove("zscale");

    let plan = plan(&serde_json::from_str(WEB).unwrap(), &file(Some(video), None), &capabilities).unwrap();

    assert!(plan.decisions.iter().any(|decision| decision.about == "colour" && decision.is_warning));
}

#[test]
fn a_picture_and_a_part_behind_the_end_are_refused() {
    let picture = Probe { format: Format::Png, ..file(Some(camera()), None) };
    let trimmed = r#"{"video": {"trim": {"start_ms": 11000}}}"#;

    let no_video = plan(&serde_json::from_str(WEB).unwrap(), &picture, &capabilities()).unwrap_err();
    let behind = plan(&serde_json::from_str(trimmed).unwrap(), &file(Some(camera()), None), &capabilities())
        .unwrap_err();

    assert_eq!((no_video.code(), behind.code()), ("input_no_such_stream", "input_no_such_stream"));
}

#[test]
fn a_fast_source_is_thinned_evenly_where_enough_frames_are_left() {
    for (source, kept) in [
        ("144/1", "48/1"),
        ("120/1", "60/1"),
        ("120000/1001", "60000/1001"),
        ("100/1", "50/1"),
        ("240/1", "60/1"),
        ("75/1", "60/1"),
        ("61/1", "60/1"),
    ] {
        let fps = Some(rational(source));
        let video = VideoStream { avg_fps: fps, base_fps: fps, frame_count: None, ..camera() };

        let plan = planned(WEB, &file(Some(video), None));

        assert_eq!(plan.video.unwrap().timeline.fps, rational(kept), "{source}");
    }
}
