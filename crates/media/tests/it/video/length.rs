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
