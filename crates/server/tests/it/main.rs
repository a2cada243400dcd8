//! What the API promises, over real sockets, on a real database and store, with a worker that runs the real programs.
//!
//! The binary also plays the launcher of the sandbox, and the servers that are killed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bounds;
mod callers;
mod claims;
#[path = "../../../pipeline/tests/it/clamd_server.rs"]
#[allow(dead_code, reason = "the pipeline's own tests use more of it")]
mod clamd_server;
#[path = "../../../pipeline/tests/it/clips.rs"]
#[allow(dead_code, reason = "the pipeline's own tests use more of it")]
mod clips;
mod connections;
mod description;
mod events;
mod files;
mod health;
mod load;
mod looks;
mod metrics;
mod operations;
#[path = "../../../queue/tests/it/postgres_server.rs"]
#[allow(dead_code, reason = "the queue's own tests use more of it")]
mod postgres_server;
mod requests;
mod runs;
#[path = "../../../pipeline/tests/it/s3_server.rs"]
#[allow(dead_code, reason = "the pipeline's own tests use more of it")]
mod s3_server;
mod scan;
#[path = "../../../pipeline/tests/it/small_disk.rs"]
mod small_disk;
mod support;
mod sweep;
mod transcode;
mod uploads;
mod webhooks;

use std::process::ExitCode;

use libtest_mimic::Arguments;
use telecine_media::sandbox;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == sandbox::LAUNCH) {
        return sandbox::launch(arguments);
    }
    if let Some(code) = uploads::main_if_server() {
        return code;
    }
    let arguments = Arguments::from_args();
    let trials = [
        bounds::trials(),
        callers::trials(),
        claims::trials(),
        connections::trials(),
        description::trials(),
        events::trials(),
        health::trials(),
        load::trials(),
        metrics::trials(),
        files::trials(),
        looks::trials(),
        operations::trials(),
        requests::trials(),
        scan::trials(),
        sweep::trials(),
        runs::trials(),
        transcode::trials(),
        uploads::trials(),
        webhooks::trials(),
    ];
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit_code()
}
