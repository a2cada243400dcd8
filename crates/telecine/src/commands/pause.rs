//! `telecine lanes` and `telecine kinds`: pause and resume.

use anyhow::Result;
use telecine_queue::{Pausable, Paused, Timestamp};

use super::{Schema, open};
use crate::cli::PauseCommand;
use crate::config::Config;
use crate::human;
use crate::output::{Answer, List, Output, say};
use crate::table::{Table, truncate};

pub(super) async fn run(
    command: PauseCommand,
    scope: fn(String) -> Pausable,
    config: &Config,
    output: &Output,
) -> Result<Answer> {
    match command {
        PauseCommand::Ls => ls(scope, config, output).await,
        PauseCommand::Pause { name } => pause(&scope(name), config).await,
        PauseCommand::Resume { name } => resume(&scope(name), config).await,
    }
}

async fn ls(scope: fn(String) -> Pausable, config: &Config, output: &Output) -> Result<Answer> {
    let mut paused = open(config, Schema::AsItIs).await?.paused().await?;
    paused.retain(|paused| paused.what == scope(paused.what.name().to_owned()));
    if output.json {
        output.print_json(&List::whole(paused))?;
    } else if paused.is_empty() {
        say(format_args!("no {} is paused", word(&scope(String::new()))));
    } else {
        output.print(&draw(&paused, Timestamp::now()).draw(output.colour))?;
    }
    Ok(Answer::Yes)
}

async fn pause(what: &Pausable, config: &Config) -> Result<Answer> {
    let (word, name) = (word(what), what.name());
    match open(config, Schema::AsItIs).await?.pause(what).await? {
        true => {
            say(format_args!("{word} `{name}` is paused; resume it with `telecine {word}s resume {name}`"))
        }
        false => say(format_args!("{word} `{name}` was paused before")),
    }
    Ok(Answer::Yes)
}

async fn resume(what: &Pausable, config: &Config) -> Result<Answer> {
    let (word, name) = (word(what), what.name());
    if open(config, Schema::AsItIs).await?.resume(what).await? {
        say(format_args!("{word} `{name}` goes on"));
        return Ok(Answer::Yes);
    }
    say(format_args!("{word} `{name}` is not paused\nnext: see which are with `telecine {word}s ls`"));
    Ok(Answer::No)
}

fn word(what: &Pausable) -> &'static str {
    match what {
        Pausable::Lane(_) => "lane",
        Pausable::Kind(_) => "kind",
    }
}

fn draw(paused: &[Paused], now: Timestamp) -> Table {
    let mut table = Table::new(["NAME", "PAUSED"]);
    for paused in paused {
        table.row([truncate(paused.what.name(), 60).into(), human::instant(paused.paused_at, now).into()]);
    }
    table
}
