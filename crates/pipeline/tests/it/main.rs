//! What runs promise, on real databases, real stores and the real programs.
//!
//! The binary also plays the launcher of the sandbox and the worker processes that some promises are about.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod clips;
mod film;
mod graph;
#[path = "../../../queue/tests/it/postgres_server.rs"]
#[allow(dead_code, reason = "the queue's own tests use more of it")]
mod postgres_server;
mod recipe;
mod studio;

use std::process::ExitCode;

use libtest_mimic::Arguments;
use telecine_media::sandbox;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == sandbox::LAUNCH) {
        return sandbox::launch(arguments);
    }
    let arguments = Arguments::from_args();
    let mut trials = film::trials();
    trials.extend(graph::trials());
    trials.extend(recipe::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}
