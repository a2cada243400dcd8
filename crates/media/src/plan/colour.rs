//! From the source's colours to those that every screen shows.
//!
//! Tags of a file are text of whoever made it. Only names of these enums ever reach a filter graph.

use serde::{Deserialize, Serialize};

use super::Reasons;
use crate::capability::{Capabilities, Piece};
use crate::probe::{ColourRange, HdrKind, VideoStream};

/// The white of paper in HDR, in cd/m², by ITU-R BT.2408; brighter is light itself.
const WHITE_NITS: u32 = 203;

/// From linear light, of which 1 is white, to what a screen without HDR shows.
///
/// Tones below a third of white stay as they are, those above are pressed together up to 1000 cd/m², which is white on
/// the screen. With `hable` of 100 cd/m², the usual advice, grey of 118 came out at 105 and white at 193 of 255, and at
/// 97 and 177 where a film says that it was mastered for 4000. What films say of themselves is not asked: it may come
/// with some frames only, and a range must not depend on where it starts.
const TONE_MAP: &str = "format=gbrpf32le,zscale=p=bt709,tonemap=tonemap=mobius:desat=0:peak=4.926,\
                        zscale=t=bt709:m=bt709:r=limited";

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
    /// P3 as screens and phones have it.
    DisplayP3,
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
    Smpte240m,
    Bt470bg,
    Fcc,
    Bt2020,
    /// Of constant luminance.
    Bt2020Constant,
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
    const HDR: Self = Self { primaries: Primaries::Bt2020, transfer: Transfer::Pq, matrix: Matrix::Bt2020 };

    /// What the numbers of a stream mean: what it says and, where it says nothing, what players take it for.
    pub fn of(stream: &VideoStream) -> Self {
        let usual = Self::usual(stream);
        let primaries = match stream.colour_primaries.as_deref() {
            Some("bt709") => Primaries::Bt709,
            Some("smpte170m" | "smpte240m") => Primaries::Smpte170m,
            Some("bt470bg") => Primaries::Bt470bg,
            Some("bt2020") => Primaries::Bt2020,
            Some("smpte432") => Primaries::DisplayP3,
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
            _ if is_rgb(stream) => Matrix::Rgb,
            Some("bt709") => Matrix::Bt709,
            Some("smpte170m") => Matrix::Smpte170m,
            Some("smpte240m") => Matrix::Smpte240m,
            Some("bt470bg") => Matrix::Bt470bg,
            Some("fcc") => Matrix::Fcc,
            Some("bt2020nc") => Matrix::Bt2020,
            Some("bt2020c") => Matrix::Bt2020Constant,
            _ => usual.matrix,
        };
        Self { primaries, transfer, matrix }
    }

    /// What players take a picture for that says nothing.
    fn usual(stream: &VideoStream) -> Self {
        if stream.hdr.is_some() {
            return Self::HDR;
        }
        if stream.display.short_side() >= 720 { Self::BT709 } else { Self::SD }
    }

    fn is_wide(self) -> bool {
        let is_wide = match self.primaries {
            Primaries::Bt2020 | Primaries::DisplayP3 => true,
            Primaries::Bt709 | Primaries::Smpte170m | Primaries::Bt470bg => false,
        };
        is_wide || matches!(self.matrix, Matrix::Bt2020 | Matrix::Bt2020Constant)
    }
}

fn is_rgb(stream: &VideoStream) -> bool {
    let prefixes = ["rgb", "bgr", "gbr", "argb", "abgr", "0rgb", "0bgr", "pal8", "x2rgb", "x2bgr"];
    let says = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    stream.colour_matrix.as_deref() == Some("gbr") || stream.pixel_format.as_deref().is_some_and(says)
}

impl ColourPath {
    /// What a stream needs so that every screen shows it, with an FFmpeg that has all filters for it.
    pub(crate) fn wanted(stream: &VideoStream) -> Self {
        let from = Colour::of(stream);
        let from_full = stream.colour_range == Some(ColourRange::Full)
            || stream.pixel_format.as_deref().is_some_and(|name| name.starts_with("yuvj"));
        if stream.hdr.is_some() {
            Self::ToneMap { from, from_full }
        } else if from.is_wide() || from.matrix == Matrix::Rgb {
            Self::Convert { from, from_full }
        } else {
            Self::Keep { colour: from, from_full }
        }
    }

