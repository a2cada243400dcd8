//! How frames of a film are brought to what a viewer should see, in FFmpeg's words.

use std::time::Duration;

use super::pass::Frames;
use crate::plan::TONE_MAP;
use crate::probe::{ColourRange, HdrKind, Probe, Size, VideoStream};

/// HD and more is BT.709 where nobody says otherwise, as players assume.
const HD_MIN_HEIGHT: u32 = 577;
/// A poster alone is looked for in so much of the film.
const POSTER_WINDOW: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Look<'a> {
    video: &'a VideoStream,
    pub(super) duration: Option<Duration>,
    /// Off where this FFmpeg has not the filters for it.
    pub(super) maps_tones: bool,
}

/// In which form a branch wants its pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pixels {
    Jpeg,
    Webp,
}

impl<'a> Look<'a> {
    pub(super) fn of(probe: &Probe, video: &'a VideoStream) -> Self {
        let duration_us = video.duration_us.or(probe.duration_us);
        let duration = duration_us.map(Duration::from_micros);
        Self { video, duration, maps_tones: video.hdr.is_some() }
    }

    pub(super) fn fps(&self) -> Option<f64> {
        self.video.avg_fps.or(self.video.base_fps).map(|fps| fps.as_f64())
    }

    /// As large as asked for, and never larger than the film. Sides are even, for the encoders' sake.
    pub(super) fn with_width(&self, width: u32) -> Size {
        self.shrunk(f64::from(width) / f64::from(self.video.display.width))
    }

    pub(super) fn with_long_side(&self, side: u32) -> Size {
        self.shrunk(f64::from(side) / f64::from(self.video.display.long_side()))
    }

    fn shrunk(&self, factor: f64) -> Size {
        let factor = factor.min(1.0);
        let even = |side: u32| ((f64::from(side) * factor / 2.0).round() as u32 * 2).max(2);
        Size { width: even(self.video.display.width), height: even(self.video.display.height) }
    }

    /// Few grey pixels of any frame, for comparing it with the last one: nothing is filtered, so lines that are not
    /// used are not even read.
    pub(super) fn glance(&self) -> String {
        let Size { width, height } = self.stored(self.with_long_side(320));
        format!("scale={width}:{height}:flags=neighbor,format=gray")
    }

    /// Scaled, then turned and brought to standard range, when few pixels are left.
    pub(super) fn shown(&self, size: Size, pixels: Pixels) -> String {
        let Size { width, height } = self.stored(size);
        let scale = format!("scale={width}:{height}:flags=bicubic");
        let (range, format) = match pixels {
            Pixels::Jpeg => ("pc", "yuvj420p"),
            Pixels::Webp => ("tv", "yuv420p"),
        };
        let out = format!("out_color_matrix=bt601:out_range={range},format={format}");
        let coloured = match self.tones() {
            Some(tones) => format!("{tones},scale=in_color_matrix=bt709:{out}"),
            None => {
                let matrix = self.matrix().map(|matrix| format!(":in_color_matrix={matrix}"));
                format!("{scale}{}:{out}", matrix.unwrap_or_default())
            }
        };
        let coloured = if self.tones().is_some() { format!("{scale},{coloured}") } else { coloured };
        let turn: String = self.video.rotation.filters().iter().map(|filter| format!(",{filter}")).collect();
        format!("{coloured}{turn},setsar=1")
    }

    fn stored(&self, shown: Size) -> Size {
        if self.video.rotation.swaps_sides() {
            Size { width: shown.height, height: shown.width }
        } else {
            shown
        }
    }

    /// `None` for what has no matrix or one that the scaler does not know.
    fn matrix(&self) -> Option<&'static str> {
        match self.video.colour_matrix.as_deref() {
            Some("bt709") => Some("bt709"),
            Some("smpte170m" | "bt470bg") => Some("bt601"),
            Some("smpte240m") => Some("smpte240m"),
            Some("fcc") => Some("fcc"),
            Some("bt2020nc" | "bt2020c") => Some("bt2020"),
            Some(_) => None,
            None if self.video.height >= HD_MIN_HEIGHT => Some("bt709"),
            None => Some("bt601"),
        }
    }

    /// From HDR to BT.709. What the stream does not say is what HDR usually is: the filters refuse to guess.
    fn tones(&self) -> Option<String> {
        let kind = self.video.hdr.filter(|_| self.maps_tones)?;
        let transfer = match (kind, self.video.colour_transfer.as_deref()) {
            (HdrKind::Hlg, _) | (HdrKind::DolbyVision, Some("arib-std-b67")) => "arib-std-b67",
            (HdrKind::Pq | HdrKind::DolbyVision, _) => "smpte2084",
        };
        let matrix = match self.video.colour_matrix.as_deref() {
            Some("bt709") => "bt709",
            Some("bt2020c") => "bt2020c",
            _ => "bt2020nc",
        };
        let primaries = match self.video.colour_primaries.as_deref() {
            Some("bt709") => "bt709",
            Some("smpte432") => "smpte432",
            _ => "bt2020",
        };
        let range = match self.video.colour_range {
            Some(ColourRange::Full) => "pc",
            Some(ColourRange::Limited) | None => "tv",
        };
        Some(format!(
            "zscale=tin={transfer}:min={matrix}:pin={primaries}:rin={range}:t=linear:npl=100,{TONE_MAP},format=yuv420p"
        ))
    }

    /// Where a poster is looked for when nothing else needs the film: behind the titles, by a seek.
    pub(super) fn poster_window(&self) -> Frames {
        match self.duration {
            Some(duration) if duration > 3 * POSTER_WINDOW => {
                Frames::Window { start: duration / 5, length: POSTER_WINDOW }
            }
            _ => Frames::All,
        }
    }
}
