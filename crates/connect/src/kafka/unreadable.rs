//! Batches that no client can unpack: damaged, or larger than it takes. Brokers look at what is compressed alone.
//!
//! The client never gets past one, and does not say in which partition it is. So each place where the reader stands is tried by
//! a client of its own, whose errors are of nothing else: what can be read is never passed over.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError as RdError, KafkaResult, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use super::KafkaOptions;
use super::client::{Logged, looking};

/// To connect, and to read one record.
const TRY_WITHIN: Duration = Duration::from_secs(10);

/// Whether an error tells of such a batch.
pub(super) fn tells_of_it(error: &RdError) -> bool {
    let code = error.rdkafka_error_code();
    matches!(
        code,
        Some(
            RDKafkaErrorCode::BadCompression
                | RDKafkaErrorCode::BadMessage
                | RDKafkaErrorCode::InvalidMessage
                | RDKafkaErrorCode::NotImplemented
        )
    )
}

/// Where the first record is that can be read, or nothing is known: `from` itself, or behind those that cannot be read, of
/// which no more than so many are tried.
pub(super) fn end_of_it(options: &KafkaOptions, partition: i32, from: i64, at_most: i64) -> KafkaResult<i64> {
    let mut offset = from;
    while offset < from + at_most && is_unreadable(options, partition, offset)? {
        offset += 1;
    }
    Ok(offset)
}

/// By a client that is made for it: an error of a place that another was at before would be taken for one of this.
fn is_unreadable(options: &KafkaOptions, partition: i32, offset: i64) -> KafkaResult<bool> {
    let mut config = looking(options);
    config.set("enable.auto.commit", "false").set("enable.partition.eof", "true");
    let client: BaseConsumer<Logged> = config.create_with_context(Logged::default())?;
    let mut place = TopicPartitionList::new();
    place.add_partition_offset(&options.request_topic, partition, Offset::Offset(offset))?;
    client.assign(&place)?;
    let until = Instant::now() + TRY_WITHIN;
    while let Some(polled) = client.poll(until.saturating_duration_since(Instant::now())) {
        match polled {
            Ok(_) | Err(RdError::PartitionEOF(_)) => return Ok(false),
            Err(error) if tells_of_it(&error) => return Ok(true),
            Err(error) => tracing::debug!(%error, partition, offset, "a record is tried again"),
        }
    }
    Ok(false)
}
