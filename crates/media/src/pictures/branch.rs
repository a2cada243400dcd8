//! What each part asks of FFmpeg: filters between the split and its file, and how the file is written. Pure.

use std::time::Duration;

use super::look::{Look, Pixels};
use super::pass::Frames;
use crate::probe::Size;
use crate::recipe::{PicturesSpec, StoryboardSpec};

/// The frames among which a poster is chosen.
const POSTER_CANDIDATES: u32 = 8;
/// A frame with more dark pixels than this is black.
const BLACK_PERCENT: u32 = 92;
/// In full range; pure blue is at 29.
const BLACK_LUMA_MAX: u32 = 24;
/// The usual of FFmpeg: hard cuts are above it, pans and flashes mostly below.
const SCENE_THRESHOLD: u32 = 10;
/// Times are compared as floats; this is less than any frame lasts.
const EPSILON_S: f64 = 0.000_5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Poster,
    Storyboard,
    Preview,
    Scenes,
    Frames,
}

/// One way out of the split.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Branch {
    pub(super) filters: String,
    pub(super) output: Vec<String>,
    /// What of the outcome only the asker knows.
    pub(super) shape: Shape,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Of the frames that came by, the first or the last is the one.
    Still {
        size: Size,
        may_be_black: bool,
        is_last: bool,
    },
    Tiles {
        tile: Size,
        columns: u32,
        rows: u32,
        expected: u32,
    },
    Moving {
        size: Size,
    },
    Times,
    Stills,
}

impl Part {
    pub(super) fn wanted(spec: &PicturesSpec) -> Vec<Self> {
        let asked = [
            (Self::Poster, spec.poster.is_some()),
            (Self::Storyboard, spec.storyboard.is_some()),
            (Self::Preview, spec.preview.is_some()),
            (Self::Scenes, spec.scenes),
            (Self::Frames, spec.frames.is_some()),
        ];
        asked.into_iter().filter(|(_, is_asked)| *is_asked).map(|(part, _)| part).collect()
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Poster => "poster",
            Self::Storyboard => "storyboard",
            Self::Preview => "preview",
            Self::Scenes => "scenes",
            Self::Frames => "frames",
        }
    }

    /// Where the times of its frames are written.
    pub(super) fn times_file(self) -> String {
        format!("{}.times", self.name())
    }
}

impl Branch {
    pub(super) fn first_try(part: Part, look: &Look<'_>, spec: &PicturesSpec) -> Self {
        match part {
            Part::Poster => poster(look, spec, PosterTry::Telling),
            Part::Storyboard => storyboard(look, spec),
            Part::Preview => preview(look, spec),
            Part::Scenes => scenes(look),
            Part::Frames => frames(look, spec),
        }
    }

    /// FFmpeg's name of the encoder that writes its file.
    pub(super) fn encoder(&self) -> Option<&str> {
        let named = self.output.iter().skip_while(|word| *word != "-c:v").nth(1);
        named.map(String::as_str)
    }

    /// What else is tried with a decode of its own when a part got nothing.
    pub(super) fn later_tries(part: Part, look: &Look<'_>, spec: &PicturesSpec) -> Vec<(Self, Frames)> {
        match part {
            // The time that was asked for lies behind the end.
            Part::Poster if spec.poster.as_ref().is_some_and(|poster| poster.at_ms.is_some()) => vec![
                (poster(look, spec, PosterTry::OfTheEnd), Frames::All),
                (poster(look, spec, PosterTry::LastOfMany), Frames::All),
            ],
            Part::Poster => vec![
                (poster(look, spec, PosterTry::AnyVisible), Frames::All),
                (poster(look, spec, PosterTry::Any), Frames::All),
            ],
            // Keyframes may have been too few.
            Part::Storyboard => vec![(storyboard(look, spec), Frames::All)],
            Part::Preview | Part::Scenes | Part::Frames => Vec::new(),
        }
    }
}

