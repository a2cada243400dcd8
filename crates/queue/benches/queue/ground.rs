//! A fresh database, and the jobs that go through it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use telecine_queue::{NewJob, Queue, Slots, WorkerOptions, open};
use tempfile::TempDir;

use crate::limit::{Limit, PostgresLimit, SqliteLimit};
use crate::postgres_server::PostgresServer;

/// What the no-op jobs are called.
pub(crate) const KIND: &str = "noop";
/// Bytes of a payload, as JSON text.
const PAYLOAD_BYTES: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
}

impl Database {
    pub(crate) const ALL: [Self; 2] = [Self::Sqlite, Self::Postgres];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|database| database.name() == name)
    }
}

pub(crate) struct Ground {
    pub(crate) database: Database,
    pub(crate) url: String,
    folder: TempDir,
}

impl Ground {
    pub(crate) fn new(database: Database, server: Option<&PostgresServer>) -> Self {
        let folder =
            tempfile::Builder::new().prefix("telecine-bench-").tempdir().expect("a temporary folder");
        let url = match server {
            None => format!("sqlite:{}", folder.path().join("queue.db").display()),
            Some(server) => server.new_database(),
        };
        Self { database, url, folder }
    }

    pub(crate) async fn open(&self) -> Arc<dyn Queue> {
        open(&self.url).await.expect("the database opens")
    }

    pub(crate) fn limit(&self) -> Arc<dyn Limit> {
        match self.database {
            Database::Sqlite => Arc::new(SqliteLimit::new(self.file())),
            Database::Postgres => Arc::new(PostgresLimit::new(&self.url)),
        }
    }

    /// Where the raw loop's doorbell may be.
    pub(crate) fn bell(&self) -> PathBuf {
        self.folder.path().join("bell")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("queue.db")
    }
}

pub(crate) fn job(n: u64) -> NewJob {
    NewJob::new(KIND, payload(n))
}

pub(crate) fn payload(n: u64) -> serde_json::Value {
    let frame = json!({ "n": n, "text": "" }).to_string().len();
    json!({ "n": n, "text": "x".repeat(PAYLOAD_BYTES - frame) })
}

/// A worker as an operator would start it, with so many slots.
pub(crate) fn worker_options(slots: u32) -> WorkerOptions {
    WorkerOptions { slots: Slots::Each(slots), ..WorkerOptions::default() }
}

pub(crate) fn per_second(jobs: u64, took: Duration) -> f64 {
    jobs as f64 / took.as_secs_f64()
}
