//! `encode_audio`: the sound of a film, once and whole, cut at the film's boundaries.

use async_trait::async_trait;
use serde_json::{Value, json};
use telecine_media::{
    Channels, Loudness, Plan, Probe, Rational, Soundtrack, SoundtrackSpec, make_soundtrack,
};

use super::{Attempt, StepPayload, Work};
use crate::failure::{Attempted, Failed};
use crate::film::{OFFSET, channels_of, seconds_of_segment, store_sound};
use crate::records::{PlanRecord, SoundRecord};

pub(super) struct EncodeAudio;

#[async_trait]
impl Work for EncodeAudio {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        let StepPayload { step } = attempt.payload()?;
        let PlanRecord { plan } = attempt.read(&step).await?;
        let (input, source) = attempt.input().await?;
        let probe = input.probe.ok_or_else(|| Failed::unexpected("the input was not probed"))?;
        let folder = attempt.subfolder("sound")?;
        let made = make(attempt, &plan, &step, &probe, source.path(), &folder).await?;
        let (init, segments) = store_sound(attempt, &step, &made.init, &made.segments).await?;
        let sound = SoundRecord {
            init,
            segments,
            facts: made.facts,
            codec: made.track.codec,
            timescale: made.track.timescale,
            channels: channels_of(made.track.kind),
            loudness: Some(made.source_loudness),
            damaged_us: made.damaged_us,
        };
        let answer = json!({ "segments": sound.segments.len(), "loudness": sound.loudness });
        attempt.leave(step, &sound);
        Ok(answer)
    }
}

async fn make(
    attempt: &Attempt<'_>,
    plan: &Plan,
    step: &str,
    probe: &Probe,
    source: &std::path::Path,
    folder: &std::path::Path,
) -> Attempted<Soundtrack> {
    let sound = plan.sound.as_ref().ok_or_else(|| Failed::unexpected("the plan has no sound"))?;
    let out_of_range = || Failed::unexpected("a time of the plan is out of range");
    let microseconds = |us: u64| i64::try_from(us).ok().and_then(|us| Rational::new(us, 1_000_000));
    let (duration, boundaries) = match &plan.video {
        Some(video) => {
            let at = |frame: u64| {
                let frame = i64::try_from(frame).ok()?.checked_mul(video.timeline.fps.den())?;
                Rational::new(frame, video.timeline.fps.num())
            };
            let starts = (1..video.grid.segments).map(|segment| at(video.grid.first_frame(segment)));
            (at(video.timeline.frames), starts.collect::<Option<Vec<_>>>())
        }
        None => {
            let length_us = u64::from(seconds_of_segment(attempt, step).await?) * 1_000_000;
            let starts = (1..).map(|n| n * length_us).take_while(|at| *at < sound.duration_us);
            (microseconds(sound.duration_us), starts.map(microseconds).collect())
        }
    };
    let spec = SoundtrackSpec {
        source,
        probe,
        limits: &attempt.shop.limits,
        codec: sound.codec,
        kbits: sound.kbits,
        channels: Channels::Stereo,
        loudness: if sound.target_lufs.is_some() { Loudness::Normalise } else { Loudness::Keep },
        zero_us: u64::try_from(sound.origin_us).unwrap_or(0),
        duration: duration.ok_or_else(out_of_range)?,
        offset: OFFSET,
        boundaries: &boundaries.ok_or_else(out_of_range)?,
        folder,
    };
    let total_us = sound.duration_us.max(1) as f64;
    let on_progress = |progress: telecine_media::Progress| {
        attempt.context.progress(progress.out_time_us as f64 / total_us);
    };
    Ok(make_soundtrack(&attempt.toolbox, &spec, &on_progress, &attempt.cancel).await?)
}
