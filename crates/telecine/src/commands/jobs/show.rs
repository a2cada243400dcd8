//! `telecine jobs show`: one job, its attempts, and what to do next.

use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;
use telecine_queue::{Attempt, Job, JobId, JobState, Pausable, Paused, QueueError, Timestamp, Worker};

use super::{attempts_spent, progress};
use crate::commands::{Schema, open};
use crate::config::Config;
use crate::output::{Answer, Colour, Output, Paint, harmless};
use crate::table::{Cell, Table, truncate};
use crate::{human, kinds};

const JSON_WIDTH: usize = 400;

#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    job: Job,
    attempts: Vec<Attempt>,
    hints: Vec<String>,
}

pub(super) async fn run(id: JobId, config: &Config, output: &Output) -> Result<Answer> {
    let queue = open(config, Schema::AsItIs).await?;
    let job = queue.get(id).await?.ok_or(QueueError::NotFound(id))?;
    let attempts = queue.attempts(id).await?;
    let mut hints = hints(&job, &queue.workers().await?, Timestamp::now());
    hints.extend(paused_for(&job, &queue.paused().await?));
    let shown = Shown { job, attempts, hints };
    if output.json {
        output.print_json(&shown)?;
    } else {
        output.print(&draw(&shown, Timestamp::now(), output.colour))?;
    }
    Ok(Answer::Yes)
}

fn draw(shown: &Shown, now: Timestamp, colour: Colour) -> String {
    let mut text = facts(&shown.job, now, colour);
    if !shown.attempts.is_empty() {
        text += "\nattempts\n";
        text += &attempts(&shown.attempts).draw(colour);
    }
    for hint in &shown.hints {
        let _ = write!(text, "\n{} {}", colour.paint(Paint::Yellow, "hint:"), harmless(hint));
    }
    if !shown.hints.is_empty() {
        text.push('\n');
    }
    text
}

fn facts(job: &Job, now: Timestamp, colour: Colour) -> String {
    let at = |at: Timestamp| format!("{at} ({})", human::instant(at, now));
    let mut text = String::new();
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(text, "{} {value}", colour.paint(Paint::Dim, &format!("{name:<11}")));
        }
    };
    let safe = |text: &String| harmless(text);
    fact("job", Some(job.id.to_string()));
    fact("kind", Some(harmless(&job.kind)));
    fact("lane", Some(harmless(&job.lane)));
    fact("state", Some(colour.paint(job.state.into(), job.state.as_str())));
    fact("run", job.run.as_ref().map(ToString::to_string));
    fact("step", job.step.as_ref().map(safe));
    fact("tenant", Some(harmless(&job.tenant)).filter(|tenant| !tenant.is_empty()));
    fact("priority", Some(job.priority.to_string()));
    fact("attempts", Some(attempts_spent(job)));
    fact("generation", Some(job.generation).filter(|generation| *generation > 1).map(|n| n.to_string()));
    fact("worker", job.worker.map(|worker| worker.to_string()));
    fact("progress", progress(job));
    fact("created", Some(at(job.created_at)));
    fact("due", job.run_at.map(at));
    fact("claimed", job.claimed_at.map(at));
    fact("finished", job.finished_at.map(at));
    fact("unique key", job.unique_key.as_ref().map(safe));
    fact("limit key", job.limit_key.as_ref().map(safe));
    fact("payload", Some(short_json(&job.payload)));
    fact("checkpoint", job.checkpoint.as_ref().map(short_json));
    fact("result", job.result.as_ref().map(short_json));
    fact("error", job.error.as_ref().map(|error| colour.paint(Paint::Red, &harmless(&error.to_string()))));
    text
}

/// All of it is in `--json`.
fn short_json(value: &Value) -> String {
    truncate(&harmless(&value.to_string()), JSON_WIDTH)
}