/// How much is asked of a poster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PosterTry {
    /// The most typical of some frames that are not black, away from both ends.
    Telling,
    /// The first that is not black.
    AnyVisible,
    /// The first.
    Any,
    /// The last, by the length that is told.
    OfTheEnd,
    /// The last of one for each second, however long the film is.
    LastOfMany,
}

/// How much of the end is written, frame by frame, to find the last.
const END_S: f64 = 2.0;

fn poster(look: &Look<'_>, spec: &PicturesSpec, how: PosterTry) -> Branch {
    let spec = spec.poster.clone().unwrap_or_default();
    let size = look.with_long_side(spec.long_side);
    let shown = look.shown(size, Pixels::Jpeg);
    let visible = format!(
        "blackframe=amount=0:threshold={BLACK_LUMA_MAX},\
         metadata=mode=select:key=lavfi.blackframe.pblack:value={BLACK_PERCENT}:function=less"
    );
    let chosen = match (how, spec.at_ms) {
        (PosterTry::Telling, Some(at_ms)) => {
            let at_s = at_ms as f64 / 1000.0 - EPSILON_S;
            format!("select='gte(t,{at_s})*isnan(prev_selected_t)',{shown}")
        }
        (PosterTry::Telling, None) => {
            let select = candidates(look.duration);
            // The filter compares histograms in RGB.
            format!(
                "select='{select}',{shown},{visible},format=rgb24,thumbnail=n={POSTER_CANDIDATES},\
                 scale=out_color_matrix=bt601:out_range=pc,format=yuvj420p"
            )
        }
        (PosterTry::AnyVisible, _) => format!("{},{shown},{visible}", every(0.2)),
        (PosterTry::Any, _) => format!("select='isnan(prev_selected_t)',{shown}"),
        (PosterTry::OfTheEnd, _) => {
            let from_s = look.duration.map_or(0.0, |duration| duration.as_secs_f64() - END_S).max(0.0);
            format!("select='between(t,{from_s:.3},{:.3})',{shown}", from_s + 2.0 * END_S)
        }
        (PosterTry::LastOfMany, _) => format!("{},{shown}", every(1.0)),
    };
    let is_last = matches!(how, PosterTry::OfTheEnd | PosterTry::LastOfMany);
    let count: &[&str] = if is_last { &[] } else { &["-frames:v", "1"] };
    Branch {
        filters: format!("{chosen},{}", timed(Part::Poster)),
        // Each frame takes the place of the one before.
        output: words(
            &[count, &["-c:v", "mjpeg", "-q:v", "3", "-f", "image2", "-update", "1", "poster.jpg"]].concat(),
        ),
        shape: Shape::Still { size, may_be_black: how == PosterTry::Any, is_last },
    }
}

/// Between a tenth and six tenths: titles, credits and fades are at the ends.
fn candidates(duration: Option<Duration>) -> String {
    let seconds = duration.map_or(10.0, |duration| duration.as_secs_f64());
    let (from, to) = if seconds > 2.0 { (seconds * 0.1, seconds * 0.6) } else { (0.0, seconds) };
    let step = ((to - from) / f64::from(POSTER_CANDIDATES)).max(0.04);
    format!("between(t,{from:.3},{to:.3})*(isnan(prev_selected_t)+gte(t-prev_selected_t,{step:.3}))")
}

fn storyboard(look: &Look<'_>, spec: &PicturesSpec) -> Branch {
    let spec = spec.storyboard.clone().unwrap_or_default();
    let step = storyboard_step(&spec, look.duration);
    let tile = look.with_width(spec.tile_width);
    let expected = look.duration.map(|duration| (duration.as_secs_f64() / step.as_secs_f64()).ceil() as u32);
    let expected = expected.unwrap_or(spec.columns * spec.rows).max(1);
    let columns = spec.columns.min(expected);
    let rows = spec.rows.min(expected.div_ceil(columns));
    Branch {
        filters: format!(
            "{},{},{},tile=layout={columns}x{rows}",
            every(step.as_secs_f64()),
            look.shown(tile, Pixels::Jpeg),
            timed(Part::Storyboard),
        ),
        output: words(&["-c:v", "mjpeg", "-q:v", "4", "-f", "image2", "storyboard-%04d.jpg"]),
        shape: Shape::Tiles { tile, columns, rows, expected },
    }
}