    /// The colours of the frames that leave the decoder.
    pub fn output(self) -> Colour {
        match self {
            Self::Keep { colour, .. } => colour,
            Self::Convert { .. } | Self::ToneMap { .. } => Colour::BT709,
        }
    }

    /// The filters that convert to BT.709 of limited range; `None` where colours are kept.
    pub(crate) fn conversion(self) -> Option<String> {
        match self {
            Self::Keep { .. } => None,
            Self::Convert { from, from_full } => {
                let to = "p=bt709:t=bt709:m=bt709:r=limited";
                Some(format!("zscale={}:{to}", from.as_input(from_full)))
            }
            Self::ToneMap { from, from_full } => {
                Some(format!("zscale={}:t=linear:npl={WHITE_NITS},{TONE_MAP}", from.as_input(from_full)))
            }
        }
    }
}

pub(super) fn plan(
    stream: &VideoStream,
    capabilities: &Capabilities,
    has_zscale: bool,
    reasons: &mut Reasons,
) -> ColourPath {
    say_guess(stream, reasons);
    let wanted = ColourPath::wanted(stream);
    match wanted {
        ColourPath::Keep { from_full, .. } => {
            if from_full {
                let why = "players take unmarked full range for too much contrast";
                reasons.because("colour", "limited range", why);
            }
            wanted
        }
        ColourPath::Convert { from, .. } if has_zscale => {
            let what = if from.is_wide() { "wide colours" } else { "RGB" };
            reasons.because("colour", "to BT.709", format!("the source has {what}, which few players read"));
            wanted
        }
        ColourPath::Convert { from_full, .. } => {
            let why = "without zscale colours cannot be converted exactly";
            reasons.warn("colour", "BT.709 as FFmpeg guesses", why);
            ColourPath::Keep { colour: Colour::BT709, from_full }
        }
        ColourPath::ToneMap { from, from_full } => {
            let has_all = tone_maps(stream.hdr, capabilities, has_zscale, reasons);
            if has_all { wanted } else { ColourPath::Keep { colour: from, from_full } }
        }
    }
}

fn say_guess(stream: &VideoStream, reasons: &mut Reasons) {
    if stream.colour_matrix.is_none() && !is_rgb(stream) && stream.hdr.is_none() {
        let name = if Colour::usual(stream).matrix == Matrix::Bt709 { "BT.709" } else { "BT.601" };
        let why = "the source does not say; players guess the same by size";
        reasons.because("colour", format!("taken for {name}"), why);
    }
}

/// Whether the filters for it are there; what follows from that is told.
fn tone_maps(
    kind: Option<HdrKind>,
    capabilities: &Capabilities,
    has_zscale: bool,
    reasons: &mut Reasons,
) -> bool {
    let name = match kind {
        Some(HdrKind::Hlg) => "HDR (HLG)",
        Some(HdrKind::DolbyVision) => "Dolby Vision",
        Some(HdrKind::Pq) | None => "HDR (PQ)",
    };
    if !has_zscale || !capabilities.has(&Piece::Filter("tonemap".into())) {
        let why = format!("the source is {name}, and FFmpeg's filters zscale and tonemap are not there");
        reasons.warn("colour", "left as it is: it will look flat", why);
        return false;
    }
    let why = format!("the source is {name}, which browsers and most screens cannot show");
    if kind == Some(HdrKind::DolbyVision) {
        reasons.warn("colour", "tone-mapped to BT.709", format!("{why}; its own metadata is not used"));
    } else {
        reasons.because("colour", "tone-mapped to BT.709", why);
    }
    true
}

impl Colour {
    /// Said outright: where tags are missing zscale finds "no path between colorspaces".
    fn as_input(self, from_full: bool) -> String {
        let range = if from_full || self.matrix == Matrix::Rgb { "full" } else { "limited" };
        let Self { primaries, transfer, matrix } = self;
        format!("pin={}:tin={}:min={}:rin={range}", primaries.name(), transfer.name(), matrix.name())
    }
}

impl Primaries {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bt709 => "bt709",
            Self::Smpte170m => "smpte170m",
            Self::Bt470bg => "bt470bg",
            Self::Bt2020 => "bt2020",
            Self::DisplayP3 => "smpte432",
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
            Self::Smpte240m => "smpte240m",
            Self::Bt470bg => "bt470bg",
            Self::Fcc => "fcc",
            Self::Bt2020 => "bt2020nc",
            Self::Bt2020Constant => "bt2020c",
            Self::Rgb => "gbr",
        }
    }
}
