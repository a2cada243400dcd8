//! What a run would do, and why: drawn before anything is decoded.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use telecine_media::{
    Capabilities, DecodeInputs, DecodeSpan, Delivery, Format, Limits, Plan, Probe, VideoPlan,
};
use telecine_queue::{Needed, NewJob};
use tokio_util::sync::CancellationToken;

use crate::failure::Failed;
use crate::graph::film_bytes;
use crate::input::Input;
use crate::media_type::any_of;
use crate::planned::{CannotPlan, Planned, examine};
use crate::recipe::{Does, Recipe, Step};
use crate::records::WarningRecord;
use crate::scan::ScanPolicy;
use crate::source::{Readers, peek};
use crate::workshop::Workshop;

/// The priority of a run that asks for none.
const USUAL_PRIORITY: u8 = 50;

/// What a run would do.
#[derive(Clone, Debug, Serialize)]
pub struct Outlook {
    pub recipe: String,
    pub format: Format,
    /// `None` of pictures that FFmpeg does not read.
    pub probe: Option<Probe>,
    pub steps: Vec<StepOutlook>,
    pub warnings: Vec<WarningRecord>,
    pub jobs: Vec<JobsOutlook>,
    /// Of the films: one decoder, and one encoder of a segment. Others follow the same plan at other places.
    pub commands: Vec<CommandOutlook>,
    pub estimate: Estimate,
}

#[derive(Clone, Debug, Serialize)]
pub struct StepOutlook {
    #[serde(flatten)]
    pub step: Step,
    /// Why it is not done with this input.
    pub left_out: Option<String>,
    /// Of a step that makes a film.
    pub plan: Option<Plan>,
}

/// Jobs of one part of a step.
#[derive(Clone, Debug, Serialize)]
pub struct JobsOutlook {
    pub step: String,
    pub kind: String,
    pub lane: String,
    pub count: usize,
    pub required: bool,
    pub priority: u8,
    /// The time of one core that all of them probably take.
    pub cost_ms: u64,
    /// Parts of steps that must end first.
    pub needs: Vec<String>,
    /// Segments that each of them makes, from and up to.
    pub ranges: Vec<[u64; 2]>,
}

/// A command line as it would be run.
#[derive(Clone, Debug, Serialize)]
pub struct CommandOutlook {
    pub step: String,
    pub purpose: &'static str,
    /// Files are `{source}` and `{scratch}`.
    pub argv: Vec<String>,
}

/// As far as it can be told beforehand.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Estimate {
    /// The time of one core.
    pub cpu_ms: u64,
    pub jobs: usize,
    /// Of the films, at most.
    pub film_bytes: u64,
}

/// What would become of an input. Nothing is decoded and nothing kept.
pub async fn look_ahead(
    shop: &Workshop,
    tenant: &str,
    recipe: &Recipe,
    input: &Input,
    cancel: &CancellationToken,
) -> Result<Outlook, Failed> {
    let recipe = &shop.scanning.settled(recipe.clone())?;
    let rules = shop.scanning.rules_for(recipe);
    let file = Box::pin(peek(shop, tenant, input, Readers::under(rules))).await?;
    if rules.scan != ScanPolicy::Off {
        // Nothing else reads what a run would not let anything else read.
        rules.judge(shop.scanning.look_at(file.path(), None).await)?;
    }
    let (format, probe) = examine(&shop.toolbox, file.path(), &shop.limits, cancel).await?;
    let capabilities = shop.capabilities(cancel).await?;
    Ok(Outlook::of(recipe, format, probe, capabilities, &shop.limits)?)
}

impl Outlook {
    /// Of a file that was examined.
    pub fn of(
        recipe: &Recipe,
        format: Format,
        probe: Option<Probe>,
        capabilities: &Capabilities,
        limits: &Limits,
    ) -> Result<Self, CannotPlan> {
        let planned = Planned::of(recipe, format, probe.as_ref(), capabilities)?;
        let jobs = planned.jobs(recipe, probe.as_ref(), USUAL_PRIORITY);
        let source_bytes = probe.as_ref().map_or(0, |probe| probe.file_bytes);
        let estimate = Estimate {
            cpu_ms: jobs.iter().map(|job| u64::from(job.cost_ms)).sum(),
            jobs: jobs.len() + 1,
            film_bytes: planned.plans.values().map(|plan| film_bytes(plan, plan.mp4, source_bytes)).sum(),
        };
        Ok(Self {
            recipe: recipe.name.clone(),
            format,
            steps: recipe.enabled_steps().map(|step| StepOutlook::of(step, &planned)).collect(),
            jobs: counted(&jobs),
            commands: commands(&planned, limits),
            estimate,
            warnings: planned.warnings,
            probe,
        })
    }
}

