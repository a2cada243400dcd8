use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use telecine_media::{Limits, MediaError, Probe, plan, with_measured_length};
use tokio_util::sync::CancellationToken;

use super::{RECIPE, capabilities, encode_whole, numbered, numbered_clip, vfr};
use crate::clips::{self, probed};

async fn measured(path: &Path) -> Result<Probe, MediaError> {
    measured_as(probed(path).await.unwrap(), path).await
}

async fn measured_as(probe: Probe, path: &Path) -> Result<Probe, MediaError> {
    with_measured_length(&clips::toolbox(), path, probe, &Limits::default(), &CancellationToken::new()).await
}

/// Written into a pipe, so that nobody could go back and note the length: as browsers record.
fn streamed(name: &str, args: &[&str]) -> PathBuf {
    clips::made(name, |path| {
        let mut command = Command::new("ffmpeg");
        command.args(["-v", "error", "-nostdin"]).args(args).args(["-f", "matroska", "pipe:1"]);
        let status =
            command.stdout(std::fs::File::create(path).unwrap()).stdin(Stdio::null()).status().unwrap();
        assert!(status.success());
    })
}

async fn frames_made(source: &Path, probe: &Probe) -> u32 {
    let recipe = serde_json::from_str(RECIPE).unwrap();
    let plan = plan(&recipe, probe, capabilities().await).unwrap().video.unwrap();
    let encoded = encode_whole(source, &plan).await;
    assert_eq!(
        u64::from(encoded.segments.iter().map(|segment| segment.frames).sum::<u32>()),
        plan.timeline.frames
    );
    u32::try_from(plan.timeline.frames).unwrap()
}

#[tokio::test]
async fn a_recording_that_does_not_tell_its_length_is_measured() {
    let input = numbered("25", 2.2);
    let args: Vec<&str> = input.iter().map(String::as_str).chain(["-c:v", "libx264", "-g", "20"]).collect();
    let even = streamed("streamed.mkv", &args);
    let source = vfr();
    let uneven = streamed("streamed-vfr.mkv", &["-i", source.to_str().unwrap(), "-c", "copy"]);
    let recipe = serde_json::from_str(RECIPE).unwrap();
    let unmeasured = plan(&recipe, &probed(&even).await.unwrap(), capabilities().await).unwrap_err();
    assert_eq!(unmeasured.code(), "input_unsupported");

    let (even_probe, uneven_probe) = (measured(&even).await.unwrap(), measured(&uneven).await.unwrap());

    assert_eq!(even_probe.video().unwrap().frame_count, Some(55));
    assert_eq!(frames_made(&even, &even_probe).await, 55);
    assert!(uneven_probe.video().unwrap().is_vfr);
    // Each of its packets tells the average duration, the last one too.
    assert!((174..=179).contains(&frames_made(&uneven, &uneven_probe).await));
}

/// Of a recording of 30 frames a second, those that `keep` names, as H.264 with B-frames, whose last ones come slowly.
fn sparse(name: &str, keep: &str) -> PathBuf {
    let select = format!("select='{keep}'");
    numbered_clip(name, "30", 8.0, &["-vf", &select, "-fps_mode", "vfr", "-c:v", "libx264", "-crf", "12"])
}

fn copied(source: &Path, name: &str, args: &[&str]) -> PathBuf {
    clips::made(name, |path| {
        clips::ffmpeg(&[&["-i", source.to_str().unwrap(), "-c", "copy"], args].concat(), path);
    })
}

#[tokio::test]
async fn an_uneven_recording_with_b_frames_is_as_long_as_its_last_picture() {
    for (name, keep, frames) in [
        ("pauses-3", "not(mod(n,3))+lt(n,40)", 240),
        ("pauses-7", "not(mod(n,7))+lt(n,40)", 239),
        ("pauses-30", "not(mod(n,30))+lt(n,40)", 211),
        ("still-end", "lt(n,60)+eq(n,200)", 201),
    ] {
        let source = sparse(&format!("{name}.mp4"), keep);
        let probe = measured(&source).await.unwrap();

        let made = frames_made(&source, &probe).await;

        assert!(made.abs_diff(frames) <= 2, "{name}: {made} frames of {frames}");
    }
}

#[tokio::test]
async fn an_uneven_recording_in_matroska_keeps_the_pace_of_its_bursts() {
    for (name, keep) in [("mkv-7", "not(mod(n,7))+lt(n,60)"), ("mkv-30", "not(mod(n,30))+lt(n,90)")] {
        let source = copied(&sparse(&format!("{name}.mp4"), keep), &format!("{name}.mkv"), &[]);

        let probe = measured(&source).await.unwrap();

        assert!(probe.video().unwrap().is_vfr, "{name}");
        let recipe = serde_json::from_str(RECIPE).unwrap();
        let plan = plan(&recipe, &probe, capabilities().await).unwrap().video.unwrap();
        assert_eq!(plan.timeline.fps.to_string(), "30/1", "{name}");
        let film = encode_whole(&source, &plan).await;
        for (n, seen) in super::shown(&film.joined("180p")).into_iter().take(60).enumerate() {
            // The filter's grey is full range.
            let seen = f64::from(seen) * 219.0 / 255.0 + 16.0;
            let wanted = f64::from(super::brightness(u32::try_from(n).unwrap()));
            assert!((seen - wanted).abs() < 6.0, "{name}: frame {n} shows {seen}, not {wanted}");
        }
    }
}

