//! The sound that goes with the video: made once, whole, never in pieces.

use serde::{Deserialize, Serialize};

use super::{Delivery, Reasons, Timeline, refusal};
use crate::error::{InputProblem, Result};
use crate::loudness::TARGET_LUFS;
use crate::probe::{AudioStream, Probe};
use crate::recipe::{AudioCodec, Loudness, VideoSpec};
use crate::soundtrack;

/// What every browser's mixer runs at.
const SAMPLE_RATE: u32 = 48_000;
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SoundPlan {
    /// FFmpeg's `0:stream_index`.
    pub stream_index: u32,
    pub delivery: Delivery,
    pub codec: AudioCodec,
    pub kbits: u32,
    pub channels: u32,
    pub sample_rate: u32,
    /// Normalise to so many LUFS; `None` keeps it as loud as it is.
    pub target_lufs: Option<i32>,
    /// The source time at which the output begins, counted from the container's start. Sound that begins later is
    /// preceded by silence.
    pub origin_us: i64,
    /// As long as the pictures.
    pub duration_us: u64,
}

pub(super) fn plan(
    spec: &VideoSpec,
    probe: &Probe,
    timeline: &Timeline,
    delivery: Delivery,
    reasons: &mut Reasons,
) -> Option<SoundPlan> {
    let Some(stream) = probe.audio() else {
        reasons.because("sound", "none", "the source has none");
        return None;
    };
    Some(of(spec, stream, delivery, (timeline.origin_us, timeline.duration_us()), reasons))
}

/// For a source without pictures.
pub(super) fn plan_alone(spec: &VideoSpec, probe: &Probe, reasons: &mut Reasons) -> Result<SoundPlan> {
    let missing = |what: &str| refusal(InputProblem::NoSuchStream, what);
    let stream = probe.audio().ok_or_else(|| missing("no sound"))?;
    let whole_us = probe
        .duration_us
        .or(stream.duration_us)
        .ok_or_else(|| refusal(InputProblem::Unsupported, "nobody says how long it plays"))?;
    let start_us = spec.trim.start_ms.saturating_mul(1000);
    let end_us = spec.trim.end_ms.map_or(whole_us, |ms| ms.saturating_mul(1000)).min(whole_us);
    if start_us >= end_us {
        return Err(missing("it ends before the part that was asked for"));
    }
    let origin_us = i64::try_from(start_us).unwrap_or(i64::MAX);
    Ok(of(spec, stream, Delivery::Encode, (origin_us, end_us - start_us), reasons))
}

fn of(
    spec: &VideoSpec,
    stream: &AudioStream,
    delivery: Delivery,
    (origin_us, duration_us): (i64, u64),
    reasons: &mut Reasons,
) -> SoundPlan {
    let channels = stream.channels.min(2);
    let kbits = if channels == 1 { 80 } else { 128 };
    let target_lufs = match spec.loudness {
        Loudness::Keep => None,
        Loudness::Normalise => Some(TARGET_LUFS),
    };
    match delivery {
        Delivery::Copy => reasons.because("sound", "copied", "pictures and sound are copied together"),
        Delivery::Encode => {
            reasons.require_all(soundtrack::pieces(AudioCodec::Aac, spec.loudness));
            let why = match stream.channels {
                1 | 2 => "every player has it; encoded once, so that no joint is heard".to_owned(),
                more => format!("every player has it; {more} channels are mixed down"),
            };
            reasons.because("sound", format!("AAC, {channels} channels, {kbits} kbit/s"), why);
        }
    }
    if let Some(lufs) = target_lufs {
        reasons.because("loudness", format!("{lufs} LUFS"), "the recipe asks for it");
    }
    SoundPlan {
        stream_index: stream.index,
        delivery,
        codec: AudioCodec::Aac,
        kbits,
        channels,
        sample_rate: SAMPLE_RATE,
        target_lufs,
        origin_us,
        duration_us,
    }
}
