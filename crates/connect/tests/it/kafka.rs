//! What Kafka promises, with a real broker.

mod formats;
mod office;
mod poison;
mod raw_record;
mod rebalances;
mod requests;
mod results;
mod troubles;

use std::sync::OnceLock;

use libtest_mimic::Trial;

use crate::kafka_server::KafkaServer;
use crate::postgres_server::PostgresServer;

/// One for all tests that do not stop it, started for the first of them.
pub(crate) static SHARED: OnceLock<KafkaServer> = OnceLock::new();

pub(crate) fn shared() -> KafkaServer {
    SHARED.get_or_init(KafkaServer::start).clone()
}

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    let trials = [
        requests::trials(server),
        poison::trials(),
        troubles::trials(server),
        rebalances::trials(server),
        results::trials(server),
        formats::trials(),
    ];
    trials.into_iter().flatten().collect()
}
