use std::any::Any;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPool};
use sqlx::{ConnectOptions, Connection, PgConnection, Row};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::{BULK, BULK_BATCHES, Limit, PRODUCERS, PUSH_FOR};
use crate::ground::{payload, per_second};

/// A worker's connections: 2 come close to what more would give.
const CONNECTIONS: usize = 2;
const CLAIM: i64 = 500;

/// As the queue's own sessions are.
const SESSION: &str =
    "SET synchronous_commit = on; SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off";

const INSERT: &str = "INSERT INTO telecine.job (
    tenant, kind, lane, priority, fair_at, state, max_attempts, max_lost, backoff_base_ms, backoff_factor,
    backoff_cap_ms, payload, created_at
) VALUES (
    '', 'noop', 'cpu', 50, (EXTRACT(EPOCH FROM now()) * 1000000)::BIGINT, 'pending', 5, 3, 1000, 2, 3600000, $1::JSON,
    now()
)";

const INSERT_AND_NOTIFY: &str = "WITH stored AS (INSERT INTO telecine.job (
    tenant, kind, lane, priority, fair_at, state, max_attempts, max_lost, backoff_base_ms, backoff_factor,
    backoff_cap_ms, payload, created_at
) VALUES (
    '', 'noop', 'cpu', 50, (EXTRACT(EPOCH FROM now()) * 1000000)::BIGINT, 'pending', 5, 3, 1000, 2, 3600000, $1::JSON,
    now()
)) SELECT pg_notify('raw', '')";

const INSERT_BULK: &str = "INSERT INTO telecine.job (
    tenant, kind, lane, priority, fair_at, state, max_attempts, max_lost, backoff_base_ms, backoff_factor,
    backoff_cap_ms, payload, created_at
)
SELECT
    '', 'noop', 'cpu', 50, (EXTRACT(EPOCH FROM now()) * 1000000)::BIGINT, 'pending', 5, 3, 1000, 2, 3600000,
    payload::JSON, now()
FROM UNNEST($1::TEXT[]) AS payload";

const SCHEDULE: &str = "INSERT INTO telecine.job (
    tenant, kind, lane, priority, fair_at, state, run_at, max_attempts, max_lost, backoff_base_ms, backoff_factor,
    backoff_cap_ms, payload, created_at
)
SELECT
    '', 'noop', 'cpu', 50, n, 'scheduled', now() + INTERVAL '1 year' + n * INTERVAL '1 second', 5, 3, 1000, 2, 3600000,
    $2::JSON, now()
FROM generate_series(1, $1) AS n";

const CLAIM_BATCH: &str = "UPDATE telecine.job
SET state = 'running', fence = fence + 1, attempt = attempt + 1, worker = 1, claimed_at = now()
WHERE id = ANY(ARRAY(
    SELECT id FROM telecine.job
    WHERE state = 'pending' AND lane = 'cpu'
    ORDER BY priority DESC, fair_at, id
    LIMIT $1
    FOR UPDATE SKIP LOCKED
))
RETURNING id, payload::TEXT";

const SETTLE_BATCH: &str = "WITH gone AS (DELETE FROM telecine.job WHERE id = ANY($1) RETURNING *)
INSERT INTO telecine.job_done (
    id, tenant, run, step, kind, lane, priority, fair_at, state, run_at, generation, fence, settled_fence, worker, slot,
    claimed_at, timeout_ms, attempt, max_attempts, lost, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms,
    limit_key, unique_key, scratch_bytes, cost_ms, required, progress, checkpoint, error, payload, result, created_at, finished_at
)
SELECT
    id, tenant, run, step, kind, lane, priority, fair_at, 'completed', run_at, generation, fence, fence, worker, slot,
    claimed_at, timeout_ms, attempt, max_attempts, lost, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms,
    limit_key, unique_key, scratch_bytes, cost_ms, required, progress, checkpoint, error, payload, 'null', created_at, now()
FROM gone";

pub(crate) struct PostgresLimit {
    options: PgConnectOptions,
    pusher: Mutex<Option<PgConnection>>,
}

impl PostgresLimit {
    pub(crate) fn new(url: &str) -> Self {
        let options = PgConnectOptions::from_str(url).expect("a URL of our own");
        Self { options, pusher: Mutex::new(None) }
    }

    async fn connect(&self) -> PgConnection {
        let mut connection = self.options.connect().await.expect("the server runs");
        sqlx::raw_sql(SESSION).execute(&mut connection).await.expect("settings");
        connection
    }

