//! One file per command. Each gets the configuration and the output, and gives an [`Answer`].

mod config;
mod counts;
mod demo;
mod jobs;
mod migrate;
mod worker;
mod workers;

use std::sync::Arc;

use anyhow::{Context, Result};
use clap::CommandFactory;
use telecine_queue::{OpenOptions, Queue};

use crate::cli::{Cli, Command};
use crate::config::Config;
use crate::output::{Answer, Output};
use crate::{config as configuration, logging};

pub(crate) async fn run(cli: Cli, output: &Output) -> Result<Answer> {
    match &cli.command {
        // These two need no configuration, so a broken one must not stop them.
        Command::Demo => return demo::run(cli.global.database.as_deref(), output).await,
        Command::Completions { shell } => return completions(*shell, output),
        Command::Worker(_)
        | Command::Jobs(_)
        | Command::Workers(_)
        | Command::Counts
        | Command::Migrate { .. }
        | Command::Config(_) => {}
    }
    let config = configuration::load(cli.global.config.as_deref(), cli.layer())?;
    let otherwise = if matches!(cli.command, Command::Worker(_)) { "info" } else { "warn" };
    logging::start(&config.log, otherwise);
    match cli.command {
        Command::Worker(flags) => worker::run(&flags, &config).await,
        Command::Jobs(command) => jobs::run(command, &config, output).await,
        Command::Workers(command) => workers::run(command, &config, output).await,
        Command::Counts => counts::run(&config, output).await,
        Command::Migrate { check } => migrate::run(check, &config, output).await,
        Command::Config(command) => config::run(command, &config, output),
        Command::Demo | Command::Completions { .. } => unreachable!("answered above"),
    }
}

fn completions(shell: clap_complete::Shell, output: &Output) -> Result<Answer> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "telecine", &mut script);
    output.print(&String::from_utf8(script)?)?;
    Ok(Answer::Yes)
}

/// Whether opening a database may change its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Schema {
    /// For commands that add something: a new database is made, an old one brought up to date.
    Migrate,
    /// For commands that only look or steer: a mistyped path must not leave an empty database behind.
    AsItIs,
}

async fn open(config: &Config, schema: Schema) -> Result<Arc<dyn Queue>> {
    let cannot = || format!("cannot open the database {}", config.database_shown());
    let migrate = schema == Schema::Migrate;
    let options = OpenOptions { migrate, ..OpenOptions::default() };
    telecine_queue::open_with(&config.database, &options).await.with_context(cannot)
}
