//! The type of a file, from its content alone.
//!
//! A name or a declared type is a claim of whoever uploads. Trusting it lets a text file called `.mp4` make FFmpeg read
//! other files, so the first bytes decide, and the demuxer that they decide for is the only one FFmpeg may use.

mod magic;

use std::path::Path;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

use crate::error::{At, InputProblem, MediaError, Result};

pub(crate) use magic::{adts_frame_bytes, id3_bytes, mp3_frame_bytes};

const STEP: &str = "sniff";

/// How much of a file's beginning is looked at.
pub const SNIFF_BYTES: usize = 64 << 10;

/// The types we accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// MP4 and its relatives, QuickTime among them.
    Mp4,
    M4a,
    Matroska,
    Webm,
    Avi,
    MpegTs,
    Flv,
    Ogg,
    Wav,
    Mp3,
    Flac,
    /// AAC in ADTS frames.
    Adts,
    Jpeg,
    Png,
    Webp,
    Gif,
    Avif,
    Heic,
}

/// What a format is meant for. Whether a container holds pictures is for the probe to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    Video,
    Audio,
    Image,
}

/// The type of a file that begins with `head`: its first [`SNIFF_BYTES`], or all of it when it is shorter.
///
/// ```
/// use telecine_media::{Format, sniff};
///
/// assert_eq!(sniff(b"GIF89a\x01\x00\x01\x00").unwrap(), Format::Gif);
/// assert_eq!(sniff(b"#EXTM3U\n/etc/passwd").unwrap_err().code(), "input_hostile");
/// ```
pub fn sniff(head: &[u8]) -> Result<Format> {
    let refuse = |problem, what: &str| Err(MediaError::bad_input(problem, At::new(STEP, what)));
    if head.is_empty() {
        return refuse(InputProblem::Empty, "the file has no bytes");
    }
    if let Some(format) = magic::accepted(head) {
        return Ok(format);
    }
    if let Some(what) = magic::hostile(head) {
        return refuse(InputProblem::Hostile, what);
    }
    if let Some(what) = magic::refused(head) {
        return refuse(InputProblem::Unsupported, what);
    }
    refuse(InputProblem::Unrecognised, "the content is of no known type")
}

/// [`sniff`] of a file. What is no regular file is refused: a pipe without a writer would be waited for, for ever.
pub async fn sniff_file(path: &Path) -> Result<Format> {
    require_regular(path, STEP).await?;
    let failed = |error: std::io::Error| MediaError::io(STEP, "the input cannot be read", &error);
    let mut options = tokio::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path).await.map_err(failed)?;
    let mut head = Vec::with_capacity(SNIFF_BYTES);
    file.take(SNIFF_BYTES as u64).read_to_end(&mut head).await.map_err(failed)?;
    sniff(&head)
}

/// Refuses pipes, sockets, devices and folders before anything opens them. Gives the size of the file.
pub(crate) async fn require_regular(path: &Path, step: &'static str) -> Result<u64> {
    let metadata = tokio::fs::metadata(path).await;
    let metadata = metadata.map_err(|error| MediaError::io(step, "the input cannot be read", &error))?;
    if metadata.is_file() {
        return Ok(metadata.len());
    }
    let at = At::new(step, format!("{} is no regular file", path.display()));
    Err(MediaError::bad_input(InputProblem::Unsupported, at))
}

impl Format {
    /// Recordings of such a format may be joined end to end, each with a clock of its own. FFmpeg then counts on, from
    /// where the streams that are in use were: all who read such a file must use the same ones.
    pub(crate) fn clock_may_jump(self) -> bool {
        matches!(self, Self::MpegTs | Self::Ogg)
    }

    /// Frames of sound and nothing else. What FFmpeg tells of their length is a guess from the bit rate of the first ones,
    /// of 20 s of silence and noise in ADTS for instance 345 s; only reading all of them tells it.
    pub(crate) fn guesses_length(self) -> bool {
        matches!(self, Self::Mp3 | Self::Adts)
    }

    pub fn class(self) -> Class {
        match self {
            Self::Mp4 | Self::Matroska | Self::Webm | Self::Avi | Self::MpegTs | Self::Flv | Self::Ogg => {
                Class::Video
            }
            Self::M4a | Self::Wav | Self::Mp3 | Self::Flac | Self::Adts => Class::Audio,
            Self::Jpeg | Self::Png | Self::Webp | Self::Gif | Self::Avif | Self::Heic => Class::Image,
        }
    }

    /// The one demuxer that FFmpeg may use for it; `None` where FFmpeg has none and libvips reads the file.
    pub fn demuxer(self) -> Option<&'static str> {
        match self {
            Self::Mp4 | Self::M4a => Some("mov"),
            Self::Matroska | Self::Webm => Some("matroska"),
            Self::Avi => Some("avi"),
            Self::MpegTs => Some("mpegts"),
            Self::Flv => Some("flv"),
            Self::Ogg => Some("ogg"),
            Self::Wav => Some("wav"),
            Self::Mp3 => Some("mp3"),
            Self::Flac => Some("flac"),
            Self::Adts => Some("aac"),
            Self::Jpeg => Some("jpeg_pipe"),
            Self::Png => Some("png_pipe"),
            Self::Webp => Some("webp_pipe"),
            Self::Gif => Some("gif"),
            Self::Avif | Self::Heic => None,
        }
    }

    pub fn mime(self) -> &'static str {
        match self {
            Self::Mp4 => "video/mp4",
            Self::M4a => "audio/mp4",
            Self::Matroska => "video/x-matroska",
            Self::Webm => "video/webm",
            Self::Avi => "video/x-msvideo",
            Self::MpegTs => "video/mp2t",
            Self::Flv => "video/x-flv",
            Self::Ogg => "application/ogg",
            Self::Wav => "audio/wav",
            Self::Mp3 => "audio/mpeg",
            Self::Flac => "audio/flac",
            Self::Adts => "audio/aac",
            Self::Jpeg => "image/jpeg",
            Self::Png => "image/png",
            Self::Webp => "image/webp",
            Self::Gif => "image/gif",
            Self::Avif => "image/avif",
            Self::Heic => "image/heic",
        }
    }
}
