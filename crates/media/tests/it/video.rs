//! Real encodes of small clips.
//!
//! Clips are made of flat frames whose brightness tells their number, so that every output frame can be asked which
//! source frame it shows.

mod changes;
mod colours;
mod damage;
mod determinism;
mod edits;
mod hardware;
mod joints;
mod length;
mod patience;
mod seeks;
mod truncation;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use telecine_media::{
    Capabilities, Limits, MediaError, Plan, RangeEvent, RangeJob, Recipe, SegmentDone, SegmentRange,
    VideoPlan, encode_range, plan,
};
use tokio_util::sync::CancellationToken;

use crate::clips::{self, probed};

/// One second a segment, two rungs.
pub(crate) const RECIPE: &str = r#"{"video": {"ladder": {"heights": [180, 120]}, "segment_seconds": 1}}"#;

static CAPABILITIES: tokio::sync::OnceCell<Capabilities> = tokio::sync::OnceCell::const_new();

pub(crate) async fn capabilities() -> &'static Capabilities {
    let detect =
        || async { Capabilities::detect(&clips::toolbox(), &CancellationToken::new()).await.unwrap() };
    CAPABILITIES.get_or_init(detect).await
}

pub(crate) async fn planned(source: &Path, recipe: &str) -> Plan {
    let recipe: Recipe = serde_json::from_str(recipe).unwrap();
    plan(&recipe, &probed(source).await.unwrap(), capabilities().await).unwrap()
}

async fn planned_video(source: &Path, recipe: &str) -> VideoPlan {
    planned(source, recipe).await.video.unwrap()
}

/// Segments and the folder that they are in.
struct Encoded {
    folder: tempfile::TempDir,
    segments: Vec<SegmentDone>,
}

impl Encoded {
    /// Everything of a rung as one file that plays.
    fn joined(&self, rung: &str) -> PathBuf {
        let files =
            || self.segments.iter().flat_map(|segment| &segment.files).filter(|file| file.rung == rung);
        let mut bytes = std::fs::read(&files().next().unwrap().init.path).unwrap();
        files().for_each(|file| bytes.extend(std::fs::read(&file.path).unwrap()));
        let path = self.folder.path().join(format!("joined-{rung}.mp4"));
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

async fn encode(
    source: &Path,
    plan: &VideoPlan,
    range: SegmentRange,
    skip: &[u32],
) -> Result<Encoded, MediaError> {
    let folder = tempfile::tempdir().unwrap();
    let segments = encode_into(folder.path(), source, plan, range, skip).await?;
    Ok(Encoded { folder, segments })
}

async fn encode_into(
    folder: &Path,
    source: &Path,
    plan: &VideoPlan,
    range: SegmentRange,
    skip: &[u32],
) -> Result<Vec<SegmentDone>, MediaError> {
    let job =
        RangeJob { plan, source, folder, range, skip, limits: &Limits::default(), stall: RangeJob::STALL };
    let mut told = Vec::new();
    let mut tell = |event: RangeEvent| {
        if let RangeEvent::Segment(segment) = event {
            told.push(segment);
        }
    };
    let done = Box::pin(encode_range(&clips::toolbox(), &job, &CancellationToken::new(), &mut tell)).await?;
    told.sort_by_key(|segment| segment.segment);
    assert_eq!(told, done.segments, "what is told is what is made");
    Ok(done.segments)
}

async fn encode_whole(source: &Path, plan: &VideoPlan) -> Encoded {
    encode(source, plan, plan.grid.whole(), &[]).await.unwrap()
}

/// The hashes of a segment's files and init files.
type Hashes = BTreeMap<(u32, String), (String, String)>;

fn hashes(segments: &[SegmentDone]) -> Hashes {
    let of = |segment: &SegmentDone| {
        let number = segment.segment;
        let files = segment.files.iter();
        files
            .map(|file| ((number, file.rung.clone()), (file.sha256.clone(), file.init.sha256.clone())))
            .collect::<Vec<_>>()
    };
    segments.iter().flat_map(of).collect()
}

fn range(start: u32, end: u32) -> SegmentRange {
    SegmentRange { start, end }
}

/// The brightness of source frame `n`. Neighbours differ by far more than an encoder loses.
fn brightness(n: u32) -> u8 {
    u8::try_from(20 + (n * 37) % 200).unwrap()
}

/// FFmpeg's input of that many seconds of such frames.
fn numbered(fps: &str, seconds: f64) -> [String; 4] {
    let graph = format!(
        "nullsrc=size=320x180:rate={fps}:duration={seconds},format=yuv420p,geq=lum='20+mod(N*37,200)':cb=128:cr=128"
    );
    ["-f".into(), "lavfi".into(), "-i".into(), graph]
}

fn numbered_clip(name: &str, fps: &str, seconds: f64, args: &[&str]) -> PathBuf {
    let input = numbered(fps, seconds);
    let all: Vec<&str> = input.iter().map(String::as_str).chain(args.iter().copied()).collect();
    clips::clip(name, &all)
}

/// H.264 as cameras and editors write it: B-frames, and GOPs that refer to the one before.
const OPEN_GOP: &[&str] = &[
    "-c:v",
    "libx264",
    "-preset",
    "medium",
    "-crf",
    "12",
    "-x264-params",
    "open-gop=1:keyint=50:bframes=3:b-pyramid=normal:scenecut=0",
];

fn ntsc_open_gop() -> PathBuf {
    numbered_clip("numbered-ntsc.mp4", "30000/1001", 5.2, OPEN_GOP)
}

/// Timestamps in milliseconds.
fn ntsc_matroska() -> PathBuf {
    clips::made("numbered-ntsc.mkv", |path| {
        clips::ffmpeg(&["-i", ntsc_open_gop().to_str().unwrap(), "-c", "copy"], path);
    })
}

/// Which frames of 25 a second a recording of a screen that stands still for three seconds keeps.
fn is_kept(n: u32) -> bool {
    n < 20 || (n.is_multiple_of(5) && n < 60) || n > 140
}

fn vfr() -> PathBuf {
    let keep = "select='lt(n,20)+not(mod(n,5))*lt(n,60)+gt(n,140)'";
    let uneven = ["-vf", keep, "-fps_mode", "vfr", "-video_track_timescale", "90000", "-g", "30"];
    numbered_clip("numbered-vfr.mp4", "25", 7.0, &[&uneven, &OPEN_GOP[..6]].concat())
}

/// The brightness in the middle of every frame of a file.
fn shown(path: &Path) -> Vec<u8> {
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-i"]).arg(path);
    let graph = "crop=16:16,scale=1:1:flags=area,format=gray";
    let done =
        command.args(["-vf", graph, "-fps_mode", "passthrough", "-f", "rawvideo", "-"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

fn ffprobe(path: &Path, args: &[&str]) -> serde_json::Value {
    let done =
        Command::new("ffprobe").args(["-v", "error", "-of", "json"]).args(args).arg(path).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

/// The first video stream.
fn stream(path: &Path) -> serde_json::Value {
    ffprobe(path, &["-show_streams", "-select_streams", "v:0"])["streams"][0].clone()
}
