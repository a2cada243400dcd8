//! One file per command. Each gets the configuration and the output, and gives an [`Answer`].

mod backup;
mod bench;
mod config;
mod counts;
mod demo;
mod doctor;
mod jobs;
mod kafka;
mod key;
mod limits;
mod migrate;
mod pause;
mod plan;
mod probe;
mod recipes;
mod reconcile;
pub(crate) mod run;
mod runs;
mod schedules;
mod serve;
mod submit;
mod tenants;
mod watch;
mod worker;
mod workers;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::CommandFactory;
use telecine_queue::{OpenOptions, Pausable, Queue};
use telecine_server::Traces;

pub(crate) use worker::options as worker_options;

use crate::cli::{Cli, Command};
use crate::config::Config;
use crate::output::{Answer, Output};
use crate::{config as configuration, logging};

const CLOSE_WITHIN: Duration = Duration::from_secs(2);

pub(crate) async fn run(cli: Cli, output: &Output) -> Result<Answer> {
    match &cli.command {
        // These need no configuration, so a broken one must not stop them.
        Command::Demo => return demo::run(cli.global.database.as_deref(), output).await,
        Command::Completions { shell } => return completions(*shell, output),
        Command::Openapi => return openapi(output),
        Command::Doctor => {
            let config = configuration::load(cli.global.config.as_deref(), cli.layer());
            return doctor::run(config, output).await;
        }
        Command::Up(_)
        | Command::Serve(_)
        | Command::Worker(_)
        | Command::Kafka(_)
        | Command::Key(_)
        | Command::Submit(_)
        | Command::Runs(_)
        | Command::Jobs(_)
        | Command::Workers(_)
        | Command::Limits(_)
        | Command::Tenants(_)
        | Command::Lanes(_)
        | Command::Kinds(_)
        | Command::Schedules(_)
        | Command::Counts
        | Command::Bench { .. }
        | Command::Migrate { .. }
        | Command::Backup { .. }
        | Command::Reconcile(_)
        | Command::Probe { .. }
        | Command::Plan { .. }
        | Command::Run(_)
        | Command::Watch(_)
        | Command::Recipes(_)
        | Command::Config(_) => {}
    }
    let config = configuration::load(cli.global.config.as_deref(), cli.layer())?;
    let stays =
        matches!(cli.command, Command::Up(_) | Command::Serve(_) | Command::Worker(_) | Command::Kafka(_));
    let otherwise = if stays { "info" } else { "warn" };
    let traces = traces(&cli.command, &config)?;
    logging::start(&config.log, otherwise, traces.as_ref());
    let answer = match cli.command {
        Command::Up(flags) => Box::pin(serve::up(&flags.worker, &config, traces.as_ref())).await,
        Command::Serve(_) => Box::pin(serve::serve(&config)).await,
        Command::Worker(flags) => Box::pin(worker::run(&flags, &config, traces.as_ref())).await,
        Command::Kafka(flags) => Box::pin(kafka::run(&flags, &config)).await,
        Command::Key(command) => key::run(command, &config, output).await,
        Command::Submit(flags) => Box::pin(submit::run(*flags, &config, output)).await,
        Command::Runs(command) => Box::pin(runs::run(command, &config, output)).await,
        Command::Jobs(command) => jobs::run(command, &config, output).await,
        Command::Workers(command) => workers::run(command, &config, output).await,
        Command::Limits(command) => limits::run(command, &config, output).await,
        Command::Tenants(command) => tenants::run(command, &config, output).await,
        Command::Lanes(command) => pause::run(command, Pausable::Lane, &config, output).await,
        Command::Kinds(command) => pause::run(command, Pausable::Kind, &config, output).await,
        Command::Schedules(command) => schedules::run(command, &config, output).await,
        Command::Counts => counts::run(&config, output).await,
        Command::Bench { jobs } => bench::run(jobs, &config, output).await,
        Command::Migrate { check } => migrate::run(check, &config, output).await,
        Command::Backup { into } => backup::run(&into, &config).await,
        Command::Reconcile(flags) => Box::pin(reconcile::run(&flags, &config, output)).await,
        Command::Config(command) => config::run(command, &config, output),
        Command::Probe { file } => probe::run(&file, &config, output).await,
        Command::Run(flags) => Box::pin(run::run(&flags, &config, output)).await,
        Command::Watch(flags) => Box::pin(watch::run(&flags, &config, output)).await,
        Command::Plan { file, recipe } => Box::pin(plan::run(&file, &recipe, &config, output)).await,
        Command::Recipes(command) => recipes::run(command, &config, output),
        Command::Demo | Command::Completions { .. } | Command::Doctor | Command::Openapi => {
            unreachable!("answered above")
        }
    };
    close_opened().await;
    if let Some(traces) = traces {
        traces.stop().await;
    }
    answer
}

/// For processes that stay: the configured collector, else the one that OpenTelemetry's own variable names.
fn traces(command: &Command, config: &Config) -> Result<Option<Traces>> {
    let role = match command {
        Command::Up(_) => "up",
        Command::Serve(_) => "serve",
        Command::Worker(_) => "worker",
        _ => return Ok(None),
    };
    let variable = || std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok().filter(|url| !url.is_empty());
    let Some(endpoint) = config.otlp_endpoint.clone().or_else(variable) else { return Ok(None) };
    Ok(Some(Traces::start(&endpoint, role)?))
}

/// What commands opened, to be closed however they end: only then is everybody woken by what they did.
static OPENED: Mutex<Vec<Arc<dyn Queue>>> = Mutex::new(Vec::new());

async fn close_opened() {
    let opened = std::mem::take(&mut *OPENED.lock().unwrap_or_else(PoisonError::into_inner));
    for queue in opened {
        // A database that does not answer must not keep a command from ending.
        let _ = tokio::time::timeout(CLOSE_WITHIN, queue.close()).await;
    }
}

fn openapi(output: &Output) -> Result<Answer> {
    output.print_json(&telecine_server::openapi())?;
    Ok(Answer::Yes)
}

fn completions(shell: clap_complete::Shell, output: &Output) -> Result<Answer> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "telecine", &mut script);
    output.print(&String::from_utf8(script)?)?;
    Ok(Answer::Yes)
}

/// Whether opening a database may change its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schema {
    /// For commands that add something: a new database is made, an old one brought up to date.
    Migrate,
    /// For commands that only look or steer: a mistyped path must not leave an empty database behind.
    AsItIs,
}

pub(crate) async fn open(config: &Config, schema: Schema) -> Result<Arc<dyn Queue>> {
    let cannot = || format!("cannot open the database {}", config.database_shown());
    let migrate = schema == Schema::Migrate;
    let options = OpenOptions { migrate, ..OpenOptions::default() };
    let queue = telecine_queue::open_with(&config.database, &options).await.with_context(cannot)?;
    OPENED.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&queue));
    Ok(queue)
}
