//! Entries: `put_entry`, `entry`, `entries`, `delete_entry`.

use sqlx::postgres::PgRow;

use super::connect::Database;
use super::failure::Tried;
use super::read::{big_number, instant, json, value};
use super::session::{Session, statement};
use super::sql;
use crate::entry::{Entry, NewEntry};
use crate::error::QueueError;

pub(super) async fn put(database: &Database, entry: &NewEntry, expected: Option<u64>) -> Tried<u64> {
    let mut connection = database.connection().await?;
    let written = statement(sql!("entry_put"))
        .bind(&entry.kind)
        .bind(&entry.key)
        .bind(entry.body.to_string())
        .bind(expected.map(u64::cast_signed))
        .fetch_optional(&mut connection)
        .await?;
    let Some(row) = written else {
        let found = look(&mut connection, &entry.kind, &entry.key).await?;
        return Err(QueueError::Stale {
            key: entry.key.clone(),
            expected: expected.unwrap_or_default(),
            found: found.map_or(0, |found| found.version),
        }
        .into());
    };
    connection.commit().await?;
    big_number(&row, "version")
}

pub(super) async fn get(database: &Database, kind: &str, key: &str) -> Tried<Option<Entry>> {
    let mut connection = database.connection().await?;
    look(&mut connection, kind, key).await
}

async fn look(connection: &mut Session<'_>, kind: &str, key: &str) -> Tried<Option<Entry>> {
    let row = statement(sql!("entry")).bind(kind).bind(key).fetch_optional(connection).await?;
    row.as_ref().map(entry).transpose()
}

pub(super) async fn list(
    database: &Database,
    kind: &str,
    after: Option<&str>,
    limit: u32,
) -> Tried<Vec<Entry>> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("entries"))
        .bind(kind)
        .bind(after)
        .bind(i64::from(limit.clamp(1, Entry::MAX_LIMIT)))
        .fetch_all(&mut connection)
        .await?;
    rows.iter().map(entry).collect()
}

pub(super) async fn delete(database: &Database, kind: &str, key: &str) -> Tried<bool> {
    let mut connection = database.connection().await?;
    let row = statement(sql!("entry_delete")).bind(kind).bind(key).fetch_optional(&mut connection).await?;
    connection.commit().await?;
    Ok(row.is_some())
}

fn entry(row: &PgRow) -> Tried<Entry> {
    Ok(Entry {
        kind: value(row, "kind")?,
        key: value(row, "key")?,
        version: big_number(row, "version")?,
        body: json(row, "body")?,
        updated_at: instant(row, "updated_at")?,
    })
}
