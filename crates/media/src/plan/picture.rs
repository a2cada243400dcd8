//! From the source's frames to those that the encoders get.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::colour::{self, ColourPath};
use super::{Reasons, ladder};
use crate::capability::{Capabilities, Piece};
use crate::probe::{Rotation, Size, VideoStream};
use crate::rational::Rational;
use crate::recipe::{Fit, VideoSpec, Watermark, WatermarkCorner};

/// From two fields to one frame, each of which is then a moment. It looks at the frames before and after.
pub(crate) const DEINTERLACE: &str = "bwdif=mode=send_frame:parity=auto:deint=all";

/// What is done to each frame, in this order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// What every frame of the source is brought to first, should it change in the middle of the stream; `None` where
    /// FFmpeg could not bring frames back to the source's pixel format, and a change is refused.
    pub frame: Option<SourceFrame>,
    pub deinterlace: bool,
    pub rotation: Rotation,
    /// Cut out, in coded pixels after rotation.
    pub crop: Option<Crop>,
    /// The size to which the picture itself is brought; `None` when it has it already, in 8-bit 4:2:0.
    pub resize: Option<Size>,
    pub colour: ColourPath,
    /// The size of the frame when bars fill it around the picture.
    pub pad: Option<Size>,
    pub mark: Option<Mark>,
    /// Of the frames that leave the decoder: the highest rung's.
    pub size: Size,
    pub scaler: Scaler,
}

/// A frame of the source as it is coded, which the rest of the plan counts on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFrame {
    pub size: Size,
    /// The shape of a pixel.
    pub sample_aspect: Rational,
    pub pixel_format: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crop {
    pub size: Size,
    pub x: u32,
    pub y: u32,
}

/// A picture laid over the film.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub image: PathBuf,
    pub corner: WatermarkCorner,
    pub width: u32,
    pub margin: u32,
    pub opacity_percent: u8,
}

/// What resamples pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scaler {
    /// A quarter of the cost of the other: 0.6 CPU seconds against 2.6 for 15 s of 1080p.
    Zscale,
    Swscale,
}

impl Picture {
    /// Of streams that are copied.
    pub(super) fn untouched(stream: &VideoStream) -> Self {
        Self {
            frame: None,
            deinterlace: false,
            rotation: Rotation::Upright,
            crop: None,
            resize: None,
            colour: ColourPath::Keep { colour: colour::Colour::BT709, from_full: false },
            pad: None,
            mark: None,
            size: stream.display,
            scaler: Scaler::Zscale,
        }
    }
}

pub(super) fn plan(
    spec: &VideoSpec,
    stream: &VideoStream,
    size: Size,
    capabilities: &Capabilities,
    reasons: &mut Reasons,
) -> Picture {
    let scaler = choose_scaler(capabilities, reasons);
    say_geometry(stream, reasons);
    let (crop, content) = fit(spec, stream, size, reasons);
    let upright = upright_size(stream);
    let before = crop.map_or(upright, |crop| crop.size);
    let colour = colour::plan(stream, capabilities, scaler == Scaler::Zscale, reasons);
    // A conversion of colours changes the format by itself.
    let is_kept = matches!(colour, ColourPath::Keep { .. });
    let is_plain = matches!(stream.pixel_format.as_deref(), Some("yuv420p" | "yuvj420p"));
    Picture {
        frame: SourceFrame::of(stream),
        deinterlace: stream.is_interlaced,
        rotation: stream.rotation,
        crop,
        resize: (before != content || (is_kept && !is_plain)).then_some(content),
        colour,
        pad: (content != size).then_some(size),
        mark: spec.watermark.as_ref().map(|mark| plan_mark(mark, size, reasons)),
        size,
        scaler,
    }
}

/// Planar formats of up to 12 bits: those that cameras, screens and encoders give, and that FFmpeg scales and pads.
const STEADY_FORMATS: [&str; 20] = [
    "yuv420p",
    "yuv422p",
    "yuv444p",
    "yuv440p",
    "yuvj420p",
    "yuvj422p",
    "yuvj444p",
    "yuv420p10le",
    "yuv422p10le",
    "yuv444p10le",
    "yuv420p12le",
    "yuv422p12le",
    "yuv444p12le",
    "yuva420p",
    "gbrp",
    "gbrp10le",
    "gray",
    "gray10le",
    "nv12",
    "rgb24",
];

