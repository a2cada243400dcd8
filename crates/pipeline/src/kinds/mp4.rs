//! `mp4`: one file that plays while it loads, joined from the segments of a film's best rung.

use async_trait::async_trait;
use serde_json::{Value, json};
use telecine_media::progressive_from_segments;

use super::{Attempt, StepPayload, Work};
use crate::blobs::hash_file;
use crate::failure::{Attempted, Failed};
use crate::film::{Film, OFFSET};
use crate::records::OutputRecord;

pub(super) struct Mp4;

const NAME: &str = "video.mp4";

#[async_trait]
impl Work for Mp4 {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        let StepPayload { step } = attempt.payload()?;
        let meta = attempt.meta().await?;
        let wanted = meta.recipe.step(&step).ok_or_else(|| Failed::unexpected("the step is gone"))?;
        let segments_of = meta.recipe.segments_for(wanted).map_or(&step, |other| &other.name);
        let film = Film::read(attempt, segments_of).await?.of_best_rung();
        let local = film.localise(attempt).await?;
        let verified = film.verify(attempt, segments_of, &local).await?;
        attempt.context.progress(0.5);
        let video = local.rungs.first().ok_or_else(|| {
            Failed::for_good(
                "input_no_such_stream",
                "the input has no picture, so there is no video to make",
                "use a recipe for sound",
            )
        })?;
        let folder = attempt.subfolder("joined")?;
        let (toolbox, cancel) = (&attempt.toolbox, &attempt.cancel);
        let made =
            progressive_from_segments(toolbox, video, local.sound.as_ref(), OFFSET, &folder, cancel).await?;
        if made.frames != verified.frames {
            let message = format!("{} frames were joined, and the film has {}", made.frames, verified.frames);
            return Err(Failed::for_now("verification_failed", message, "see the worker's log"));
        }
        let (sha256, _) = hash_file(&made.path).await?;
        let file = attempt.store(&step, NAME, &made.path, made.bytes, &sha256).await?;
        let facts = json!({ "duration_us": made.duration_us, "frames": made.frames });
        let output = OutputRecord {
            name: step.clone(),
            kind: "mp4".into(),
            step: step.clone(),
            main: NAME.into(),
            files: vec![file],
            facts,
        };
        attempt.leave_output(step, &output);
        Ok(json!({ "bytes": made.bytes }))
    }
}
