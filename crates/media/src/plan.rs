//! What will be done with an input, and why: decided once, before anything is decoded.
//!
//! [`plan`] is a pure function of a recipe, a probe and the capabilities. Its [`Plan`] is data: it can be shown, stored,
//! sent to another machine and carried out there in ranges, and every decision in it comes with its reason. The command
//! lines of FFmpeg are pure functions of it ([`decoder_args`](VideoPlan::decoder_args),
//! [`encoder_args`](VideoPlan::encoder_args)).

mod colour;
mod command;
mod delivery;
mod encoder;
mod grid;
mod ladder;
mod picture;
mod pieces;
mod rate;
mod sound;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::capability::{Capabilities, Piece};
use crate::error::{At, InputProblem, MediaError, Result};
use crate::probe::{Probe, VideoStream};
use crate::recipe::{Packaging, Recipe, VideoSpec};
use crate::sniff::{Class, Format};
use crate::tool::Program;

pub use colour::{Colour, ColourPath, Matrix, Primaries, Transfer};
pub(crate) use command::CLOCK_STREAMS;
pub use command::{DecodeInputs, DecodeSpan};
pub use delivery::{Delivery, copy_obstacle};
pub(crate) use encoder::trial_args;
pub use encoder::{EncoderPlan, HARDWARE_ENCODERS};
pub use grid::{Grid, SegmentRange};
pub use ladder::Rung;
pub(crate) use picture::DEINTERLACE;
pub use picture::{Crop, Mark, Picture, Scaler, SourceFrame};
pub use rate::Timeline;
pub use sound::SoundPlan;

const STEP: &str = "plan";

/// What will be done with one input.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// `None` when the recipe asks for no video, or the input has no pictures.
    pub video: Option<VideoPlan>,
    /// The sound that plays with the video, or instead of it; made once, whole.
    pub sound: Option<SoundPlan>,
    /// Manifests to be written over the segments.
    pub packaging: Vec<Packaging>,
    /// Whether one progressive MP4 of the highest rung is wanted too.
    pub mp4: bool,
    /// Every decision and its reason, in the order in which they were made.
    pub decisions: Vec<Decision>,
    /// What the installation must have for every output of the recipe, which [`plan`] has checked.
    pub requires: Vec<Piece>,
}

/// One choice and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    pub about: Cow<'static, str>,
    pub choice: String,
    pub reason: String,
    /// Something is lost, or was asked for and cannot be had.
    pub is_warning: bool,
}

/// How the pictures of one stream become the segments of every rung.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VideoPlan {
    pub format: Format,
    /// FFmpeg's `0:stream_index`.
    pub stream_index: u32,
    /// Where the container begins, as the probe saw it.
    pub container_start_us: i64,
    pub delivery: Delivery,
    pub timeline: Timeline,
    pub grid: Grid,
    pub picture: Picture,
    /// Highest first. One only when the streams are copied.
    pub rungs: Vec<Rung>,
    pub encoder: EncoderPlan,
    /// Whether a decoder may start in the middle; otherwise every range is decoded from the beginning of the file.
    pub is_seekable: bool,
    /// How many frames before a range the decoder starts at the latest, because pictures are coded out of order.
    pub lead_frames: u32,
    /// How the segments are best cut into jobs: the first is short, so that playback starts early.
    pub ranges: Vec<SegmentRange>,
}

/// Decides what will be done. Missing pieces of the installation are named, all of them.
pub fn plan(recipe: &Recipe, probe: &Probe, capabilities: &Capabilities) -> Result<Plan> {
    recipe.check()?;
    let mut reasons = Reasons::default();
    let plan = match &recipe.video {
        Some(spec) => plan_video(spec, probe, capabilities, &mut reasons)?,
        None => Plan::default(),
    };
    if let Some(spec) = &recipe.pictures {
        pieces::of_pictures(spec, probe, capabilities, &mut reasons);
    }
    if let Some(spec) = &recipe.audio {
        pieces::of_audio(spec, probe, &mut reasons);
    }
    if let Some(spec) = &recipe.images {
        pieces::of_images(spec, probe, capabilities, &mut reasons);
    }
    let plan = Plan { decisions: reasons.decisions, requires: reasons.requires, ..plan };
    capabilities.require(&plan.requires)?;
    Ok(plan)
}

fn plan_video(
    spec: &VideoSpec,
    probe: &Probe,
    capabilities: &Capabilities,
    reasons: &mut Reasons,
) -> Result<Plan> {
    if probe.format.class() == Class::Image {
        return Err(refusal(InputProblem::NoSuchStream, "the input is a picture; the recipe wants a video"));
    }
    reasons.require(Piece::Program(Program::Ffmpeg));
    let packaging = spec.packaging.clone();
    let Some(stream) = probe.video() else {
        if probe.audio().is_none() {
            return Err(refusal(InputProblem::NoSuchStream, "neither pictures nor sound"));
        }
        reasons.because("pictures", "none", "the source has sound alone");
        let sound = sound::plan_alone(spec, probe, reasons)?;
        return Ok(Plan { sound: Some(sound), packaging, ..Plan::default() });
    };
    let timeline = rate::plan(spec, probe, stream, reasons)?;
    let rungs = ladder::plan(spec, probe, stream, reasons);
    let delivery = delivery::plan(spec, probe, stream, &rungs, reasons);
    let sound = sound::plan(spec, probe, &timeline, delivery, reasons);
    let video = match delivery {
        Delivery::Copy => VideoPlan::copied(probe, stream, timeline, rungs, spec)?,
        Delivery::Encode => VideoPlan::encoded(probe, stream, timeline, rungs, spec, capabilities, reasons)?,
    };
    Ok(Plan { video: Some(video), sound, packaging, mp4: spec.mp4, ..Plan::default() })
}

