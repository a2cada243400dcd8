//! How frames of a film are brought to what a viewer should see, in FFmpeg's words.

use std::time::Duration;

use super::pass::Frames;
use crate::plan::{Colour, ColourPath, Matrix};
use crate::probe::{Probe, Size, VideoStream};

/// A poster alone is looked for in so much of the film.
const POSTER_WINDOW: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Look<'a> {
    video: &'a VideoStream,
    pub(super) duration: Option<Duration>,
    /// To the colours of every screen; `None` where none is needed, or this FFmpeg has not the filters for it.
    pub(super) conversion: Option<String>,
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
        Self { video, duration, conversion: conversion(video) }
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
        // In two steps: FFmpeg 7.0 forgets the matrix where the range changes with it.
        let out = format!("out_color_matrix=bt601,format=yuv420p,scale=out_range={range},format={format}");
        let coloured = match &self.conversion {
            Some(conversion) => {
                format!("{scale},{conversion},format=yuv420p,scale=in_color_matrix=bt709:{out}")
            }
            None => {
                let matrix = self.matrix().map(|matrix| format!(":in_color_matrix={matrix}"));
                format!("{scale}{}:{out}", matrix.unwrap_or_default())
            }
        };
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

    /// In the scaler's words; `None` for what has no matrix.
    fn matrix(&self) -> Option<&'static str> {
        match Colour::of(self.video).matrix {
            Matrix::Bt709 => Some("bt709"),
            Matrix::Smpte170m | Matrix::Bt470bg => Some("bt601"),
            Matrix::Smpte240m => Some("smpte240m"),
            Matrix::Fcc => Some("fcc"),
            Matrix::Bt2020 | Matrix::Bt2020Constant => Some("bt2020"),
            Matrix::Rgb => None,
        }
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

/// As the film itself is converted, but for RGB, which the scaler turns into what pictures need by itself.
fn conversion(video: &VideoStream) -> Option<String> {
    let path = ColourPath::wanted(video);
    if Colour::of(video).matrix == Matrix::Rgb && video.hdr.is_none() { None } else { path.conversion() }
}
