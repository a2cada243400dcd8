//! A record that was read, and how far it is.

use std::cell::{Cell, OnceCell};

use rdkafka::message::{BorrowedMessage, Message, OwnedMessage, Timestamp};

use super::cloud_event::headers_bytes;
use super::refusal::Refusal;
use super::request::too_large;

/// Of a record that is larger only the place is kept. Nobody could send it on, and brokers bound what is compressed, not
/// what comes out of it: 200 MB of zeros are a record of 200 kB.
const LARGEST_KEPT: usize = 1 << 20;

/// What was done with it is not done again for the sake of others.
pub(super) struct Incoming {
    /// Without key, value and headers where they were not kept.
    pub(super) record: OwnedMessage,
    /// Of its value, as it came.
    pub(super) value_bytes: usize,
    /// Otherwise they can be copied, but not looked at.
    pub(super) has_readable_headers: bool,
    /// Known before anybody looks into it.
    pub(super) refused: Option<Refusal>,
    /// It is in the dead-letter topic, for this.
    pub(super) put_away: OnceCell<Refusal>,
    pub(super) is_done: Cell<bool>,
    kept_bytes: usize,
}

impl Incoming {
    pub(super) fn of(record: &BorrowedMessage<'_>) -> Self {
        let value_bytes = record.payload_len();
        let headers_bytes = record.headers().map_or(Some(0), headers_bytes);
        let bytes = value_bytes + record.key_len() + headers_bytes.unwrap_or(0);
        if bytes <= LARGEST_KEPT {
            let incoming = Self::new(record.detach(), value_bytes, bytes, None);
            return Self { has_readable_headers: headers_bytes.is_some(), ..incoming };
        }
        let (topic, timestamp) = (record.topic().to_owned(), record.timestamp());
        let (partition, offset) = (record.partition(), record.offset());
        let place = OwnedMessage::new(None, None, topic, timestamp, partition, offset, None);
        Self::new(place, value_bytes, 0, Some(too_large(bytes)))
    }

    /// One that cannot be had.
    pub(super) fn unreadable(topic: &str, partition: i32, offset: i64) -> Self {
        let detail =
            "the batch that it is in is damaged, or larger than receive.message.max.bytes when unpacked";
        let refused = Refusal::new("unreadable", detail);
        let timestamp = Timestamp::NotAvailable;
        let place = OwnedMessage::new(None, None, topic.to_owned(), timestamp, partition, offset, None);
        Self::new(place, 0, 0, Some(refused))
    }

    fn new(record: OwnedMessage, value_bytes: usize, kept_bytes: usize, refused: Option<Refusal>) -> Self {
        let (put_away, is_done) = (OnceCell::new(), Cell::new(false));
        Self { record, value_bytes, has_readable_headers: true, refused, put_away, is_done, kept_bytes }
    }

    /// In memory.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }
}
