//! From the source's colours to those that every screen shows.
//!
//! Tags of a file are text of whoever made it. Only names of these enums ever reach a filter graph.

use serde::{Deserialize, Serialize};

use super::Reasons;
use crate::capability::{Capabilities, Piece};
use crate::probe::{ColourRange, HdrKind, VideoStream};

/// From linear light, of which 100 cd/m² are white, to what a screen without HDR shows.
pub(crate) const TONE_MAP: &str =
    "format=gbrpf32le,zscale=p=bt709,tonemap=tonemap=hable:desat=0,zscale=t=bt709:m=bt709:r=limited";

/// What the numbers of a picture mean. Output is always in the limited range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Colour {
    pub primaries: Primaries,
    pub transfer: Transfer,
    pub matrix: Matrix,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Primaries {
    Bt709,
    Smpte170m,
    Bt470bg,
    Bt2020,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transfer {
    Bt709,
    Smpte170m,
    Srgb,
    Bt2020,
    Pq,
    Hlg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Matrix {
    Bt709,
    Smpte170m,
    Bt470bg,
    Bt2020,
    Rgb,
}

/// How the output gets its colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "way", rename_all = "snake_case")]
pub enum ColourPath {
    /// The numbers stay as they are, and are tagged so; `from_full` brings them into the limited range.
    Keep { colour: Colour, from_full: bool },
    /// To BT.709 without a change of brightness.
    Convert { from: Colour, from_full: bool },
    /// From HDR to what a screen without it can show.
    ToneMap { from: Colour, from_full: bool },
}

impl Colour {
    pub const BT709: Self =
        Self { primaries: Primaries::Bt709, transfer: Transfer::Bt709, matrix: Matrix::Bt709 };
    const SD: Self =
        Self { primaries: Primaries::Smpte170m, transfer: Transfer::Smpte170m, matrix: Matrix::Smpte170m };
}

impl ColourPath {
    /// The colours of the frames that leave the decoder.
    pub fn output(self) -> Colour {
        match self {
            Self::Keep { colour, .. } => colour,
            Self::Convert { .. } | Self::ToneMap { .. } => Colour::BT709,
        }
    }
}

pub(super) fn plan(
    stream: &VideoStream,
    capabilities: &Capabilities,
    has_zscale: bool,
    reasons: &mut Reasons,
) -> ColourPath {
    let from_full = stream.colour_range == Some(ColourRange::Full)
        || stream.pixel_format.as_deref().is_some_and(|name| name.starts_with("yuvj"));
    let from = source_colour(stream, reasons);
    if let Some(kind) = stream.hdr {
        return plan_hdr(kind, from, from_full, capabilities, has_zscale, reasons);
    }
    let is_wide = from.primaries == Primaries::Bt2020 || from.matrix == Matrix::Bt2020;
    if (is_wide || from.matrix == Matrix::Rgb) && has_zscale {
        let what = if is_wide { "wide colours" } else { "RGB" };
        reasons.because("colour", "to BT.709", format!("the source has {what}, which few players read"));
        return ColourPath::Convert { from, from_full };
    }
    if is_wide || from.matrix == Matrix::Rgb {
        reasons.warn(
            "colour",
            "BT.709 as FFmpeg guesses",
            "without zscale colours cannot be converted exactly",
        );
        return ColourPath::Keep { colour: Colour::BT709, from_full };
    }
    if from_full {
        reasons.because("colour", "limited range", "players take unmarked full range for too much contrast");
    }
    ColourPath::Keep { colour: from, from_full }
}

fn plan_hdr(
    kind: HdrKind,
    from: Colour,
    from_full: bool,
    capabilities: &Capabilities,
    has_zscale: bool,
    reasons: &mut Reasons,
) -> ColourPath {
    let name = match kind {
        HdrKind::Pq => "HDR (PQ)",
        HdrKind::Hlg => "HDR (HLG)",
        HdrKind::DolbyVision => "Dolby Vision",
    };
    let tonemap = Piece::Filter("tonemap".into());
    if !has_zscale || !capabilities.has(&tonemap) {
        let why = format!("the source is {name}, and FFmpeg's filters zscale and tonemap are not there");
        reasons.warn("colour", "left as it is: it will look flat", why);
        return ColourPath::Keep { colour: from, from_full };
    }
    reasons.require(tonemap);
    let why = format!("the source is {name}, which browsers and most screens cannot show");
    if kind == HdrKind::DolbyVision {
        reasons.warn("colour", "tone-mapped to BT.709", format!("{why}; its own metadata is not used"));
    } else {
        reasons.because("colour", "tone-mapped to BT.709", why);
    }
    ColourPath::ToneMap { from, from_full }
}

fn source_colour(stream: &VideoStream, reasons: &mut Reasons) -> Colour {
    let is_rgb = stream.pixel_format.as_deref().is_some_and(is_rgb);
    let usual = usual_colour(stream);
    let primaries = match stream.colour_primaries.as_deref() {
        Some("bt709") => Primaries::Bt709,
        Some("smpte170m" | "smpte240m") => Primaries::Smpte170m,
        Some("bt470bg") => Primaries::Bt470bg,
        Some("bt2020") => Primaries::Bt2020,
        _ => usual.primaries,
    };
    let transfer = match (stream.colour_transfer.as_deref(), stream.hdr) {
        (Some("arib-std-b67"), _) | (_, Some(HdrKind::Hlg)) => Transfer::Hlg,
        (Some("smpte2084"), _) | (_, Some(HdrKind::Pq | HdrKind::DolbyVision)) => Transfer::Pq,
        (Some("bt709"), None) => Transfer::Bt709,
        (Some("smpte170m" | "smpte240m"), None) => Transfer::Smpte170m,
        (Some("iec61966-2-1"), None) => Transfer::Srgb,
        (Some("bt2020-10" | "bt2020-12"), None) => Transfer::Bt2020,
        (_, None) => usual.transfer,
    };
    let matrix = match stream.colour_matrix.as_deref() {
        _ if is_rgb => Matrix::Rgb,
        Some("gbr") => Matrix::Rgb,
        Some("bt709") => Matrix::Bt709,
        Some("smpte170m" | "smpte240m") => Matrix::Smpte170m,
        Some("bt470bg") => Matrix::Bt470bg,
        Some("bt2020nc" | "bt2020c") => Matrix::Bt2020,
        _ => usual.matrix,
    };
    if stream.colour_matrix.is_none() && !is_rgb && stream.hdr.is_none() {
        let name = if usual.matrix == Matrix::Bt709 { "BT.709" } else { "BT.601" };
        reasons.because(
            "colour",
            format!("taken for {name}"),
            "the source does not say; players guess the same by size",
        );
    }
    Colour { primaries, transfer, matrix }
}

/// What players take a picture for that says nothing.
fn usual_colour(stream: &VideoStream) -> Colour {
    if stream.hdr.is_some() {
        return Colour { primaries: Primaries::Bt2020, transfer: Transfer::Pq, matrix: Matrix::Bt2020 };
    }
    if stream.display.short_side() >= 720 { Colour::BT709 } else { Colour::SD }
}

fn is_rgb(pixel_format: &str) -> bool {
    ["rgb", "bgr", "gbr", "argb", "abgr", "0rgb", "0bgr", "pal8", "x2rgb", "x2bgr"]
        .iter()
        .any(|prefix| pixel_format.starts_with(prefix))
}

impl Primaries {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bt709 => "bt709",
            Self::Smpte170m => "smpte170m",
            Self::Bt470bg => "bt470bg",
            Self::Bt2020 => "bt2020",
        }
    }
}

impl Transfer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bt709 => "bt709",
            Self::Smpte170m => "smpte170m",
            Self::Srgb => "iec61966-2-1",
            Self::Bt2020 => "bt2020-10",
            Self::Pq => "smpte2084",
            Self::Hlg => "arib-std-b67",
        }
    }
}

impl Matrix {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bt709 => "bt709",
            Self::Smpte170m => "smpte170m",
            Self::Bt470bg => "bt470bg",
            Self::Bt2020 => "bt2020nc",
            Self::Rgb => "gbr",
        }
    }
}
