//! The constant rate of the output, and which part of the source it covers.

use serde::{Deserialize, Serialize};

use super::{Reasons, refusal};
use crate::error::{InputProblem, Result};
use crate::probe::{Probe, VideoStream};
use crate::rational::Rational;
use crate::recipe::VideoSpec;

/// What screens and cameras run at.
const USUAL_RATES: [(i64, i64); 8] =
    [(24000, 1001), (24, 1), (25, 1), (30000, 1001), (30, 1), (50, 1), (60000, 1001), (60, 1)];
/// Beyond it bits are spent that few screens show.
pub(super) const MAX_FPS: u32 = 60;
/// A fast source that is thinned below it moves less smoothly than one that misses a frame now and then.
const FEW_FPS: Rational = Rational::whole(40);
/// Rates nearer than this to a usual one are that one, told inexactly: 29.97 and 30 differ by 1 in 1000.
const SAME_RATE: f64 = 0.0002;
/// An average this near to a usual rate comes from a source that is meant to have it.
const NEAR_A_RATE: f64 = 0.02;
/// Players expect enough ticks in a second; FFmpeg doubles up to the same bound.
const MIN_TIMESCALE: i64 = 10_000;

/// Output frame `n` shows the source at `origin_us + n / fps`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    pub fps: Rational,
    /// The source time of frame 0, counted from the container's start. Sound begins there, too.
    pub origin_us: i64,
    pub frames: u64,
    /// By how many frames the end of the stream may miss `frames`, because the container tells its length inexactly.
    /// Fewer frames than that are a truncated input.
    pub tolerance_frames: u64,
    /// Ticks in a second of the segments' timestamps.
    pub timescale: u32,
    pub ticks_per_frame: u32,
}

impl Timeline {
    /// Added to every timestamp of every output. Frames are decoded before they are shown and an AAC stream begins
    /// before its first sound; with this much room neither gets a negative time, which players treat in many ways.
    pub const OFFSET_SECONDS: u32 = 10;

    pub fn duration_us(&self) -> u64 {
        self.time_us(self.frames)
    }

    /// When a frame is shown, from the output's start.
    pub fn time_us(&self, frame: u64) -> u64 {
        let us = u128::from(frame) * 1_000_000 * self.fps.den().unsigned_abs() as u128;
        let num = u128::from(self.fps.num().unsigned_abs().max(1));
        u64::try_from((us + num / 2) / num).unwrap_or(u64::MAX)
    }

    /// The timestamp of a frame in the segments, in ticks.
    pub fn ticks(&self, frame: u64) -> u64 {
        u64::from(Self::OFFSET_SECONDS) * u64::from(self.timescale) + frame * u64::from(self.ticks_per_frame)
    }

    /// The same in microseconds. Ticks are longer than four of them, so the nearest tick is the frame's own.
    pub(super) fn place_us(&self, frame: u64) -> u64 {
        u64::from(Self::OFFSET_SECONDS) * 1_000_000 + self.time_us(frame)
    }
}

pub(super) fn plan(
    spec: &VideoSpec,
    probe: &Probe,
    stream: &VideoStream,
    reasons: &mut Reasons,
) -> Result<Timeline> {
    let fps = choose_rate(stream, reasons)?;
    let (timescale, ticks_per_frame) = ticks(fps);
    let whole = Extent::of(probe, stream, fps)?;
    let seconds = |us: u64| format!("{:.3} s", us as f64 / 1e6);
    let (first, last) = trimmed(spec, fps, whole.frames)?;
    let timeline = Timeline {
        fps,
        origin_us: whole.origin_us + frame_us(fps, first),
        frames: last - first,
        // The end of a part that is cut out is known.
        tolerance_frames: if last < whole.frames { 0 } else { whole.tolerance_frames },
        timescale,
        ticks_per_frame,
    };
    let told = format!("{} frames, {}", timeline.frames, seconds(timeline.duration_us()));
    if (first, last) == (0, whole.frames) {
        reasons.because("length", told, whole.reason);
    } else {
        reasons.because("length", told, format!("trimmed to frames {first} to {last} of {}", whole.frames));
    }
    Ok(timeline)
}

