//! `pictures`: poster, storyboard, preview, scene cuts and frames of a video, out of one decode; each may fail alone.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde_json::{Value, json};
use telecine_media::{MediaError, Pictures, make_pictures};

use super::{Attempt, StepPayload, Work};
use crate::failure::{Attempted, Failed};
use crate::recipe::Does;
use crate::records::{OutputRecord, WarningRecord};

pub(super) struct PicturesOfVideo;

/// One thing that was asked for, and what came of it.
struct Part {
    name: &'static str,
    made: Result<Made, MediaError>,
}

/// Files, the one to begin with first, and what is worth knowing of them.
struct Made {
    files: Vec<PathBuf>,
    facts: Value,
}

#[async_trait]
impl Work for PicturesOfVideo {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        let StepPayload { step } = attempt.payload()?;
        let meta = attempt.meta().await?;
        let Some(Does::Pictures(spec)) = meta.recipe.step(&step).map(|step| &step.does) else {
            return Err(Failed::unexpected("the step makes no pictures"));
        };
        let (input, source) = attempt.input().await?;
        let probe = input.probe.ok_or_else(|| Failed::unexpected("the input was not probed"))?;
        let folder = attempt.subfolder("pictures")?;
        let (shop, cancel) = (attempt.shop, &attempt.cancel);
        let made =
            make_pictures(&attempt.toolbox, source.path(), &probe, spec, &shop.limits, &folder, cancel);
        let parts = parts_of(Box::pin(made).await?, &folder).await?;
        publish(attempt, &step, parts).await
    }
}

/// What was made is published whatever became of the rest; the first failure is the job's.
async fn publish(attempt: &Attempt<'_>, step: &str, parts: Vec<Part>) -> Attempted<Value> {
    let (mut made, mut failed) = (Vec::new(), None);
    for part in parts {
        match part.made {
            Ok(files) => {
                leave_output(attempt, step, part.name, files).await?;
                made.push(part.name);
            }
            Err(error) => {
                let code = format!("{}_failed", part.name);
                let warning =
                    WarningRecord { step: step.to_owned(), code: code.clone(), message: error.to_string() };
                attempt.leave(format!("{step}/{code}"), &warning);
                let error = Failed::from(error);
                failed
                    .get_or_insert(Failed { message: format!("{}: {}", part.name, error.message), ..error });
            }
        }
    }
    match failed {
        None => Ok(json!({ "made": made })),
        Some(failed) => Err(failed),
    }
}

async fn leave_output(attempt: &Attempt<'_>, step: &str, name: &str, made: Made) -> Attempted<()> {
    let mut files = Vec::with_capacity(made.files.len());
    for file in &made.files {
        files.push(attempt.store_named(step, file).await?);
    }
    let main = files.first().map(|file| file.path.clone()).unwrap_or_default();
    let output = OutputRecord {
        name: name.to_owned(),
        kind: name.to_owned(),
        step: step.to_owned(),
        main,
        files,
        facts: made.facts,
    };
    attempt.leave_output(format!("{step}/{name}"), &output);
    Ok(())
}

async fn parts_of(pictures: Pictures, folder: &Path) -> Attempted<Vec<Part>> {
    let mut parts = Vec::new();
    let mut add = |name, made| parts.push(Part { name, made });
    if let Some(poster) = pictures.poster {
        add("poster", poster.map(|poster| Made {
            facts: json!({
                "width": poster.width, "height": poster.height, "at_us": poster.at_us, "is_black": poster.is_black,
            }),
            files: vec![poster.path],
        }));
    }
    if let Some(storyboard) = pictures.storyboard {
        add(
            "storyboard",
            storyboard.map(|board| Made {
                facts: json!({ "tiles": board.tiles.len(), "sprites": board.sprites.len() }),
                files: std::iter::once(board.vtt).chain(board.sprites).collect(),
            }),
        );
    }
    if let Some(preview) = pictures.preview {
        add(
            "preview",
            preview.map(|preview| Made {
                facts: json!({ "width": preview.width, "height": preview.height, "frames": preview.frames }),
                files: vec![preview.path],
            }),
        );
    }
    if let Some(frames) = pictures.frames {
        add(
            "frames",
            frames.map(|frames| Made {
                facts: json!({ "at_us": frames.iter().map(|frame| frame.at_us).collect::<Vec<_>>() }),
                files: frames.into_iter().map(|frame| frame.path).collect(),
            }),
        );
    }
    if let Some(scenes) = pictures.scenes {
        let made = match scenes {
            Ok(cuts) => {
                let list = folder.join("scenes.json");
                let text = json!({ "cuts": cuts }).to_string();
                let written = tokio::fs::write(&list, text).await;
                written
                    .map_err(|error| crate::failure::scratch_failed("a list cannot be written", &error))?;
                Ok(Made { files: vec![list], facts: json!({ "cuts": cuts.len() }) })
            }
            Err(error) => Err(error),
        };
        parts.push(Part { name: "scenes", made });
    }
    Ok(parts)
}
