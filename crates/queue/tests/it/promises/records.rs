//! What a kind may rely on once it was told that its record is there.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use telecine_queue::testing::{Faults, faulty};
use telecine_queue::{
    Backoff, Failure, Job, JobContext, JobFilter, JobState, Kind, Kinds, NewJob, NewRecord, NewRun,
    NotRecorded, Push, Queue, RunId, WorkerOptions,
};
use tokio::sync::{Notify, oneshot};

use crate::child::{Process, Role};
use crate::ground::{
    Ground, LEASE, brisk, check_invariants, eventually, list_all, push_one, start, wait_for_state,
    wait_until_none_is_live, work,
};

/// Only news bring a beat.
fn quiet(slots: u32) -> WorkerOptions {
    WorkerOptions { lease: Duration::from_secs(600), beat_every: Duration::from_secs(200), ..brisk(slots) }
}

async fn push_run(queue: &Arc<dyn Queue>, jobs: impl IntoIterator<Item = NewJob>) -> RunId {
    let pushed = queue.push(vec![Push::run(NewRun::new("film"), jobs)]).await.expect("push").remove(0);
    pushed.run.expect("a run")
}

fn segment(key: impl ToString) -> NewRecord {
    NewRecord::new("segment", key.to_string(), json!({"bytes": 7}))
}

async fn keys(queue: &Arc<dyn Queue>, run: &RunId) -> HashSet<String> {
    queue.records(run, None).await.expect("records").into_iter().map(|record| record.key).collect()
}

/// `work`: records ten segments and looks for each of them as soon as it is told that it is there.
struct LookAtOnce(Arc<dyn Queue>);

#[async_trait::async_trait]
impl Kind for LookAtOnce {
    fn name(&self) -> &'static str {
        "work"
    }

    async fn run(&self, job: &Job, context: &JobContext) -> Result<Value, Failure> {
        let run = job.run.as_ref().ok_or_else(|| Failure::for_good("no_run", "it belongs to a run"))?;
        let mut missing = 0;
        for n in 0..10 {
            let key = format!("{}-{n}", job.id);
            context.record_now(segment(&key)).await?;
            missing += usize::from(!keys(&self.0, run).await.contains(&key));
        }
        context.record(segment(format!("{}-later", job.id)));
        context.flushed().await?;
        missing += usize::from(!keys(&self.0, run).await.contains(&format!("{}-later", job.id)));
        Ok(json!(missing))
    }
}

pub(super) async fn a_record_that_was_told_to_be_there_is_there(ground: Arc<Ground>) {
    let (queue, other) = (ground.open().await, ground.open().await);
    let run = push_run(&queue, (0..4).map(work)).await;

    let worker = start(&queue, Kinds::new().with(LookAtOnce(other)), quiet(4)).await;
    wait_until_none_is_live(&queue).await;

    let jobs = list_all(&queue, &JobFilter { run: Some(run.clone()), ..JobFilter::default() }).await;
    assert!(jobs.iter().all(|job| job.result == Some(json!(0))), "{jobs:?}");
    assert_eq!(keys(&queue, &run).await.len(), 44);
    worker.drain();
    worker.finished().await;
    check_invariants(&queue).await;
}

/// `work`: waits for the gate, then records, and tells what came of it, although it was told to stop.
struct RecordLate {
    gate: Arc<Notify>,
    told: Mutex<Option<oneshot::Sender<Result<(), NotRecorded>>>>,
}

#[async_trait::async_trait]
impl Kind for RecordLate {
    fn name(&self) -> &'static str {
        "work"
    }

    async fn run(&self, _: &Job, context: &JobContext) -> Result<Value, Failure> {
        self.gate.notified().await;
        let outcome = context.record_now(segment("late")).await;
        if let Some(told) = self.told.lock().expect("no panic").take() {
            let _ = told.send(outcome);
        }
        Ok(Value::Null)
    }
}

pub(super) async fn a_record_of_a_claim_that_was_taken_away_is_refused(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let gate = Arc::new(Notify::new());
    let (told, outcome) = oneshot::channel();
    let late = RecordLate { gate: Arc::clone(&gate), told: Mutex::new(Some(told)) };
    let run = push_run(&queue, [work(1)]).await;
    let id = list_all(&queue, &JobFilter::default()).await[0].id;
    let patient = WorkerOptions { stop_within: Duration::from_secs(60), ..quiet(1) };
    let worker = start(&queue, Kinds::new().with(late), patient).await;
    wait_for_state(&queue, id, JobState::Running).await;

    // Whether the worker has heard of it or not: the record comes too late.
    queue.cancel(id).await.expect("cancel");
    gate.notify_one();

    assert_eq!(outcome.await, Ok(Err(NotRecorded::ClaimOver)));
    assert!(keys(&queue, &run).await.is_empty());
    worker.drain();
    assert_eq!(worker.finished().await.refused, 1);
}

