//! `telecine workers`.

use anyhow::Result;
use telecine_queue::{Timestamp, Worker, WorkerId};

use super::{Schema, open};
use crate::cli::WorkersCommand;
use crate::config::Config;
use crate::human;
use crate::output::{Answer, List, Output, Paint, say};
use crate::table::{Cell, Table, truncate};

pub(super) async fn run(command: WorkersCommand, config: &Config, output: &Output) -> Result<Answer> {
    match command {
        WorkersCommand::Ls => ls(config, output).await,
        WorkersCommand::Drain { id } => drain(id, config).await,
    }
}

async fn ls(config: &Config, output: &Output) -> Result<Answer> {
    let workers = open(config, Schema::AsItIs).await?.workers().await?;
    if output.json {
        output.print_json(&List::whole(workers))?;
    } else if workers.is_empty() {
        say("there are no workers\nnext: start one with `telecine worker`");
    } else {
        output.print(&draw(&workers, Timestamp::now()).draw(output.colour))?;
    }
    Ok(Answer::Yes)
}

async fn drain(id: WorkerId, config: &Config) -> Result<Answer> {
    if open(config, Schema::AsItIs).await?.drain(id).await? {
        say(format_args!("worker {id} was asked to drain; see `telecine workers ls`"));
        return Ok(Answer::Yes);
    }
    say(format_args!("there is no live worker {id}\nnext: see which there are with `telecine workers ls`"));
    Ok(Answer::No)
}

fn draw(workers: &[Worker], now: Timestamp) -> Table {
    let mut table =
        Table::new(["ID", "NAME", "STATE", "RUNNING", "SLOTS", "KINDS", "HOST", "PID", "STARTED", "SEEN"]);
    for worker in workers {
        let slots: Vec<String> = worker.slots.iter().map(|(lane, slots)| format!("{lane}={slots}")).collect();
        table.row([
            worker.id.to_string().into(),
            truncate(&worker.name, 30).into(),
            state(worker),
            worker.running.to_string().into(),
            slots.join(",").into(),
            truncate(&worker.kinds.join(","), 40).into(),
            truncate(&worker.host, 30).into(),
            worker.pid.to_string().into(),
            human::instant(worker.started_at, now).into(),
            human::instant(worker.seen_at, now).into(),
        ]);
    }
    table
}

fn state(worker: &Worker) -> Cell {
    match (worker.alive, worker.draining) {
        (true, false) => Cell::painted("alive", Paint::Green),
        (true, true) => Cell::painted("draining", Paint::Yellow),
        (false, _) => Cell::painted("gone", Paint::Dim),
    }
}
