//! The raw limit: the same durable row changes, issued directly on the same tables, batched the same way.
//!
//! Nothing is fenced, counted or woken here, and values that are the same for every job are constants in the
//! statement: less cannot be written to store, claim and settle the same rows.

mod postgres;
mod sqlite;

use std::any::Any;
use std::time::Duration;

use async_trait::async_trait;

pub(crate) use postgres::PostgresLimit;
pub(crate) use sqlite::SqliteLimit;

/// Callers that push at the same time, one job a push.
pub(crate) const PRODUCERS: usize = 8;
/// How long they do.
pub(crate) const PUSH_FOR: Duration = Duration::from_secs(2);
/// Jobs of one push in bulk.
pub(crate) const BULK: usize = 1_000;
pub(crate) const BULK_BATCHES: usize = 40;

#[async_trait]
pub(crate) trait Limit: Send + Sync + 'static {
    /// Single rows, each in a commit of its own, in jobs per second.
    async fn push_one(&self) -> f64;

    async fn push_bulk(&self) -> f64;

    /// Fills the table, then claims, deletes and remembers all of it.
    async fn drain(&self, jobs: u64) -> f64;

    /// Stores jobs that are due in a year.
    async fn schedule(&self, jobs: u64);

    /// Holds a snapshot of now open until it is dropped.
    async fn pin(&self) -> Box<dyn Any + Send>;

    /// Stores one job that carries `sent_ns` and wakes the process that runs `answer_bells`.
    async fn push_and_ring(&self, bell: &std::path::Path, sent_ns: u64);

    /// Claims what it is woken for and tells when: the other end of `push_and_ring`.
    async fn answer_bells(
        &self,
        bell: &std::path::Path,
        ready: &(dyn Fn() + Sync),
        claimed: &(dyn Fn(u64) + Sync),
    );
}

/// When the payload of a claimed job says that it was sent.
fn sent_ns(payload: &str) -> u64 {
    let payload: serde_json::Value = serde_json::from_str(payload).expect("a payload of our own");
    payload["n"].as_u64().expect("a number")
}
