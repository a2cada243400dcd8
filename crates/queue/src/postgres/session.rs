//! Where statements run: a connection, and how they have to be sent on it.
//!
//! Behind a pooler in transaction mode every transaction may come to another server connection. A statement that was
//! prepared under a name on one is unknown on the next, and the driver parses a statement and executes it in two steps
//! between which even the server connection of a lone statement may change. So there every statement is nameless and
//! inside a transaction; with Postgres itself, statements have names and a lone one commits by itself. A session knows
//! which of the two it is, and nothing runs but on a session.

use futures_util::TryStreamExt;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgQueryResult, PgRow};
use sqlx::query::Query;
use sqlx::{Encode, PgConnection, Postgres, Transaction, Type};

use super::failure::Tried;

#[derive(Debug)]
pub(super) struct Session<'c> {
    link: Link<'c>,
    /// Whether a pooler stands between us and the server.
    pooled: bool,
}

#[derive(Debug)]
enum Link<'c> {
    /// Every statement commits by itself.
    Alone(PoolConnection<Postgres>),
    /// As its owner would have it.
    Lent(&'c mut PgConnection),
    Within(Transaction<'c, Postgres>),
}

impl<'c> Session<'c> {
    pub(super) fn alone(connection: PoolConnection<Postgres>) -> Self {
        Self { link: Link::Alone(connection), pooled: false }
    }

    pub(super) fn lent(connection: &'c mut PgConnection, pooled: bool) -> Self {
        Self { link: Link::Lent(connection), pooled }
    }

    pub(super) fn within(tx: Transaction<'c, Postgres>, pooled: bool) -> Self {
        Self { link: Link::Within(tx), pooled }
    }

    /// For what is neither prepared nor has parameters.
    pub(super) fn raw(&mut self) -> &mut PgConnection {
        match &mut self.link {
            Link::Alone(connection) => connection,
            Link::Lent(connection) => connection,
            Link::Within(tx) => tx,
        }
    }

    /// Ends whatever writes; a session that only read may be dropped, which undoes nothing.
    pub(super) async fn commit(self) -> Tried<()> {
        match self.link {
            Link::Alone(_) | Link::Lent(_) => Ok(()),
            Link::Within(tx) => Ok(tx.commit().await?),
        }
    }

    async fn rollback(self) {
        if let Link::Within(tx) = self.link {
            let _ = tx.rollback().await;
        }
    }
}

/// Commits what went well and undoes the rest at once: a transaction that is merely dropped keeps its locks until its
/// connection is used again, and whoever pulls meanwhile skips those jobs.
pub(super) async fn close<T>(session: Session<'_>, outcome: Tried<T>) -> Tried<T> {
    match outcome {
        Ok(value) => {
            session.commit().await?;
            Ok(value)
        }
        Err(failure) => {
            session.rollback().await;
            Err(failure)
        }
    }
}

/// A statement on its way to a session.
pub(super) struct Statement(Query<'static, Postgres, PgArguments>);

pub(super) fn statement(sql: &'static str) -> Statement {
    Statement(sqlx::query(sql))
}

impl Statement {
    pub(super) fn bind<'t, T: Encode<'t, Postgres> + Type<Postgres>>(self, value: T) -> Self {
        Self(self.0.bind(value))
    }

    pub(super) async fn execute(self, session: &mut Session<'_>) -> sqlx::Result<PgQueryResult> {
        self.sent_on(session).execute(session.raw()).await
    }

    pub(super) async fn fetch_all(self, session: &mut Session<'_>) -> sqlx::Result<Vec<PgRow>> {
        self.sent_on(session).fetch_all(session.raw()).await
    }

    /// Reads each row as it arrives, while the server is still busy with those behind it.
    pub(super) async fn fetch_each(
        self,
        session: &mut Session<'_>,
        mut read: impl FnMut(&PgRow) -> Tried<()>,
    ) -> Tried<()> {
        let mut rows = self.sent_on(session).fetch(session.raw());
        while let Some(row) = rows.try_next().await? {
            read(&row)?;
        }
        Ok(())
    }

    pub(super) async fn fetch_one(self, session: &mut Session<'_>) -> sqlx::Result<PgRow> {
        self.sent_on(session).fetch_one(session.raw()).await
    }

    pub(super) async fn fetch_optional(self, session: &mut Session<'_>) -> sqlx::Result<Option<PgRow>> {
        self.sent_on(session).fetch_optional(session.raw()).await
    }

    fn sent_on(self, session: &Session<'_>) -> Query<'static, Postgres, PgArguments> {
        self.0.persistent(!session.pooled)
    }
}
