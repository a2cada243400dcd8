//! What webhooks and Kafka promise, on real databases, with real workers, and real receivers and brokers on loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod answers;
mod endpoints;
mod isolation;
mod kafka;
#[allow(dead_code, reason = "the program's own tests use more of it")]
mod kafka_server;
#[path = "../../../queue/tests/it/postgres_server.rs"]
#[allow(dead_code, reason = "the queue's own tests use more of it")]
mod postgres_server;
mod receiver;
mod relays;
mod signatures;
mod stage;

use std::process::ExitCode;

use libtest_mimic::Arguments;
use postgres_server::PostgresServer;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let server = PostgresServer::start();
    let trials = [
        answers::trials(&server),
        endpoints::trials(&server),
        isolation::trials(&server),
        kafka::trials(&server),
        relays::trials(&server),
        signatures::trials(),
    ];
    let conclusion = libtest_mimic::run(&arguments, trials.into_iter().flatten().collect());
    server.stop();
    if let Some(broker) = kafka::SHARED.get() {
        broker.remove();
    }
    conclusion.exit_code()
}
