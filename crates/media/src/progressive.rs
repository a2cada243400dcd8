//! One MP4 that plays from its first bytes on.
//!
//! Where segments of a rung are made anyway it costs nothing: they are put one behind another and copied into one file.
//! Otherwise the source is encoded once.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::error::{At, InputProblem, MediaError, Result};
use crate::fresh;
use crate::isobmff::{IsobmffError, mp4_summary, read_init, read_segment};
use crate::limits::Limits;
use crate::probe::{Probe, file_url, input_args};
use crate::rational::Rational;
use crate::tool::{Output, Program, Progress, Tool, ToolLimits, Toolbox};
use crate::verify::MadeRendition;

const STEP: &str = "mp4";

/// A finished file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progressive {
    pub path: PathBuf,
    pub bytes: u64,
    pub frames: u64,
    pub duration_us: Option<u64>,
}

/// An encode of the source into one file.
#[derive(Debug, Clone)]
pub struct ProgressiveSpec<'a> {
    pub source: &'a Path,
    pub probe: &'a Probe,
    pub limits: &'a Limits,
    /// Where the film begins, counted from the source's own start.
    pub zero_us: u64,
    /// How long the film is, in seconds.
    pub duration: Rational,
    /// From the source's picture to the rung's, as FFmpeg's `-vf`. Ours, never a user's text.
    pub video_filter: &'a str,
    /// The encoder and its settings, as FFmpeg's arguments.
    pub video_args: &'a [OsString],
    /// Of the sound, in AAC.
    pub audio_kbits: u32,
    /// How many frames there must be; fewer is a source whose end is missing.
    pub frames: Option<u64>,
    /// A folder for what is made.
    pub folder: &'a Path,
}

/// Joins the segments of a rung, and of its sound, into `folder/film.mp4`. Nothing is decoded; every frame of every
/// segment is in it, or it is an error.
pub async fn progressive_from_segments(
    toolbox: &Toolbox,
    video: &MadeRendition,
    audio: Option<&MadeRendition>,
    offset: Rational,
    folder: &Path,
    cancel: &CancellationToken,
) -> Result<Progressive> {
    let output = absolute(folder, "film.mp4")?;
    let expected = frames_of(video).await?;
    let mut tool = toolbox.tool(Program::Ffmpeg, STEP)?.arg("-copyts");
    let mut lists = Vec::new();
    for (rendition, name) in
        std::iter::once((video, "video.list")).chain(audio.map(|audio| (audio, "audio.list")))
    {
        let list = absolute(folder, name)?;
        write_list(&list, rendition)?;
        tool = readable(tool, rendition)
            .args(["-protocol_whitelist", "file,concatf", "-format_whitelist", "mov", "-f", "mov", "-i"])
            .arg(format!("concatf:{}", list.display()));
        lists.push(list);
    }
    let offset_us = offset.scale(1_000_000).unwrap_or(0);
    tool = tool.args(["-map", "0:v:0"]);
    if audio.is_some() {
        tool = tool.args(["-map", "1:a:0"]);
    }
    let tool = tool
        .args(["-c", "copy", "-bitexact", "-output_ts_offset", &format!("-{offset_us}us")])
        .args(["-movflags", "+faststart", "-f", "mp4", "-y"])
        .arg(file_url(&output))
        .scratch(absolute(folder, "")?)
        .stdout(Output::Progress)
        .limits(ToolLimits { wall: Duration::from_secs(3600), ..patient(Duration::ZERO) });
    tool.start(cancel)?.finish().await?;
    for list in lists {
        tokio::fs::remove_file(&list)
            .await
            .map_err(|error| MediaError::io(STEP, "a list cannot be removed", &error))?;
    }
    let made = Progressive::examined(output).await?;
    if made.frames != expected {
        let what = format!("{} frames were joined, of {expected} in the segments", made.frames);
        return Err(MediaError::unexpected(At::new(STEP, what)));
    }
    Ok(made)
}

/// How many frames the segments say they hold.
async fn frames_of(rendition: &MadeRendition) -> Result<u64> {
    let rendition = rendition.clone();
    let count = move || -> Result<u64> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|error| MediaError::io(STEP, "a segment cannot be read", &error))
        };
        let unlike = |what: String| move |error: IsobmffError| error.of_output(STEP, what);
        let init = read_init(&read(&rendition.init)?).map_err(unlike("the init segment".to_owned()))?;
        let track = init.only_track().map_err(unlike("the init segment".to_owned()))?;
        let mut frames = 0;
        for (number, path) in rendition.segments.iter().enumerate() {
            let segment = read_segment(&read(path)?, track).map_err(unlike(format!("segment {number}")))?;
            frames += segment.samples.len() as u64;
        }
        Ok(frames)
    };
    let counted = tokio::task::spawn_blocking(count).await;
    counted.map_err(|error| MediaError::unexpected(At::new(STEP, format!("the count ended: {error}"))))?
}

