//! What a run came to: for people a table, for programs a document.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use telecine_pipeline::records::{FailureRecord, WarningRecord, read_all};
use telecine_queue::{Job, JobState, Queue, Run, RunId, RunState};

use super::batch::{Followed, Taken};
use super::export::Exported;
use crate::human;
use crate::output::{Answer, Colour, Output, Paint, harmless, last_lines, say};
use crate::table::{Cell, Table};

const STDERR_LINES: usize = 8;

#[derive(Debug, Serialize)]
pub(crate) struct Ended {
    id: RunId,
    file: PathBuf,
    #[serde(skip)]
    shown: String,
    #[serde(skip)]
    taken: Taken,
    pub(crate) status: RunState,
    recipe: String,
    /// From the start of its first job to the end of its last, pauses of this program included.
    took_ms: u64,
    /// `None`: nothing was made.
    folder: Option<PathBuf>,
    outputs: Vec<Exported>,
    warnings: Vec<WarningRecord>,
    failures: Vec<Broken>,
}

/// A job that failed for good.
#[derive(Debug, Serialize)]
struct Broken {
    required: bool,
    #[serde(flatten)]
    why: FailureRecord,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    runs: &'a [Ended],
}

impl Ended {
    pub(super) async fn of(
        queue: &dyn Queue,
        followed: &Followed,
        run: Run,
        jobs: &[Job],
        folder: Option<PathBuf>,
        outputs: Vec<Exported>,
    ) -> Result<Self> {
        let warnings = read_all(queue, &run.id).await?.into_iter().map(|(_, warning)| warning).collect();
        let told = read_all::<FailureRecord>(queue, &run.id).await?;
        let failed = jobs.iter().filter(|job| job.state == JobState::Failed);
        let failures = failed.map(|job| {
            let id = job.id.to_string();
            let why = told.iter().find(|(key, _)| *key == id).map(|(_, why)| why.clone());
            Broken { required: job.required, why: why.unwrap_or_else(|| untold(job)) }
        });
        let began = run.started_at.unwrap_or(run.created_at);
        let took = run.finished_at.map_or(Duration::ZERO, |ended| ended.since(began));
        Ok(Self {
            id: run.id,
            file: followed.file.path.clone(),
            shown: followed.file.shown.clone(),
            taken: followed.taken,
            status: run.state,
            recipe: run.name,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            folder,
            outputs,
            warnings,
            failures: failures.collect(),
        })
    }

    /// It succeeded already when an earlier command ran.
    pub(crate) fn is_old_news(&self) -> bool {
        self.taken == Taken::Known && self.status == RunState::Succeeded
    }

    /// In a line: what became of it, and where to look.
    pub(crate) fn line(&self, colour: Colour) -> String {
        let took = human::duration(Duration::from_millis(self.took_ms));
        let status = colour.paint(self.status.into(), self.status.as_str());
        let place = match &self.folder {
            Some(folder) => format!(" in {}", folder.display()),
            None => String::new(),
        };
        format!("{} {status} after {took}{place}", harmless(&self.shown))
    }

    /// What its user should know of what went wrong.
    pub(crate) fn complain(&self) {
        for warning in &self.warnings {
            let WarningRecord { step, code, message } = warning;
            say(harmless(&format!("warning: {}: {step}: {message} ({code})", self.shown)));
        }
        for broken in &self.failures {
            broken.complain(&self.shown);
        }
    }
}

impl Broken {
    fn complain(&self, shown: &str) {
        let FailureRecord { step, code, message, hint, stderr_tail, attempt, .. } = &self.why;
        let what = if self.required { "failed" } else { "warning: not made" };
        say(harmless(&format!("{what}: {shown}: {step}: {message}")));
        say(harmless(&format!("  code: {code}, at attempt {attempt}")));
        for line in last_lines(stderr_tail.trim(), STDERR_LINES) {
            say(format_args!("  stderr: {line}"));
        }
        if !hint.is_empty() {
            say(harmless(&format!("  next: {hint}")));
        }
    }
}

/// One whose worker died, or that nobody could run: its row alone tells why.
fn untold(job: &Job) -> FailureRecord {
    let error = job.error.clone();
    FailureRecord {
        step: job.step.clone().unwrap_or_else(|| job.kind.clone()),
        code: error.as_ref().map_or_else(|| "unknown".into(), |error| error.code.clone()),
        message: error.map_or_else(|| "nobody said why".into(), |error| error.message),
        hint: format!("look at it: `telecine jobs show {}`", job.id),
        stderr_tail: String::new(),
        retryable: false,
        attempt: job.attempt,
        exit_code: None,
        signal: None,
    }
}

/// The outputs of all runs, and what they did not give.
pub(crate) fn report(ended: &[Ended], output: &Output) -> Result<()> {
    if output.json {
        return output.print_json(&Document { runs: ended });
    }
    if ended.iter().any(|run| !run.outputs.is_empty()) {
        output.print(&table(ended).draw(output.colour))?;
    }
    ended.iter().for_each(Ended::complain);
    Ok(())
}

fn table(ended: &[Ended]) -> Table {
    let mut table = Table::new(["OUTPUT", "SIZE", "FILES", "DURATION", "PATH"]);
    for made in ended.iter().flat_map(|run| &run.outputs) {
        table.row([
            Cell::painted(&made.name, Paint::Bold),
            human::bytes(made.bytes).into(),
            made.files.to_string().into(),
            duration(made).unwrap_or_else(|| "-".into()).into(),
            made.path.display().to_string().into(),
        ]);
    }
    table
}

fn duration(made: &Exported) -> Option<String> {
    let us = made.facts.get("duration_us")?.as_u64()?;
    Some(human::clock(Duration::from_micros(us)))
}

/// The worst of them decides.
pub(crate) fn answer(ended: &[Ended]) -> Answer {
    let any = |wanted: &[RunState]| ended.iter().any(|run| wanted.contains(&run.status));
    if any(&[RunState::Failed, RunState::Cancelled]) {
        return Answer::No;
    }
    if any(&[RunState::Partial]) { Answer::Partial } else { Answer::Yes }
}