/// How far the stream reaches.
struct Extent {
    origin_us: i64,
    frames: u64,
    tolerance_frames: u64,
    reason: String,
}

impl Extent {
    fn of(probe: &Probe, stream: &VideoStream, fps: Rational) -> Result<Self> {
        // The grid goes through the first frame: timestamps that are rounded to milliseconds then stay far from the
        // middle between two output frames, where a rounding could drop one and repeat another.
        let late_us = (stream.start_us - probe.start_us).max(0);
        let late_frames = frames_in(fps, late_us.unsigned_abs(), Rounding::Down);
        let origin_us = late_us - frame_us(fps, late_frames);
        let exact = stream.duration_us;
        let unknown = || refusal(InputProblem::Unsupported, "nobody says how long it plays");
        let container = || probe.duration_us.map(|us| us.saturating_sub(late_us.unsigned_abs()));
        let duration_us = exact.or_else(container).ok_or_else(unknown)?;
        let by_length = frames_in(fps, duration_us, Rounding::Near);
        // Frames that an edit list hides are counted too, so a count is only believed next to the length.
        let counted = stream.frame_count.filter(|count| !stream.is_vfr && count.abs_diff(by_length) <= 1);
        let shown = counted.unwrap_or(by_length).max(1);
        let frames = late_frames + shown;
        let second = frames_in(fps, 1_000_000, Rounding::Near);
        let (tolerance_frames, reason) = match (counted, exact) {
            (Some(_), _) => (2, "as many as the container counts".to_owned()),
            (None, Some(_)) => (2, "as long as the container says the stream is".to_owned()),
            // The length of the file is that of its longest stream, often the sound.
            (None, None) => (second, "as long as the container says, give or take a second".to_owned()),
        };
        Ok(Self { origin_us, frames, tolerance_frames, reason })
    }
}

fn choose_rate(stream: &VideoStream, reasons: &mut Reasons) -> Result<Rational> {
    let known = || refusal(InputProblem::Unsupported, "nobody says how many frames a second it has");
    let avg = stream.avg_fps.or(stream.base_fps).ok_or_else(known)?;
    let base = stream.base_fps.unwrap_or(avg);
    let highest = Rational::new(i64::from(MAX_FPS), 1).unwrap_or(Rational::ONE);
    let (fps, reason) = if stream.is_vfr {
        constant_for(avg, base, highest)
    } else {
        (usual(base), "the source's own".to_owned())
    };
    let (fps, reason) = if fps.is_above(highest) {
        thinned(fps, highest)
    } else if Rational::ONE.is_above(fps) {
        (Rational::ONE, "segments need a frame a second at least".to_owned())
    } else {
        (fps, reason)
    };
    reasons.because("rate", format!("{} fps", told(fps)), reason);
    Ok(fps)
}

/// Frames of such a source come at any time. The rate at which each has an exact time keeps bursts smooth, and frames
/// that repeat cost next to nothing; where that rate is only the tick of a clock, a usual one is taken.
fn constant_for(avg: Rational, base: Rational, highest: Rational) -> (Rational, String) {
    let pace = format!("frames come at no one pace, {:.2} a second on average", avg.as_f64());
    if !base.is_above(highest) {
        return (usual(base), format!("{pace}; at this rate each has its exact time"));
    }
    if let Some(meant) = usual_rates().find(|rate| (rate.as_f64() / avg.as_f64() - 1.0).abs() < NEAR_A_RATE) {
        return (meant, format!("{pace}, which is nearly this"));
    }
    let smooth = Rational::new(30, 1).filter(|rate| !avg.is_above(*rate)).unwrap_or(highest);
    (smooth, format!("{pace}; bursts stay smooth at this rate, and frames that repeat cost little"))
}

