//! What runs promise, on real databases, real stores and the real programs.
//!
//! The binary also plays the launcher of the sandbox and the worker processes that some promises are about.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod blobs;
mod cache;
mod clamd_server;
mod clips;
mod crash;
mod document;
mod exec;
mod film;
mod graph;
mod http_server;
mod kinds;
mod optimize;
#[path = "../../../queue/tests/it/postgres_server.rs"]
#[allow(dead_code, reason = "the queue's own tests use more of it")]
mod postgres_server;
mod published;
mod recipe;
mod reconcile;
mod s3;
mod s3_proxy;
mod s3_server;
mod scan;
mod small_disk;
mod sources;
mod store_faults;
mod studio;
mod sweep;
mod worker;

use std::process::ExitCode;

use libtest_mimic::Arguments;
use postgres_server::PostgresServer;
use telecine_media::sandbox;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == sandbox::LAUNCH) {
        return sandbox::launch(arguments);
    }
    if let Some(code) = worker::main_if_worker() {
        return code;
    }
    let arguments = Arguments::from_args();
    let alone = libtest_mimic::run(&arguments, crash::trials_alone());
    let server = PostgresServer::start();
    let trials = [
        film::trials(),
        kinds::trials(),
        optimize::trials(),
        published::trials(),
        cache::trials(),
        sweep::trials(),
        document::trials(),
        exec::trials(),
        graph::trials(),
        recipe::trials(),
        blobs::trials(),
        sources::trials(),
        scan::trials(),
        store_faults::trials(),
        reconcile::trials(&server),
        s3::trials(),
        crash::trials(&server),
    ];
    let conclusion = libtest_mimic::run(&arguments, trials.into_iter().flatten().collect());
    server.stop();
    if alone.has_failed() { alone.exit_code() } else { conclusion.exit_code() }
}
