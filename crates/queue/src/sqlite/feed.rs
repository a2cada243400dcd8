//! The feed: `feed`, `feed_end`.

use rusqlite::{Connection, params};

use super::{row, sql};
use crate::error::{QueueError, Result};
use crate::feed::{Fed, FedEvent, FeedCursor, Place};

/// The place that a cursor names.
pub(super) fn place_of(after: Option<&FeedCursor>) -> Result<u64> {
    match after.map(|after| &after.0) {
        None | Some(Place::Start) => Ok(0),
        Some(Place::Row(place)) => Ok(*place),
        Some(Place::Stamped { .. }) => Err(FeedCursor::foreign()),
    }
}

/// `Err`: the place is ahead of all there ever was.
pub(super) fn feed(
    connection: &Connection,
    after: u64,
    limit: u32,
) -> rusqlite::Result<Result<Vec<FedEvent>, QueueError>> {
    let limit = limit.clamp(1, Fed::MAX_LIMIT);
    let events: Vec<FedEvent> = connection
        .prepare_cached(sql!("feed"))?
        .query_map(params![after.cast_signed(), limit], row::fed_event)?
        .collect::<rusqlite::Result<_>>()?;
    if events.is_empty() && after > ends(connection)?.1 {
        return Ok(Err(FeedCursor::ahead()));
    }
    Ok(Ok(events))
}

pub(super) fn end(connection: &Connection) -> rusqlite::Result<FeedCursor> {
    Ok(row::feed_cursor(ends(connection)?.0))
}

/// The places of the last event that there is and that there ever was.
fn ends(connection: &Connection) -> rusqlite::Result<(u64, u64)> {
    connection
        .prepare_cached(sql!("feed_end"))?
        .query_row([], |row| Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get::<_, i64>(1)?.unsigned_abs())))
}
