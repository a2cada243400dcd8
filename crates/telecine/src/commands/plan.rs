//! `telecine plan`.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;
use telecine_media::{Capabilities, Format, Hardware, Plan, Probe};
use telecine_pipeline::records::WarningRecord;
use telecine_pipeline::{Does, Planned, Recipe, Step, examine};
use telecine_queue::{Needed, NewJob};
use tokio_util::sync::CancellationToken;

use crate::cli::RecipeFlags;
use crate::config::Config;
use crate::output::{Answer, Output, Paint};
use crate::table::{Cell, Table};
use crate::{human, programs, recipes};

/// The priority of a run that asks for none.
const USUAL_PRIORITY: u8 = 50;

/// What a run would do.
#[derive(Debug, Serialize)]
struct Outlook<'a> {
    recipe: &'a str,
    format: Format,
    probe: Option<&'a Probe>,
    steps: Vec<StepOutlook<'a>>,
    warnings: &'a [WarningRecord],
    jobs: Vec<JobsOutlook>,
}

#[derive(Debug, Serialize)]
struct StepOutlook<'a> {
    #[serde(flatten)]
    step: &'a Step,
    /// Why it cannot be done with this input.
    left_out: Option<&'a str>,
    /// Of a step that makes a film.
    plan: Option<&'a Plan>,
}

/// Jobs of one part of a step.
#[derive(Debug, Serialize)]
struct JobsOutlook {
    step: String,
    kind: String,
    lane: String,
    count: usize,
    required: bool,
    priority: u8,
    /// The time of one core that all of them probably take.
    cost_ms: u64,
    /// Parts of steps that must end first.
    needs: Vec<String>,
    /// Segments that each of them makes, from and up to.
    ranges: Vec<[u64; 2]>,
}

/// Says what would be done with a file and why. Nothing is decoded.
pub(super) async fn run(
    file: &Path,
    flags: &RecipeFlags,
    config: &Config,
    output: &Output,
) -> Result<Answer> {
    let recipe = recipes::chosen(&flags.recipe, &flags.settings, config)?;
    let toolbox = programs::toolbox(config);
    let cancel = CancellationToken::new();
    let ((format, probe), mut capabilities) = tokio::try_join!(
        examine(&toolbox, file, &config.intake.limits, &cancel),
        Capabilities::detect(&toolbox, &cancel),
    )?;
    if recipe.enabled_steps().any(prefers_hardware) {
        capabilities.try_hardware(&toolbox, &cancel).await?;
    }
    let planned = Planned::of(&recipe, format, probe.as_ref(), &capabilities)?;
    let jobs = planned.jobs(&recipe, probe.as_ref(), USUAL_PRIORITY);
    let outlook = Outlook {
        recipe: &recipe.name,
        format,
        probe: probe.as_ref(),
        steps: recipe.enabled_steps().map(|step| StepOutlook::of(step, &planned)).collect(),
        warnings: &planned.warnings,
        jobs: counted(&jobs),
    };
    if output.json {
        output.print_json(&outlook)?;
    } else {
        let decisions = decisions(&recipe, &outlook).draw(output.colour);
        output.print(&format!("{decisions}\n{}", drawn_jobs(&outlook.jobs).draw(output.colour)))?;
    }
    Ok(Answer::Yes)
}

fn prefers_hardware(step: &Step) -> bool {
    matches!(&step.does, Does::Hls(spec) | Does::Mp4(spec) if spec.hardware == Hardware::Prefer)
}

impl<'a> StepOutlook<'a> {
    fn of(step: &'a Step, planned: &'a Planned) -> Self {
        let is_left_out = planned.left_out.contains(&step.name);
        let why = planned.warnings.iter().find(|warning| is_left_out && warning.step == step.name);
        Self {
            step,
            left_out: why.map(|warning| warning.message.as_str()),
            plan: planned.plans.get(&step.name),
        }
    }
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

fn decisions(recipe: &Recipe, outlook: &Outlook<'_>) -> Table {
    let mut table = Table::new(["STEP", "ABOUT", "DECISION", "WHY"]);
    for StepOutlook { step, left_out, plan } in &outlook.steps {
        let name = step.name.as_str();
        if let Some(why) = left_out {
            table.row([name.into(), "step".into(), Cell::painted("left out", Paint::Yellow), (*why).into()]);
        } else if let Some(film) = recipe.segments_for(step) {
            let how = format!("joined from the segments of {}", film.name);
            table.row([name.into(), "file".into(), how.into(), "as the recipe says".into()]);
        } else if plan.is_none() {
            table.row([
                name.into(),
                "outputs".into(),
                outputs(&step.does).into(),
                "as the recipe says".into(),
            ]);
        }
        for decision in plan.iter().flat_map(|plan| &plan.decisions) {
            let choice = if decision.is_warning {
                Cell::painted(&decision.choice, Paint::Yellow)
            } else {
                Cell::from(decision.choice.as_str())
            };
            table.row([name.into(), decision.about.as_ref().into(), choice, decision.reason.as_str().into()]);
        }
    }
    table
}

/// What a step makes that needs no plan.
fn outputs(does: &Does) -> String {
    let outputs: Vec<String> = match does {
        Does::Pictures(spec) => [
            spec.poster.as_ref().map(|_| "poster"),
            spec.storyboard.as_ref().map(|_| "storyboard"),
            spec.preview.as_ref().map(|_| "preview"),
            spec.scenes.then_some("scenes"),
            spec.frames.as_ref().map(|_| "frames"),
        ]
        .into_iter()
        .flatten()
        .map(str::to_owned)
        .collect(),
        Does::Image(spec) => {
            let side = |side: Option<u32>| side.map_or_else(|| "-".into(), |side| side.to_string());
            let variant = |variant: &telecine_media::ImageVariant| {
                let formats: Vec<&str> = variant.formats.iter().map(|format| format.extension()).collect();
                format!("{}x{} {}", side(variant.width), side(variant.height), formats.join("+"))
            };
            spec.variants.iter().map(variant).collect()
        }
        Does::Audio(spec) => {
            let format = |format: &telecine_media::AudioFormat| {
                format!("{} {} kbit/s", format!("{:?}", format.codec).to_lowercase(), format.kbits)
            };
            let waveform = spec.waveform_points_per_second.map(|_| "waveform".to_owned());
            spec.formats.iter().map(format).chain(waveform).collect()
        }
        Does::Exec(spec) => {
            vec![format!("whatever `{}` leaves", spec.command.first().map_or("", String::as_str))]
        }
        Does::Hls(_) | Does::Mp4(_) => Vec::new(),
    };
    outputs.join(", ")
}

fn drawn_jobs(jobs: &[JobsOutlook]) -> Table {
    let mut table = Table::new(["STEP", "KIND", "JOBS", "LANE", "IF IT FAILS", "COST", "SEGMENTS", "NEEDS"]);
    for job in jobs {
        let ranges: Vec<String> = job.ranges.iter().map(|[start, end]| (end - start).to_string()).collect();
        let more = if ranges.len() > 8 { ", …" } else { "" };
        table.row([
            job.step.as_str().into(),
            job.kind.as_str().into(),
            job.count.to_string().into(),
            job.lane.as_str().into(),
            if job.required { "failed" } else { "partial" }.into(),
            human::duration(std::time::Duration::from_millis(job.cost_ms)).into(),
            (ranges.iter().take(8).cloned().collect::<Vec<_>>().join(", ") + more).into(),
            job.needs.join(", ").into(),
        ]);
    }
    table
}