#[tokio::test]
async fn a_fragmented_file_has_as_many_frames_as_it_holds() {
    let whole = numbered_clip("numbered-6s.mp4", "30", 6.0, &["-c:v", "libx264", "-g", "60"]);
    let source = copied(&whole, "fragmented.mp4", &["-movflags", "frag_keyframe+empty_moov"]);

    let probe = measured(&source).await.unwrap();

    assert_eq!(frames_made(&source, &probe).await, 180);
}

#[tokio::test]
async fn what_a_container_tells_exactly_is_not_read_again() {
    let source = numbered_clip("told-exactly.mp4", "30000/1001", 2.0, &["-c:v", "libx264"]);
    let probe = probed(&source).await.unwrap();
    let without_ffprobe = clips::toolbox().without(telecine_media::Program::Ffprobe);

    let (limits, cancel) = (Limits::default(), CancellationToken::new());
    let measured = with_measured_length(&without_ffprobe, &source, probe.clone(), &limits, &cancel).await;

    assert_eq!(measured.unwrap(), probe);
}

#[tokio::test]
async fn pictures_that_end_long_before_the_sound_are_not_truncated() {
    let args = ["-f", "lavfi", "-i", "sine=duration=5", "-c:v", "libx264", "-c:a", "aac"];
    let source = numbered_clip("much-longer-sound.flv", "25", 2.0, &args);

    let probe = measured(&source).await.unwrap();

    assert_eq!(probe.video().unwrap().frame_count, Some(50));
    assert_eq!(frames_made(&source, &probe).await, 50);
}

#[tokio::test]
async fn a_recording_that_ends_before_its_length_is_truncated() {
    let whole = numbered_clip("numbered-whole.flv", "25", 4.0, &["-c:v", "libx264", "-crf", "5", "-g", "10"]);
    let half = clips::made("numbered-half.flv", |path| {
        let bytes = std::fs::read(&whole).unwrap();
        std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    });

    assert_eq!(measured(&whole).await.unwrap().video().unwrap().frame_count, Some(100));
    let whole_probe = probed(&whole).await.unwrap();
    assert_eq!(measured_as(whole_probe, &half).await.unwrap_err().code(), "input_truncated");
}

/// Three seconds with sound in a transport stream whose clock begins at `start` seconds.
fn transport(name: &str, start: &str) -> PathBuf {
    let args = ["-f", "lavfi", "-i", "sine=duration=3", "-c:v", "libx264", "-crf", "12", "-c:a", "aac"];
    numbered_clip(name, "25", 3.0, &[&args[..], &["-output_ts_offset", start]].concat())
}

#[tokio::test]
async fn transport_streams_that_were_joined_play_one_after_the_other() {
    let (early, late) = (transport("early.ts", "0"), transport("late.ts", "60"));
    for (name, parts) in [
        ("twice.ts", [&early, &early]),
        ("early-late.ts", [&early, &late]),
        ("late-early.ts", [&late, &early]),
    ] {
        let source = clips::made(name, |path| crate::film::joined(path, parts.map(Clone::clone)));
        let probe = measured(&source).await.unwrap();
        let recipe = serde_json::from_str(RECIPE).unwrap();
        let plan = plan(&recipe, &probe, capabilities().await).unwrap().video.unwrap();

        let film = encode_whole(&source, &plan).await;

        assert!(plan.timeline.frames.abs_diff(150) <= 1, "{name}: {} frames", plan.timeline.frames);
        assert!(probe.audio().unwrap().duration_us.unwrap().abs_diff(6_000_000) < 200_000, "{name}");
        let shown = super::shown(&film.joined("180p"));
        for (n, seen) in shown.into_iter().take(149).enumerate() {
            // The filter's grey is full range.
            let seen = f64::from(seen) * 219.0 / 255.0 + 16.0;
            let wanted = f64::from(super::brightness(u32::try_from(n % 75).unwrap()));
            assert!((seen - wanted).abs() < 6.0, "{name}: frame {n} shows {seen}, not {wanted}");
        }
    }
}

/// A file may be made of nothing but packets: it is not read to its end.
#[tokio::test]
async fn a_file_of_more_packets_than_the_longest_film_is_too_large() {
    let input = numbered("25", 2.2);
    let args: Vec<&str> = input.iter().map(String::as_str).chain(["-c:v", "libx264", "-g", "20"]).collect();
    let path = streamed("packets.mkv", &args);
    let probe = probed(&path).await.unwrap();
    let limits = Limits { video_fps: 20, duration: std::time::Duration::from_secs(1), ..Limits::default() };

    let measured =
        with_measured_length(&clips::toolbox(), &path, probe, &limits, &CancellationToken::new()).await;

    let error = measured.unwrap_err();
    assert_eq!(error.code(), "input_too_large");
    assert!(error.to_string().contains("packets"), "{error}");
}