/// Encodes the source into `folder/film.mp4`.
pub async fn progressive_from_source(
    toolbox: &Toolbox,
    spec: &ProgressiveSpec<'_>,
    on_progress: &(dyn Fn(Progress) + Sync),
    cancel: &CancellationToken,
) -> Result<Progressive> {
    let running = spec.tool(toolbox)?.start(cancel)?;
    running.finish_watched(on_progress).await?;
    let made = Progressive::examined(absolute(spec.folder, "film.mp4")?).await?;
    let frames = made.frames;
    match spec.frames {
        Some(expected) if frames < expected => {
            let what = format!("the picture ends after {frames} frames of {expected}");
            Err(MediaError::bad_input(InputProblem::Truncated, At::new(STEP, what)))
        }
        _ => Ok(made),
    }
}

impl ProgressiveSpec<'_> {
    fn tool(&self, toolbox: &Toolbox) -> Result<Tool> {
        let source = std::path::absolute(self.source)
            .map_err(|error| MediaError::io(STEP, "the input has no path", &error))?;
        let Some(video) = self.probe.video() else {
            let what = "the source has no picture";
            return Err(MediaError::bad_input(InputProblem::NoSuchStream, At::new(STEP, what)));
        };
        let duration_us = self.duration.scale(1_000_000).unwrap_or(0);
        let mut tool = toolbox.tool(Program::Ffmpeg, STEP)?;
        if self.zero_us > 0 {
            tool = tool.args(["-ss", &format!("{}us", self.zero_us)]);
        }
        tool = tool
            .args(["-t", &format!("{duration_us}us")])
            .args(input_args(&source, self.probe.format, self.limits)?)
            .args(["-map", &format!("0:{}", video.index), "-vf", self.video_filter])
            .args(self.video_args);
        if let Some(audio) = self.probe.audio() {
            tool = tool
                .args(["-map", &format!("0:{}", audio.index), "-c:a", "aac"])
                .args(["-b:a", &format!("{}k", self.audio_kbits), "-ac", "2", "-ar", "48000"])
                .args(["-af", "aresample=async=1:first_pts=0"]);
        }
        let duration = Duration::from_micros(u64::try_from(duration_us).unwrap_or(0));
        Ok(tool
            .args(["-map_metadata", "-1", "-map_chapters", "-1", "-bitexact"])
            .args(["-movflags", "+faststart", "-f", "mp4", "-y"])
            .arg(file_url(&absolute(self.folder, "film.mp4")?))
            .readable(&source)
            .scratch(absolute(self.folder, "")?)
            .stdout(Output::Progress)
            .limits(patient(duration)))
    }
}

/// Bringing the index to the front rewrites the whole file, and nothing is reported meanwhile.
pub(crate) fn patient(duration: Duration) -> ToolLimits {
    ToolLimits { stall: Some(Duration::from_secs(600)), ..ToolLimits::for_media(duration) }
}

impl Progressive {
    /// A file that was just written: whole, and with its index first. Its frames are counted by that index: FFmpeg's
    /// progress counts no frames that are copied since version 7.
    pub(crate) async fn examined(path: PathBuf) -> Result<Self> {
        let summary = mp4_summary(&path).await?;
        if let Some(what) = summary.truncated {
            return Err(MediaError::unexpected(At::new(STEP, format!("the file made is not whole: {what}"))));
        }
        if !summary.faststart {
            return Err(MediaError::unexpected(At::new(
                STEP,
                "the index of the file made is not at its start",
            )));
        }
        let frames = summary.video_frames.unwrap_or(0);
        Ok(Self { path, bytes: summary.file_bytes, frames, duration_us: summary.duration_us })
    }
}

/// The list that FFmpeg's `concatf` reads (5.1 and since): as bytes, the init segment and then every segment. Names of
/// thousands of segments would not fit into an argument.
fn write_list(list: &Path, rendition: &MadeRendition) -> Result<()> {
    let mut text = String::new();
    for path in std::iter::once(&rendition.init).chain(&rendition.segments) {
        let path = std::path::absolute(path)
            .map_err(|error| MediaError::io(STEP, "a segment has no path", &error))?;
        let Some(path) = path.to_str() else {
            return Err(MediaError::unexpected(At::new(STEP, "a segment's path is no text")));
        };
        let _ = writeln!(text, "file:{}", escaped(path));
    }
    // Of a few kilobytes, into a folder where a tool may have left a link of that name.
    fresh::write(list, text).map_err(|error| MediaError::io(STEP, "a list cannot be written", &error))
}

/// White space ends a name for `concatf`, and quotes and backslashes mean something.
fn escaped(path: &str) -> String {
    path.chars().fold(String::new(), |mut text, c| {
        if c.is_whitespace() || c == '\'' || c == '\\' {
            text.push('\\');
        }
        text.push(c);
        text
    })
}

/// Folders, not files: the rules of a confined child are one argument.
fn readable(tool: Tool, rendition: &MadeRendition) -> Tool {
    let files = std::iter::once(&rendition.init).chain(&rendition.segments);
    let folders: BTreeSet<&Path> = files.filter_map(|file| file.parent()).collect();
    folders.into_iter().fold(tool, |tool, folder| tool.readable(folder))
}

fn absolute(folder: &Path, name: &str) -> Result<PathBuf> {
    std::path::absolute(folder.join(name))
        .map_err(|error| MediaError::io(STEP, "the folder has no path", &error))
}
