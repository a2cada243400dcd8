//! What a test stands on: a fresh database, workers with short leases, and ways to wait for things.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use telecine_queue::{
    Claimed, Count, Finish, Job, JobFilter, JobId, JobState, Kinds, NewJob, NewWorker, OpenOptions, Outcome,
    Page, Pull, Push, Queue, Runtime, Settled, Slots, WorkerId, WorkerOptions, open_with,
};
use tempfile::TempDir;

use crate::postgres_server::PostgresServer;

/// Short enough to wait for, long enough for a busy machine to keep.
pub(crate) const LEASE: Duration = Duration::from_millis(1_500);
pub(crate) const SWEEP: Duration = Duration::from_millis(100);

/// No condition takes this long on a working queue, however busy the machine.
const PATIENCE: Duration = Duration::from_secs(180);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
}

impl Database {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

pub(crate) struct Ground {
    pub(crate) database: Database,
    pub(crate) url: String,
    pub(crate) folder: TempDir,
    pub(crate) server: PostgresServer,
}

pub(crate) type Promise = fn(Arc<Ground>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) fn run_on(ground: Ground, promise: Promise) -> Result<(), Failed> {
    run(promise(Arc::new(ground)))
}

pub(crate) fn run(test: impl Future<Output = ()>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(test);
    runtime.shutdown_timeout(Duration::from_secs(5));
    Ok(())
}

impl Ground {
    pub(crate) fn new(database: Database, server: &PostgresServer) -> Self {
        let folder =
            tempfile::Builder::new().prefix("telecine-queue-").tempdir().expect("a temporary folder");
        let url = match database {
            Database::Sqlite => format!("sqlite:{}", folder.path().join("queue.db").display()),
            Database::Postgres => server.new_database(),
        };
        Self { database, url, folder, server: server.clone() }
    }

    /// A handle of its own, as another process would have it.
    pub(crate) async fn open(&self) -> Arc<dyn Queue> {
        // More patience than a busy machine can try: tests that are about impatience open their own.
        let options = OpenOptions { patience: Duration::from_secs(60), ..OpenOptions::default() };
        open_with(&self.url, &options).await.expect("the database opens")
    }
}

/// Waits until `look` gives a value.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < until, "waited {PATIENCE:?} in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn wait_for_state(queue: &Arc<dyn Queue>, id: JobId, state: JobState) -> Job {
    eventually(&format!("job {id} is {state}"), || async {
        queue.get(id).await.expect("get").filter(|job| job.state == state)
    })
    .await
}

pub(crate) async fn wait_until_none_is_live(queue: &Arc<dyn Queue>) -> Vec<Count> {
    eventually("every job has ended", || async {
        let counts = queue.counts().await.expect("counts");
        counts.iter().all(|count| count.state.is_terminal()).then_some(counts)
    })
    .await
}

pub(crate) async fn push_one(queue: &Arc<dyn Queue>, job: NewJob) -> JobId {
    queue.push(vec![job.into()]).await.expect("push")[0].jobs[0]
}

pub(crate) async fn push_all(queue: &Arc<dyn Queue>, jobs: impl IntoIterator<Item = NewJob>) -> Vec<JobId> {
    queue.push(vec![Push::jobs(jobs)]).await.expect("push").remove(0).jobs
}

/// A worker that is driven by hand.
pub(crate) async fn register(queue: &Arc<dyn Queue>) -> WorkerId {
    register_for(queue, Duration::from_secs(60)).await
}

pub(crate) async fn register_for(queue: &Arc<dyn Queue>, lease: Duration) -> WorkerId {
    let worker = NewWorker {
        name: "by-hand".into(),
        host: "here".into(),
        pid: std::process::id(),
        slots: BTreeMap::from([("cpu".into(), 1)]),
        kinds: vec!["work".into()],
        lease,
        holding: Vec::new(),
    };
    queue.register(worker).await.expect("register")
}

pub(crate) fn pull_request(worker: WorkerId, slots: u32) -> Pull {
    Pull {
        worker,
        lanes: BTreeMap::from([("cpu".into(), slots)]),
        kinds: vec!["work".into()],
        free_scratch_bytes: u64::MAX,
    }
}

pub(crate) async fn pull(queue: &Arc<dyn Queue>, worker: WorkerId, slots: u32) -> Vec<Claimed> {
    queue.pull(pull_request(worker, slots)).await.expect("pull")
}

pub(crate) async fn pull_one(queue: &Arc<dyn Queue>, worker: WorkerId) -> Claimed {
    pull(queue, worker, 1).await.pop().expect("a job is ready")
}

pub(crate) async fn settle(queue: &Arc<dyn Queue>, claimed: Claimed, outcome: Outcome) -> Settled {
    queue.finish(&[Finish::new(claimed.claim, outcome)]).await.expect("finish")[0]
}

pub(crate) fn done() -> Outcome {
    Outcome::Complete { result: serde_json::json!({"ok": true}) }
}

pub(crate) fn failed(message: &str) -> Outcome {
    Outcome::Fail { error: telecine_queue::JobError::new("test_failure", message) }
}