/// `work`: tries to record what cannot be.
struct RecordTooMuch;

#[async_trait::async_trait]
impl Kind for RecordTooMuch {
    fn name(&self) -> &'static str {
        "work"
    }

    async fn run(&self, _: &Job, context: &JobContext) -> Result<Value, Failure> {
        context.record_now(NewRecord::new("segment", "x", json!("x".repeat(2 << 20)))).await?;
        Ok(Value::Null)
    }
}

pub(super) async fn a_record_that_no_database_takes_is_refused_at_once(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = start(&queue, Kinds::new().with(RecordTooMuch), quiet(1)).await;

    push_run(&queue, [work(1)]).await;
    let alone = push_one(&queue, work(2)).await;

    wait_until_none_is_live(&queue).await;
    let jobs = list_all(&queue, &JobFilter::default()).await;
    for job in &jobs {
        let code = job.error.as_ref().map(|error| error.code.as_str());
        assert_eq!((job.state, code), (JobState::Failed, Some("record_refused")), "{job:?}");
    }
    assert!(jobs.iter().any(|job| job.id == alone), "nor has a job without a run any record");
    worker.drain();
    worker.finished().await;
}

/// `work`: records without waiting, some of it at the last moment.
struct RecordAndGo;

#[async_trait::async_trait]
impl Kind for RecordAndGo {
    fn name(&self) -> &'static str {
        "work"
    }

    async fn run(&self, job: &Job, context: &JobContext) -> Result<Value, Failure> {
        for n in 0..3 {
            context.record(segment(format!("{}-{n}", job.id)));
            // About as long as a beat takes to begin, so that some jobs end while one is under way.
            tokio::time::sleep(Duration::from_millis(job.payload["n"].as_u64().unwrap_or_default() % 13))
                .await;
        }
        Ok(Value::Null)
    }
}

pub(super) async fn records_survive_beats_that_fail(ground: Arc<Ground>) {
    const JOBS: u64 = 150;
    let queue = ground.open().await;
    let faults = Faults::new().refuse("beat", 2).lose_answer("beat", 3);
    let run = push_run(&queue, (0..JOBS).map(work)).await;

    let options = WorkerOptions { lease: Duration::from_secs(60), ..brisk(6) };
    let worker = start(&faulty(Arc::clone(&queue), &faults), Kinds::new().with(RecordAndGo), options).await;
    wait_until_none_is_live(&queue).await;

    assert_eq!(keys(&queue, &run).await.len() as u64, 3 * JOBS);
    assert!(faults.injected("beat") > 3, "{faults:?}");
    worker.drain();
    worker.finished().await;
    check_invariants(&queue).await;
}

pub(super) async fn a_killed_worker_leaves_every_record_it_was_told_of(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let log = ground.folder.path().join("told");
    let told = || std::fs::read_to_string(&log).unwrap_or_default();
    let quick = Backoff { base_ms: 1, factor: 1, cap_ms: 1 };
    let job = NewJob { max_lost: 20, ..NewJob::new("segments", json!({"count": 40})).backoff(quick) };
    let run = push_run(&queue, [job]).await;
    let lease_ms = LEASE.as_millis().try_into().expect("a short lease");
    let role = Role::Worker { url: ground.url.clone(), slots: 1, lease_ms, log: log.display().to_string() };

    for kill in 1..=3 {
        let before = told().lines().count();
        let mut victim = Process::start(&role);
        eventually("some more is recorded", || async {
            (told().lines().count() > before + kill).then_some(())
        })
        .await;
        victim.kill();
        let there = keys(&queue, &run).await;
        assert!(told().lines().all(|key| there.contains(key)), "{} in {there:?}", told());
    }
    let mut last = Process::start(&role);
    wait_until_none_is_live(&queue).await;
    last.drain();

    let there = keys(&queue, &run).await;
    assert!(told().lines().all(|key| there.contains(key)), "{} in {there:?}", told());
    check_invariants(&queue).await;
}
