//! `telecine jobs`.

mod show;

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use telecine_pipeline::did_you_mean;
use telecine_queue::{Job, JobFilter, JobId, JobState, NewJob, Page, Push, Queue, QueueError, Timestamp};

use super::{Schema, open};
use crate::cli::{Chosen, JobFlags, JobsClear, JobsCommand, JobsLs, JobsPush};
use crate::config::Config;
use crate::output::{Answer, Output, harmless, say};
use crate::table::{Cell, Table, truncate};
use crate::{human, kinds};

pub(super) async fn run(command: JobsCommand, config: &Config, output: &Output) -> Result<Answer> {
    match command {
        JobsCommand::Ls(flags) => ls(flags, config, output).await,
        JobsCommand::Show { id } => show::run(id, config, output).await,
        JobsCommand::Retry(chosen) => steer(Steer::Retry, chosen, config).await,
        JobsCommand::Cancel(chosen) => steer(Steer::Cancel, chosen, config).await,
        JobsCommand::Push(flags) => push(*flags, config, output).await,
        JobsCommand::Delete { ids } => each(Steer::Delete, &ids, config).await,
        JobsCommand::Clear(flags) => clear(flags, config).await,
    }
}

async fn ls(flags: JobsLs, config: &Config, output: &Output) -> Result<Answer> {
    let filter =
        JobFilter { states: flags.states, kind: flags.kind, lane: flags.lane, ..JobFilter::default() };
    let page = Page { before: flags.cursor, ..Page::first(flags.limit) };
    let listed = open(config, Schema::AsItIs).await?.list(&filter, page).await?;
    if output.json {
        output.print_json(&listed)?;
    } else if listed.data.is_empty() {
        say("no job matches\nnext: push one with `telecine jobs push pause`");
    } else {
        output.print(&draw(&listed.data, Timestamp::now()).draw(output.colour))?;
        if let Some(cursor) = listed.next_cursor {
            say(format_args!("more with the same command and `--cursor {cursor}`"));
        }
    }
    Ok(Answer::Yes)
}

fn draw(jobs: &[Job], now: Timestamp) -> Table {
    let mut table =
        Table::new(["ID", "KIND", "LANE", "STATE", "ATTEMPT", "PROGRESS", "CREATED", "TOOK", "NOTE"]);
    for job in jobs {
        table.row([
            job.id.to_string().into(),
            truncate(&job.kind, 30).into(),
            truncate(&job.lane, 20).into(),
            Cell::painted(job.state, job.state),
            attempts_spent(job).into(),
            progress(job).unwrap_or_else(|| "-".into()).into(),
            human::instant(job.created_at, now).into(),
            took(job, now).map_or_else(|| "-".into(), human::duration).into(),
            truncate(&harmless(&note(job, now)), 60).into(),
        ]);
    }
    table
}

fn attempts_spent(job: &Job) -> String {
    match job.lost {
        0 => format!("{}/{}", job.attempt, job.max_attempts),
        lost => format!("{}/{}, {lost} lost", job.attempt, job.max_attempts),
    }
}

/// How far a running job is. What an ended claim last told says nothing any more.
fn progress(job: &Job) -> Option<String> {
    let part = job.progress.filter(|_| job.state == JobState::Running)?;
    Some(format!("{:.0} %", part * 100.0))
}

/// How long the job has been running, or its last claim ran.
fn took(job: &Job, now: Timestamp) -> Option<Duration> {
    let until = job.finished_at.or((job.state == JobState::Running).then_some(now))?;
    Some(until.since(job.claimed_at?))
}

/// What a reader of the list wants to know next about a job.
fn note(job: &Job, now: Timestamp) -> String {
    if let Some(worker) = job.worker.filter(|_| !job.state.is_terminal()) {
        return format!("on worker {worker}");
    }
    let mut note = String::new();
    if let Some(due) = job.run_at.filter(|due| *due > now && !job.state.is_terminal()) {
        let _ = write!(note, "due {}", human::instant(due, now));
    }
    if let Some(error) = &job.error {
        let _ = write!(note, "{}{error}", if note.is_empty() { "" } else { "; " });
    }
    note
}

async fn push(flags: JobsPush, config: &Config, output: &Output) -> Result<Answer> {
    let tenant = flags.job.tenant.clone();
    let mut job = new_job(flags.job)?;
    job.run_at = flags.at.or(flags.delay.map(|delay| Timestamp::now().plus(delay)));
    job.unique_key = flags.unique_key;
    let mut push = Push::jobs((0..flags.count).map(|_| job.clone())).tenant(tenant.unwrap_or_default());
    push.idempotency_key = flags.idempotency_key;

    let pushed = open(config, Schema::Migrate).await?.push(vec![push]).await?;
    let Some(pushed) = pushed.into_iter().next() else { bail!("the queue gave no answer to the push") };
    if output.json {
        output.print_json(&pushed)?;
    } else {
        output.print(&pushed.jobs.iter().map(|id| format!("{id}\n")).collect::<String>())?;
    }
    if pushed.replayed {
        say("this key was used before with the same content: nothing new was pushed");
    }
    Ok(Answer::Yes)
}