impl VideoPlan {
    fn encoded(
        probe: &Probe,
        stream: &VideoStream,
        timeline: Timeline,
        rungs: Vec<Rung>,
        spec: &VideoSpec,
        capabilities: &Capabilities,
        reasons: &mut Reasons,
    ) -> Result<Self> {
        let grid = Grid::of(&timeline, spec.segment_seconds)?;
        reasons.because("segments", grid.told(&timeline), grid.reason());
        let picture = picture::plan(spec, stream, rungs[0].size, capabilities, reasons);
        let encoder = encoder::plan(spec, capabilities, reasons);
        let is_seekable = seeks_exactly(probe.format, reasons);
        let ranges = if is_seekable { grid.ranges(&timeline) } else { vec![grid.whole()] };
        reasons.because("ranges", SegmentRange::told(&ranges), range_reason(is_seekable));
        let video = Self {
            format: probe.format,
            stream_index: stream.index,
            container_start_us: probe.start_us,
            delivery: Delivery::Encode,
            lead_frames: lead_frames(stream),
            timeline,
            grid,
            picture,
            rungs,
            encoder,
            is_seekable,
            ranges,
        };
        reasons.require_all(video.pieces());
        Ok(video)
    }

    /// The grid of a copy follows from the source's own keyframes, which only reading its packets tells.
    fn copied(
        probe: &Probe,
        stream: &VideoStream,
        timeline: Timeline,
        rungs: Vec<Rung>,
        spec: &VideoSpec,
    ) -> Result<Self> {
        Ok(Self {
            format: probe.format,
            stream_index: stream.index,
            container_start_us: probe.start_us,
            delivery: Delivery::Copy,
            grid: Grid::of(&timeline, spec.segment_seconds)?,
            timeline,
            picture: Picture::untouched(stream),
            rungs,
            encoder: EncoderPlan::none(spec.codec),
            is_seekable: true,
            lead_frames: 0,
            ranges: Vec::new(),
        })
    }

    /// The rung of that name.
    pub fn rung(&self, name: &str) -> Option<&Rung> {
        self.rungs.iter().find(|rung| rung.name == name)
    }
}

/// Containers without an index of keyframes land anywhere, and the frames up to the next keyframe would be lost:
/// measured on MPEG-TS, where 12 of 21 seeks gave other pictures.
fn seeks_exactly(format: Format, reasons: &mut Reasons) -> bool {
    let exact = !matches!(format, Format::MpegTs | Format::Flv | Format::Ogg);
    if !exact {
        let why = format!("{} has no index of keyframes, so a seek may lose frames", format.mime());
        reasons.because("seek", "never", why);
    }
    exact
}

fn range_reason(is_seekable: bool) -> &'static str {
    if is_seekable {
        "the first is short so that playback starts early; long ones decode little twice"
    } else {
        "every range would have to decode from the beginning"
    }
}

/// Pictures are reordered by 16 at most; FFmpeg itself goes back by 130 ms more when there are B-frames. Deinterlacing
/// looks at the frame before.
fn lead_frames(stream: &VideoStream) -> u32 {
    if stream.has_b_frames { 8 } else { 2 }
}

fn refusal(problem: InputProblem, what: impl Into<String>) -> MediaError {
    MediaError::bad_input(problem, At::new(STEP, what))
}

/// Collects decisions and the pieces that they need.
#[derive(Debug, Default)]
struct Reasons {
    decisions: Vec<Decision>,
    requires: Vec<Piece>,
}

impl Reasons {
    fn because(&mut self, about: &'static str, choice: impl Into<String>, reason: impl Into<String>) {
        self.push(about, choice.into(), reason.into(), false);
    }

    fn warn(&mut self, about: &'static str, choice: impl Into<String>, reason: impl Into<String>) {
        self.push(about, choice.into(), reason.into(), true);
    }

    fn push(&mut self, about: &'static str, choice: String, reason: String, is_warning: bool) {
        self.decisions.push(Decision { about: about.into(), choice, reason, is_warning });
    }

    fn require_all(&mut self, pieces: impl IntoIterator<Item = Piece>) {
        pieces.into_iter().for_each(|piece| self.require(piece));
    }

    fn require(&mut self, piece: Piece) {
        if !self.requires.contains(&piece) {
            self.requires.push(piece);
        }
    }
}