impl SourceFrame {
    fn of(stream: &VideoStream) -> Option<Self> {
        let pixel_format = stream.pixel_format.clone().filter(|it| STEADY_FORMATS.contains(&it.as_str()))?;
        let size = Size { width: stream.width, height: stream.height };
        Some(Self { size, sample_aspect: stream.sample_aspect, pixel_format })
    }
}

fn choose_scaler(capabilities: &Capabilities, reasons: &mut Reasons) -> Scaler {
    if capabilities.has(&Piece::Filter("zscale".into())) {
        return Scaler::Zscale;
    }
    reasons.warn("scaling", "FFmpeg's own", "zscale, which is four times faster, is not there");
    Scaler::Swscale
}

fn say_geometry(stream: &VideoStream, reasons: &mut Reasons) {
    if stream.rotation != Rotation::Upright {
        let choice = format!("turned by {} degrees", stream.rotation.clockwise_degrees());
        reasons.because("rotation", choice, "the camera was held so; not every player turns it");
    }
    if stream.sample_aspect != Rational::ONE {
        let choice = format!("{}x{} in square pixels", stream.display.width, stream.display.height);
        reasons.because(
            "pixels",
            choice,
            format!("the source's are {} wide for each high", stream.sample_aspect),
        );
    }
    if stream.is_interlaced {
        reasons.because("fields", "woven into frames", "the source is interlaced, and screens are not");
    }
    let odd = stream.display.width % 2 == 1 || stream.display.height % 2 == 1;
    if odd {
        let choice = format!("even instead of {}x{}", stream.display.width, stream.display.height);
        reasons.because("size", choice, "colour has half the resolution");
    }
}

/// In coded pixels, turned.
fn upright_size(stream: &VideoStream) -> Size {
    if stream.rotation.swaps_sides() {
        Size { width: stream.height, height: stream.width }
    } else {
        Size { width: stream.width, height: stream.height }
    }
}

/// What is cut out, and the size of the picture inside a frame of `size`.
fn fit(spec: &VideoSpec, stream: &VideoStream, size: Size, reasons: &mut Reasons) -> (Option<Crop>, Size) {
    let Some([across, down]) = spec.aspect else { return (None, size) };
    match spec.fit {
        Fit::Contain => (None, size),
        Fit::Cover => {
            let shape = ladder::shape_of(spec, stream);
            let why = format!("what reaches over {across}:{down} is cut off on both sides");
            reasons.because("fit", format!("{}x{} of the picture", shape.width, shape.height), why);
            (Some(centred(shape, stream)), size)
        }
        Fit::Pad => {
            let shown = contained(stream.display, size);
            let choice = format!("{}x{} in {}x{}", shown.width, shown.height, size.width, size.height);
            reasons.because("fit", choice, format!("bars fill up to {across}:{down}"));
            (None, shown)
        }
    }
}

/// That much of the middle, counted in coded pixels.
fn centred(shape: Size, stream: &VideoStream) -> Crop {
    let upright = upright_size(stream);
    let share = |part: u32, all: u32, pixels: u32| {
        let scaled = u64::from(part) * u64::from(pixels) / u64::from(all.max(1));
        (u32::try_from(scaled).unwrap_or(pixels) & !1).clamp(2, pixels)
    };
    let size = Size {
        width: share(shape.width, stream.display.width, upright.width),
        height: share(shape.height, stream.display.height, upright.height),
    };
    let offset = |outer: u32, inner: u32| (outer.saturating_sub(inner) / 2) & !1;
    Crop { size, x: offset(upright.width, size.width), y: offset(upright.height, size.height) }
}

/// As large as it gets inside, in its own shape, with even sides.
fn contained(picture: Size, frame: Size) -> Size {
    let (w, h) = (u64::from(picture.width), u64::from(picture.height));
    let (fw, fh) = (u64::from(frame.width), u64::from(frame.height));
    let (width, height) = if w * fh > fw * h { (fw, fw * h / w.max(1)) } else { (fh * w / h.max(1), fh) };
    let even = |side: u64| (u32::try_from(side).unwrap_or(u32::MAX) & !1).max(2);
    Size { width: even(width), height: even(height) }
}

fn plan_mark(mark: &Watermark, size: Size, reasons: &mut Reasons) -> Mark {
    let width = ((size.width * u32::from(mark.width_percent) / 100) & !1).max(2);
    reasons.because("watermark", format!("{width} pixels wide"), "the recipe asks for it");
    Mark {
        image: mark.image.clone(),
        corner: mark.corner,
        width,
        margin: (size.short_side() / 40).max(2) & !1,
        opacity_percent: mark.opacity_percent,
    }
}
