//! Copy the streams as they are, or encode them.

use serde::{Deserialize, Serialize};

use super::rate::MAX_FPS;
use super::{Reasons, Rung};
use crate::probe::{Probe, Rotation, VideoStream};
use crate::rational::Rational;
use crate::recipe::{Loudness, Trim, VideoCodec, VideoSpec};
use crate::sniff::Format;

/// A copy may have more bits than a rung would get, but not many: somebody pays for them at every viewing.
const COPY_PERCENT: u64 = 150;
/// Level 5.0, as the stream writes it.
const H265_MAX_LEVEL: i32 = 150;

/// What happens to pictures and sound alike: a copy of one beside an encode of the other would not stay together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    Copy,
    Encode,
}

pub(super) fn plan(
    spec: &VideoSpec,
    probe: &Probe,
    stream: &VideoStream,
    rungs: &[Rung],
    reasons: &mut Reasons,
) -> Delivery {
    match obstacle(spec, probe, stream, rungs) {
        None => {
            reasons.because("streams", "copied", "they already are what the recipe asks for");
            Delivery::Copy
        }
        Some(why) => {
            reasons.because("streams", "encoded", why);
            Delivery::Encode
        }
    }
}

/// The first reason why the streams are not taken as they are: what the recipe asks for, what the streams are, or what
/// the rung may cost.
fn obstacle(spec: &VideoSpec, probe: &Probe, stream: &VideoStream, rungs: &[Rung]) -> Option<String> {
    recipe_obstacle(spec, stream, rungs)
        .or_else(|| copy_obstacle(probe))
        .or_else(|| rung_obstacle(probe, stream, rungs))
}

fn recipe_obstacle(spec: &VideoSpec, stream: &VideoStream, rungs: &[Rung]) -> Option<String> {
    let wanted = spec.codec.ffmpeg_name();
    let other_codec = format!("its pictures are {}, not {wanted}", stream.codec);
    let obstacles = [
        (!spec.allow_copy, "the recipe forbids copies"),
        (rungs.len() > 1, "the recipe wants several rungs, which must share one grid of segments"),
        (spec.trim != Trim::default(), "a part is cut out, and not at a keyframe"),
        (spec.watermark.is_some(), "a watermark is laid over it"),
        (spec.aspect.is_some(), "the recipe asks for another shape"),
        (spec.loudness == Loudness::Normalise, "the loudness is to be changed"),
        (spec.crf.is_some(), "the recipe sets the quality"),
        (stream.codec != wanted, other_codec.as_str()),
    ];
    first_standing(&obstacles)
}

fn rung_obstacle(probe: &Probe, stream: &VideoStream, rungs: &[Rung]) -> Option<String> {
    let has_other_size = rungs.first().is_none_or(|rung| rung.size != stream.display);
    let most_kbits = rungs.first().map_or(0, |rung| u64::from(rung.max_kbits) * COPY_PERCENT / 100);
    let kbits = stream.bit_rate.or(probe.bit_rate).map(|rate| rate / 1000);
    let too_many_bits = format!("it has more than {most_kbits} kbit/s");
    first_standing(&[
        (has_other_size, "it has another size than the rung"),
        (kbits.is_none_or(|kbits| kbits > most_kbits), &too_many_bits),
    ])
}

/// Why the streams of a source cannot be put into segments as they are, whatever a recipe asks for; `None` when they
/// can. The plan and the remux both go by this answer, which follows what Apple's authoring rules ask of HLS.
pub fn copy_obstacle(probe: &Probe) -> Option<String> {
    let Some(video) = probe.video() else { return Some("there is no picture".to_owned()) };
    picture_obstacle(probe, video).or_else(|| sound_obstacle(probe))
}

fn picture_obstacle(probe: &Probe, stream: &VideoStream) -> Option<String> {
    let is_h265 = stream.codec == VideoCodec::H265.ffmpeg_name();
    let is_copied = is_h265 || stream.codec == VideoCodec::H264.ffmpeg_name();
    let not_copied = format!("{} is not copied, only H.264 and H.265", stream.codec);
    let not_from = format!("{} is not copied from", probe.format.mime());
    let is_fast = stream.base_fps.is_some_and(|fps| fps.as_f64() > f64::from(MAX_FPS) + 0.01);
    first_standing(&[
        (!is_copied, not_copied.as_str()),
        (stream.pixel_format.as_deref() != Some("yuv420p"), "browsers show only 8-bit 4:2:0"),
        (stream.hdr.is_some(), "it is HDR"),
        (stream.is_interlaced, "it is interlaced"),
        (stream.is_vfr, "its frames come at no one pace"),
        (is_fast, "it has more than 60 frames a second, the most that HLS allows"),
        (stream.rotation != Rotation::Upright, "it must be turned"),
        (stream.sample_aspect != Rational::ONE, "its pixels are not square"),
        (!matches!(probe.format, Format::Mp4 | Format::Matroska | Format::MpegTs), &not_from),
        (
            is_h265 && probe.format == Format::MpegTs,
            "H.265 in a transport stream repeats its parameter sets, which `hvc1` samples may not hold",
        ),
        (
            is_h265 && stream.level.is_none_or(|level| level > H265_MAX_LEVEL),
            "its level of H.265 is above 5.0, the highest that HLS allows",
        ),
    ])
}

fn sound_obstacle(probe: &Probe) -> Option<String> {
    let audio = probe.audio()?;
    let is_plain = audio.codec == "aac" && audio.profile.as_deref().is_none_or(|profile| profile == "LC");
    let other = format!("its sound is {}, not plain AAC", audio.codec);
    first_standing(&[
        (!is_plain, other.as_str()),
        (audio.channels > 2, "its sound has more than two channels"),
    ])
}

fn first_standing(obstacles: &[(bool, &str)]) -> Option<String> {
    obstacles.iter().find(|(stands, _)| *stands).map(|(_, why)| (*why).to_owned())
}