pub(crate) fn work(payload: u64) -> NewJob {
    NewJob::new("work", serde_json::json!({ "n": payload }))
}

/// Options of a worker whose every interval is short.
pub(crate) fn brisk(slots: u32) -> WorkerOptions {
    WorkerOptions {
        name: "brisk".into(),
        slots: Slots::Each(slots),
        lease: LEASE,
        beat_every: Duration::from_millis(200),
        sweep_every: SWEEP,
        poll_every: Duration::from_millis(100),
        drain_within: Duration::from_secs(10),
        stop_within: Duration::from_millis(500),
        ..WorkerOptions::default()
    }
}

pub(crate) async fn start(queue: &Arc<dyn Queue>, kinds: Kinds, options: WorkerOptions) -> Runtime {
    Runtime::start(Arc::clone(queue), kinds, options).await.expect("the worker starts")
}

/// Every job, by looking at every page.
pub(crate) async fn list_all(queue: &Arc<dyn Queue>, filter: &JobFilter) -> Vec<Job> {
    let (mut jobs, mut page) = (Vec::new(), Page::first(Page::MAX_LIMIT));
    loop {
        let listed = queue.list(filter, page).await.expect("list");
        jobs.extend(listed.data);
        match listed.next_cursor {
            Some(cursor) => page.before = Some(cursor),
            None => return jobs,
        }
    }
}

/// What must hold after any test: the counters say what the rows say, and ended jobs were settled by their last fence.
pub(crate) async fn check_invariants(queue: &Arc<dyn Queue>) {
    let mut counted: BTreeMap<(String, String, JobState), u64> = BTreeMap::new();
    for job in list_all(queue, &JobFilter::default()).await {
        assert_eq!(job.state.is_terminal(), job.finished_at.is_some(), "{job:?}");
        assert!(job.attempt <= job.max_attempts && job.lost <= job.max_lost, "{job:?}");
        *counted.entry((job.lane, job.kind, job.state)).or_default() += 1;
    }
    let told = queue.counts().await.expect("counts");
    let told: BTreeMap<_, _> =
        told.into_iter().map(|count| ((count.lane, count.kind, count.state), count.jobs)).collect();
    assert_eq!(told, counted, "the counters and the rows disagree");
}

impl Ground {
    /// Lets a running job's deadline pass, in place of waiting through the grace of 30 s.
    pub(crate) fn rewind_deadline(&self, id: JobId) {
        match self.database {
            Database::Sqlite => {
                let file = rusqlite::Connection::open(self.url.trim_start_matches("sqlite:")).expect("open");
                file.busy_timeout(PATIENCE).expect("busy timeout");
                let changed = file.execute(
                    "UPDATE job SET deadline_boot_ms = 1 WHERE id = ?1 AND deadline_boot_ms > 1",
                    [id.0],
                );
                assert_eq!(changed.expect("update"), 1);
            }
            Database::Postgres => {
                let name = self.url.rsplit('/').next().expect("a database name");
                let sql = format!(
                    "UPDATE telecine.job SET deadline_at = to_timestamp(1) WHERE id = {id} AND deadline_at > now()"
                );
                assert!(String::from_utf8_lossy(&self.server.psql(name, &sql).stdout).contains("UPDATE 1"));
            }
        }
    }
}

impl Ground {
    /// How many rows a table has.
    pub(crate) fn rows(&self, table: &str) -> u64 {
        match self.database {
            Database::Sqlite => {
                let file = rusqlite::Connection::open(self.url.trim_start_matches("sqlite:")).expect("open");
                file.busy_timeout(PATIENCE).expect("busy timeout");
                let sql = format!("SELECT COUNT(*) FROM {table}");
                file.query_row(&sql, [], |row| row.get::<_, i64>(0)).expect("count").unsigned_abs()
            }
            Database::Postgres => {
                let told = self.psql(&format!("SELECT 'rows=' || COUNT(*) FROM telecine.{table}"));
                let rows = told.split("rows=").nth(1).and_then(|rest| rest.split_whitespace().next());
                rows.and_then(|rows| rows.parse().ok()).unwrap_or_else(|| panic!("no number in {told}"))
            }
        }
    }

    /// Makes every schedule due this many hours earlier, in place of waiting.
    pub(crate) fn rewind_schedules(&self, hours: u32) {
        match self.database {
            Database::Sqlite => {
                let file = rusqlite::Connection::open(self.url.trim_start_matches("sqlite:")).expect("open");
                file.busy_timeout(PATIENCE).expect("busy timeout");
                let moved = file.execute(
                    "UPDATE schedule SET next_at = next_at - ?1",
                    [i64::from(hours) * 60 * 60 * 1_000],
                );
                assert!(moved.expect("update") > 0);
            }
            Database::Postgres => {
                let sql =
                    format!("UPDATE telecine.schedule SET next_at = next_at - {hours} * INTERVAL '1 hour'");
                assert!(self.psql(&sql).contains("UPDATE"));
            }
        }
    }

    pub(crate) fn psql(&self, sql: &str) -> String {
        let name = self.url.rsplit('/').next().expect("a database name");
        String::from_utf8_lossy(&self.server.psql(name, sql).stdout).into_owned()
    }
}
