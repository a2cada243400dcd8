//! Copy the streams as they are, or encode them.

use serde::{Deserialize, Serialize};

use super::{Reasons, Rung};
use crate::probe::{Probe, Rotation, VideoStream};
use crate::rational::Rational;
use crate::recipe::{Loudness, Trim, VideoCodec, VideoSpec};
use crate::sniff::Format;

/// A copy may have more bits than a rung would get, but not many: somebody pays for them at every viewing.
const COPY_PERCENT: u64 = 150;

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

/// The first reason why the streams cannot be taken as they are.
fn obstacle(spec: &VideoSpec, probe: &Probe, stream: &VideoStream, rungs: &[Rung]) -> Option<String> {
    recipe_obstacle(spec, rungs)
        .or_else(|| picture_obstacle(spec, probe, stream, rungs))
        .or_else(|| sound_obstacle(probe))
}

fn recipe_obstacle(spec: &VideoSpec, rungs: &[Rung]) -> Option<String> {
    let obstacles = [
        (!spec.allow_copy, "the recipe forbids copies"),
        (rungs.len() > 1, "the recipe wants several rungs, which must share one grid of segments"),
        (spec.trim != Trim::default(), "a part is cut out, and not at a keyframe"),
        (spec.watermark.is_some(), "a watermark is laid over it"),
        (spec.aspect.is_some(), "the recipe asks for another shape"),
        (spec.loudness == Loudness::Normalise, "the loudness is to be changed"),
        (spec.crf.is_some(), "the recipe sets the quality"),
    ];
    obstacles.into_iter().find(|(stands, _)| *stands).map(|(_, why)| why.to_owned())
}

fn picture_obstacle(spec: &VideoSpec, probe: &Probe, stream: &VideoStream, rungs: &[Rung]) -> Option<String> {
    let wanted = match spec.codec {
        VideoCodec::H264 => "h264",
        VideoCodec::H265 => "hevc",
        VideoCodec::Av1 => "av1",
    };
    let has_other_size = rungs.first().is_none_or(|rung| rung.size != stream.display);
    let most_kbits = rungs.first().map_or(0, |rung| u64::from(rung.max_kbits) * COPY_PERCENT / 100);
    let kbits = stream.bit_rate.or(probe.bit_rate).map(|rate| rate / 1000);
    let has_index = matches!(probe.format, Format::Mp4 | Format::Matroska);
    let obstacles = [
        (stream.codec != wanted, format!("its pictures are {}, not {wanted}", stream.codec)),
        (stream.pixel_format.as_deref() != Some("yuv420p"), "browsers show only 8-bit 4:2:0".into()),
        (stream.hdr.is_some(), "it is HDR".into()),
        (stream.is_interlaced, "it is interlaced".into()),
        (stream.is_vfr, "its frames come at no one pace".into()),
        (stream.rotation != Rotation::Upright, "it must be turned".into()),
        (stream.sample_aspect != Rational::ONE, "its pixels are not square".into()),
        (has_other_size, "it has another size than the rung".into()),
        (!has_index, format!("{} is not copied from", probe.format.mime())),
        (kbits.is_none_or(|kbits| kbits > most_kbits), format!("it has more than {most_kbits} kbit/s")),
    ];
    obstacles.into_iter().find(|(stands, _)| *stands).map(|(_, why)| why)
}

fn sound_obstacle(probe: &Probe) -> Option<String> {
    let audio = probe.audio()?;
    let is_plain = audio.codec == "aac" && audio.profile.as_deref().is_none_or(|profile| profile == "LC");
    if !is_plain {
        return Some(format!("its sound is {}, not plain AAC", audio.codec));
    }
    (audio.channels > 2).then(|| "its sound has more than two channels".to_owned())
}
