//! The `telecine` binary: configuration, command line, and the wiring between them and the queue.
//!
//! stdout is data, stderr is talk. Exit codes: 0 done, 1 a negative answer, 2 an error; `run` has two more.

mod cli;
mod commands;
mod config;
mod human;
mod kafka;
mod kinds;
mod logging;
mod output;
mod programs;
mod recipes;
mod signals;
mod studio;
mod table;
mod webhooks;
mod workshop;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;
use crate::output::{Answer, Output};

/// A worker that runs small jobs allocates on one thread and frees on another, which the C library's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = programs::act_as_launcher() {
        return code;
    }
    let cli = Cli::parse();
    let output = Output::new(cli.global.json);
    let answer = run(cli, &output);
    match answer {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Ok(Answer::Partial) => ExitCode::from(3),
        Ok(Answer::Interrupted) => ExitCode::from(130),
        Err(error) => output.fail(&error),
    }
}

fn run(cli: Cli, output: &Output) -> anyhow::Result<Answer> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let answer = runtime.block_on(Box::pin(commands::run(cli, output)));
    // A kind that blocks its thread must not hold up the end of a worker that has left.
    runtime.shutdown_background();
    answer
}
