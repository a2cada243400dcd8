//! The queue itself, used as its users do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::Value;
use telecine_queue::{Failure, Job, JobContext, Kind, Kinds, Pausable, Push, Queue, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::child::{Process, Role};
use crate::ground::{Ground, KIND, job, per_second, worker_options};
use crate::limit::{BULK, BULK_BATCHES, PRODUCERS, PUSH_FOR};

/// Enough that two batches are with the database while two others are in the worker: the raw drain has two connections and
/// nothing between them.
const SLOTS: u32 = 2_000;
/// How long a waiting worker is watched.
const IDLE_FOR: Duration = Duration::from_secs(10);

pub(crate) async fn push_one(ground: &Ground) -> f64 {
    let queue = ground.open().await;
    let started = Instant::now();
    let mut producers = JoinSet::new();
    for _ in 0..PRODUCERS {
        let queue = Arc::clone(&queue);
        producers.spawn(async move {
            let mut pushed = 0;
            while started.elapsed() < PUSH_FOR {
                queue.push(vec![job(pushed).into()]).await.expect("push");
                pushed += 1;
            }
            pushed
        });
    }
    let pushed = producers.join_all().await.iter().sum();
    let rate = per_second(pushed, started.elapsed());
    queue.close().await;
    rate
}

pub(crate) async fn push_bulk(ground: &Ground) -> f64 {
    let queue = ground.open().await;
    let batches: Vec<Vec<Push>> =
        (0..BULK_BATCHES).map(|_| vec![Push::jobs((0..BULK as u64).map(job))]).collect();
    let started = Instant::now();
    for batch in batches {
        queue.push(batch).await.expect("push");
    }
    let rate = per_second((BULK_BATCHES * BULK) as u64, started.elapsed());
    queue.close().await;
    rate
}

/// Fills the queue, then lets a waiting worker at it and waits until the last outcome is stored. The worker is connected
/// before, as the raw drain is.
pub(crate) async fn drain(ground: &Ground, jobs: u64) -> f64 {
    let queue = ground.open().await;
    let ran = Arc::new(Ran::default());
    let kinds = Kinds::new().with(Noop(Arc::clone(&ran)));
    let noops = Pausable::Kind(KIND.into());
    queue.pause(&noops).await.expect("pause");
    let worker =
        Runtime::start(Arc::clone(&queue), kinds, worker_options(SLOTS)).await.expect("the worker starts");
    fill(&queue, jobs).await;
    let started = Instant::now();
    queue.resume(&noops).await.expect("resume");
    ran.wait_for(jobs).await;
    // A slot is free only when its outcome is committed.
    while worker.running() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = started.elapsed();
    worker.drain();
    let report = worker.finished().await;
    assert_eq!(report.completed, jobs, "every job completes, once");
    queue.close().await;
    per_second(jobs, took)
}

async fn fill(queue: &Arc<dyn Queue>, jobs: u64) {
    for from in (0..jobs).step_by(BULK) {
        let batch = (from..jobs.min(from + BULK as u64)).map(job);
        queue.push(vec![Push::jobs(batch)]).await.expect("push");
    }
}

/// A kind that does nothing but count.
struct Noop(Arc<Ran>);

#[derive(Default)]
struct Ran {
    jobs: AtomicU64,
    until: AtomicU64,
    reached: Notify,
}

impl Ran {
    async fn wait_for(&self, jobs: u64) {
        self.until.store(jobs, Ordering::SeqCst);
        while self.jobs.load(Ordering::SeqCst) < jobs {
            let _ = tokio::time::timeout(Duration::from_secs(1), self.reached.notified()).await;
        }
    }
}

#[async_trait]
impl Kind for Noop {
    fn name(&self) -> &'static str {
        KIND
    }

    async fn run(&self, _: &Job, _: &JobContext) -> Result<Value, Failure> {
        let ran = self.0.jobs.fetch_add(1, Ordering::SeqCst) + 1;
        if ran == self.0.until.load(Ordering::SeqCst) {
            self.0.reached.notify_one();
        }
        Ok(Value::Null)
    }
}

pub(crate) struct Idle {
    pub(crate) cpu_percent: f64,
    pub(crate) memory_mb: f64,
}

/// What a worker process of 50 slots costs that has nothing to do.
pub(crate) async fn idle(ground: &Ground, watch_cpu: bool) -> Idle {
    let mut worker = Process::start(&Role::Worker { url: ground.url.clone(), slots: 50 });
    worker.wait_until_ready();
    // What starting costs is not what waiting costs.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut cpu_percent = 0.0;
    if watch_cpu {
        let (started, before) = (Instant::now(), worker.cpu_seconds());
        tokio::time::sleep(IDLE_FOR).await;
        cpu_percent = (worker.cpu_seconds() - before) / started.elapsed().as_secs_f64() * 100.0;
    }
    Idle { cpu_percent, memory_mb: worker.memory_mb() }
}
