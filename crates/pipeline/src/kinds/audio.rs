//! `audio`: renditions of a sound, its loudness and its waveform.

use async_trait::async_trait;
use serde_json::{Value, json};
use telecine_media::make_audio;

use super::{Attempt, StepPayload, Work};
use crate::failure::{Attempted, Failed};
use crate::recipe::Does;
use crate::records::OutputRecord;

pub(super) struct Audio;

#[async_trait]
impl Work for Audio {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        let StepPayload { step } = attempt.payload()?;
        let meta = attempt.meta().await?;
        let Some(Does::Audio(spec)) = meta.recipe.step(&step).map(|step| &step.does) else {
            return Err(Failed::unexpected("the step makes no sound"));
        };
        let (input, source) = attempt.input().await?;
        let probe = input.probe.ok_or_else(|| Failed::unexpected("the input was not probed"))?;
        let folder = attempt.subfolder("sound")?;
        let (shop, cancel) = (attempt.shop, &attempt.cancel);
        let made = make_audio(&attempt.toolbox, source.path(), &probe, spec, &shop.limits, &folder, cancel);
        let made = Box::pin(made).await?;
        let (mut files, mut renditions) = (Vec::new(), Vec::new());
        for rendition in &made.renditions {
            let file = attempt.store_named(&step, &rendition.path).await?;
            renditions.push(json!({
                "path": file.path, "codec": rendition.codec, "kbits": rendition.kbits, "channels": rendition.channels,
            }));
            files.push(file);
        }
        if let Some(waveform) = &made.waveform {
            files.push(attempt.store_named(&step, waveform).await?);
        }
        let main = files.first().map(|file| file.path.clone());
        let main = main.ok_or_else(|| Failed::unexpected("nothing was made"))?;
        let facts =
            json!({ "duration_us": made.duration_us, "loudness": made.loudness, "renditions": renditions });
        let answer = json!({ "renditions": files.len(), "loudness": made.loudness });
        let output =
            OutputRecord { name: step.clone(), kind: "audio".into(), step: step.clone(), main, files, facts };
        attempt.leave_output(step, &output);
        Ok(answer)
    }
}
