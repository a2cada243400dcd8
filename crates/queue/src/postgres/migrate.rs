//! The schema, brought up to date by whichever process comes first.

use sqlx::{Connection, PgConnection, Row};

use super::connect::{first_connection, parse, statement};
use super::failure::Tried;
use super::sql;
use crate::error::Result;
use crate::migration::{Migration, pending, refuse_pending};
use crate::open::OpenOptions;

const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "0001_queue",
    sql: include_str!("../../migrations/postgres/0001_queue.sql"),
}];

/// Applies what is missing, or refuses a database that is behind.
pub(super) async fn bring_up(connection: &mut PgConnection, migrate: bool) -> Result<()> {
    // Looking needs no lock and no right to change the schema.
    let missing = pending(MIGRATIONS, &applied(connection).await?)?;
    if missing.is_empty() {
        return Ok(());
    }
    if !migrate {
        return refuse_pending(missing);
    }
    apply_pending(connection).await?
}

pub(super) async fn pending_names(url: &str) -> Result<Vec<String>> {
    let mut connection = first_connection(&parse(url)?, OpenOptions::default().patience).await?;
    let missing = pending(MIGRATIONS, &applied(&mut connection).await?)?;
    Ok(missing.iter().map(|migration| migration.name.to_owned()).collect())
}

async fn applied(connection: &mut PgConnection) -> Tried<Vec<(i64, String)>> {
    let known: bool = statement(sql!("migrate_known")).fetch_one(&mut *connection).await?.try_get("known")?;
    if !known {
        return Ok(Vec::new());
    }
    let rows = statement(sql!("migrate_applied")).fetch_all(connection).await?;
    rows.iter().map(|row| Ok((row.try_get("version")?, row.try_get("checksum")?))).collect()
}

/// All steps in one transaction, after asking again under the lock what is missing: another process may have
/// been faster.
async fn apply_pending(connection: &mut PgConnection) -> Tried<Result<()>> {
    let mut tx = connection.begin().await?;
    statement(sql!("migrate_lock")).execute(&mut *tx).await?;
    statement(sql!("migrate_schema")).execute(&mut *tx).await?;
    statement(sql!("migrate_table")).execute(&mut *tx).await?;
    let missing = match pending(MIGRATIONS, &applied(&mut tx).await?) {
        Ok(missing) => missing,
        Err(refusal) => return Ok(Err(refusal)),
    };
    for migration in missing {
        sqlx::raw_sql(migration.sql).execute(&mut *tx).await?;
        statement(sql!("migrate_record"))
            .bind(migration.version)
            .bind(migration.name)
            .bind(migration.checksum())
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(Ok(()))
}
