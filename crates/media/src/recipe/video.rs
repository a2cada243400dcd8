//! A video for playing: a ladder of rungs in segments, a file, or both.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Fit, require};
use crate::error::Result;
use crate::probe::TIME_MAX_US;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VideoSpec {
    pub ladder: Ladder,
    pub codec: VideoCodec,
    pub preset: Preset,
    /// Constant quality, 0 (best) to 51; `None` is the codec's usual.
    pub crf: Option<u8>,
    pub hardware: Hardware,
    /// Manifests over the segments; none means that no segments are made.
    pub packaging: Vec<Packaging>,
    pub segment_seconds: u32,
    /// Also one progressive MP4 of the highest rung.
    pub mp4: bool,
    /// Copy streams that already fit instead of encoding them again.
    pub allow_copy: bool,
    /// Bring the picture to this shape, `[width, height]` as in 16:9, in the way `fit` says.
    pub aspect: Option<[u32; 2]>,
    pub fit: Fit,
    pub trim: Trim,
    pub watermark: Option<Watermark>,
    pub loudness: Loudness,
}

/// Which rungs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ladder {
    /// The usual ones that the source can fill.
    #[default]
    Auto,
    /// By the short side on display. Those above the source are left out.
    Heights(Vec<u32>),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VideoCodec {
    #[default]
    H264,
    H265,
    Av1,
}

/// How much work is spent on each bit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    Ultrafast,
    Superfast,
    #[default]
    Veryfast,
    Faster,
    Fast,
    Medium,
    Slow,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hardware {
    #[default]
    Never,
    /// Where it is present and works; software otherwise.
    Prefer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Packaging {
    Hls,
    Dash,
}

/// From the source's own start; `None` is its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Trim {
    pub start_ms: u64,
    pub end_ms: Option<u64>,
}

/// A picture laid over the film.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watermark {
    /// A PNG, WebP or JPEG that the caller has put on this machine.
    pub image: PathBuf,
    #[serde(default)]
    pub corner: WatermarkCorner,
    /// Of the picture's width.
    #[serde(default = "tenth")]
    pub width_percent: u8,
    #[serde(default = "full")]
    pub opacity_percent: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatermarkCorner {
    TopLeft,
    TopRight,
    BottomLeft,
    #[default]
    BottomRight,
}

/// What is done about how loud it is. It is measured always.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loudness {
    #[default]
    Keep,
    /// EBU R 128, at -16 LUFS as the web expects.
    Normalise,
}

fn tenth() -> u8 {
    10
}

fn full() -> u8 {
    100
}

impl Default for VideoSpec {
    fn default() -> Self {
        Self {
            ladder: Ladder::Auto,
            codec: VideoCodec::H264,
            preset: Preset::Veryfast,
            crf: None,
            hardware: Hardware::Never,
            packaging: vec![Packaging::Hls],
            segment_seconds: 4,
            mp4: false,
            allow_copy: true,
            aspect: None,
            fit: Fit::Contain,
            trim: Trim::default(),
            watermark: None,
            loudness: Loudness::Keep,
        }
    }
}

impl VideoSpec {
    pub(super) fn check(&self) -> Result<()> {
        if let Ladder::Heights(heights) = &self.ladder {
            require(!heights.is_empty() && heights.len() <= 10, "video.ladder", "1 to 10 heights")?;
            require(
                heights.iter().all(|height| (96..=4320).contains(height)),
                "video.ladder",
                "heights of 96 to 4320",
            )?;
        }
        require(self.crf.is_none_or(|crf| crf <= 51), "video.crf", "0 to 51")?;
        require((1..=20).contains(&self.segment_seconds), "video.segment_seconds", "1 to 20")?;
        require(self.mp4 || !self.packaging.is_empty(), "video.packaging", "name one, or set `mp4`")?;
        let shape_fits =
            |[width, height]: [u32; 2]| (1..=100).contains(&width) && (1..=100).contains(&height);
        require(self.aspect.is_none_or(shape_fits), "video.aspect", "two numbers of 1 to 100")?;
        self.trim.check("video.trim")?;
        self.watermark.as_ref().map_or(Ok(()), Watermark::check)
    }
}

impl VideoCodec {
    /// Of the codec, not of an encoder of it.
    pub(crate) fn ffmpeg_name(self) -> &'static str {
        match self {
            Self::H264 => "h264",
            Self::H265 => "hevc",
            Self::Av1 => "av1",
        }
    }
}

impl Trim {
    pub(super) fn check(&self, field: &'static str) -> Result<()> {
        let fits = |ms: u64| ms <= TIME_MAX_US.unsigned_abs() / 1000;
        require(
            fits(self.start_ms) && self.end_ms.is_none_or(fits),
            field,
            "times of a thousand days at the most",
        )?;
        require(
            self.end_ms.is_none_or(|end| end > self.start_ms),
            field,
            "`end_ms` must lie behind `start_ms`",
        )
    }
}

impl Watermark {
    fn check(&self) -> Result<()> {
        require((1..=100).contains(&self.width_percent), "video.watermark.width_percent", "1 to 100")?;
        require((1..=100).contains(&self.opacity_percent), "video.watermark.opacity_percent", "1 to 100")
    }
}
