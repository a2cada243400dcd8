//! `telecine plan`.

use std::path::Path;

use anyhow::Result;
use telecine_media::{Capabilities, Limits, Plan};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::output::{Answer, Output, Paint};
use crate::table::{Cell, Table};
use crate::{programs, recipes};

/// Says what would be done with a file and why. Nothing is decoded.
pub(super) async fn run(file: &Path, recipe: &str, config: &Config, output: &Output) -> Result<Answer> {
    let recipe = recipes::load(recipe)?;
    let toolbox = programs::toolbox(config);
    let cancel = CancellationToken::new();
    let limits = Limits::default();
    let (probe, mut capabilities) = tokio::try_join!(
        telecine_media::probe(&toolbox, file, &limits, &cancel),
        Capabilities::detect(&toolbox, &cancel),
    )?;
    let probe = telecine_media::with_measured_length(&toolbox, file, probe, &limits, &cancel).await?;
    if recipe.video.as_ref().is_some_and(|video| video.hardware == telecine_media::Hardware::Prefer) {
        capabilities.try_hardware(&toolbox, &cancel).await?;
    }
    let plan = telecine_media::plan(&recipe, &probe, &capabilities)?;
    if output.json {
        output.print_json(&plan)?;
    } else {
        output.print(&draw(&plan).draw(output.colour))?;
    }
    Ok(Answer::Yes)
}

fn draw(plan: &Plan) -> Table {
    let mut table = Table::new(["ABOUT", "DECISION", "WHY"]);
    for decision in &plan.decisions {
        let choice = if decision.is_warning {
            Cell::painted(&decision.choice, Paint::Yellow)
        } else {
            Cell::from(decision.choice.as_str())
        };
        table.row([Cell::from(decision.about.as_ref()), choice, decision.reason.as_str().into()]);
    }
    table
}
