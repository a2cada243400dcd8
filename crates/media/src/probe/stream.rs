//! What is known of a stream.

use serde::{Deserialize, Serialize};

use crate::rational::Rational;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VideoStream {
    /// Among all streams of the file: FFmpeg's `0:index`.
    pub index: u32,
    pub codec: String,
    pub profile: Option<String>,
    pub level: Option<i32>,
    /// As coded, before rotation.
    pub width: u32,
    pub height: u32,
    /// The shape of a pixel; one where unknown.
    pub sample_aspect: Rational,
    pub rotation: Rotation,
    /// What a viewer sees: square pixels, rotated.
    pub display: Size,
    pub pixel_format: Option<String>,
    pub bit_depth: u8,
    pub colour_primaries: Option<String>,
    pub colour_transfer: Option<String>,
    pub colour_matrix: Option<String>,
    pub colour_range: Option<ColourRange>,
    pub hdr: Option<HdrKind>,
    /// Frames over duration.
    pub avg_fps: Option<Rational>,
    /// The lowest rate at which every frame has an exact time; a guess of FFmpeg.
    pub base_fps: Option<Rational>,
    /// The two rates disagree, so frames do not come at one pace.
    pub is_vfr: bool,
    pub is_interlaced: bool,
    pub bit_rate: Option<u64>,
    pub start_us: i64,
    pub duration_us: Option<u64>,
    /// Where the container says it.
    pub frame_count: Option<u64>,
    pub time_base: Rational,
    pub has_b_frames: bool,
    pub is_default: bool,
    /// A cover, not a film.
    pub is_attached_picture: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AudioStream {
    /// Among all streams of the file: FFmpeg's `0:index`.
    pub index: u32,
    pub codec: String,
    pub profile: Option<String>,
    pub sample_rate: u32,
    pub channels: u32,
    pub layout: Option<String>,
    pub bit_rate: Option<u64>,
    /// As tagged; untrusted text.
    pub language: Option<String>,
    pub start_us: i64,
    pub duration_us: Option<u64>,
    pub time_base: Rational,
    pub is_default: bool,
}

/// In pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Size {
    pub width: u32,
    pub height: u32,
}

/// How far the picture is to be turned for display.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rotation {
    #[default]
    Upright,
    Clockwise90,
    UpsideDown,
    Clockwise270,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColourRange {
    /// "tv".
    Limited,
    /// "pc".
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HdrKind {
    /// SMPTE ST 2084 (PQ), with or without static metadata.
    Pq,
    /// ARIB STD-B67.
    Hlg,
    DolbyVision,
}

impl Rotation {
    /// From the angle of a display matrix as ffprobe tells it: counterclockwise, any number of turns. Angles between
    /// quarter turns are taken to the nearest.
    pub(super) fn from_matrix_degrees(degrees: f64) -> Self {
        let clockwise = (-degrees).rem_euclid(360.0);
        match (clockwise / 90.0).round() as u32 % 4 {
            1 => Self::Clockwise90,
            2 => Self::UpsideDown,
            3 => Self::Clockwise270,
            _ => Self::Upright,
        }
    }

    pub fn clockwise_degrees(self) -> u16 {
        match self {
            Self::Upright => 0,
            Self::Clockwise90 => 90,
            Self::UpsideDown => 180,
            Self::Clockwise270 => 270,
        }
    }

    /// What turns the stored picture upright, in FFmpeg's words.
    pub(crate) fn filters(self) -> &'static [&'static str] {
        match self {
            Self::Upright => &[],
            Self::Clockwise90 => &["transpose=clock"],
            Self::UpsideDown => &["hflip", "vflip"],
            Self::Clockwise270 => &["transpose=cclock"],
        }
    }

    pub fn swaps_sides(self) -> bool {
        matches!(self, Self::Clockwise90 | Self::Clockwise270)
    }
}

impl Size {
    /// The size on display of a coded picture. Pixels that are not square are stretched along the width, as players do.
    pub(super) fn displayed(width: u32, height: u32, sample_aspect: Rational, rotation: Rotation) -> Self {
        let stretched =
            sample_aspect.scale(i64::from(width)).and_then(|w| u32::try_from(w).ok()).unwrap_or(width);
        let upright = Self { width: stretched.max(1), height };
        if rotation.swaps_sides() { Self { width: upright.height, height: upright.width } } else { upright }
    }

    pub fn short_side(self) -> u32 {
        self.width.min(self.height)
    }

    pub fn long_side(self) -> u32 {
        self.width.max(self.height)
    }
}
