use std::any::Any;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rusqlite::{Connection, params};
use tokio::sync::Mutex;

use super::{BULK, BULK_BATCHES, Limit, PUSH_FOR};
use crate::ground::{payload, per_second};

/// As many as the worker under test settles in one commit: with fewer, this would be held back by its own fsyncs.
const CLAIM: u32 = 500;

const INSERT: &str = "INSERT INTO job (
    tenant, kind, lane, priority, fair_at, state, max_attempts, max_lost, backoff_base_ms, backoff_factor,
    backoff_cap_ms, payload, created_at
) VALUES ('', 'noop', 'cpu', 50, ?2, 'pending', 5, 3, 1000, 2, 3600000, ?1, ?2)";

const SCHEDULE: &str = "INSERT INTO job (
    tenant, kind, lane, priority, fair_at, state, run_at, max_attempts, max_lost, backoff_base_ms, backoff_factor,
    backoff_cap_ms, payload, created_at
)
WITH RECURSIVE series (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < ?1)
SELECT
    '', 'noop', 'cpu', 50, n, 'scheduled', (unixepoch() + 365 * 86400 + n) * 1000, 5, 3, 1000, 2, 3600000, ?2,
    unixepoch() * 1000
FROM series";

const CLAIM_BATCH: &str = "UPDATE job
SET state = 'running', fence = fence + 1, attempt = attempt + 1, worker = 1, claimed_at = ?2
WHERE id IN (
    SELECT id FROM job INDEXED BY job_ready
    WHERE state = 'pending' AND lane = 'cpu'
    ORDER BY priority DESC, fair_at, id
    LIMIT ?1
)
RETURNING id, payload";

const REMEMBER_BATCH: &str = "INSERT INTO job_done (
    id, tenant, run, step, kind, lane, priority, fair_at, state, run_at, generation, fence, settled_fence, worker, slot,
    claimed_at, timeout_ms, attempt, max_attempts, lost, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms,
    limit_key, unique_key, scratch_bytes, cost_ms, required, progress, checkpoint, error, payload, result, created_at, finished_at
)
SELECT
    id, tenant, run, step, kind, lane, priority, fair_at, 'completed', run_at, generation, fence, fence, worker, slot,
    claimed_at, timeout_ms, attempt, max_attempts, lost, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms,
    limit_key, unique_key, scratch_bytes, cost_ms, required, progress, checkpoint, error, payload, 'null', created_at, ?2
FROM job
WHERE id IN (SELECT value FROM json_each(?1))";

const FORGET_BATCH: &str = "DELETE FROM job WHERE id IN (SELECT value FROM json_each(?1))";

pub(crate) struct SqliteLimit {
    file: PathBuf,
    pusher: Mutex<Option<(Connection, UnixDatagram)>>,
}

impl SqliteLimit {
    pub(crate) fn new(file: PathBuf) -> Self {
        Self { file, pusher: Mutex::new(None) }
    }

    /// Runs blocking work on a connection that is set up as the queue's own are.
    async fn on_a_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> T + Send + 'static,
    ) -> T {
        let file = self.file.clone();
        tokio::task::spawn_blocking(move || work(&connect(&file))).await.expect("no panic")
    }
}

fn connect(file: &Path) -> Connection {
    let connection = Connection::open(file).expect("the file opens");
    connection.busy_timeout(Duration::from_secs(10)).expect("settings");
    connection
        .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY")
        .expect("settings");
    connection
}

fn insert(connection: &Connection, payload: &str) {
    let mut statement = connection.prepare_cached(INSERT).expect("prepare");
    statement.execute(params![payload, 1_700_000_000_000_i64]).expect("insert");
}

fn insert_batch(connection: &Connection, payloads: impl Iterator<Item = String>) {
    run(connection, "BEGIN IMMEDIATE");
    payloads.for_each(|payload| insert(connection, &payload));
    run(connection, "COMMIT");
}

fn run(connection: &Connection, sql: &str) {
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute([])).expect("run");
}

