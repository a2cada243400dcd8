//! `telecine limits`.

use anyhow::Result;
use telecine_queue::{Limit, LimitState, Timestamp};

use super::{Schema, open};
use crate::cli::LimitsCommand;
use crate::config::Config;
use crate::human;
use crate::output::{Answer, List, Output, say};
use crate::table::{Table, truncate};

pub(super) async fn run(command: LimitsCommand, config: &Config, output: &Output) -> Result<Answer> {
    match command {
        LimitsCommand::Ls => ls(config, output).await,
        LimitsCommand::Set { key, max_running, per_minute } => {
            set(Limit { key, max_running, per_minute }, config).await
        }
        LimitsCommand::Rm { key } => rm(&key, config).await,
    }
}

async fn ls(config: &Config, output: &Output) -> Result<Answer> {
    let limits = open(config, Schema::AsItIs).await?.limits().await?;
    if output.json {
        output.print_json(&List::whole(limits))?;
    } else if limits.is_empty() {
        say("there are no limits\nnext: set one with `telecine limits set KEY --max-running 4`");
    } else {
        output.print(&draw(&limits, Timestamp::now()).draw(output.colour))?;
    }
    Ok(Answer::Yes)
}

async fn set(limit: Limit, config: &Config) -> Result<Answer> {
    let key = limit.key.clone();
    open(config, Schema::Migrate).await?.limit(limit).await?;
    say(format_args!("limit `{key}` is set; see `telecine limits ls`"));
    Ok(Answer::Yes)
}

async fn rm(key: &str, config: &Config) -> Result<Answer> {
    let queue = open(config, Schema::AsItIs).await?;
    if !queue.limits().await?.iter().any(|state| state.limit.key == key) {
        say(format_args!("there is no limit `{key}`\nnext: see which there are with `telecine limits ls`"));
        return Ok(Answer::No);
    }
    queue.limit(Limit::new(key)).await?;
    say(format_args!("limit `{key}` is removed"));
    Ok(Answer::Yes)
}

fn draw(limits: &[LimitState], now: Timestamp) -> Table {
    let mut table =
        Table::new(["KEY", "MAX RUNNING", "PER MINUTE", "PACE", "RUNNING", "PENDING", "PARKED", "CHANGED"]);
    for state in limits {
        let bound = |bound: Option<String>| bound.unwrap_or_else(|| "-".into());
        table.row([
            truncate(&state.limit.key, 40).into(),
            bound(state.limit.max_running.map(|jobs| jobs.to_string())).into(),
            bound(state.limit.per_minute.map(|jobs| jobs.to_string())).into(),
            format!("{:.0} %", state.pace * 100.0).into(),
            state.running.to_string().into(),
            state.pending.to_string().into(),
            state.parked.to_string().into(),
            human::instant(state.changed_at, now).into(),
        ]);
    }
    table
}
