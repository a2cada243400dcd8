//! `telecine plan`.

use std::path::Path;

use anyhow::Result;
use telecine_media::Capabilities;
use telecine_pipeline::{Does, JobsOutlook, Outlook, Recipe, StepOutlook, examine, prefers_hardware};
use tokio_util::sync::CancellationToken;

use crate::cli::RecipeFlags;
use crate::config::Config;
use crate::output::{Answer, Output, Paint};
use crate::table::{Cell, Table};
use crate::{human, programs, recipes};

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
    if prefers_hardware(&recipe) {
        capabilities.try_hardware(&toolbox, &cancel).await?;
    }
    let outlook = Outlook::of(&recipe, format, probe, &capabilities, &config.intake.limits)?;
    if output.json {
        output.print_json(&outlook)?;
    } else {
        let decisions = decisions(&recipe, &outlook).draw(output.colour);
        output.print(&format!("{decisions}\n{}", drawn_jobs(&outlook.jobs).draw(output.colour)))?;
    }
    Ok(Answer::Yes)
}

fn decisions(recipe: &Recipe, outlook: &Outlook) -> Table {
    let mut table = Table::new(["STEP", "ABOUT", "DECISION", "WHY"]);
    for StepOutlook { step, left_out, plan } in &outlook.steps {
        let name = step.name.as_str();
        if let Some(why) = left_out {
            table.row([
                name.into(),
                "step".into(),
                Cell::painted("left out", Paint::Yellow),
                why.as_str().into(),
            ]);
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
