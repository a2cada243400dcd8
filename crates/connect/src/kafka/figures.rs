//! Every figure of Kafka, in one place.

use metrics::{counter, gauge};

/// Records became runs, or were known to have.
pub(super) fn taken(new: usize, known: usize) {
    for (outcome, records) in [("accepted", new), ("known", known)] {
        counter!("telecine_kafka_records_total", "outcome" => outcome).increment(records as u64);
    }
}

/// A record went to the dead-letter topic.
pub(super) fn refused() {
    counter!("telecine_kafka_records_total", "outcome" => "refused").increment(1);
}

/// A record was not taken by the brokers.
pub(super) fn not_published(topic: &str) {
    counter!("telecine_kafka_publish_failures_total", "topic" => topic.to_owned()).increment(1);
}

/// Offsets of what is stored could not be committed: it will be read again, and known.
pub(super) fn not_committed() {
    counter!("telecine_kafka_commit_failures_total").increment(1);
}

/// Whether this process takes records in.
pub(super) fn paused(is_paused: bool) {
    gauge!("telecine_kafka_paused").set(f64::from(u8::from(is_paused)));
}

/// What is left of a partition for this process to read.
pub(super) fn lag(topic: &str, partition: i32, records: i64) {
    let (topic, partition) = (topic.to_owned(), partition.to_string());
    gauge!("telecine_kafka_consumer_lag", "topic" => topic, "partition" => partition).set(records as f64);
}
