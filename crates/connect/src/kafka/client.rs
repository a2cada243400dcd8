//! What all clients of librdkafka have in common, and what those that read and those that write must be.

use std::sync::Arc;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::KafkaError as RdError;

use super::complaint::Complaints;
use super::{KafkaError, KafkaOptions};

/// Properties that are not to be set: the promises stand on them, or a setting of ours says the same.
pub const RESERVED: [&str; 17] = [
    "acks",
    "auto.offset.reset",
    "bootstrap.servers",
    "delivery.report.only.error",
    "delivery.timeout.ms",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "group.id",
    "group.instance.id",
    "isolation.level",
    "message.timeout.ms",
    "metadata.broker.list",
    "offset.store.method",
    "request.required.acks",
    "transactional.id",
];

fn common(options: &KafkaOptions, suggested: &[(&str, &str)]) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("client.id", "telecine");
    // Of a peer that hangs up it tells at this level, in its log alone.
    config.set_log_level(RDKafkaLogLevel::Info);
    for (name, value) in suggested {
        config.set(*name, *value);
    }
    for (name, value) in &options.properties {
        config.set(name, value);
    }
    config.set("bootstrap.servers", &options.brokers);
    config
}

/// For a member of the group: offsets move only when we say so.
pub(super) fn reading(options: &KafkaOptions) -> ClientConfig {
    let mut suggested = vec![
        // What is fetched ahead is thrown away by a pause.
        ("queued.max.messages.kbytes", "16384"),
        // By default a second, in which nothing is fetched once the queue was full.
        ("fetch.queue.backoff.ms", "50"),
    ];
    // In the newer protocol of groups both are the brokers' to say.
    let is_classic = options.properties.get("group.protocol").is_none_or(|protocol| protocol == "classic");
    if is_classic {
        suggested.extend([
            ("partition.assignment.strategy", "cooperative-sticky"),
            // By default 45 s, in which nobody reads the partitions of a member that was killed.
            ("session.timeout.ms", "10000"),
        ]);
    }
    let mut config = common(options, &suggested);
    config.set("group.id", &options.group);
    config.set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
    // A group that is new takes what was asked for before it came.
    config.set("auto.offset.reset", "earliest");
    config
}

/// For looks at the cluster and at the group's offsets, without being a member.
pub(super) fn looking(options: &KafkaOptions) -> ClientConfig {
    let mut config = common(options, &[]);
    config.set("group.id", &options.group);
    config
}

/// For records that are there once, in the order in which they were sent, or that are said not to be there.
pub(super) fn writing(options: &KafkaOptions, within_ms: u32) -> ClientConfig {
    let mut config = common(options, &[]);
    config.set("enable.idempotence", "true").set("acks", "all");
    config.set("message.timeout.ms", within_ms.to_string());
    config
}

/// A client cannot be made. What a property was set to is not repeated: it may be a password.
pub(super) fn unusable(error: RdError) -> KafkaError {
    match error {
        RdError::ClientConfig(_, reason, property, _) => KafkaError::Property { property, reason },
        RdError::ClientCreation(reason) => KafkaError::Properties { reason },
        other => KafkaError::Properties { reason: other.to_string() },
    }
}

/// Passes on what librdkafka says, and remembers what it complained of.
#[derive(Debug, Default)]
pub(super) struct Logged {
    pub(super) complaints: Arc<Complaints>,
}

impl ClientContext for Logged {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.complaints.overhear(facility, message);
        log(level, facility, message);
    }

    fn error(&self, error: RdError, reason: &str) {
        self.complaints.hear(&error, reason);
    }
}

/// It says everything several times and reconnects by itself: what has consequences is told by whoever meets them.
pub(super) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(facility, "librdkafka: {message}");
        }
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning => {
            tracing::info!(facility, "librdkafka: {message}");
        }
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
            tracing::debug!(facility, "librdkafka: {message}");
        }
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::consumer::BaseConsumer;

    use super::*;

    #[test]
    fn either_protocol_of_groups_can_be_chosen() {
        for protocol in ["classic", "consumer"] {
            let mut options = KafkaOptions::new("127.0.0.1:1");
            options.properties.insert("group.protocol".into(), protocol.into());
            let made: Result<BaseConsumer<Logged>, _> =
                reading(&options).create_with_context(Logged::default());
            assert!(made.is_ok(), "{protocol}: {:?}", made.err());
        }
    }
}
