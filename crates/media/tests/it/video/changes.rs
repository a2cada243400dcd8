use std::path::{Path, PathBuf};

use telecine_media::VideoPlan;

use super::{RECIPE, brightness, encode, encode_whole, hashes, planned_video, range};
use crate::clips;

const HALF_FRAMES: u32 = 60;

/// Frames numbered from `first` on, as raw H.264 whose every keyframe brings its own parameters.
fn raw(name: &str, size: &str, format: &str, first: u32) -> PathBuf {
    let graph = format!(
        "nullsrc=size={size}:rate=25:duration=2.4,format=yuv420p,\
         geq=lum='20+mod((N+{first})*37,200)':cb=128:cr=128,format={format}"
    );
    let coded = ["-c:v", "libx264", "-preset", "veryfast", "-crf", "8", "-bf", "0", "-g", "20", "-f", "h264"];
    clips::clip(name, &[&["-f", "lavfi", "-i", &graph], &coded[..]].concat())
}

/// A stream of 320x180 in 4:2:0 that becomes another after 60 frames.
fn changing(name: &str, size: &str, format: &str) -> PathBuf {
    let halves = [
        raw(&format!("{name}-a.h264"), "320x180", "yuv420p", 0),
        raw(&format!("{name}-b.h264"), size, format, HALF_FRAMES),
    ];
    let joined = clips::made(&format!("{name}.h264"), |path| crate::film::joined(path, halves));
    clips::made(&format!("{name}.mp4"), |path| {
        clips::ffmpeg(&["-framerate", "25", "-i", joined.to_str().unwrap(), "-c", "copy"], path);
    })
}

/// The brightness of every frame, of 8x8 pixels at that place.
fn shown_at(path: &Path, x: u32, y: u32) -> Vec<f64> {
    let graph = format!("crop=8:8:{x}:{y},scale=1:1:flags=area,format=gray");
    let file = path.to_str().unwrap();
    let args = ["-v", "error", "-i", file, "-vf", &graph, "-fps_mode", "passthrough", "-f", "rawvideo", "-"];
    let grey = crate::film::output_of("ffmpeg", &args);
    // The filter's grey is full range.
    grey.into_iter().map(|grey| f64::from(grey) * 219.0 / 255.0 + 16.0).collect()
}

async fn assert_same_in_ranges(source: &Path, plan: &VideoPlan) -> super::Encoded {
    let whole = encode_whole(source, plan).await;
    let mut parts = Vec::new();
    for segment in plan.grid.whole().segments() {
        parts.extend(encode(source, plan, range(segment, segment + 1), &[]).await.unwrap().segments);
    }
    assert_eq!(hashes(&parts), hashes(&whole.segments), "{}", source.display());
    whole
}

#[tokio::test]
async fn a_stream_that_changes_in_the_middle_is_shown_whole_and_in_time() {
    for (name, size, format) in [
        ("smaller", "160x90", "yuv420p"),
        ("upright", "180x320", "yuv420p"),
        ("full-colour", "320x180", "yuv444p"),
    ] {
        let source = changing(name, size, format);
        let plan = planned_video(&source, RECIPE).await;

        let film = assert_same_in_ranges(&source, &plan).await;

        let shown = shown_at(&film.joined("180p"), 156, 86);
        assert_eq!(shown.len(), 2 * HALF_FRAMES as usize, "{name}");
        for (n, seen) in shown.into_iter().enumerate() {
            let wanted = f64::from(brightness(u32::try_from(n).unwrap()));
            assert!((seen - wanted).abs() < 6.0, "{name}: frame {n} shows {seen}, not {wanted}");
        }
    }
}

#[tokio::test]
async fn a_picture_that_becomes_upright_keeps_its_shape() {
    let source = changing("upright-shape", "180x320", "yuv420p");
    let film = encode_whole(&source, &planned_video(&source, RECIPE).await).await;

    let (left, middle) = (shown_at(&film.joined("180p"), 100, 86), shown_at(&film.joined("180p"), 150, 86));

    let half = HALF_FRAMES as usize;
    assert!(left[..half].iter().zip(&middle).all(|(edge, middle)| (edge - middle).abs() < 6.0));
    assert!(left[half..].iter().all(|edge| (edge - 16.0).abs() < 3.0), "bars are beside it");
}

#[tokio::test]
async fn a_change_that_cannot_be_undone_is_refused() {
    let source = changing("refused", "160x90", "yuv420p");
    let mut plan = planned_video(&source, RECIPE).await;
    // As for a pixel format that FFmpeg cannot bring other frames to.
    plan.picture.frame = None;

    let error = encode(&source, &plan, range(2, 3), &[]).await.map(|it| it.segments).unwrap_err();

    assert_eq!(error.code(), "input_unsupported");
    assert!(error.to_string().contains("s:320x180 to"), "{error}");
}
