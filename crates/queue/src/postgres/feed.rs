//! The feed: `feed`, `feed_end`, and what a database that came from another server needs for it.

use sqlx::PgConnection;
use sqlx::postgres::PgRow;

use super::connect::{Database, Server};
use super::events::event;
use super::failure::{Tried, unreadable};
use super::read::{big_number, parsed, value};
use super::session::{Session, close, statement};
use super::sql;
use crate::error::Result;
use crate::feed::{Fed, FedEvent, FeedCursor, Place};

pub(super) async fn feed(database: &Database, after: Option<&FeedCursor>, limit: u32) -> Tried<Fed> {
    let (xid, run, seq) = match after.map(|after| &after.0) {
        None | Some(Place::Start) => (0, "", 0),
        Some(Place::Stamped { xid, run, seq }) => (*xid, run.as_str(), seq.cast_signed()),
        Some(Place::Row(_)) => return Err(FeedCursor::foreign().into()),
    };
    let mut connection = database.connection().await?;
    let rows = statement(sql!("feed"))
        .bind(xid.to_string())
        .bind(run)
        .bind(seq)
        .bind(i64::from(limit.clamp(1, Fed::MAX_LIMIT)))
        .fetch_all(&mut connection)
        .await?;
    // Where there is more, the cursor cannot be ahead.
    if rows.is_empty() && !is_known(&mut connection, xid).await? {
        return Err(FeedCursor::ahead().into());
    }
    let fed = |row: &PgRow| {
        Ok(FedEvent { cursor: cursor(row)?, tenant: value(row, "tenant")?, event: event(row)? })
    };
    Ok(Fed::of(rows.iter().map(fed).collect::<Tried<Vec<_>>>()?, after.cloned()))
}

async fn is_known(connection: &mut Session<'_>, xid: u64) -> Tried<bool> {
    let row = statement(sql!("feed_known")).bind(xid.to_string()).fetch_one(connection).await?;
    value(&row, "known")
}

/// The last event and not the last transaction: after a crash the server counts on from what it had written down, and
/// may give numbers again that only transactions without effect had.
pub(super) async fn end(database: &Database) -> Tried<FeedCursor> {
    let mut connection = database.connection().await?;
    let row = statement(sql!("feed_end")).fetch_optional(&mut connection).await?;
    row.as_ref().map_or_else(|| Ok(FeedCursor::default()), cursor)
}

fn cursor(row: &PgRow) -> Tried<FeedCursor> {
    let xid = value::<&str>(row, "xid")?.parse().map_err(|why| unreadable("xid", why))?;
    Ok(FeedCursor(Place::Stamped { xid, run: parsed(row, "run")?, seq: big_number(row, "seq")? }))
}

/// Every server counts its own transactions: what a dump brought here may be stamped with some that are still to come.
pub(super) async fn adopt(server: &Server, connection: &mut PgConnection) -> Result<()> {
    let mut tx = server.begin_on(connection).await?;
    let adopted = adopt_foreign(&mut tx).await;
    Ok(close(tx, adopted).await?)
}

async fn adopt_foreign(tx: &mut Session<'_>) -> Tried<()> {
    let row = statement(sql!("feed_foreign")).fetch_one(&mut *tx).await?;
    if value(&row, "known")? {
        let runs = statement(sql!("feed_adopt")).execute(tx).await?.rows_affected();
        tracing::warn!(runs, "events came from another server; they are fed again");
    }
    Ok(())
}
