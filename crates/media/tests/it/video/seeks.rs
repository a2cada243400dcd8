//! Where a range begins to decode: found in the index of an MP4 file, by no program.

use std::path::{Path, PathBuf};

use telecine_media::{
    Limits, MediaError, Program, RangeJob, SegmentDone, VideoPlan, encode_range, mp4_key_frames,
};
use tokio_util::sync::CancellationToken;

use super::{
    OPEN_GOP, RECIPE, encode_whole, ffprobe, hashes, ntsc_matroska, ntsc_open_gop, numbered_clip,
    planned_video, range, vfr,
};
use crate::clips::{self, probed};

fn copied(name: &str, source: &Path, before: &[&str], after: &[&str]) -> PathBuf {
    clips::made(name, |path| {
        let input = ["-i", source.to_str().unwrap(), "-c", "copy"];
        clips::ffmpeg(&[before, &input, after].concat(), path);
    })
}

/// A tone that begins with the film, and comes first in the file.
fn sound_first() -> PathBuf {
    let sound = ["-f", "lavfi", "-i", "sine=duration=5.2", "-map", "1:a", "-map", "0:v", "-c:a", "aac"];
    numbered_clip("sound-first.mp4", "30000/1001", 5.2, &[&sound[..], OPEN_GOP].concat())
}

/// Every picture stands alone.
fn intra() -> PathBuf {
    numbered_clip("intra.mov", "25", 5.0, &["-c:v", "mjpeg", "-q:v", "2", "-pix_fmt", "yuvj420p"])
}

fn h265() -> PathBuf {
    let x265 = ["-c:v", "libx265", "-preset", "ultrafast", "-bf", "3", "-pix_fmt", "yuv420p"];
    let params = ["-x265-params", "log-level=error:keyint=40:min-keyint=40:open-gop=1"];
    numbered_clip("seek-h265.mp4", "25", 5.0, &[&x265[..], &params].concat())
}

/// As a demuxer of FFmpeg sees them: the times of decoding and of showing, in microseconds.
fn told_by_ffprobe(path: &Path) -> Vec<(i64, i64)> {
    let entries = ["-select_streams", "v:0", "-show_entries", "packet=pts_time,dts_time,flags"];
    let answer = ffprobe(path, &entries);
    let us =
        |value: &serde_json::Value| (value.as_str().unwrap().parse::<f64>().unwrap() * 1e6).round() as i64;
    let packets = answer["packets"].as_array().unwrap().iter();
    let keys = packets.filter(|packet| packet["flags"].as_str().unwrap().starts_with('K'));
    keys.map(|packet| (us(&packet["dts_time"]), us(&packet["pts_time"]))).collect()
}

async fn key_frames(path: &Path) -> Option<Vec<(i64, i64)>> {
    let index = probed(path).await.unwrap().video().unwrap().index;
    let keys = mp4_key_frames(path, index).await.unwrap()?;
    Some(keys.iter().map(|key| (key.decode_us, key.shown_us)).collect())
}

#[tokio::test]
async fn the_index_of_a_file_tells_key_frames_as_a_demuxer_does() {
    let plain = ntsc_open_gop();
    let without_edits = copied("no-edits.mp4", &plain, &[], &["-use_editlist", "0"]);
    let quicktime = copied("quicktime.mov", &plain, &[], &["-movflags", "+faststart"]);
    for path in [plain, without_edits, quicktime, vfr(), sound_first(), intra(), h265()] {
        let keys = key_frames(&path).await.unwrap_or_else(|| panic!("{path:?} has an index"));

        let told = told_by_ffprobe(&path);
        assert_eq!(keys.len(), told.len(), "{path:?}");
        for (have, wanted) in keys.iter().zip(&told) {
            let is_same = have.0.abs_diff(wanted.0) <= 1 && have.1.abs_diff(wanted.1) <= 1;
            assert!(is_same, "{path:?}: {have:?}, not {wanted:?}");
        }
    }
}

#[tokio::test]
async fn an_index_that_could_be_read_in_two_ways_is_left_to_a_demuxer() {
    let plain = ntsc_open_gop();
    for path in [
        copied("fragments.mp4", &plain, &[], &["-movflags", "+frag_keyframe+empty_moov"]),
        copied("hidden-start.mp4", &plain, &["-ss", "1.5"], &[]),
        copied("late.mp4", &plain, &["-itsoffset", "0.7"], &[]),
        copied("negative.mp4", &plain, &[], &["-movflags", "+negative_cts_offsets"]),
    ] {
        assert_eq!(key_frames(&path).await, None, "{path:?}");
    }
    let half = clips::made("half-index.mp4", |path| {
        let bytes = std::fs::read(&plain).unwrap();
        std::fs::write(path, &bytes[..bytes.len() - 100]).unwrap();
    });
    assert_eq!(mp4_key_frames(&half, 0).await.unwrap(), None);
    assert_eq!(mp4_key_frames(&plain, 7).await.unwrap(), None, "no such track");
    assert_eq!(mp4_key_frames(&sound_first(), 0).await.unwrap(), None, "not of pictures");
}

async fn made_without_ffprobe(
    source: &Path,
    plan: &VideoPlan,
    start: u32,
) -> Result<Vec<SegmentDone>, MediaError> {
    let folder = tempfile::tempdir().unwrap();
    let (range, limits) = (range(start, start + 1), Limits::default());
    let job = RangeJob {
        plan,
        source,
        folder: folder.path(),
        range,
        skip: &[],
        limits: &limits,
        stall: RangeJob::STALL,
    };
    let toolbox = clips::toolbox().without(Program::Ffprobe);
    let cancel = CancellationToken::new();
    Ok(Box::pin(encode_range(&toolbox, &job, &cancel, &mut |_| {})).await?.segments)
}

#[tokio::test]
async fn a_range_of_an_mp4_starts_in_the_middle_without_an_ffprobe_and_gives_the_same_bytes() {
    let hidden_start = copied("hidden-start.mp4", &ntsc_open_gop(), &["-ss", "1.5"], &[]);
    for source in [ntsc_open_gop(), vfr(), sound_first(), intra(), h265()] {
        let plan = planned_video(&source, RECIPE).await;
        let whole = hashes(&encode_whole(&source, &plan).await.segments);
        for start in [2, 4] {
            let made = made_without_ffprobe(&source, &plan, start).await.unwrap();

            let wanted = whole.iter().filter(|((segment, _), _)| *segment == start);
            assert!(hashes(&made).iter().eq(wanted), "{source:?} {start}");
        }
    }
    for source in [ntsc_matroska(), hidden_start] {
        let plan = planned_video(&source, RECIPE).await;
        let error = made_without_ffprobe(&source, &plan, 2).await.unwrap_err();
        assert_eq!(error.code(), "capability_missing", "{source:?} needs to be looked at");
    }
}
