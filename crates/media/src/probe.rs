//! What is in a file, from one run of ffprobe.

mod blame;
mod ffprobe;
mod still;
mod stream;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::ending::require_whole;
use crate::error::{At, InputProblem, MediaError, Result};
use crate::limits::Limits;
use crate::sniff::{Format, require_regular, sniff_file};
use crate::tool::{Finished, Output, Program, ToolLimits, Toolbox};

pub use stream::{AudioStream, ColourRange, HdrKind, Rotation, Size, VideoStream};

const STEP: &str = "probe";
const ANSWER_MAX_BYTES: usize = 8 << 20;
/// 1000 days. No time of a file that is farther from zero is taken at its word, whoever tells it.
pub(crate) const TIME_MAX_US: i64 = 1_000 * 86_400 * 1_000_000;

/// A description of a file. Nothing of it was decoded beyond what its headers need.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    pub format: Format,
    pub file_bytes: u64,
    /// As the container says, or else the longest stream; `None` where nobody says. Of MP3 and ADTS it is a guess until
    /// [`crate::with_measured_length`] has read them.
    pub duration_us: Option<u64>,
    /// Where the earliest stream begins.
    pub start_us: i64,
    pub bit_rate: Option<u64>,
    pub video_streams: Vec<VideoStream>,
    pub audio_streams: Vec<AudioStream>,
    pub subtitle_count: usize,
    /// Data, attachments and what has no type.
    pub other_count: usize,
    pub stream_count: usize,
    pub chapters: Vec<Chapter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chapter {
    pub start_us: i64,
    pub end_us: i64,
    /// Untrusted text.
    pub title: Option<String>,
}

/// Sniffs and describes a file, and refuses what passes the limits.
pub async fn probe(
    toolbox: &Toolbox,
    path: &Path,
    limits: &Limits,
    cancel: &CancellationToken,
) -> Result<Probe> {
    let format = sniff_file(path).await?;
    probe_as(toolbox, path, format, limits, cancel).await
}

/// [`probe`] of a file that was sniffed already. Of AVIF and HEIC, which are not for FFmpeg, the size is told.
pub async fn probe_as(
    toolbox: &Toolbox,
    path: &Path,
    format: Format,
    limits: &Limits,
    cancel: &CancellationToken,
) -> Result<Probe> {
    let path =
        std::path::absolute(path).map_err(|error| MediaError::io(STEP, "the input has no path", &error))?;
    let file_bytes = require_regular(&path, STEP).await?;
    limits.check_file_bytes(file_bytes)?;
    require_whole(&path, format, STEP).await?;
    if format.demuxer().is_none() {
        let probe = still::described(&path, format, file_bytes).await?;
        limits.check(&probe)?;
        return Ok(probe);
    }
    let answer = match ask(toolbox, &path, format, limits, cancel).await {
        Ok(answer) => answer,
        Err(error) => return Err(blame::explained(error, &path).await),
    };
    let probe = ffprobe::parse(&answer.stdout, format, file_bytes)
        .map_err(|error| explained(error, answer.stderr_tail))?;
    limits.check(&probe)?;
    Ok(probe)
}

async fn ask(
    toolbox: &Toolbox,
    path: &Path,
    format: Format,
    limits: &Limits,
    cancel: &CancellationToken,
) -> Result<Finished> {
    let tool = toolbox
        .tool(Program::Ffprobe, STEP)?
        .args(["-of", "json=compact=1", "-show_format", "-show_streams", "-show_chapters"])
        .args(input_args(path, format, limits)?)
        .readable(path)
        .stdout(Output::Capture { max_bytes: ANSWER_MAX_BYTES })
        .limits(ToolLimits {
            wall: Duration::from_secs(60),
            cpu: Some(Duration::from_secs(60)),
            file_size_bytes: Some(0),
            ..ToolLimits::default()
        });
    tool.start(cancel)?.finish().await
}

/// ffprobe exits with 0 though it could read no stream; what it logged tells a picture too large from a broken one.
fn explained(error: MediaError, stderr_tail: String) -> MediaError {
    match error {
        MediaError::BadInput { problem, at } => {
            let is_too_large = refuses_size(&stderr_tail);
            let problem = if is_too_large { InputProblem::TooLarge } else { problem };
            MediaError::bad_input(problem, at.with_stderr(stderr_tail))
        }
        error => error,
    }
}

/// `Picture size 65535x65535 is invalid`, which is also said of no size at all.
fn refuses_size(stderr: &str) -> bool {
    let sizes = stderr.split("Picture size ").skip(1).filter_map(|rest| rest.split_whitespace().next());
    let is_some = |size: &str| {
        size.split_once('x').is_some_and(|(width, height)| {
            [width, height].iter().all(|side| side.parse::<u64>().is_ok_and(|side| side > 0))
        })
    };
    stderr.contains("exceeds specified max pixel count") || sizes.into_iter().any(is_some)
}

/// The only form in which ffmpeg and ffprobe are ever given a user's file: the demuxer that its content decided for and
/// no other, local files only, no references out of QuickTime files, bounded streams and pixels. Ends with `-i`.
pub fn input_args(path: &Path, format: Format, limits: &Limits) -> Result<Vec<OsString>> {
    let Some(demuxer) = format.demuxer() else {
        let what = format!("FFmpeg does not read {} files", format.mime());
        return Err(MediaError::bad_input(InputProblem::Unsupported, At::new(STEP, what)));
    };
    let mut args: Vec<OsString> =
        ["-protocol_whitelist", "file,pipe", "-format_whitelist", demuxer, "-f", demuxer]
            .into_iter()
            .map(Into::into)
            .collect();
    if demuxer == "mov" {
        args.extend(["-enable_drefs", "0", "-use_absolute_path", "0"].map(Into::into));
    }
    args.extend(["-max_streams".into(), limits.streams.to_string().into()]);
    args.extend(["-max_pixels".into(), limits.max_pixels().to_string().into()]);
    args.extend(["-i".into(), file_url(path)]);
    Ok(args)
}

/// `file:` keeps a path with a colon from being taken for a protocol, and one with a dash for an option.
pub(crate) fn file_url(path: &Path) -> OsString {
    let mut url = OsString::from("file:");
    url.push(PathBuf::from(path));
    url
}

impl Probe {
    pub fn duration(&self) -> Option<Duration> {
        self.duration_us.map(Duration::from_micros)
    }

    /// Refuses a file that is shorter than it was when it was probed: programs make the best of what is left.
    pub(crate) async fn require_uncut(&self, path: &Path, step: &'static str) -> Result<()> {
        let cannot = |error: std::io::Error| MediaError::io(step, "the input cannot be read", &error);
        let left = tokio::fs::metadata(path).await.map_err(cannot)?.len();
        if left >= self.file_bytes {
            return Ok(());
        }
        let what = format!("{left} bytes are left of the {} that were probed", self.file_bytes);
        Err(MediaError::bad_input(InputProblem::Truncated, At::new(step, what)))
    }

    /// The video stream that is meant: the default one, or the first; never a cover.
    pub fn video(&self) -> Option<&VideoStream> {
        let real = || self.video_streams.iter().filter(|video| !video.is_attached_picture);
        real().find(|video| video.is_default).or_else(|| real().next())
    }

    /// The audio stream that is meant: the default one, or the first.
    pub fn audio(&self) -> Option<&AudioStream> {
        self.audio_streams.iter().find(|audio| audio.is_default).or_else(|| self.audio_streams.first())
    }
}
