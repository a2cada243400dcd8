//! What the steps of a recipe come to for one input: decided before anything is decoded.

use std::collections::BTreeMap;
use std::path::Path;

use telecine_media::{
    At, Capabilities, Class, Format, InputProblem, Limits, MediaError, Plan, Probe, Toolbox, plan, probe_as,
    sniff_file, with_measured_length,
};
use telecine_queue::NewJob;
use tokio_util::sync::CancellationToken;

use crate::graph::Graph;
use crate::kinds::{NoProgram, find_program};
use crate::media_type::{MediaType, any_of};
use crate::recipe::{Does, Recipe, Step};
use crate::records::WarningRecord;

/// What a file is and what is in it; refused where it passes the limits. Of pictures that FFmpeg does not read (AVIF, HEIC,
/// WebP that moves) there may be no probe: libvips looks at their size before it decodes.
pub async fn examine(
    toolbox: &Toolbox,
    file: &Path,
    limits: &Limits,
    cancel: &CancellationToken,
) -> Result<(Format, Option<Probe>), MediaError> {
    let format = sniff_file(file).await?;
    let is_picture = format.class() == Class::Image;
    let probe = match probe_as(toolbox, file, format, limits, cancel).await {
        Ok(probe) if is_picture => Some(probe),
        Ok(probe) => Some(with_measured_length(toolbox, file, probe, limits, cancel).await?),
        Err(MediaError::BadInput { .. }) if is_picture && format.demuxer().is_none() => None,
        // FFmpeg 5.1 finds nothing in a WebP that moves, and says the same of a broken one, which libvips then refuses.
        Err(MediaError::BadInput { problem: InputProblem::Corrupt, .. }) if format == Format::Webp => None,
        Err(error) => return Err(error),
    };
    Ok((format, probe))
}

/// The plans of a recipe's steps, and what had to be left out.
#[derive(Debug, Default)]
pub struct Planned {
    /// Of the steps that make a film, by name.
    pub plans: BTreeMap<String, Plan>,
    /// Steps that are for other inputs, and optional ones that this one cannot give, by name.
    pub left_out: Vec<String>,
    /// Why the input could not give them, and what else is lost.
    pub warnings: Vec<WarningRecord>,
}

/// Nothing can be done with this input.
#[derive(Debug, thiserror::Error)]
pub enum CannotPlan {
    /// A required step cannot be done.
    #[error("step `{step}`")]
    Step { step: String, source: Obstacle },
    /// Every step of the recipe is for other inputs.
    #[error("the recipe `{recipe}` takes {takes}, and the input is {}", media.map_or("none of them", MediaType::as_str))]
    NoStepFits { recipe: String, takes: String, media: Option<MediaType> },
}

/// Why a step cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum Obstacle {
    #[error(transparent)]
    Media(#[from] MediaError),
    /// The step runs a program that is not here.
    #[error(transparent)]
    NoProgram(#[from] NoProgram),
}

impl Obstacle {
    /// A stable word for APIs, logs and tests.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Media(error) => error.code(),
            Self::NoProgram(_) => NoProgram::CODE,
        }
    }

    /// Whether the same may go better next time.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Media(error) => error.is_retryable(),
            Self::NoProgram(_) => false,
        }
    }
}

