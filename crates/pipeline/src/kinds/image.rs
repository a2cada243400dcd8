//! `image`: every variant of a picture, from one decode.

use async_trait::async_trait;
use serde_json::{Value, json};
use telecine_media::{ImageOutput, make_images};

use super::{Attempt, StepPayload, Work};
use crate::failure::{Attempted, Failed};
use crate::recipe::Does;
use crate::records::OutputRecord;

pub(super) struct Image;

#[async_trait]
impl Work for Image {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        let StepPayload { step } = attempt.payload()?;
        let meta = attempt.meta().await?;
        let Some(Does::Image(spec)) = meta.recipe.step(&step).map(|step| &step.does) else {
            return Err(Failed::unexpected("the step makes no images"));
        };
        let (input, source) = attempt.input().await?;
        let folder = attempt.subfolder("variants")?;
        let (shop, cancel) = (attempt.shop, &attempt.cancel);
        let made =
            make_images(&attempt.toolbox, source.path(), input.format, spec, &shop.limits, &folder, cancel);
        let made = Box::pin(made).await?;
        let (mut files, mut variants) = (Vec::new(), Vec::new());
        for output in &made.outputs {
            let name = name_of(output);
            variants.push(json!({
                "path": name, "format": output.format, "width": output.width, "height": output.height, "frames": output.frames,
            }));
            files.push(attempt.store(&step, &name, &output.path, output.bytes, &output.sha256).await?);
        }
        let main = files.last().map(|file| file.path.clone());
        let main = main.ok_or_else(|| Failed::unexpected("no variant was made"))?;
        let facts = json!({
            "width": made.source_width, "height": made.source_height, "frames": made.source_frames,
            "has_alpha": made.has_alpha, "thumbhash": made.thumbhash, "variants": variants,
        });
        let answer = json!({ "variants": files.len() });
        let output =
            OutputRecord { name: step.clone(), kind: "image".into(), step: step.clone(), main, files, facts };
        attempt.leave_output(step, &output);
        Ok(answer)
    }
}

/// `0-1280x720.webp`: the variant's place among those of the recipe, and its size as it came out.
fn name_of(output: &ImageOutput) -> String {
    format!("{}-{}x{}.{}", output.variant, output.width, output.height, output.format.extension())
}

/// The place of a variant, by the name of its file.
pub(crate) fn variant_of(name: &str) -> Option<usize> {
    name.split_once('-')?.0.parse().ok()
}
