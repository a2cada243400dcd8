//! Entries: `put_entry`, `entry`, `entries`, `delete_entry`.

use rusqlite::{Connection, OptionalExtension, params};

use super::writer::Tx;
use super::{row, sql};
use crate::entry::{Entry, NewEntry};
use crate::error::{QueueError, Result};

pub(super) fn put(tx: &Tx<'_>, entry: &NewEntry, expected: Option<u64>) -> Result<u64> {
    let at = params![entry.kind, entry.key];
    let found = tx.first(sql!("entry"), at, |row| row.get::<_, i64>(2))?.map_or(0, i64::unsigned_abs);
    if let Some(expected) = expected.filter(|expected| *expected != found) {
        return Err(QueueError::Stale { key: entry.key.clone(), expected, found });
    }
    let body = entry.body.to_string();
    tx.run(sql!("entry_put"), params![entry.kind, entry.key, body, tx.now.as_ms()])?;
    Ok(found + 1)
}

pub(super) fn get(connection: &Connection, kind: &str, key: &str) -> rusqlite::Result<Option<Entry>> {
    connection.prepare_cached(sql!("entry"))?.query_row([kind, key], row::entry).optional()
}

pub(super) fn list(
    connection: &Connection,
    kind: &str,
    after: Option<&str>,
    limit: u32,
) -> rusqlite::Result<Vec<Entry>> {
    let limit = limit.clamp(1, Entry::MAX_LIMIT);
    connection.prepare_cached(sql!("entries"))?.query_map(params![kind, after, limit], row::entry)?.collect()
}

pub(super) fn delete(tx: &Tx<'_>, kind: &str, key: &str) -> Result<bool> {
    Ok(tx.run(sql!("entry_delete"), [kind, key])? == 1)
}