fn usual_rates() -> impl Iterator<Item = Rational> {
    USUAL_RATES.iter().filter_map(|&(num, den)| Rational::new(num, den))
}

/// The usual rate that is meant, or the rate itself in thousandths.
fn usual(fps: Rational) -> Rational {
    let meant = usual_rates().find(|rate| is_same(rate.as_f64(), fps.as_f64()));
    let is_plain = fps.num() <= 240_000 && fps.den() <= 1001;
    let thousandths = || Rational::new((fps.as_f64() * 1000.0).round() as i64, 1000);
    meant.or(is_plain.then_some(fps)).or_else(thousandths).unwrap_or(fps)
}

fn is_same(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < SAME_RATE
}

/// Every second, third, … frame keeps motion even. Where too few would be left, the highest rate is uneven but smoother.
fn thinned(fps: Rational, highest: Rational) -> (Rational, String) {
    let every = (fps.as_f64() / highest.as_f64() - SAME_RATE).ceil().max(2.0) as i64;
    match Rational::new(fps.num(), fps.den().saturating_mul(every)) {
        Some(kept) if !FEW_FPS.is_above(kept) => {
            (kept, format!("one of every {every} frames of the source's {}, evenly", told(fps)))
        }
        _ => (highest, format!("the most there is use for, of the source's {}", told(fps))),
    }
}

fn ticks(fps: Rational) -> (u32, u32) {
    let (mut scale, mut ticks) = (fps.num(), fps.den());
    while scale < MIN_TIMESCALE {
        (scale, ticks) = (scale * 2, ticks * 2);
    }
    let fits = |value: i64| u32::try_from(value).unwrap_or(u32::MAX);
    (fits(scale), fits(ticks))
}

/// The first frame and the one behind the last.
fn trimmed(spec: &VideoSpec, fps: Rational, frames: u64) -> Result<(u64, u64)> {
    let at = |ms: u64| frames_in(fps, ms.saturating_mul(1000), Rounding::Near);
    let (first, last) = (at(spec.trim.start_ms), spec.trim.end_ms.map_or(frames, at).min(frames));
    if first >= last {
        return Err(refusal(InputProblem::NoSuchStream, "it ends before the part that was asked for"));
    }
    Ok((first, last))
}

#[derive(Clone, Copy, PartialEq)]
enum Rounding {
    Down,
    Near,
}

fn frames_in(fps: Rational, us: u64, rounding: Rounding) -> u64 {
    let den = u128::from(fps.den().unsigned_abs()) * 1_000_000;
    let half = if rounding == Rounding::Near { den / 2 } else { 0 };
    let frames = (u128::from(us) * u128::from(fps.num().unsigned_abs()) + half) / den;
    u64::try_from(frames).unwrap_or(u64::MAX)
}

fn frame_us(fps: Rational, frames: u64) -> i64 {
    let num = u128::from(fps.num().unsigned_abs().max(1));
    let us = (u128::from(frames) * 1_000_000 * u128::from(fps.den().unsigned_abs()) + num / 2) / num;
    i64::try_from(us).unwrap_or(i64::MAX)
}

/// `25` or `29.970`.
pub(super) fn told(fps: Rational) -> String {
    if fps.den() == 1 { fps.num().to_string() } else { format!("{:.3}", fps.as_f64()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_tick_to_a_frames_place_is_its_own() {
        for (num, den) in [(24000, 1001), (25, 1), (30000, 1001), (60, 1), (240_000, 4004), (59_999, 1000)] {
            let fps = Rational::new(num, den).unwrap();
            let (timescale, ticks_per_frame) = ticks(fps);
            let line =
                Timeline { fps, origin_us: 0, frames: 1, tolerance_frames: 0, timescale, ticks_per_frame };
            for frame in (0..2_000_000).step_by(997) {
                let nearest =
                    (u128::from(line.place_us(frame)) * u128::from(timescale) + 500_000) / 1_000_000;
                assert_eq!(nearest, u128::from(line.ticks(frame)), "frame {frame} at {fps}");
            }
        }
    }
}