/// Where workers in other languages look unless told otherwise.
const LANE_OF_OTHERS: &str = "remote";

/// The lane of a kind; an error if the kind is unknown and must not be.
fn lane_of(kind: &str, any_kind: bool) -> Result<Option<&'static str>> {
    let lane = kinds::lane_of(kind);
    if lane.is_none() && !any_kind {
        let known = kinds::names();
        bail!(
            "no kind `{kind}` is known{}\nnext: correct the name, or add --any-kind if another program runs it",
            did_you_mean(kind, &known)
        );
    }
    Ok(lane)
}

pub(super) fn new_job(flags: JobFlags) -> Result<NewJob> {
    let own_lane = lane_of(&flags.kind, flags.any_kind)?;
    let mut job = NewJob::new(flags.kind, flags.payload);
    job.lane = flags.lane.unwrap_or_else(|| own_lane.unwrap_or(LANE_OF_OTHERS).to_owned());
    if let Some(priority) = flags.priority {
        job.priority = priority;
    }
    if let Some(attempts) = flags.max_attempts {
        job.max_attempts = attempts;
    }
    job.limit_key = flags.limit_key;
    Ok(job)
}

#[derive(Clone, Copy, Debug)]
enum Steer {
    Retry,
    Cancel,
    Delete,
}

impl Steer {
    async fn apply(self, queue: &dyn Queue, id: JobId) -> Result<(), QueueError> {
        match self {
            Self::Retry => queue.retry(id).await,
            Self::Cancel => queue.cancel(id).await,
            Self::Delete => queue.delete(id).await,
        }
    }

    fn done_to_many(self) -> &'static str {
        match self {
            Self::Retry => "start over",
            Self::Cancel => "are cancelled",
            Self::Delete => "are deleted",
        }
    }

    fn done(self) -> &'static str {
        match self {
            Self::Retry => "starts over",
            Self::Cancel => "is cancelled",
            Self::Delete => "is deleted",
        }
    }
}

async fn steer(steer: Steer, chosen: Chosen, config: &Config) -> Result<Answer> {
    if !chosen.all {
        return each(steer, &chosen.ids, config).await;
    }
    let filter = JobFilter {
        states: chosen.states,
        kind: chosen.kind,
        lane: chosen.lane,
        tenant: chosen.tenant,
        run: None,
    };
    let queue = open(config, Schema::AsItIs).await?;
    let jobs = match steer {
        Steer::Retry => queue.retry_all(&filter).await?,
        Steer::Cancel => queue.cancel_all(&filter).await?,
        Steer::Delete => queue.clear(&filter).await?,
    };
    let (jobs, plural) = (human::count(jobs, "job"), jobs != 1);
    say(format_args!("{jobs} {}", if plural { steer.done_to_many() } else { steer.done() }));
    Ok(Answer::Yes)
}

/// Steers each job; one that cannot be steered does not keep the others from it.
async fn each(steer: Steer, ids: &[JobId], config: &Config) -> Result<Answer> {
    let queue = open(config, Schema::AsItIs).await?;
    let mut answer = Answer::Yes;
    for id in ids {
        match steer.apply(queue.as_ref(), *id).await {
            Ok(()) => say(format_args!("job {id} {}", steer.done())),
            Err(refusal @ QueueError::NotFound(_)) => {
                say(format_args!("{refusal}\nnext: see which there are with `telecine jobs ls`"));
                answer = Answer::No;
            }
            Err(refusal @ QueueError::WrongState { .. }) => {
                say(format_args!("{refusal}\nnext: look at it with `telecine jobs show {id}`"));
                answer = Answer::No;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(answer)
}

async fn clear(flags: JobsClear, config: &Config) -> Result<Answer> {
    ensure!(
        flags.yes,
        "this forgets every matching job of {} for good\nnext: add --yes, or look first with `telecine jobs ls --state {}`",
        config.database_shown(),
        flags.states.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(",")
    );
    let filter = JobFilter { states: flags.states, kind: flags.kind, ..JobFilter::default() };
    let cleared = open(config, Schema::AsItIs).await?.clear(&filter).await?;
    say(format_args!("{} deleted", human::count(cleared, "job")));
    Ok(Answer::Yes)
}
