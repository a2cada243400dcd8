//! `ingest`: fetch, hash, sniff, probe, limits, plan; then everything else there is to do.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::{Value, json};
use telecine_media::{Class, MediaError, Plan, plan, probe_as, sniff_file, with_measured_length};
use telecine_queue::Spawn;

use super::{Attempt, Work};
use crate::cache::{borrow, work_of};
use crate::failure::Attempted;
use crate::film::run_meta;
use crate::graph::Graph;
use crate::recipe::{Does, Recipe};
use crate::records::{INPUT, InputRecord, PlanRecord, SourceAt, WarningRecord};
use crate::source::{Source, take};
use crate::submission::RunMeta;

pub(super) struct Ingest;

#[async_trait]
impl Work for Ingest {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        let meta = run_meta(attempt).await?;
        let input = described(attempt, &meta).await?;
        attempt.leave(INPUT, &input);
        if !meta.fresh && meta.recipe.is_repeatable() {
            let work = work_of(attempt, &input, &meta.recipe).await?;
            if let Some(owner) = borrow(attempt, &work).await? {
                return Ok(json!({ "sha256": input.sha256, "bytes": input.bytes, "borrowed_from": owner }));
            }
        }
        let planned = Planned::of(attempt, &meta.recipe, &input).await?;
        planned.tell(attempt);
        let graph = Graph {
            recipe: &meta.recipe,
            plans: &planned.plans,
            left_out: &planned.left_out,
            priority: attempt.job.priority,
            duration_us: input.probe.as_ref().and_then(|probe| probe.duration_us).unwrap_or(0),
            source_copy_bytes: source_copy_bytes(attempt, &input),
        };
        let jobs = graph.jobs();
        let answer = json!({ "sha256": input.sha256, "bytes": input.bytes, "jobs": jobs.len() });
        attempt.context.spawn(Spawn::jobs(jobs));
        Ok(answer)
    }
}

/// The input with its hash and what is in it; refused where it passes the limits.
async fn described(attempt: &Attempt<'_>, meta: &RunMeta) -> Attempted<InputRecord> {
    let shop = attempt.shop;
    let taken = take(attempt, &meta.input).await?;
    let source = Source::taken(&taken, &shop.blobs, attempt.folder.path()).await?;
    let format = sniff_file(source.path()).await?;
    // FFmpeg reads neither AVIF nor HEIC; libvips looks at their size before it decodes.
    let probe = match probe_as(&shop.toolbox, source.path(), format, &shop.limits, &attempt.cancel).await {
        Ok(probe) if format.class() == Class::Image => Some(probe),
        Ok(probe) => Some(
            with_measured_length(&shop.toolbox, source.path(), probe, &shop.limits, &attempt.cancel).await?,
        ),
        Err(MediaError::BadInput { .. }) if format.class() == Class::Image && format.demuxer().is_none() => {
            None
        }
        Err(error) => return Err(error.into()),
    };
    Ok(InputRecord {
        uri: meta.input.to_string(),
        bytes: taken.bytes,
        sha256: taken.sha256,
        at: taken.at,
        format,
        probe,
    })
}

/// What each job that reads the source copies to its scratch folder first.
fn source_copy_bytes(attempt: &Attempt<'_>, input: &InputRecord) -> u64 {
    match &input.at {
        SourceAt::Blob { key } if attempt.shop.blobs.local_path(key).is_none() => input.bytes,
        SourceAt::Blob { .. } | SourceAt::File { .. } => 0,
    }
}

/// What the steps of a recipe come to for one input.
#[derive(Debug, Default)]
struct Planned {
    plans: BTreeMap<String, Plan>,
    left_out: Vec<String>,
    warnings: Vec<WarningRecord>,
}

impl Planned {
    /// A step that cannot be done fails the run before anything is encoded, unless the recipe can do without it.
    async fn of(attempt: &Attempt<'_>, recipe: &Recipe, input: &InputRecord) -> Attempted<Self> {
        let capabilities = attempt.shop.capabilities(&attempt.cancel).await?;
        let mut planned = Self::default();
        for step in recipe.enabled_steps() {
            if let Some(missing) = step.needs.iter().find(|need| planned.left_out.contains(need)) {
                planned.leave_out(
                    &step.name,
                    "need_left_out",
                    format!("it needs {missing}, which was left out"),
                );
                continue;
            }
            let outcome = match (step.does.media(), &input.probe) {
                (None, _) => continue,
                (Some(wanted), Some(probe)) => plan(&wanted, probe, capabilities),
                (Some(wanted), None) => plan_unread(&wanted, input),
            };
            match outcome {
                Ok(plan) => planned.take(recipe, &step.name, plan),
                Err(error) if !step.required && !error.is_retryable() => {
                    planned.leave_out(&step.name, error.code(), error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(planned)
    }

    fn take(&mut self, recipe: &Recipe, step: &str, plan: Plan) {
        for decision in plan.decisions.iter().filter(|decision| decision.is_warning) {
            let message = format!("{}: {}", decision.choice, decision.reason);
            let code = decision.about.clone().into_owned();
            self.warnings.push(WarningRecord { step: step.to_owned(), code, message });
        }
        let makes_film = recipe.step(step).is_some_and(|step| match step.does {
            Does::Hls(_) => true,
            Does::Mp4(_) => recipe.segments_for(step).is_none(),
            Does::Pictures(_) | Does::Image(_) | Does::Audio(_) | Does::Exec(_) => false,
        });
        if makes_film {
            self.plans.insert(step.to_owned(), plan);
        }
    }

    fn leave_out(&mut self, step: &str, code: &str, message: String) {
        self.left_out.push(step.to_owned());
        self.warnings.push(WarningRecord { step: step.to_owned(), code: code.to_owned(), message });
    }

    fn tell(&self, attempt: &Attempt<'_>) {
        for (step, plan) in &self.plans {
            attempt.leave(step.clone(), &PlanRecord { plan: plan.clone() });
        }
        for warning in &self.warnings {
            attempt.leave(format!("{}/{}", warning.step, warning.code), warning);
        }
    }
}

/// Only pictures of the input itself can be made of a picture that FFmpeg does not read.
fn plan_unread(wanted: &telecine_media::Recipe, input: &InputRecord) -> Result<Plan, MediaError> {
    use telecine_media::{At, InputProblem};
    if wanted.images.is_some()
        && wanted.video.is_none()
        && wanted.pictures.is_none()
        && wanted.audio.is_none()
    {
        return Ok(Plan::default());
    }
    let detail = format!("a {} picture has neither film nor sound", input.format.mime());
    let at = At { step: "plan".into(), detail, stderr_tail: String::new() };
    Err(MediaError::BadInput { problem: InputProblem::NoSuchStream, at: Box::new(at) })
}