fn attempts(attempts: &[Attempt]) -> Table {
    let mut table = Table::new(["#", "WORKER", "SLOT", "STARTED", "TOOK", "OUTCOME", "ERROR"]);
    for (at, attempt) in attempts.iter().enumerate() {
        let dash = || "-".to_owned();
        table.row([
            (at + 1).to_string().into(),
            attempt.worker.map_or_else(dash, |worker| worker.to_string()).into(),
            attempt.slot.map_or_else(dash, |slot| slot.to_string()).into(),
            attempt.started_at.to_string().into(),
            human::duration(attempt.ended_at.since(attempt.started_at)).into(),
            Cell::painted(attempt.outcome, attempt.outcome),
            attempt
                .error
                .as_ref()
                .map_or_else(dash, |error| truncate(&harmless(&error.to_string()), 80))
                .into(),
        ]);
    }
    table
}

/// What to do next, for whoever wonders why the job is where it is.
fn hints(job: &Job, workers: &[Worker], now: Timestamp) -> Vec<String> {
    let id = job.id;
    match job.state {
        JobState::Pending => no_worker_for(job, workers).into_iter().collect(),
        JobState::Scheduled => {
            let due =
                job.run_at.map_or_else(String::new, |due| format!(", due {}", human::instant(due, now)));
            let mut hints = vec![match job.attempt {
                0 => format!("it is scheduled for later{due}"),
                failed => format!("it backs off after attempt {failed} of {}{due}", job.max_attempts),
            }];
            hints.extend(no_worker_for(job, workers));
            hints
        }
        JobState::Running => {
            let silent =
                job.worker.filter(|id| !workers.iter().any(|worker| worker.id == *id && worker.alive));
            silent
                .map(|worker| {
                    format!("worker {worker} is gone: any live worker takes the job over within seconds")
                })
                .into_iter()
                .collect()
        }
        JobState::Failed | JobState::Cancelled => {
            vec![format!("start it over with `telecine jobs retry {id}`")]
        }
        JobState::Waiting => vec!["it waits for other jobs of its run".into()],
        JobState::Parked => {
            let tenant = harmless(&job.tenant);
            let tenant = format!("its tenant `{tenant}` has no room for it yet: see `telecine tenants ls`");
            match &job.limit_key {
                Some(key) if job.tenant.is_empty() => {
                    vec![format!("limit `{key}` has no room for it yet: see `telecine limits ls`")]
                }
                Some(key) => vec![format!("limit `{key}` (see `telecine limits ls`) or {tenant}")],
                None => vec![tenant],
            }
        }
        JobState::Completed | JobState::Skipped => Vec::new(),
    }
}

/// A paused lane or kind keeps a job that has not begun waiting.
fn paused_for(job: &Job, paused: &[Paused]) -> Option<String> {
    let (word, name) = paused.iter().find_map(|paused| match &paused.what {
        Pausable::Lane(lane) if *lane == job.lane => Some(("lane", lane)),
        Pausable::Kind(kind) if *kind == job.kind => Some(("kind", kind)),
        Pausable::Lane(_) | Pausable::Kind(_) => None,
    })?;
    let waits = !job.state.is_terminal() && job.state != JobState::Running;
    waits.then(|| format!("{word} `{name}` is paused: resume it with `telecine {word}s resume {name}`"))
}

fn no_worker_for(job: &Job, workers: &[Worker]) -> Option<String> {
    let mut fitting = workers
        .iter()
        .filter(|worker| worker.alive && !worker.draining)
        .filter(|worker| worker.kinds.contains(&job.kind) && worker.slots.contains_key(&job.lane));
    if fitting.next().is_some() {
        return None;
    }
    let (kind, lane) = (&job.kind, &job.lane);
    let start = match kinds::lane_of(kind) {
        Some(own) if own == lane => "start one with `telecine worker`".into(),
        Some(_) => format!("start one with `telecine worker --slots {lane}=3`"),
        None => "start the program that knows this kind; this one does not".into(),
    };
    Some(format!("no live worker runs kind `{kind}` in lane `{lane}`: {start}"))
}
