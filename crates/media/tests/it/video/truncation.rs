use std::path::{Path, PathBuf};

use super::{OPEN_GOP, RECIPE, encode, ntsc_open_gop, numbered_clip, planned_video, range};
use crate::clips;

/// The first part of a file, as a broken upload leaves it.
fn cut(source: &Path, name: &str, percent: usize) -> PathBuf {
    clips::made(name, |path| {
        let bytes = std::fs::read(source).unwrap();
        std::fs::write(path, &bytes[..bytes.len() * percent / 100]).unwrap();
    })
}

/// Frames of about equal size, with their index in front, so that half of it still looks whole.
fn faststart() -> PathBuf {
    let input =
        ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=30000/1001:duration=5.2", "-pix_fmt", "yuv420p"];
    clips::clip("busy.mp4", &[&input, OPEN_GOP, &["-movflags", "+faststart"]].concat())
}

fn matroska() -> PathBuf {
    clips::made("busy.mkv", |path| clips::ffmpeg(&["-i", faststart().to_str().unwrap(), "-c", "copy"], path))
}

/// A probe refuses such files. Here they became what they are after it, so that the encoders have to notice.
#[tokio::test]
async fn half_a_file_is_truncated_in_whatever_range_one_looks() {
    for (source, name) in [(faststart(), "busy-half.mp4"), (matroska(), "busy-half.mkv")] {
        let half = cut(&source, name, 50);
        let plan = planned_video(&source, RECIPE).await;
        assert_eq!(plan.timeline.frames, 156);

        encode(&half, &plan, range(0, 1), &[]).await.unwrap();
        for (start, end) in [(0, plan.grid.segments), (plan.grid.segments - 1, plan.grid.segments), (3, 4)] {
            let error = encode(&half, &plan, range(start, end), &[]).await.map(|it| it.segments).unwrap_err();
            assert_eq!(
                error.code(),
                "input_truncated",
                "{name} {start}..{end}: {error} {}",
                error.stderr_tail()
            );
        }
    }
}

#[tokio::test]
async fn a_few_missing_frames_at_the_end_are_truncated_too() {
    let source = faststart();
    let cut = cut(&source, "busy-most.mp4", 96);
    let plan = planned_video(&source, RECIPE).await;

    let error = encode(&cut, &plan, range(5, 6), &[]).await.map(|it| it.segments).unwrap_err();

    assert_eq!(error.code(), "input_truncated");
}

#[tokio::test]
async fn an_inexact_length_is_corrected_by_the_frames_that_there_are() {
    // The sound is longer, and the container tells only its length.
    let args = ["-f", "lavfi", "-i", "sine=duration=2.9", "-c:v", "libx264", "-c:a", "aac"];
    let whole = numbered_clip("longer-sound.mkv", "25", 2.4, &args);
    let source = clips::made("longer-sound.flv", |path| {
        clips::ffmpeg(&["-i", whole.to_str().unwrap(), "-c", "copy"], path);
    });
    let recipe = r#"{"video": {"ladder": {"heights": [180]}, "segment_seconds": 2}}"#;
    let plan = planned_video(&source, recipe).await;
    assert!(plan.timeline.frames > 60, "planned by the sound: {}", plan.timeline.frames);

    let encoded = encode(&source, &plan, plan.grid.whole(), &[]).await.unwrap();

    let frames: u32 = encoded.segments.iter().map(|segment| segment.frames).sum();
    assert_eq!(frames, 60);
}

#[tokio::test]
async fn a_plan_for_a_shorter_file_does_not_pass_over_the_rest() {
    let source = ntsc_open_gop();
    let mut plan = planned_video(&source, RECIPE).await;
    plan.timeline.frames -= 30;
    plan.grid.segments -= 1;

    let error = encode(&source, &plan, range(4, 5), &[]).await.map(|it| it.segments).unwrap_err();

    assert_eq!(error.code(), "input_corrupt");
}