impl Planned {
    /// A step that cannot be done fails the run before anything is encoded, unless the recipe can do without it.
    ///
    /// There is no `probe` of pictures that FFmpeg does not read.
    pub fn of(
        recipe: &Recipe,
        format: Format,
        probe: Option<&Probe>,
        capabilities: &Capabilities,
    ) -> Result<Self, CannotPlan> {
        let media = MediaType::of(format, probe);
        let has_steps = recipe.enabled_steps().next().is_some();
        if has_steps && recipe.fitting_steps(media).next().is_none() {
            let taken = |media: &MediaType| recipe.fitting_steps(Some(*media)).next().is_some();
            let takes: Vec<MediaType> = MediaType::ALL.into_iter().filter(taken).collect();
            return Err(CannotPlan::NoStepFits { recipe: recipe.name.clone(), takes: any_of(&takes), media });
        }
        let mut planned = Self::default();
        for step in recipe.enabled_steps() {
            if !step.fits(media) {
                planned.left_out.push(step.name.clone());
                continue;
            }
            if let Some(missing) = step.needs.iter().find(|need| planned.left_out.contains(need)) {
                let message = format!("it needs {missing}, which was left out");
                planned.leave_out(&step.name, "need_left_out", message);
                continue;
            }
            match plan_step(recipe, step, format, probe, capabilities) {
                Ok(Some(plan)) => planned.take(&step.name, plan),
                Ok(None) => {}
                Err(error) if !step.required && !error.is_retryable() => {
                    planned.leave_out(&step.name, error.code(), error.to_string());
                }
                Err(source) => return Err(CannotPlan::Step { step: step.name.clone(), source }),
            }
        }
        Ok(planned)
    }

    /// The jobs that a run of it would have after `ingest`, where the store is a folder.
    pub fn jobs(&self, recipe: &Recipe, probe: Option<&Probe>, priority: u8) -> Vec<NewJob> {
        let graph = Graph {
            recipe,
            plans: &self.plans,
            left_out: &self.left_out,
            priority,
            probe,
            source_bytes: probe.map_or(0, |probe| probe.file_bytes),
            store_is_remote: false,
            publishes: false,
        };
        graph.jobs()
    }

    fn take(&mut self, step: &str, plan: Plan) {
        for decision in plan.decisions.iter().filter(|decision| decision.is_warning) {
            let message = format!("{}: {}", decision.choice, decision.reason);
            let code = decision.about.clone().into_owned();
            self.warnings.push(WarningRecord { step: step.to_owned(), code, message });
        }
        self.plans.insert(step.to_owned(), plan);
    }

    fn leave_out(&mut self, step: &str, code: &str, message: String) {
        self.left_out.push(step.to_owned());
        self.warnings.push(WarningRecord { step: step.to_owned(), code: code.to_owned(), message });
    }
}

/// The plan of a step that makes a film. Of others, whether the input has what they are made of.
fn plan_step(
    recipe: &Recipe,
    step: &Step,
    format: Format,
    probe: Option<&Probe>,
    capabilities: &Capabilities,
) -> Result<Option<Plan>, Obstacle> {
    let is_picture = format.class() == Class::Image;
    let has_film = !is_picture && probe.is_some_and(|probe| probe.video().is_some());
    let has_sound = !is_picture && probe.is_some_and(|probe| probe.audio().is_some());
    let wanted = match &step.does {
        Does::Exec(spec) => {
            find_program(&spec.command)?;
            return Ok(None);
        }
        Does::Image(_) if is_picture => return Ok(None),
        Does::Audio(_) if has_sound => return Ok(None),
        Does::Pictures(_) if has_film => return Ok(None),
        Does::Mp4(_) if has_film && recipe.segments_for(step).is_some() => return Ok(None),
        Does::Image(_) => {
            return Err(no_such_stream("the input is no picture; the step makes pictures of one"));
        }
        Does::Audio(_) => return Err(no_such_stream("the input has no sound")),
        Does::Pictures(_) | Does::Mp4(_) if !has_film => return Err(no_such_stream("the input has no film")),
        Does::Hls(_) if !has_film && !has_sound => {
            return Err(no_such_stream("the input has neither film nor sound"));
        }
        Does::Pictures(_) | Does::Mp4(_) | Does::Hls(_) => step.does.media(),
    };
    let (Some(wanted), Some(probe)) = (wanted, probe) else { return Ok(None) };
    Ok(Some(plan(&wanted, probe, capabilities)?))
}

fn no_such_stream(detail: &str) -> Obstacle {
    let at = At { step: "plan".into(), detail: detail.to_owned(), stderr_tail: String::new() };
    MediaError::BadInput { problem: InputProblem::NoSuchStream, at: Box::new(at) }.into()
}
