//! The command lines of FFmpeg that carry a plan out: pure functions of it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::colour::{Colour, ColourPath};
use super::picture::{DEINTERLACE, Mark, Picture, Scaler, SourceFrame};
use super::{Rung, Timeline, VideoPlan};
use crate::capability::Piece;
use crate::error::Result;
use crate::limits::Limits;
use crate::probe::{Size, file_url, input_args};
use crate::recipe::WatermarkCorner;
use crate::sniff::Format;

/// Where a decoder starts and how many frames it gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeSpan {
    /// A time from the container's start at or before which a keyframe lies that is shown no later than
    /// `first_frame`; `None` reads from the beginning.
    pub seek_us: Option<u64>,
    pub first_frame: u64,
    pub frames: u64,
}

/// The files that a decoder reads.
#[derive(Debug, Clone, Copy)]
pub struct DecodeInputs<'a> {
    pub source: &'a Path,
    /// The type of the watermark's picture, by its content.
    pub mark_format: Option<Format>,
}

/// In a coarser base a shift would be rounded.
const MICROSECONDS: &str = "settb=1/1000000";
/// Logs each frame that the decoder really gave, before `fps` repeats and drops any: which one, when, and of what size.
const TELL_FRAMES: &str = "showinfo=checksum=0";
/// Every stream that says what time it is, used for nothing else.
pub(crate) const CLOCK_STREAMS: [&str; 6] = ["-map", "0:v?", "-map", "0:a?", "-c", "copy"];
/// Sound is written beside the pictures that are shown with it, more or less.
const READ_ON_US: u64 = 1_000_000;
/// Shapes that differ by less are stretched: it is rounding, or a black edge that was cut off.
const SAME_SHAPE: f64 = 0.02;

impl VideoPlan {
    /// The arguments of a decoder that writes raw frames to stdout: upright, in their final colours, of the highest
    /// rung's size, at the constant rate.
    ///
    /// Timestamps are kept as they are in the file (`-copyts`), so that which frame is shown at which output time does
    /// not depend on where the decoder started; and frames before the span are not thrown away but passed to `fps`
    /// (`-noaccurate_seek`), because the one that is on display when the span begins may have come long before it.
    pub fn decoder_args(
        &self,
        inputs: &DecodeInputs<'_>,
        span: &DecodeSpan,
        limits: &Limits,
    ) -> Result<Vec<OsString>> {
        let mut args: Vec<OsString> = Vec::new();
        if self.is_seekable {
            args.extend(["-copyts", "-start_at_zero"].map(Into::into));
        }
        args.extend(["-filter_complex_threads", "1", "-threads", "1", "-noautorotate"].map(Into::into));
        if self.picture.frame.is_some() {
            // Otherwise FFmpeg builds the graph anew when the size or the format changes, and `fps` begins again.
            args.extend(["-reinit_filter", "0"].map(Into::into));
        }
        if let Some(seek_us) = span.seek_us {
            args.extend(["-noaccurate_seek".into(), "-ss".into(), seconds(seek_us).into()]);
        }
        args.extend(input_args(inputs.source, self.format, limits)?);
        if let (Some(mark), Some(format)) = (&self.picture.mark, inputs.mark_format) {
            args.extend(input_args(&mark.image, format, limits)?);
        }
        args.extend(["-filter_complex".into(), self.decoder_graph(span).into()]);
        args.extend(["-map", "[out]", "-fps_mode", "passthrough", "-frames:v"].map(Into::into));
        args.push(span.frames.to_string().into());
        args.extend(["-pix_fmt", "yuv420p", "-f", "rawvideo", "pipe:1"].map(Into::into));
        if self.format.clock_may_jump() {
            let end_us = self.timeline.time_us(span.first_frame + span.frames);
            let end_us = end_us.saturating_add_signed(self.timeline.origin_us).saturating_add(READ_ON_US);
            args.extend(CLOCK_STREAMS.map(Into::into));
            args.extend(["-t".into(), seconds(end_us).into(), "-f".into(), "null".into(), "-".into()]);
        }
        Ok(args)
    }

    /// What both command lines need of the installation.
    pub(super) fn pieces(&self) -> BTreeSet<Piece> {
        let span = DecodeSpan { seek_us: None, first_frame: 0, frames: self.timeline.frames };
        let mut pieces = Piece::filters_of(&self.decoder_graph(&span));
        pieces.extend(Piece::filters_of(&self.encoder_graph()));
        pieces.insert(Piece::Encoder(self.encoder.name.clone().into()));
        // The frames between them.
        pieces.insert(Piece::Encoder("rawvideo".into()));
        pieces
    }

