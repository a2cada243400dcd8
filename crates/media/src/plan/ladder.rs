//! Which sizes are made.

use serde::{Deserialize, Serialize};

use super::Reasons;
use crate::probe::{Probe, Size, VideoStream};
use crate::recipe::{Fit, Ladder, VideoCodec, VideoSpec};

/// The short side and the most kbit/s that H.264 gets for it.
const USUAL_RUNGS: [(u32, u32); 7] =
    [(240, 300), (360, 700), (480, 1_200), (720, 2_500), (1080, 4_500), (1440, 9_000), (2160, 16_000)];
/// A usual rung this near below the source would be the same picture twice.
const NEARLY_SOURCE: f64 = 0.9;
/// A rung never gets more than so many percent of the source's bits: they would only describe its noise.
const PERCENT_OF_SOURCE: u64 = 130;
/// Where encoders still work well.
const MIN_KBITS: u32 = 80;

/// One size of the output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rung {
    /// `720p`: the short side on display. Unique in a plan, and safe as a part of a file name.
    pub name: String,
    pub size: Size,
    /// The cap of the constant quality. Half of the buffer that it is measured over.
    pub max_kbits: u32,
}

pub(super) fn plan(
    spec: &VideoSpec,
    probe: &Probe,
    stream: &VideoStream,
    reasons: &mut Reasons,
) -> Vec<Rung> {
    let shape = shape_of(spec, stream);
    let source_side = even(shape.short_side());
    let source_kbits = source_kbits(probe, stream);
    let sides = match &spec.ladder {
        Ladder::Auto => usual_sides(source_side, reasons),
        Ladder::Heights(heights) => chosen_sides(heights, source_side, reasons),
    };
    let rung = |side: u32| {
        let (max_kbits, limit) = kbits_of(side, spec.codec, source_kbits);
        let rung = Rung { name: format!("{side}p"), size: scaled(shape, side), max_kbits };
        (rung, limit)
    };
    let rungs: Vec<(Rung, Limit)> = sides.into_iter().map(rung).collect();
    for (rung, limit) in &rungs {
        let choice =
            format!("{} {}x{} up to {} kbit/s", rung.name, rung.size.width, rung.size.height, rung.max_kbits);
        let of = if rung.size.short_side() == source_side { "the source's own size" } else { "a usual size" };
        let why = match (&spec.ladder, limit) {
            (Ladder::Heights(_), Limit::Usual) => "as the recipe says".to_owned(),
            (Ladder::Auto, Limit::Usual) => of.to_owned(),
            (_, Limit::Source) => format!("{of}; no more than 1.3 times the source's bits"),
        };
        reasons.because("rung", choice, why);
    }
    rungs.into_iter().map(|(rung, _)| rung).collect()
}

/// The picture in square pixels, upright, in the shape that the recipe asks for, as large as the source can fill it.
pub(super) fn shape_of(spec: &VideoSpec, stream: &VideoStream) -> Size {
    let Size { width, height } = stream.display;
    let Some([across, down]) = spec.aspect else { return stream.display };
    let (w, h, a, d) = (u64::from(width), u64::from(height), u64::from(across), u64::from(down));
    let source_is_wider = w * d > h * a;
    let side = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).max(2);
    match spec.fit {
        // Its own shape, inside the box: the box says nothing about the size.
        Fit::Contain => stream.display,
        Fit::Cover if source_is_wider => Size { width: side(h * a / d), height },
        Fit::Cover => Size { width, height: side(w * d / a) },
        Fit::Pad if source_is_wider => Size { width, height: side(w * d / a) },
        Fit::Pad => Size { width: side(h * a / d), height },
    }
}

fn usual_sides(source_side: u32, reasons: &mut Reasons) -> Vec<u32> {
    let below = |side: &u32| f64::from(*side) < f64::from(source_side) * NEARLY_SOURCE;
    let mut sides: Vec<u32> = USUAL_RUNGS.iter().map(|(side, _)| *side).filter(below).collect();
    sides.push(source_side);
    sides.reverse();
    let above = USUAL_RUNGS.iter().filter(|(side, _)| *side > source_side).count();
    if above > 0 {
        let why = format!("the source has {source_side} lines on its short side and is never enlarged");
        reasons.because("ladder", format!("{} of {} usual rungs above", above, USUAL_RUNGS.len()), why);
    }
    sides
}

