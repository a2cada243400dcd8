//! One run on the screen.

use std::fmt::Write;
use std::time::Duration;

use telecine_pipeline::{ErrorShown, OutputShown, OutputStatus, RunDocument, StepShown, StepStatus};
use telecine_queue::{RunState, Timestamp};

use crate::human;
use crate::output::{Colour, Paint, harmless, last_lines};
use crate::table::{Cell, Table};

/// How much of what a program said is shown.
const STDERR_LINES: usize = 10;

pub(super) fn draw(run: &RunDocument, colour: Colour) -> String {
    let mut text = head(run, colour);
    text.push('\n');
    text.push_str(&steps(&run.steps).draw(colour));
    if !run.outputs.is_empty() {
        text.push('\n');
        text.push_str(&outputs(&run.outputs).draw(colour));
    }
    for warning in &run.warnings {
        let line = format!("warning: {}: {} ({})", warning.step, warning.message, warning.code);
        let _ = writeln!(text, "\n{}", colour.paint(Paint::Yellow, &harmless(&line)));
    }
    if let Some(error) = &run.error {
        text.push('\n');
        text.push_str(&failure(error, colour));
    }
    if let Some(next) = next_step(run) {
        let _ = writeln!(text, "\nnext: {next}");
    }
    text
}

fn head(run: &RunDocument, colour: Colour) -> String {
    let now = Timestamp::now();
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<9} {}", harmless(&value));
    };
    line("run", run.id.to_string());
    line("recipe", run.recipe.name.clone());
    line("input", run.input.uri.clone());
    if let Some(told) = run.input.probe.as_ref().map(|probe| {
        let size = probe.width.zip(probe.height).map(|(width, height)| format!(", {width}x{height}"));
        let length = probe.duration_ms.map(|ms| format!(", {}", human::clock(Duration::from_millis(ms))));
        format!("{}{}{}", probe.format, size.unwrap_or_default(), length.unwrap_or_default())
    }) {
        line("", told);
    }
    line("created", human::instant(run.created_at, now));
    if let Some(at) = run.playable_at {
        line("playable", format!("{} after it was created", human::duration(at.since(run.created_at))));
    }
    if let (Some(began), Some(ended)) = (run.started_at, run.finished_at) {
        line("took", human::duration(ended.since(began)));
    }
    let speed = run.speed.map(|speed| format!(", {speed}x")).unwrap_or_default();
    let left = run.eta_ms.map(|ms| format!(", {} left", human::clock(Duration::from_millis(ms))));
    let status = colour.paint(run.status.into(), run.status.as_str());
    let _ =
        writeln!(text, "{:<9} {status}, {:.0} %{speed}{}", "status", run.progress, left.unwrap_or_default());
    text
}

fn steps(steps: &[StepShown]) -> Table {
    let mut table = Table::new(["STEP", "STATUS", "JOBS", "PROGRESS"]);
    for step in steps {
        table.row([
            step.name.clone().into(),
            Cell::painted(word(step.status), step_paint(step.status)),
            format!("{}/{}", step.jobs_done, step.jobs_total).into(),
            format!("{:.0} %", step.progress).into(),
        ]);
    }
    table
}

pub(super) fn word(status: StepStatus) -> &'static str {
    match status {
        StepStatus::Waiting => "waiting",
        StepStatus::Queued => "queued",
        StepStatus::Running => "running",
        StepStatus::Succeeded => "succeeded",
        StepStatus::Skipped => "skipped",
        StepStatus::Failed => "failed",
        StepStatus::Cancelled => "cancelled",
    }
}

fn step_paint(status: StepStatus) -> Paint {
    match status {
        StepStatus::Succeeded => Paint::Green,
        StepStatus::Failed | StepStatus::Cancelled => Paint::Red,
        StepStatus::Running => Paint::Cyan,
        StepStatus::Waiting | StepStatus::Queued | StepStatus::Skipped => Paint::Dim,
    }
}

fn outputs(outputs: &[OutputShown]) -> Table {
    let mut table = Table::new(["OUTPUT", "STATUS", "FILES", "SIZE", "KEY"]);
    for output in outputs {
        let (status, paint) = match output.status {
            OutputStatus::Ready => ("ready", Paint::Green),
            OutputStatus::Pending => ("pending", Paint::Dim),
            OutputStatus::Failed => ("not made", Paint::Red),
        };
        let bytes: u64 = output.files.iter().map(|file| file.bytes).sum();
        table.row([
            output.name.clone().into(),
            Cell::painted(status, paint),
            output.files.len().to_string().into(),
            human::bytes(bytes).into(),
            harmless(output.uri.as_deref().unwrap_or("-")).into(),
        ]);
    }
    table
}

fn failure(error: &ErrorShown, colour: Colour) -> String {
    let line = format!("failed: {}: {}", error.step, error.message);
    let mut text = format!("{}\n", colour.paint(Paint::Red, &harmless(&line)));
    let _ = writeln!(text, "  code: {}, at attempt {}", error.code, error.attempt);
    for line in last_lines(error.stderr_tail.trim(), STDERR_LINES) {
        let _ = writeln!(text, "  stderr: {line}");
    }
    let _ = writeln!(text, "  hint: {}", harmless(&error.hint));
    text
}

fn next_step(run: &RunDocument) -> Option<String> {
    match run.status {
        RunState::Queued | RunState::Running => Some(format!("telecine runs watch {}", run.id)),
        RunState::Failed | RunState::Partial | RunState::Cancelled => {
            Some(format!("telecine runs retry {}", run.id))
        }
        RunState::Succeeded => None,
    }
}