fn claim(connection: &Connection, jobs: u32) -> Vec<(i64, String)> {
    run(connection, "BEGIN IMMEDIATE");
    let claimed = {
        let mut statement = connection.prepare_cached(CLAIM_BATCH).expect("prepare");
        let rows = statement
            .query_map(params![jobs, 1_700_000_000_000_i64], |row| Ok((row.get(0)?, row.get(1)?)))
            .expect("claim");
        rows.collect::<Result<_, _>>().expect("claim")
    };
    run(connection, "COMMIT");
    claimed
}

fn settle(connection: &Connection, claimed: &[(i64, String)]) -> usize {
    let ids: Vec<i64> = claimed.iter().map(|(id, _)| *id).collect();
    let ids = serde_json::to_string(&ids).expect("numbers");
    run(connection, "BEGIN IMMEDIATE");
    let mut remember = connection.prepare_cached(REMEMBER_BATCH).expect("prepare");
    remember.execute(params![ids, 1_700_000_000_000_i64]).expect("remember");
    let gone = connection.prepare_cached(FORGET_BATCH).and_then(|mut it| it.execute([&ids])).expect("forget");
    run(connection, "COMMIT");
    gone
}

#[async_trait]
impl Limit for SqliteLimit {
    /// From one thread: SQLite has one writer at a time, however many producers there are.
    async fn push_one(&self) -> f64 {
        self.on_a_thread(|connection| {
            let (started, mut pushed) = (Instant::now(), 0);
            while started.elapsed() < PUSH_FOR {
                insert(connection, &payload(pushed).to_string());
                pushed += 1;
            }
            per_second(pushed, started.elapsed())
        })
        .await
    }

    async fn push_bulk(&self) -> f64 {
        self.on_a_thread(|connection| {
            let batches: Vec<Vec<_>> =
                (0..BULK_BATCHES).map(|_| (0..BULK as u64).map(payload).collect()).collect();
            let started = Instant::now();
            for batch in batches {
                insert_batch(connection, batch.iter().map(ToString::to_string));
            }
            per_second((BULK_BATCHES * BULK) as u64, started.elapsed())
        })
        .await
    }

    async fn drain(&self, jobs: u64) -> f64 {
        self.on_a_thread(move |connection| {
            for from in (0..jobs).step_by(BULK) {
                let batch = from..jobs.min(from + BULK as u64);
                insert_batch(connection, batch.map(|n| payload(n).to_string()));
            }
            let (started, mut done) = (Instant::now(), 0);
            loop {
                let claimed = claim(connection, CLAIM);
                if claimed.is_empty() {
                    break;
                }
                done += settle(connection, &claimed) as u64;
            }
            let took = started.elapsed();
            assert_eq!(done, jobs, "the raw drain settles every job once");
            per_second(jobs, took)
        })
        .await
    }

    async fn schedule(&self, jobs: u64) {
        self.on_a_thread(move |connection| {
            let stored = params![jobs.cast_signed(), payload(0).to_string()];
            connection.execute(SCHEDULE, stored).expect("insert");
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("checkpoint");
        })
        .await;
    }

    async fn pin(&self) -> Box<dyn Any + Send> {
        let connection = connect(&self.file);
        connection.execute_batch("BEGIN").expect("begin");
        let _: i64 =
            connection.query_row("SELECT COUNT(*) FROM worker", [], |row| row.get(0)).expect("a snapshot");
        Box::new(connection)
    }

    async fn push_and_ring(&self, bell: &Path, sent_ns: u64) {
        let mut pusher = self.pusher.lock().await;
        let (connection, socket) =
            pusher.get_or_insert_with(|| (connect(&self.file), UnixDatagram::unbound().expect("a socket")));
        insert(connection, &payload(sent_ns).to_string());
        socket.send_to(&[1], bell).expect("the other end listens");
    }

    async fn answer_bells(&self, bell: &Path, ready: &(dyn Fn() + Sync), claimed: &(dyn Fn(u64) + Sync)) {
        let connection = connect(&self.file);
        let socket = UnixDatagram::bind(bell).expect("a socket");
        ready();
        loop {
            socket.recv(&mut [0]).expect("a bell");
            let jobs = claim(&connection, CLAIM);
            jobs.iter().for_each(|(_, payload)| claimed(super::sent_ns(payload)));
            settle(&connection, &jobs);
        }
    }
}