pub(super) fn storyboard_step(spec: &StoryboardSpec, duration: Option<Duration>) -> Duration {
    let usual = || (duration.unwrap_or_default() / 200).max(Duration::from_secs(2));
    spec.every_ms.map_or_else(usual, Duration::from_millis)
}

/// Moments of the whole film, a second each.
fn preview(look: &Look<'_>, spec: &PicturesSpec) -> Branch {
    let spec = spec.preview.clone().unwrap_or_default();
    let size = look.with_width(spec.width);
    let fps = look.fps().map_or(f64::from(spec.fps), |fps| fps.min(f64::from(spec.fps)));
    let length = f64::from(spec.seconds);
    let moments = match look.duration.map(|duration| duration.as_secs_f64()) {
        Some(film) if film > length => {
            let moment = |n: u32| {
                let middle = film * (f64::from(n) + 0.5) / length;
                format!("between(t,{:.3},{:.3})", middle - 0.5, middle + 0.5 - EPSILON_S)
            };
            (0..spec.seconds).map(moment).collect::<Vec<_>>().join("+")
        }
        Some(_) | None => format!("lt(t,{length})"),
    };
    let filters = format!(
        "select='({moments})*(isnan(prev_selected_t)+gt(floor((t+{EPSILON_S})*{fps}),\
         floor((prev_selected_t+{EPSILON_S})*{fps})))',{},{},setpts=N/({fps}*TB)",
        look.shown(size, Pixels::Webp),
        timed(Part::Preview),
    );
    // The encoder would count in frames of the film otherwise, and round.
    let mut output = words(&["-enc_time_base", "1/1000", "-c:v", "libwebp_anim", "-quality", "60"]);
    output.extend(words(&["-compression_level", "3", "-loop", "0", "-f", "webp", "preview.webp"]));
    Branch { filters, output, shape: Shape::Moving { size } }
}

/// All frames go on to nowhere, and those that begin a scene are written down: since FFmpeg 7 an output that gets no
/// frame is an error, which a film of one scene is not.
fn scenes(look: &Look<'_>) -> Branch {
    let filters = format!(
        "{},scdet=threshold={SCENE_THRESHOLD},settb=1/1000000,\
         metadata=mode=print:key=lavfi.scd.time:file={}",
        look.glance(),
        Part::Scenes.times_file(),
    );
    Branch { filters, output: words(&["-f", "null", "-"]), shape: Shape::Times }
}

fn frames(look: &Look<'_>, spec: &PicturesSpec) -> Branch {
    let spec = spec.frames.clone().unwrap_or_default();
    let step_s = 1000.0 / f64::from(spec.per_1000_s);
    let size = look.with_long_side(spec.long_side);
    let filters = format!("{},{},{}", every(step_s), look.shown(size, Pixels::Jpeg), timed(Part::Frames));
    Branch {
        filters,
        output: words(&["-c:v", "mjpeg", "-q:v", "3", "-f", "image2", "frame-%06d.jpg"]),
        shape: Shape::Stills,
    }
}

/// The first frame at or after every multiple of the step.
fn every(step_s: f64) -> String {
    format!(
        "select='isnan(prev_selected_t)+gt(floor((t+{EPSILON_S})/{step_s}),\
         floor((prev_selected_t+{EPSILON_S})/{step_s}))'"
    )
}

/// Writes down the time of each frame that comes by, in microseconds. Only frames that know something are written.
fn timed(part: Part) -> String {
    let file = part.times_file();
    format!(
        "settb=1/1000000,metadata=mode=add:key=part:value={},metadata=mode=print:file={file}",
        part.name()
    )
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
