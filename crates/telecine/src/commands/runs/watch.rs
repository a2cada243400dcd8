//! A run as it goes on, until it ends.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use telecine_pipeline::{RunDocument, StepStatus, describe};
use telecine_queue::{Queue, RunId, RunState};

use super::show::{draw, word};
use super::unknown;
use crate::human;
use crate::output::{Answer, Output, say};

/// Other processes do the work: nothing wakes this one for every bit of progress.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Progress is told at so many percent more.
const TOLD_EVERY: f64 = 5.0;

/// Tells what changes on stderr, and prints the run when it has ended; as JSON it prints every change.
pub(in crate::commands) async fn watch(id: &RunId, queue: &dyn Queue, output: &Output) -> Result<Answer> {
    let mut wakes = queue.wakes();
    let mut told = Told::default();
    loop {
        let Some(run) = describe(queue, id).await? else { return Ok(unknown(id)) };
        let is_over = run.finished_at.is_some();
        let changes = told.changes(&run);
        if output.json && (is_over || !changes.is_empty()) {
            output.print_json(&run)?;
        }
        if !output.json {
            changes.iter().for_each(say);
        }
        if is_over {
            if !output.json {
                output.print(&draw(&run, output.colour))?;
            }
            return Ok(answer(run.status));
        }
        let _ = tokio::time::timeout(LOOK_EVERY, wakes.changed()).await;
    }
}

pub(super) fn answer(status: RunState) -> Answer {
    match status {
        RunState::Failed | RunState::Cancelled => Answer::No,
        RunState::Partial => Answer::Partial,
        RunState::Queued | RunState::Running | RunState::Succeeded => Answer::Yes,
    }
}

/// What was said already.
#[derive(Default)]
struct Told {
    steps: BTreeMap<String, StepStatus>,
    progress: f64,
    is_playable: bool,
}

impl Told {
    fn changes(&mut self, run: &RunDocument) -> Vec<String> {
        let mut changes = Vec::new();
        for step in &run.steps {
            if self.steps.insert(step.name.clone(), step.status) != Some(step.status) {
                changes.push(format!("{} is {}", step.name, word(step.status)));
            }
        }
        if run.playable_at.is_some() && !self.is_playable {
            self.is_playable = true;
            changes.push("the beginning can be played".to_owned());
        }
        if run.progress >= self.progress + TOLD_EVERY {
            self.progress = run.progress;
            let left = run.eta_ms.map(|ms| format!(", {} left", human::clock(Duration::from_millis(ms))));
            changes.push(format!("{:.0} %{}", run.progress, left.unwrap_or_default()));
        }
        changes
    }
}
