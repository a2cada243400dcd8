//! `telecine runs`.

mod show;
mod watch;

use anyhow::{Result, bail};
use telecine_pipeline::{Deleted, RunDocument, delete_everywhere, describe, retry};
use telecine_queue::{Queue, QueueError, RunFilter, RunId, RunPage, Timestamp};

use super::{Schema, open};
use crate::cli::{RunsCommand, RunsLs};
use crate::config::Config;
use crate::output::{Answer, List, Output, harmless, say};
use crate::table::{Cell, Table, truncate};
use crate::{human, workshop};

pub(super) use watch::watch;

pub(super) async fn run(command: RunsCommand, config: &Config, output: &Output) -> Result<Answer> {
    let queue = open(config, Schema::AsItIs).await?;
    match command {
        RunsCommand::Ls(flags) => ls(flags, queue.as_ref(), output).await,
        RunsCommand::Show { id } => show(&id, queue.as_ref(), output).await,
        RunsCommand::Watch { id } => watch(&id, queue.as_ref(), output).await,
        RunsCommand::Cancel { ids } => cancel(&ids, queue.as_ref()).await,
        RunsCommand::Retry { id, steps } => start_over(&id, &steps, queue.as_ref()).await,
        RunsCommand::Rm { ids } => remove(&ids, queue.as_ref(), config).await,
    }
}

async fn ls(flags: RunsLs, queue: &dyn Queue, output: &Output) -> Result<Answer> {
    let filter = RunFilter {
        states: flags.states,
        name: flags.recipe,
        external_id: flags.external_id,
        tenant: flags.tenant,
    };
    let listed = queue.list_runs(&filter, RunPage { before: flags.cursor, limit: flags.limit }).await?;
    let mut documents = Vec::with_capacity(listed.data.len());
    for run in &listed.data {
        // One that was deleted, or is of another program, has none.
        documents.extend(describe(queue, &run.id).await.ok().flatten());
    }
    if output.json {
        output.print_json(&List { data: documents, next_cursor: listed.next_cursor })?;
    } else if documents.is_empty() {
        say("there are no such runs\nnext: start one with `telecine submit FILE --recipe web-video`");
    } else {
        output.print(&table(&documents).draw(output.colour))?;
        if let Some(cursor) = listed.next_cursor {
            say(format_args!("there are more: add --cursor {cursor}"));
        }
    }
    Ok(Answer::Yes)
}

fn table(documents: &[RunDocument]) -> Table {
    let mut table = Table::new(["RUN", "RECIPE", "STATUS", "PROGRESS", "CREATED", "TOOK", "INPUT"]);
    let now = Timestamp::now();
    for run in documents {
        let took = run.started_at.map(|began| run.finished_at.unwrap_or(now).since(began));
        table.row([
            run.id.to_string().into(),
            run.recipe.name.clone().into(),
            Cell::painted(run.status, run.status),
            format!("{:.0} %", run.progress).into(),
            human::instant(run.created_at, now).into(),
            took.map_or_else(|| "-".into(), human::duration).into(),
            truncate(&harmless(&run.input.uri), 60).into(),
        ]);
    }
    table
}

async fn show(id: &RunId, queue: &dyn Queue, output: &Output) -> Result<Answer> {
    let Some(document) = describe(queue, id).await? else { return Ok(unknown(id)) };
    if output.json {
        output.print_json(&document)?;
    } else {
        output.print(&show::draw(&document, output.colour))?;
    }
    Ok(Answer::Yes)
}

fn unknown(id: &RunId) -> Answer {
    say(format_args!("there is no run {id}\nnext: see which there are with `telecine runs ls`"));
    Answer::No
}

async fn cancel(ids: &[RunId], queue: &dyn Queue) -> Result<Answer> {
    let mut answer = Answer::Yes;
    for id in ids {
        match queue.cancel_run(id).await {
            Ok(jobs) => say(format_args!("{id} is cancelled, with {}", human::count(jobs, "job"))),
            Err(error @ (QueueError::NoSuchRun(_) | QueueError::WrongRunState { .. })) => {
                say(error);
                answer = Answer::No;
            }
            Err(error) => bail!(error),
        }
    }
    Ok(answer)
}

async fn start_over(id: &RunId, steps: &[String], queue: &dyn Queue) -> Result<Answer> {
    match retry(queue, id, steps).await {
        Ok(0) => {
            say(format_args!("nothing of {id} is to be tried again\nnext: name a step with --step"));
            Ok(Answer::No)
        }
        Ok(jobs) => {
            let jobs = human::count(jobs, "job");
            say(format_args!("{id}: {jobs} started over\nnext: telecine runs watch {id}"));
            Ok(Answer::Yes)
        }
        Err(
            error
            @ (QueueError::NoSuchRun(_) | QueueError::WrongRunState { .. } | QueueError::Invalid { .. }),
        ) => {
            say(error);
            Ok(Answer::No)
        }
        Err(error) => bail!(error),
    }
}

async fn remove(ids: &[RunId], queue: &dyn Queue, config: &Config) -> Result<Answer> {
    let blobs = workshop::open_store(config)?;
    let published = workshop::open_published(config, &blobs)?;
    let mut answer = Answer::Yes;
    for id in ids {
        match delete_everywhere(queue, &blobs, &published, id).await {
            Ok(Deleted::Gone | Deleted::Untold) => say(format_args!("{id} and its outputs are gone")),
            Ok(Deleted::Lent) => {
                say(format_args!("{id} is gone; its outputs live on with runs that borrowed them"))
            }
            Err(error) => {
                say(format_args!("{}\nnext: {}", error.message, error.hint));
                answer = Answer::No;
            }
        }
    }
    Ok(answer)
}
