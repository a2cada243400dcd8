//! The feed: the events of all runs in one order, for whoever follows everything.
//!
//! Whoever remembers the last event seen and asks for later ones must never be told of an earlier one that was committed
//! meanwhile. On SQLite there is one writer at a time, and an event's place is given with its row. On Postgres an event
//! is stamped with the transaction that wrote it and fed once all transactions up to that one have ended: then nothing
//! with such a stamp can come any more. A transaction that stays open, of whatever client of the server, so long as it
//! has written anything, holds up the feed and loses nothing of it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{QueueError, Result};
use crate::event::Event;
use crate::run::RunId;

/// Events of all runs, as far as they can be told for good.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Fed {
    /// Those of one run in the order of their numbers.
    pub events: Vec<FedEvent>,
    /// Where to go on, also if there is no event yet.
    pub next: FeedCursor,
}

impl Fed {
    /// The most events that one look gives.
    pub const MAX_LIMIT: u32 = 1_000;

    pub(crate) fn of(events: Vec<FedEvent>, after: Option<FeedCursor>) -> Self {
        let next = events.last().map(|event| event.cursor.clone());
        Self { next: next.or(after).unwrap_or_default(), events }
    }
}

/// An event and its place in the feed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FedEvent {
    pub cursor: FeedCursor,
    /// Of the run.
    pub tenant: String,
    pub event: Event,
}

/// A place in the feed of one database: behind an event, or at the start. To others it is a text.
///
/// It stays good when the event is forgotten, and over restarts. One that is ahead of the database, or of another kind of
/// database, is refused.
/// Places of one database have the order of the feed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(
        value_type = String,
        pattern = "^(0|s[0-9]{1,19}|p[0-9]{1,20}[.][0-9]{1,19}[.]run_[0-9A-HJKMNP-TV-Z]{26})$",
        examples("0", "s17", "p812.3.run_01J9ZC8E4QWX5T0N1V2B3M4K6P")
    )
)]
#[serde(try_from = "String", into = "String")]
pub struct FeedCursor(pub(crate) Place);

// In the order in which they stand here, each by its fields in turn, as the statements of the feed sort them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    #[default]
    Start,
    /// On SQLite.
    Row(u64),
    /// On Postgres.
    Stamped { xid: u64, run: RunId, seq: u64 },
}

impl FeedCursor {
    pub(crate) fn ahead() -> QueueError {
        QueueError::invalid(
            "the cursor is ahead of this database: it was made with another one, or a later state of it",
        )
    }

    pub(crate) fn foreign() -> QueueError {
        QueueError::invalid("the cursor was made with another kind of database")
    }
}

impl fmt::Display for FeedCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Start => f.write_str("0"),
            Place::Row(place) => write!(f, "s{place}"),
            Place::Stamped { xid, run, seq } => write!(f, "p{xid}.{seq}.{run}"),
        }
    }
}

impl FromStr for FeedCursor {
    type Err = QueueError;

    /// Takes exactly what was given out.
    fn from_str(text: &str) -> Result<Self> {
        let parsed = place(text).map(Self).filter(|cursor| cursor.to_string() == text);
        parsed.ok_or_else(|| QueueError::invalid(format!("{text:?} is not a cursor of the feed")))
    }
}

fn place(text: &str) -> Option<Place> {
    if text == "0" {
        return Some(Place::Start);
    }
    if let Some(place) = text.strip_prefix('s') {
        // What SQLite counts with.
        let place = place.parse::<i64>().ok().filter(|place| *place > 0)?;
        return Some(Place::Row(place.unsigned_abs()));
    }
    let mut parts = text.strip_prefix('p')?.splitn(3, '.');
    let xid = parts.next()?.parse().ok()?;
    let seq = parts.next()?.parse::<i64>().ok().filter(|seq| *seq > 0)?.unsigned_abs();
    Some(Place::Stamped { xid, seq, run: parts.next()?.parse().ok()? })
}

impl TryFrom<String> for FeedCursor {
    type Error = QueueError;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<FeedCursor> for String {
    fn from(cursor: FeedCursor) -> Self {
        cursor.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_in_no_other_way() {
        let stamped = "p812.3.run_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        for good in ["0", "s1", "s9223372036854775807", stamped] {
            assert_eq!(
                good.parse::<FeedCursor>().map(|cursor| cursor.to_string()).ok().as_deref(),
                Some(good)
            );
        }
        for bad in [
            "",
            "1",
            "00",
            "s",
            "s0",
            "s01",
            "s+1",
            "s-1",
            " s1",
            "s1 ",
            "s9223372036854775808",
            "S1",
            "p",
            "p1",
            "p1.2",
            "p1.2.",
            "p1.0.run_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "p01.2.run_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "p1.2.run_01ARZ3NDEKTSV4RRFFQ69G5FAV.3",
            "p1.2.run_x",
            "p99999999999999999999.1.run_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "s1\0",
            "p1.2.run_01ARZ3NDEKTSV4RRFFQ69G5FA\0",
        ] {
            assert!(matches!(bad.parse::<FeedCursor>(), Err(QueueError::Invalid { .. })), "{bad:?}");
        }
    }
}