    fn decoder_graph(&self, span: &DecodeSpan) -> String {
        let picture = &self.picture;
        let mut chain: Vec<String> = vec![MICROSECONDS.into(), TELL_FRAMES.into()];
        chain.extend(picture.frame.iter().flat_map(SourceFrame::filters));
        if picture.deinterlace {
            // It counts in half ticks.
            chain.extend([DEINTERLACE, MICROSECONDS].map(Into::into));
        }
        chain.extend(self.timeline.filters(span.first_frame));
        chain.extend(picture.rotation.filters().iter().map(ToString::to_string));
        chain.extend(picture.crop.map(|crop| {
            format!("crop=w={}:h={}:x={}:y={}", crop.size.width, crop.size.height, crop.x, crop.y)
        }));
        chain.extend(picture.scale_and_colour());
        chain.extend(picture.pad.map(|pad| pad_filter(picture.resize.unwrap_or(picture.size), pad)));
        chain.push("setsar=1".into());
        let chain = chain.join(",");
        let stream = self.stream_index;
        match &picture.mark {
            None => format!("[0:{stream}]{chain},format=yuv420p[out]"),
            Some(mark) => {
                let laid = mark.filters(picture.colour.output());
                format!(
                    "[0:{stream}]{chain},format=yuv420p[film];[1:v:0]{laid}[mark];[film][mark]{}",
                    mark.overlay()
                )
            }
        }
    }

    /// The arguments of the encoder of one segment: raw frames from stdin, one file for each rung. Smaller rungs are
    /// scaled from the next larger one, which costs half of scaling each from the top.
    pub fn encoder_args(&self, segment: u32, outputs: &[PathBuf]) -> Vec<OsString> {
        let Size { width, height } = self.picture.size;
        let mut args: Vec<OsString> = [
            "-filter_complex_threads",
            "1",
            "-protocol_whitelist",
            "pipe",
            "-f",
            "rawvideo",
            "-pixel_format",
            "yuv420p",
        ]
        .map(Into::into)
        .into();
        args.extend(["-video_size".into(), format!("{width}x{height}").into()]);
        args.extend(["-framerate".into(), self.timeline.fps.to_string().into()]);
        args.extend(["-i", "pipe:0", "-filter_complex"].map(Into::into));
        args.push(self.encoder_graph().into());
        for (index, (rung, output)) in self.rungs.iter().zip(outputs).enumerate() {
            args.extend(self.output_args(index, rung, segment).into_iter().map(Into::into));
            args.push(file_url(output));
        }
        args
    }

    fn encoder_graph(&self) -> String {
        let mut graph = "[0:v:0]setsar=1".to_owned();
        let format = if self.encoder.name.ends_with("_qsv") { "nv12" } else { "yuv420p" };
        for (index, rung) in self.rungs.iter().enumerate() {
            if index > 0 {
                let scale = self.picture.scaler.filter(rung.size);
                graph += &format!(";[next{index}]{scale},setsar=1");
            }
            if index + 1 < self.rungs.len() {
                graph += &format!(",split=2[rung{index}][next{}]", index + 1);
            } else {
                graph += &format!(",format={format}[rung{index}]");
            }
        }
        graph
    }

    /// One fragment without an edit list, at its absolute time: `frag_discont` makes the muxer write it, and a plain
    /// (not negative) composition offset is the only one that every player and FFmpeg itself read alike.
    ///
    /// The muxer moves it to its place, not a filter: since FFmpeg 7 frames have no rate behind `setpts`, and encoders
    /// take a tick for a frame, so that level and rate control are of thousands of frames a second.
    fn output_args(&self, index: usize, rung: &Rung, segment: u32) -> Vec<String> {
        let Colour { primaries, transfer, matrix } = self.picture.colour.output();
        let timescale = self.timeline.timescale.to_string();
        let mut args: Vec<String> = vec!["-map".into(), format!("[rung{index}]")];
        args.extend(self.encoder.args(rung.max_kbits, self.grid.frames_per_gop));
        let mut add = |more: &[&str]| args.extend(more.iter().map(ToString::to_string));
        add(&["-threads", "1", "-flags", "+cgop+bitexact", "-fflags", "+bitexact"]);
        add(&["-enc_time_base", &format!("1/{timescale}"), "-fps_mode", "passthrough"]);
        add(&["-color_primaries", primaries.name(), "-color_trc", transfer.name()]);
        add(&["-colorspace", matrix.name(), "-color_range", "tv"]);
        add(&["-map_metadata", "-1", "-avoid_negative_ts", "disabled"]);
        add(&["-video_track_timescale", &timescale, "-use_editlist", "0"]);
        add(&["-output_ts_offset", &format!("{}us", self.timeline.place_us(self.grid.first_frame(segment)))]);
        add(&["-movflags", "+frag_custom+empty_moov+default_base_moof+frag_discont"]);
        add(&["-fragment_index", &(segment + 1).to_string(), "-f", "mp4"]);
        args
    }
}

