//! `telecine migrate`.

use anyhow::{Context, Result};
use telecine_queue::pending_migrations;

use super::{Schema, open};
use crate::config::Config;
use crate::output::{Answer, List, Output, say};

pub(super) async fn run(check: bool, config: &Config, output: &Output) -> Result<Answer> {
    let pending = pending_migrations(&config.database)
        .await
        .with_context(|| format!("cannot read the schema of {}", config.database_shown()))?;
    if check {
        list(&pending, output)?;
        if pending.is_empty() {
            say(format_args!("the schema of {} is up to date", config.database_shown()));
            return Ok(Answer::Yes);
        }
        say(format_args!("{} lacks these migrations\nnext: `telecine migrate`", config.database_shown()));
        return Ok(Answer::No);
    }
    open(config, Schema::Migrate).await?.close().await;
    list(&pending, output)?;
    say(match pending.len() {
        0 => format!("the schema of {} was up to date", config.database_shown()),
        n => format!("applied {n} to {}", config.database_shown()),
    });
    Ok(Answer::Yes)
}

fn list(migrations: &[String], output: &Output) -> Result<()> {
    if output.json {
        return output.print_json(&List::whole(migrations.to_vec()));
    }
    output.print(&migrations.iter().map(|name| format!("{name}\n")).collect::<String>())
}
