//! The queue's promises, each one a test, all of them run on every database.
//!
//! The binary also plays the other processes that some promises are about: see [`child`].

mod child;
mod example;
mod ground;
mod model;
mod own_transaction;
mod pooler;
#[allow(dead_code, reason = "the tests of the command line use more of it")]
mod postgres_server;
mod power_loss;
mod promises;
mod proxy;
mod schema;
mod shared_finishes;
mod shared_pushes;
mod unfit;

use std::process::ExitCode;

use ground::{Database, Ground};
use libtest_mimic::{Arguments, Trial};
use postgres_server::PostgresServer;

fn main() -> ExitCode {
    if let Some(code) = child::main_if_child().or_else(power_loss::main_if_pusher) {
        return code;
    }
    let arguments = Arguments::from_args();
    let server = PostgresServer::start();
    let mut trials = Vec::new();
    for database in Database::ALL {
        for (name, promise) in promises::kept_on(database) {
            let server = server.clone();
            let trial = Trial::test(format!("{}::{name}", database.name()), move || {
                ground::run_on(Ground::new(database, &server), promise)
            });
            trials.push(trial.with_ignored_flag(promises::is_for_soaks(database, name)));
        }
    }
    trials.extend(own_transaction::trials(&server));
    trials.extend(example::trials(&server));
    trials.extend(model::trials(&server));
    trials.extend(pooler::trials(&server));
    trials.extend(power_loss::trials());
    trials.extend(schema::trials(&server));
    trials.extend(shared_finishes::trials(&server));
    trials.extend(shared_pushes::trials(&server));
    trials.extend(unfit::trials(&server));
    let conclusion = libtest_mimic::run(&arguments, trials);
    server.stop();
    conclusion.exit_code()
}