impl Timeline {
    /// To the constant rate, from this output frame on.
    fn filters(&self, first_frame: u64) -> Vec<String> {
        let shift =
            if self.origin_us == 0 { String::new() } else { format!("setpts=PTS-({})", self.origin_us) };
        let start = seconds(self.time_us(first_frame));
        let rate = format!("fps=fps={}:start_time={start}:round=near", self.fps);
        [shift, rate].into_iter().filter(|filter| !filter.is_empty()).collect()
    }
}

impl SourceFrame {
    /// Frames that are as planned pass untouched; others are fitted into the planned frame, in their own shape.
    fn filters(&self) -> [String; 3] {
        let Size { width, height } = self.size;
        let pixel = self.sample_aspect.as_f64();
        let shape = f64::from(width) * pixel / f64::from(height.max(1));
        let is_same = format!("lt(abs(dar/{shape:.6}-1),{SAME_SHAPE})");
        let w = format!("if({is_same},{width},clip(2*round({height}*dar/{pixel:.6}/2),2,{width}))");
        let h = format!("if({is_same},{height},clip(2*round({width}*{pixel:.6}/dar/2),2,{height}))");
        [
            format!("scale=w='{w}':h='{h}':eval=frame:flags=bicubic+accurate_rnd+bitexact"),
            format!("format={}", self.pixel_format),
            format!("pad=w={width}:h={height}:x='(ow-iw)/2':y='(oh-ih)/2':eval=frame:color=black"),
        ]
    }
}

impl Picture {
    fn scale_and_colour(&self) -> Vec<String> {
        let resize = self.resize.map(|size| self.scaler.filter(size));
        match (self.colour, self.scaler) {
            (ColourPath::Keep { from_full, .. }, Scaler::Zscale) => {
                let range = from_full.then(|| "zscale=rin=full:r=limited".to_owned());
                resize.into_iter().chain(range).collect()
            }
            (ColourPath::Keep { from_full, .. }, Scaler::Swscale) => {
                let range = from_full.then(|| "scale=in_range=full:out_range=limited".to_owned());
                resize.into_iter().chain(range).collect()
            }
            (path @ ColourPath::Convert { from, .. }, _) => {
                let planes = (from.matrix == super::Matrix::Rgb).then(|| "format=gbrp".to_owned());
                planes.into_iter().chain(resize).chain(path.conversion()).collect()
            }
            (path @ ColourPath::ToneMap { .. }, _) => resize.into_iter().chain(path.conversion()).collect(),
        }
    }
}

impl Scaler {
    fn filter(self, Size { width, height }: Size) -> String {
        match self {
            Self::Zscale => format!("zscale=w={width}:h={height}:filter=bicubic"),
            Self::Swscale => format!("scale=w={width}:h={height}:flags=bicubic+accurate_rnd+bitexact"),
        }
    }
}

impl Mark {
    fn filters(&self, colour: Colour) -> String {
        let opacity = f64::from(self.opacity_percent) / 100.0;
        let matrix = if colour == Colour::BT709 { "bt709" } else { "smpte170m" };
        format!(
            "format=rgba,colorchannelmixer=aa={opacity:.2},\
             scale=w={}:h=-1:out_color_matrix={matrix}:out_range=limited:flags=bicubic+accurate_rnd+bitexact,\
             format=yuva420p",
            self.width
        )
    }

    fn overlay(&self) -> String {
        let margin = self.margin;
        let (x, y) = match self.corner {
            WatermarkCorner::TopLeft => (format!("{margin}"), format!("{margin}")),
            WatermarkCorner::TopRight => (format!("W-w-{margin}"), format!("{margin}")),
            WatermarkCorner::BottomLeft => (format!("{margin}"), format!("H-h-{margin}")),
            WatermarkCorner::BottomRight => (format!("W-w-{margin}"), format!("H-h-{margin}")),
        };
        format!("overlay=x={x}:y={y}:format=yuv420:eof_action=repeat,format=yuv420p[out]")
    }
}

fn pad_filter(picture: Size, frame: Size) -> String {
    let middle = |outer: u32, inner: u32| (outer.saturating_sub(inner) / 2) & !1;
    let (x, y) = (middle(frame.width, picture.width), middle(frame.height, picture.height));
    format!("pad=w={}:h={}:x={x}:y={y}:color=black", frame.width, frame.height)
}

/// `12.345678`.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}