fn chosen_sides(heights: &[u32], source_side: u32, reasons: &mut Reasons) -> Vec<u32> {
    let mut sides: Vec<u32> = heights.iter().map(|side| even(*side)).collect();
    let above: Vec<u32> = sides.iter().copied().filter(|side| *side > source_side).collect();
    sides.retain(|side| *side <= source_side);
    if !above.is_empty() {
        let told = above.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let why = format!("the source's {source_side} takes the place of {told}: it is never enlarged");
        reasons.because("ladder", format!("without {told}"), why);
        sides.push(source_side);
    }
    sides.sort_unstable_by(|a, b| b.cmp(a));
    sides.dedup();
    sides
}

#[derive(Clone, Copy)]
enum Limit {
    Usual,
    Source,
}

fn kbits_of(side: u32, codec: VideoCodec, source_kbits: Option<u64>) -> (u32, Limit) {
    let usual = usual_kbits(side) * percent_of_h264(codec) / 100;
    let most = source_kbits.map(|kbits| kbits * PERCENT_OF_SOURCE / 100);
    match most.and_then(|most| u32::try_from(most).ok()) {
        Some(most) if most < usual => (most.max(MIN_KBITS), Limit::Source),
        _ => (usual, Limit::Usual),
    }
}

/// In between, by pixels; below and above, in proportion to them.
fn usual_kbits(side: u32) -> u32 {
    let pixels = |side: u32| f64::from(side).powi(2);
    let first = USUAL_RUNGS[0];
    let last = USUAL_RUNGS[USUAL_RUNGS.len() - 1];
    let in_proportion =
        |(known, kbits): (u32, u32)| (f64::from(kbits) * pixels(side) / pixels(known)).round() as u32;
    if side < first.0 {
        return in_proportion(first);
    }
    let pair = USUAL_RUNGS.windows(2).find(|pair| side <= pair[1].0);
    pair.map_or_else(
        || in_proportion(last),
        |pair| {
            let share = (pixels(side) - pixels(pair[0].0)) / (pixels(pair[1].0) - pixels(pair[0].0));
            (f64::from(pair[0].1) + share * f64::from(pair[1].1 - pair[0].1)).round() as u32
        },
    )
}

fn percent_of_h264(codec: VideoCodec) -> u32 {
    match codec {
        VideoCodec::H264 => 100,
        VideoCodec::H265 => 65,
        VideoCodec::Av1 => 55,
    }
}

/// Of the video stream, or what the file leaves it.
fn source_kbits(probe: &Probe, stream: &VideoStream) -> Option<u64> {
    let sound: u64 = probe.audio_streams.iter().filter_map(|audio| audio.bit_rate).sum();
    let left = || probe.bit_rate.map(|all| all.saturating_sub(sound));
    stream.bit_rate.or_else(left).map(|rate| rate / 1000).filter(|kbits| *kbits > 0)
}

/// That short side in this shape. The long side goes to the nearest even number.
fn scaled(shape: Size, side: u32) -> Size {
    let (short, long) = (u64::from(shape.short_side().max(1)), u64::from(shape.long_side()));
    let other = (u64::from(side) * long + short) / (2 * short) * 2;
    let is_source = u64::from(side) == u64::from(even(shape.short_side()));
    // At its own size nothing is resampled, only an odd line is left out.
    let other = if is_source { u64::from(even(shape.long_side())) } else { other };
    let other = u32::try_from(other).unwrap_or(u32::MAX).max(2);
    if shape.width >= shape.height {
        Size { width: other, height: side }
    } else {
        Size { width: side, height: other }
    }
}

/// Colour has half the resolution: sides are even. Rounded down, for nothing is enlarged.
fn even(side: u32) -> u32 {
    (side & !1).max(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_their_shape_and_are_even() {
        let wide = Size { width: 1920, height: 1080 };
        assert_eq!(scaled(wide, 480), Size { width: 854, height: 480 });
        assert_eq!(scaled(Size { width: 1080, height: 1920 }, 720), Size { width: 720, height: 1280 });
        assert_eq!(scaled(Size { width: 641, height: 361 }, 360), Size { width: 640, height: 360 });
    }

    #[test]
    fn bits_follow_pixels_between_the_usual_rungs() {
        assert_eq!(usual_kbits(720), 2_500);
        assert!((2_500..4_500).contains(&usual_kbits(900)));
        assert_eq!(usual_kbits(120), 75);
        assert_eq!(usual_kbits(4320), 64_000);
    }
}
