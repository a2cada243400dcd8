//! From a URL to a queue.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{QueueError, Result};
use crate::postgres::PostgresQueue;
use crate::queue::Queue;
use crate::sqlite::SqliteQueue;
use crate::traced::traced;

/// How to open a database.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Bring the schema up to date. Without it, a database that is behind is refused.
    pub migrate: bool,
    /// How long a call waits for another process's lock, or for a connection, before it gives up.
    pub patience: Duration,
    /// Postgres connections for everything but the beat and LISTEN, which have one each. Five are enough for a worker's two
    /// pulls, two finishes and the rest; each further one has its statements planned anew first.
    pub max_connections: u32,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { migrate: true, patience: Duration::from_secs(10), max_connections: 5 }
    }
}

/// Opens `sqlite:path/to/file` (made if missing) or `postgres://…`, bringing its schema up to date.
pub async fn open(url: &str) -> Result<Arc<dyn Queue>> {
    open_with(url, &OpenOptions::default()).await
}

pub async fn open_with(url: &str, options: &OpenOptions) -> Result<Arc<dyn Queue>> {
    match Database::of(url)? {
        Database::Sqlite(path) => Ok(traced(Arc::new(SqliteQueue::open(path, options).await?))),
        Database::Postgres(url) => Ok(traced(Arc::new(PostgresQueue::open(url, options).await?))),
    }
}

/// The names of the migrations that the database still needs. Changes nothing; a missing SQLite file needs all.
pub async fn pending_migrations(url: &str) -> Result<Vec<String>> {
    match Database::of(url)? {
        Database::Sqlite(path) => SqliteQueue::pending_migrations(path).await,
        Database::Postgres(url) => PostgresQueue::pending_migrations(url).await,
    }
}

/// Copies a SQLite database, as it is at one instant, into a new file: whole and on the disk when this returns. Others go on
/// working meanwhile. Postgres has tools of its own for that.
pub async fn backup(url: &str, into: &Path) -> Result<()> {
    match Database::of(url)? {
        Database::Sqlite(path) => SqliteQueue::backup(path, into).await,
        Database::Postgres(_) => Err(QueueError::invalid(
            "a Postgres database is backed up by its own tools: use pg_dump, or archive its WAL",
        )),
    }
}

enum Database<'a> {
    Sqlite(&'a str),
    Postgres(&'a str),
}

impl<'a> Database<'a> {
    fn of(url: &'a str) -> Result<Self> {
        match url.split_once(':') {
            Some(("sqlite", path)) if path.contains('?') || path.contains(":memory:") => {
                Err(QueueError::invalid(
                    "a SQLite URL is sqlite:FILE and nothing else: no options after `?`, and no `:memory:`, for a queue in \
                 memory would lose its jobs",
                ))
            }
            Some(("sqlite", path)) if !path.is_empty() => {
                Ok(Self::Sqlite(path.strip_prefix("//").unwrap_or(path)))
            }
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(url)),
            // The URL may carry a password: only its scheme is repeated.
            _ => Err(QueueError::invalid(format!(
                "`{}` is not a database URL: use sqlite:FILE or postgres://USER@HOST/DATABASE",
                url.split(':').next().unwrap_or_default()
            ))),
        }
    }
}
