//! `remux`: a source that already fits is copied into segments; one that turns out not to fit is encoded after all.

use async_trait::async_trait;
use serde_json::{Value, json};
use telecine_media::{Plan, Remux, RemuxSpec, Remuxed, plan, remux_to_segments};
use telecine_queue::{Job, JobState, OnFailed, Spawn};

use super::{Attempt, PLAYABLE, StepPayload, Work};
use crate::document::jobs_of_run;
use crate::failure::{Attempted, Failed};
use crate::film::{OFFSET, channels_of, seconds_of_segment, store_sound};
use crate::graph::{Graph, opening};
use crate::keys;
use crate::records::{InputRecord, PlanRecord, RungSegment, SegmentRecord, SoundRecord, segment_key};

pub(super) struct Remuxing;

#[async_trait]
impl Work for Remuxing {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        let StepPayload { step } = attempt.payload()?;
        let PlanRecord { plan } = attempt.read(&step).await?;
        let (input, source) = attempt.input().await?;
        let probe = input.probe.as_ref().ok_or_else(|| Failed::unexpected("the input was not probed"))?;
        let folder = attempt.subfolder("copy")?;
        let spec = RemuxSpec {
            source: source.path(),
            probe,
            limits: &attempt.shop.limits,
            segment_seconds: seconds_of_segment(attempt, &step).await?,
            offset: OFFSET,
            folder: &folder,
        };
        match remux_to_segments(&attempt.toolbox, &spec, &attempt.cancel).await? {
            Remux::Done(made) => store(attempt, &step, &plan, *made).await,
            Remux::Unfit(why) => encode_instead(attempt, &step, &input, why).await,
        }
    }
}

async fn store(attempt: &Attempt<'_>, step: &str, plan: &Plan, made: Remuxed) -> Attempted<Value> {
    let rung = plan.video.as_ref().and_then(|video| video.rungs.first());
    let rung = &rung.ok_or_else(|| Failed::unexpected("the plan has no rung"))?.name;
    let init = attempt.store_hashed(step, &made.video.init, |sha256| keys::init_path(rung, sha256)).await?;
    for (number, (file, frames)) in made.video.segments.iter().zip(&made.segment_frames).enumerate() {
        let segment = u32::try_from(number).unwrap_or(u32::MAX);
        let path = |sha256: &str| keys::segment_path(rung, segment, sha256, "m4s");
        let file = attempt.store_hashed(step, file, path).await?;
        let files = vec![RungSegment {
            rung: rung.clone(),
            codec: made.video_track.codec.clone(),
            file,
            init: init.clone(),
        }];
        let record =
            SegmentRecord { step: step.to_owned(), segment, frames: *frames, damaged_frames: 0, files };
        attempt.leave(segment_key(step, segment), &record);
    }
    if let (Some(audio), Some(track)) = (&made.audio, made.audio_track) {
        let (init, segments) = store_sound(attempt, step, &audio.init, &audio.segments).await?;
        let sound = SoundRecord {
            init,
            segments,
            facts: made.audio_facts,
            codec: track.codec,
            timescale: track.timescale,
            channels: channels_of(track.kind),
            loudness: None,
            damaged_us: 0,
        };
        attempt.leave(step, &sound);
    }
    Ok(json!({ "copied": made.segment_frames.len() }))
}

/// Only its packets told that the source cannot be copied: the encoders take this job's place before whoever waits.
async fn encode_instead(
    attempt: &Attempt<'_>,
    step: &str,
    input: &InputRecord,
    why: String,
) -> Attempted<Value> {
    let meta = attempt.meta().await?;
    let wanted = meta.recipe.step(step).ok_or_else(|| Failed::unexpected("the step is gone"))?;
    let mut recipe = wanted.does.media().ok_or_else(|| Failed::unexpected("the step makes no film"))?;
    if let Some(video) = &mut recipe.video {
        video.allow_copy = false;
    }
    let probe = input.probe.as_ref().ok_or_else(|| Failed::unexpected("the input was not probed"))?;
    let plan = plan(&recipe, probe, attempt.shop.capabilities(&attempt.cancel).await?)?;
    attempt.leave(step, &PlanRecord { plan: plan.clone() });
    tracing::info!(run.id = %attempt.run, step, why, "the source cannot be copied after all");
    let graph = Graph {
        recipe: &meta.recipe,
        plans: &Default::default(),
        left_out: &[],
        priority: attempt.job.priority,
        probe: Some(probe),
        source_bytes: input.bytes,
        publishes: false,
        store_is_remote: attempt.shop.store_is_remote(input),
    };
    let makers = graph.encoders(wanted, &plan);
    let openers = opening(&makers);
    let (jobs, waiting) = (makers.into_iter().map(|(job, _)| job), who_waits(attempt, step).await?);
    let mut spawn = Spawn::jobs(jobs);
    for waits in waiting {
        // Who tells that the film can be played waits for its beginning alone.
        let awaited = if waits.kind == PLAYABLE { openers } else { spawn.jobs.len() };
        spawn = (0..awaited).fold(spawn, |spawn, nth| spawn.before(waits.id, nth, OnFailed::Skip));
    }
    attempt.context.spawn(spawn);
    Ok(json!({ "encoded_instead": why }))
}

/// The jobs of the step that wait for this one: who joins the film, and who tells that it can be played.
async fn who_waits(attempt: &Attempt<'_>, step: &str) -> Attempted<Vec<Job>> {
    let mut waiting = jobs_of_run(&*attempt.shop.queue, attempt.run, &[JobState::Waiting]).await?;
    waiting.retain(|job| job.payload["step"] == step);
    if waiting.iter().any(|job| job.kind != PLAYABLE) {
        return Ok(waiting);
    }
    Err(Failed::unexpected("nobody waits for the film"))
}
