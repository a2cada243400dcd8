//! The schema, brought up to date by whichever process comes first.

use sqlx::{PgConnection, Row};

use super::connect::Server;
use super::failure::Tried;
use super::session::{Session, close, statement};
use super::sql;
use crate::error::Result;
use crate::migration::{Migration, pending, refuse_pending};
use crate::open::OpenOptions;

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "0001_queue",
        sql: include_str!("../../migrations/postgres/0001_queue.sql"),
    },
    Migration { version: 2, name: "0002_runs", sql: include_str!("../../migrations/postgres/0002_runs.sql") },
    Migration {
        version: 3,
        name: "0003_entries",
        sql: include_str!("../../migrations/postgres/0003_entries.sql"),
    },
    Migration { version: 4, name: "0004_feed", sql: include_str!("../../migrations/postgres/0004_feed.sql") },
    Migration { version: 5, name: "0005_ages", sql: include_str!("../../migrations/postgres/0005_ages.sql") },
];

/// Applies what is missing, or refuses a database that is behind.
pub(super) async fn bring_up(server: &Server, connection: &mut PgConnection, migrate: bool) -> Result<()> {
    // Looking needs no lock and no right to change the schema.
    let missing = pending(MIGRATIONS, &look(server, connection).await?)?;
    if missing.is_empty() {
        return Ok(());
    }
    if !migrate {
        return refuse_pending(missing);
    }
    let mut tx = server.begin_on(connection).await?;
    let outcome = apply_pending(&mut tx).await;
    close(tx, outcome).await?
}

pub(super) async fn pending_names(url: &str) -> Result<Vec<String>> {
    let server = Server::of(url, OpenOptions::default().patience)?;
    let mut connection = server.first_connection().await?;
    let missing = pending(MIGRATIONS, &look(&server, &mut connection).await?)?;
    Ok(missing.iter().map(|migration| migration.name.to_owned()).collect())
}

async fn look(server: &Server, connection: &mut PgConnection) -> Tried<Vec<(i64, String)>> {
    let mut session = server.session_on(connection).await?;
    let applied = applied(&mut session).await;
    close(session, applied).await
}

async fn applied(session: &mut Session<'_>) -> Tried<Vec<(i64, String)>> {
    let known: bool = statement(sql!("migrate_known")).fetch_one(&mut *session).await?.try_get("known")?;
    if !known {
        return Ok(Vec::new());
    }
    let rows = statement(sql!("migrate_applied")).fetch_all(session).await?;
    rows.iter().map(|row| Ok((row.try_get("version")?, row.try_get("checksum")?))).collect()
}

/// All steps in one transaction, after asking again under the lock what is missing: another process may have
/// been faster.
async fn apply_pending(tx: &mut Session<'_>) -> Tried<Result<()>> {
    statement(sql!("migrate_lock")).execute(&mut *tx).await?;
    statement(sql!("migrate_schema")).execute(&mut *tx).await?;
    statement(sql!("migrate_table")).execute(&mut *tx).await?;
    let missing = match pending(MIGRATIONS, &applied(tx).await?) {
        Ok(missing) => missing,
        Err(refusal) => return Ok(Err(refusal)),
    };
    for migration in missing {
        sqlx::raw_sql(migration.sql).execute(tx.raw()).await?;
        statement(sql!("migrate_record"))
            .bind(migration.version)
            .bind(migration.name)
            .bind(migration.checksum())
            .execute(&mut *tx)
            .await?;
    }
    Ok(Ok(()))
}