impl StepOutlook {
    fn of(step: &Step, planned: &Planned) -> Self {
        let is_left_out = planned.left_out.contains(&step.name);
        let why = planned.warnings.iter().find(|warning| is_left_out && warning.step == step.name);
        Self {
            step: step.clone(),
            left_out: is_left_out.then(|| match why {
                Some(warning) => warning.message.clone(),
                None => format!("it is for inputs of the type {}", any_of(&step.takes)),
            }),
            plan: planned.plans.get(&step.name).cloned(),
        }
    }
}

/// Whether any step would like an encoder in hardware: whoever asks what is installed has to try them.
pub fn prefers_hardware(recipe: &Recipe) -> bool {
    recipe.enabled_steps().any(|step| {
        matches!(&step.does, Does::Hls(spec) | Does::Mp4(spec) if spec.hardware == telecine_media::Hardware::Prefer)
    })
}

/// Jobs of the same part of a step together, in the order in which the first of them should run.
fn counted(jobs: &[NewJob]) -> Vec<JobsOutlook> {
    let mut counted: Vec<JobsOutlook> = Vec::new();
    for job in jobs {
        let step = job.step.clone().unwrap_or_default();
        let nth = counted.iter().position(|other| other.step == step && other.kind == job.kind);
        let nth = nth.unwrap_or_else(|| {
            counted.push(JobsOutlook::none_of(&step, job));
            counted.len() - 1
        });
        counted[nth].add(job, jobs);
    }
    counted
}

impl JobsOutlook {
    fn none_of(step: &str, job: &NewJob) -> Self {
        Self {
            step: step.to_owned(),
            kind: job.kind.clone(),
            lane: job.lane.clone(),
            count: 0,
            required: job.required,
            priority: job.priority,
            cost_ms: 0,
            needs: Vec::new(),
            ranges: Vec::new(),
        }
    }

    fn add(&mut self, job: &NewJob, all: &[NewJob]) {
        self.count += 1;
        self.cost_ms += u64::from(job.cost_ms);
        let range = [&job.payload["range"]["start"], &job.payload["range"]["end"]].map(Value::as_u64);
        if let [Some(start), Some(end)] = range {
            self.ranges.push([start, end]);
        }
        for need in &job.needs {
            let Needed::Nth(nth) = need.on else { continue };
            let step = all.get(nth).and_then(|needed| needed.step.clone()).unwrap_or_default();
            if !self.needs.contains(&step) {
                self.needs.push(step);
            }
        }
    }
}

fn commands(planned: &Planned, limits: &Limits) -> Vec<CommandOutlook> {
    let films = planned.plans.iter().filter_map(|(step, plan)| Some((step, plan.video.as_ref()?)));
    let encoded = films.filter(|(_, video)| video.delivery == Delivery::Encode);
    encoded.flat_map(|(step, video)| commands_of(step, video, limits)).collect()
}

fn commands_of(step: &str, video: &VideoPlan, limits: &Limits) -> Vec<CommandOutlook> {
    let inputs = DecodeInputs { source: Path::new("{source}"), mark_format: None };
    let first = video.ranges.first().map_or(0..0, |range| range.start..range.end);
    let frames = first.map(|segment| u64::from(video.grid.frames(segment))).sum();
    let span = DecodeSpan { seek_us: None, first_frame: 0, frames };
    // What cannot be written down is no reason to show nothing.
    let decoder = video.decoder_args(&inputs, &span, limits).unwrap_or_default();
    let outputs: Vec<PathBuf> = video
        .rungs
        .iter()
        .map(|rung| PathBuf::from(format!("{{scratch}}/00000-{}.mp4", rung.name)))
        .collect();
    let encoder = video.encoder_args(0, &outputs);
    [("decode", decoder), ("encode a segment", encoder)]
        .into_iter()
        .map(|(purpose, args)| CommandOutlook {
            step: step.to_owned(),
            purpose,
            argv: std::iter::once("ffmpeg".to_owned())
                .chain(args.iter().map(|arg| arg.to_string_lossy().into_owned()))
                .collect(),
        })
        .collect()
}