    async fn fill(&self, jobs: u64) {
        let mut connection = self.connect().await;
        for from in (0..jobs).step_by(BULK) {
            let payloads: Vec<String> =
                (from..jobs.min(from + BULK as u64)).map(|n| payload(n).to_string()).collect();
            sqlx::query(INSERT_BULK).bind(payloads).execute(&mut connection).await.expect("insert");
        }
    }
}

#[async_trait]
impl Limit for PostgresLimit {
    async fn push_one(&self) -> f64 {
        let mut connections = Vec::new();
        for _ in 0..PRODUCERS {
            connections.push(self.connect().await);
        }
        let started = Instant::now();
        let mut producers = JoinSet::new();
        for mut connection in connections {
            producers.spawn(async move {
                let mut pushed = 0;
                while started.elapsed() < PUSH_FOR {
                    let stored = sqlx::query(INSERT).bind(payload(pushed).to_string());
                    stored.execute(&mut connection).await.expect("insert");
                    pushed += 1;
                }
                pushed
            });
        }
        let pushed = producers.join_all().await.iter().sum();
        per_second(pushed, started.elapsed())
    }

    async fn push_bulk(&self) -> f64 {
        let mut connection = self.connect().await;
        let batches: Vec<Vec<_>> =
            (0..BULK_BATCHES).map(|_| (0..BULK as u64).map(payload).collect()).collect();
        let started = Instant::now();
        for batch in batches {
            let payloads: Vec<String> = batch.iter().map(ToString::to_string).collect();
            sqlx::query(INSERT_BULK).bind(payloads).execute(&mut connection).await.expect("insert");
        }
        per_second((BULK_BATCHES * BULK) as u64, started.elapsed())
    }

    async fn drain(&self, jobs: u64) -> f64 {
        self.fill(jobs).await;
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(self.connect().await);
        }
        let done = Arc::new(AtomicU64::new(0));
        let started = Instant::now();
        let mut workers = JoinSet::new();
        for mut connection in connections {
            let done = Arc::clone(&done);
            workers.spawn(async move {
                loop {
                    let claimed = sqlx::query(CLAIM_BATCH).bind(CLAIM);
                    let claimed = claimed.fetch_all(&mut connection).await.expect("claim");
                    if claimed.is_empty() {
                        return;
                    }
                    let ids: Vec<i64> = claimed.iter().map(|row| row.get(0)).collect();
                    let settled = sqlx::query(SETTLE_BATCH).bind(ids).execute(&mut connection).await;
                    done.fetch_add(settled.expect("settle").rows_affected(), Ordering::Relaxed);
                }
            });
        }
        workers.join_all().await;
        let took = started.elapsed();
        assert_eq!(done.load(Ordering::Relaxed), jobs, "the raw drain settles every job once");
        per_second(jobs, took)
    }

    async fn schedule(&self, jobs: u64) {
        let mut connection = self.connect().await;
        let stored = sqlx::query(SCHEDULE).bind(jobs.cast_signed()).bind(payload(0).to_string());
        stored.execute(&mut connection).await.expect("insert");
        sqlx::raw_sql("VACUUM ANALYZE telecine.job").execute(&mut connection).await.expect("vacuum");
    }

    async fn pin(&self) -> Box<dyn Any + Send> {
        let mut connection = self.connect().await;
        sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM telecine.job LIMIT 1")
            .execute(&mut connection)
            .await
            .expect("a snapshot");
        Box::new(connection)
    }

    async fn push_and_ring(&self, _: &Path, sent_ns: u64) {
        let mut pusher = self.pusher.lock().await;
        let connection = match &mut *pusher {
            Some(connection) => connection,
            none => none.insert(self.connect().await),
        };
        let stored = sqlx::query(INSERT_AND_NOTIFY).bind(payload(sent_ns).to_string());
        stored.execute(connection).await.expect("insert");
    }

    async fn answer_bells(&self, _: &Path, ready: &(dyn Fn() + Sync), claimed: &(dyn Fn(u64) + Sync)) {
        let pool = PgPool::connect_lazy_with(self.options.clone());
        let mut listener = PgListener::connect_with(&pool).await.expect("a listener");
        listener.listen("raw").await.expect("listen");
        let mut connection = self.connect().await;
        connection.ping().await.expect("the server runs");
        ready();
        loop {
            listener.recv().await.expect("a notification");
            let rows = sqlx::query(CLAIM_BATCH).bind(CLAIM).fetch_all(&mut connection).await.expect("claim");
            for row in &rows {
                claimed(super::sent_ns(row.get(1)));
            }
            let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            sqlx::query(SETTLE_BATCH).bind(ids).execute(&mut connection).await.expect("settle");
        }
    }
}
