//! Encoders in hardware that FFmpeg has and the machine has not.

use std::path::Path;

use telecine_media::{Capabilities, Limits, Program, RangeJob, Recipe, Toolbox, encode_range, plan};
use tokio_util::sync::CancellationToken;

use super::{ntsc_open_gop, stream};
use crate::clips::{self, probed};

const PREFER: &str = r#"{"video": {
    "ladder": {"heights": [180]}, "segment_seconds": 1, "hardware": "prefer", "allow_copy": false
}}"#;

/// The real FFmpeg, but that it lists encoders in hardware, and that to open one of them fails: it is a real encoder with
/// a setting that it does not have.
fn toolbox_without_hardware(folder: &Path) -> Toolbox {
    let (toolbox, shim) = (clips::toolbox(), folder.join("ffmpeg"));
    let ffmpeg = toolbox.path(Program::Ffmpeg).unwrap().display().to_string();
    let lines = format!(
        r#"
        for word do
            shift
            case "$word" in
                *_nvenc|*_qsv|*_vaapi)
                    mkdir -p "{tried}/$word"
                    echo "[$word @ 0x0] Cannot load the driver" >&2
                    set -- "$@" libx264 -profile:v none-such ;;
                *) set -- "$@" "$word" ;;
            esac
        done
        case " $* " in
            *" -encoders "*)
                {ffmpeg} "$@"
                for name in h264_nvenc h264_qsv h264_vaapi hevc_nvenc; do echo " V....D $name  in hardware"; done
                exit ;;
        esac
        exec {ffmpeg} "$@"
        "#,
        tried = folder.join("tried").display(),
    );
    clips::script(&shim, &lines);
    toolbox.with(Program::Ffmpeg, shim)
}

#[tokio::test]
async fn hardware_that_is_listed_and_cannot_be_opened_gives_way_to_software_and_that_is_told() {
    let (folder, cancel) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let toolbox = toolbox_without_hardware(folder.path());
    let recipe: Recipe = serde_json::from_str(PREFER).unwrap();
    let (source, made) = (ntsc_open_gop(), tempfile::tempdir().unwrap());

    let mut capabilities = Capabilities::detect(&toolbox, &cancel).await.unwrap();
    assert!(capabilities.encoders.contains("h264_nvenc") && capabilities.encoders.contains("h264_qsv"));
    capabilities.try_hardware(&toolbox, &cancel).await.unwrap();
    let plan = plan(&recipe, &probed(&source).await.unwrap(), &capabilities).unwrap();

    // Tried in earnest, each of them, but for those that take no frames from memory.
    let tried = |name: &str| folder.path().join("tried").join(name).exists();
    assert!(tried("h264_nvenc") && tried("h264_qsv") && tried("hevc_nvenc") && !tried("h264_vaapi"));
    assert!(capabilities.working_hardware.is_empty(), "{:?}", capabilities.working_hardware);
    let told = plan.decisions.iter().find(|decision| decision.about == "encoder").unwrap();
    assert!(told.is_warning && told.choice.starts_with("libx264"), "{told:?}");
    assert!(told.reason.contains("software instead"), "{told:?}");
    let video = plan.video.unwrap();
    assert!(video.encoder.is_repeatable);
    let job = RangeJob {
        plan: &video,
        source: &source,
        folder: made.path(),
        range: super::range(1, 3),
        skip: &[],
        limits: &Limits::default(),
        stall: RangeJob::STALL,
    };
    let segments = Box::pin(encode_range(&toolbox, &job, &cancel, &mut |_| {})).await.unwrap().segments;
    let film = super::Encoded { folder: made, segments };
    assert_eq!(stream(&film.joined("180p"))["codec_name"], "h264");
}

/// A plan is made once, and its ranges are encoded wherever there is room.
#[tokio::test]
async fn a_range_that_was_planned_for_hardware_names_it_where_there_is_none() {
    let (folder, cancel) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let toolbox = toolbox_without_hardware(folder.path());
    let recipe: Recipe = serde_json::from_str(PREFER).unwrap();
    let source = ntsc_open_gop();
    let elsewhere = Capabilities {
        working_hardware: ["h264_nvenc".to_owned()].into(),
        encoders: super::capabilities().await.encoders.iter().cloned().chain(["h264_nvenc".into()]).collect(),
        ..super::capabilities().await.clone()
    };
    let video = plan(&recipe, &probed(&source).await.unwrap(), &elsewhere).unwrap().video.unwrap();
    assert_eq!(video.encoder.name, "h264_nvenc");

    let job = RangeJob {
        plan: &video,
        source: &source,
        folder: folder.path(),
        range: super::range(0, 1),
        skip: &[],
        limits: &Limits::default(),
        stall: RangeJob::STALL,
    };
    let error = Box::pin(encode_range(&toolbox, &job, &cancel, &mut |_| {})).await.unwrap_err();

    assert_eq!(error.code(), "capability_missing", "{error}: {}", error.stderr_tail());
    assert!(error.to_string().contains("h264_nvenc"), "{error}");
    assert!(folder.path().join("tried/h264_nvenc").exists());
}

/// With whatever this machine has.
#[tokio::test]
async fn hardware_is_believed_only_when_it_was_seen_to_work() {
    let mut capabilities = super::capabilities().await.clone();
    capabilities.try_hardware(&clips::toolbox(), &CancellationToken::new()).await.unwrap();

    let recipe: Recipe = serde_json::from_str(PREFER).unwrap();
    let plan = plan(&recipe, &probed(&ntsc_open_gop()).await.unwrap(), &capabilities).unwrap();

    let encoder = plan.video.unwrap().encoder;
    let works = |name: &String| capabilities.working_hardware.contains(name);
    assert!(capabilities.working_hardware.is_subset(&capabilities.encoders));
    assert_eq!(works(&encoder.name), !encoder.is_repeatable);
    assert!(works(&encoder.name) || encoder.name == "libx264");
}
