use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use telecine_queue::{
    AttemptOutcome, Backoff, Failure, Job, JobContext, JobState, Kind, Kinds, NewJob, QueueError, Runtime,
    Slots, WorkerOptions,
};
use tokio::sync::Notify;

use crate::ground::{
    Ground, brisk, check_invariants, eventually, push_all, push_one, start, wait_for_state,
    wait_until_none_is_live, work,
};

/// `work`, as a closure over the job and its context.
struct Work<F>(F);

#[async_trait]
impl<F, R> Kind for Work<F>
where
    F: Fn(Job, JobContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Value, Failure>> + Send,
{
    fn name(&self) -> &'static str {
        "work"
    }

    async fn run(&self, job: &Job, context: &JobContext) -> Result<Value, Failure> {
        (self.0)(job.clone(), context.clone()).await
    }
}

fn kinds<F, R>(run: F) -> Kinds
where
    F: Fn(Job, JobContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Value, Failure>> + Send + 'static,
{
    Kinds::new().with(Work(run))
}

/// Runs until it is told to stop, then says so.
async fn until_stopped(context: JobContext) -> Result<Value, Failure> {
    context.stopping().cancelled().await;
    Err(Failure::retry("stopped", "told to stop"))
}

/// Runs until the gate is opened for it.
fn until_opened(gate: &Arc<Notify>) -> Kinds {
    let gate = Arc::clone(gate);
    kinds(move |_, _| {
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            Ok(Value::Null)
        }
    })
}

async fn leave(worker: Runtime) -> telecine_queue::Report {
    worker.drain();
    worker.finished().await
}

pub(super) async fn a_worker_runs_what_is_pushed(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let most = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
    let seen = Arc::clone(&most);
    let worker = start(
        &queue,
        kinds(move |job, _| {
            let seen = Arc::clone(&seen);
            async move {
                let now = seen.0.fetch_add(1, Ordering::SeqCst) + 1;
                seen.1.fetch_max(now, Ordering::SeqCst);
                tokio::task::yield_now().await;
                seen.0.fetch_sub(1, Ordering::SeqCst);
                Ok(json!({ "twice": job.payload["n"].as_u64().unwrap_or(0) * 2 }))
            }
        }),
        brisk(3),
    )
    .await;

    let ids = push_all(&queue, (0..200).map(work)).await;
    wait_until_none_is_live(&queue).await;

    let job = queue.get(ids[21]).await.expect("get").expect("the job");
    assert_eq!((job.state, job.result), (JobState::Completed, Some(json!({"twice": 42}))));
    assert!(most.1.load(Ordering::SeqCst) <= 3, "no more than its slots");
    assert_eq!(leave(worker).await.completed, 200);
    assert!(queue.workers().await.expect("workers").iter().all(|worker| !worker.alive));
    check_invariants(&queue).await;
}

/// With a poll of an hour, only a wake-up can bring the job.
pub(super) async fn an_idle_worker_is_woken_by_another_process(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let idle = WorkerOptions { poll_every: Duration::from_secs(3_600), ..brisk(2) };
    let worker = start(&queue, kinds(|_, _| async { Ok(Value::Null) }), idle).await;
    let other = ground.open().await;
    let warm = push_one(&other, work(0)).await;
    wait_for_state(&queue, warm, JobState::Completed).await;

    for n in 1..20 {
        let id = push_one(&other, work(n)).await;
        wait_for_state(&queue, id, JobState::Completed).await;
    }
    let soon = telecine_queue::Timestamp::now().plus(Duration::from_millis(50));
    let scheduled = push_one(&other, work(99).run_at(soon)).await;
    wait_for_state(&queue, scheduled, JobState::Completed).await;

    leave(worker).await;
}

pub(super) async fn a_panic_is_a_failure(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = start(
        &queue,
        kinds(|job, _| async move {
            assert!(job.payload["n"] != 1, "number {} cannot be done", 1);
            Ok(Value::Null)
        }),
        brisk(1),
    )
    .await;

    let bad = push_one(&queue, work(1).max_attempts(1)).await;
    let good = push_one(&queue, work(2)).await;

    let job = wait_for_state(&queue, bad, JobState::Failed).await;
    let error = job.error.expect("an error");
    assert_eq!((error.code.as_str(), error.message.as_str()), ("panic", "number 1 cannot be done"));
    wait_for_state(&queue, good, JobState::Completed).await;
    leave(worker).await;
}

pub(super) async fn an_attempt_that_takes_too_long_is_stopped(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let polite = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&polite);
    let worker = start(
        &queue,
        kinds(move |job, context| {
            let seen = Arc::clone(&seen);
            async move {
                if job.payload["n"] == 1 {
                    let stopped = until_stopped(context).await;
                    seen.fetch_add(1, Ordering::SeqCst);
                    return stopped;
                }
                std::future::pending().await
            }
        }),
        brisk(2),
    )
    .await;
    let quick = |n| NewJob { timeout_ms: Some(20), ..work(n) }.max_attempts(1);

    let (polite_one, deaf) = (push_one(&queue, quick(1)).await, push_one(&queue, quick(2)).await);

    for id in [polite_one, deaf] {
        let job = wait_for_state(&queue, id, JobState::Failed).await;
        assert_eq!(job.error.expect("an error").code, "timeout");
    }
    assert_eq!(polite.load(Ordering::SeqCst), 1, "a kind that listens can clean up");
    leave(worker).await;
}

pub(super) async fn a_cancel_stops_the_running_kind(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let stopped = Arc::new(Notify::new());
    let told = Arc::clone(&stopped);
    let slow_beat =
        WorkerOptions { lease: Duration::from_secs(600), beat_every: Duration::from_secs(200), ..brisk(1) };
    let worker = start(
        &queue,
        kinds(move |_, context| {
            let told = Arc::clone(&told);
            async move {
                let result = until_stopped(context).await;
                told.notify_one();
                result
            }
        }),
        slow_beat,
    )
    .await;
    let id = push_one(&queue, work(1)).await;
    wait_for_state(&queue, id, JobState::Running).await;

    ground.open().await.cancel(id).await.expect("cancel");

    stopped.notified().await;
    assert_eq!(queue.get(id).await.expect("get").expect("the job").state, JobState::Cancelled);
    let report = leave(worker).await;
    assert_eq!((report.completed, report.failed, report.refused), (0, 0, 1));
    check_invariants(&queue).await;
}

pub(super) async fn a_drain_lets_running_jobs_end(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let gate = Arc::new(Notify::new());
    let worker = start(&queue, until_opened(&gate), brisk(1)).await;
    let running = push_one(&queue, work(1)).await;
    wait_for_state(&queue, running, JobState::Running).await;
    let waiting = push_one(&queue, work(2)).await;

    worker.drain();
    gate.notify_one();
    let report = worker.finished().await;

    assert_eq!((report.completed, report.released), (1, 0));
    assert_eq!(queue.get(running).await.expect("get").expect("the job").state, JobState::Completed);
    let untouched = queue.get(waiting).await.expect("get").expect("the job");
    assert_eq!((untouched.state, untouched.fence.0), (JobState::Pending, 0), "nothing new is claimed");
}

pub(super) async fn a_drain_past_its_deadline_gives_jobs_back_uncounted(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let impatient = WorkerOptions { drain_within: Duration::from_millis(50), ..brisk(2) };
    let worker = start(
        &queue,
        kinds(|job, context| async move {
            if job.payload["n"] == 1 { until_stopped(context).await } else { std::future::pending().await }
        }),
        impatient,
    )
    .await;
    let ids = push_all(&queue, [work(1), work(2)]).await;
    for id in &ids {
        wait_for_state(&queue, *id, JobState::Running).await;
    }

    let report = leave(worker).await;

    assert_eq!(report.released, 2);
    for id in ids {
        let job = queue.get(id).await.expect("get").expect("the job");
        assert_eq!((job.state, job.attempt, job.lost), (JobState::Pending, 0, 0));
        let attempts = queue.attempts(id).await.expect("attempts");
        assert_eq!(
            attempts.iter().map(|attempt| attempt.outcome).collect::<Vec<_>>(),
            [AttemptOutcome::Released]
        );
    }
    check_invariants(&queue).await;
}

pub(super) async fn a_worker_can_be_asked_to_drain_over_the_database(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = start(&queue, kinds(|_, _| async { Ok(Value::Null) }), brisk(1)).await;

    let other = ground.open().await;
    assert!(other.drain(worker.worker_id()).await.expect("drain"));

    worker.finished().await;
    assert!(!other.drain(worker.worker_id()).await.expect("drain"), "it is gone");
}

pub(super) async fn retries_follow_by_themselves(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = start(
        &queue,
        kinds(|job, _| async move {
            if job.attempt < 3 { Err(Failure::retry("flaky", "not yet")) } else { Ok(json!(job.attempt)) }
        }),
        brisk(2),
    )
    .await;

    let quick = Backoff { base_ms: 10, factor: 2, cap_ms: 40 };
    let ids = push_all(&queue, (0..10).map(|n| work(n).backoff(quick))).await;
    wait_until_none_is_live(&queue).await;

    for id in ids {
        let job = queue.get(id).await.expect("get").expect("the job");
        assert_eq!((job.state, job.attempt, job.result), (JobState::Completed, 3, Some(json!(3))));
    }
    let report = leave(worker).await;
    assert_eq!((report.completed, report.failed), (10, 20));
    check_invariants(&queue).await;
}

pub(super) async fn an_unknown_kind_is_left_for_others(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = start(&queue, kinds(|_, _| async { Ok(Value::Null) }), brisk(1)).await;

    let foreign = push_one(&queue, NewJob::new("from_the_future", json!(null)).priority(100)).await;
    let known = push_one(&queue, work(1)).await;
    wait_for_state(&queue, known, JobState::Completed).await;

    let job = queue.get(foreign).await.expect("get").expect("the job");
    assert_eq!((job.state, job.fence.0), (JobState::Pending, 0));
    let unknown = kinds(|_, _| async { Ok(Value::Null) }).only(&["wrok".into()]);
    assert!(
        matches!(&unknown, Err(QueueError::Invalid { reason }) if reason.contains("known kinds are work"))
    );
    let none = Runtime::start(Arc::clone(&queue), Kinds::new(), brisk(1)).await;
    assert!(matches!(none, Err(QueueError::Invalid { .. })));
    let idle = WorkerOptions { slots: Slots::PerLane(BTreeMap::new()), ..brisk(1) };
    let idle = Runtime::start(Arc::clone(&queue), kinds(|_, _| async { Ok(Value::Null) }), idle).await;
    assert!(matches!(idle, Err(QueueError::Invalid { .. })));
    leave(worker).await;
}

/// The beat was away for so long that the worker was buried, but nobody took its job.
pub(super) async fn a_worker_that_was_declared_dead_goes_on_with_its_jobs(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let gate = Arc::new(Notify::new());
    let slow_sweep = WorkerOptions { sweep_every: Duration::from_secs(600), ..brisk(1) };
    let worker = start(&queue, until_opened(&gate), slow_sweep).await;
    let id = push_one(&queue, work(1)).await;
    wait_for_state(&queue, id, JobState::Running).await;
    let first = worker.worker_id();

    // Somebody signs it off behind its back; its claim is an orphan until the next beat.
    queue.deregister(first).await.expect("deregister");
    eventually("it has registered again", || async { (worker.worker_id() != first).then_some(()) }).await;
    gate.notify_one();

    let job = wait_for_state(&queue, id, JobState::Completed).await;
    assert_eq!((job.attempt, job.lost), (1, 0));
    assert_eq!(leave(worker).await.completed, 1);
    check_invariants(&queue).await;
}

/// A kind of a lane of its own.
struct Net;

#[async_trait]
impl Kind for Net {
    fn name(&self) -> &'static str {
        "net_work"
    }

    fn lane(&self) -> &'static str {
        "net"
    }

    async fn run(&self, _: &Job, _: &JobContext) -> Result<Value, Failure> {
        Ok(Value::Null)
    }
}

/// The lane that was found empty is looked at again although another one always has work.
pub(super) async fn a_busy_lane_does_not_starve_another(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let endless = Arc::new(AtomicU32::new(0));
    let (seen, again) = (Arc::clone(&endless), Arc::clone(&queue));
    let busy = kinds(move |_, _| {
        let (seen, queue) = (Arc::clone(&seen), Arc::clone(&again));
        async move {
            // As long as the other lane's job has not run, there is always more to do here.
            if seen.fetch_add(1, Ordering::SeqCst) < 20_000 {
                push_all(&queue, [work(1), work(2)]).await;
            }
            Ok(Value::Null)
        }
    });
    let worker = start(&queue, busy.with(Net), brisk(2)).await;
    push_all(&queue, (0..50).map(work)).await;
    eventually("the first lane is busy", || async { (endless.load(Ordering::SeqCst) > 100).then_some(()) })
        .await;

    let id = push_one(&queue, NewJob::new("net_work", json!(null)).lane("net")).await;
    wait_for_state(&queue, id, JobState::Completed).await;

    let ran = endless.swap(1_000_000, Ordering::SeqCst);
    assert!(ran < 20_000, "it ran while the other lane still had work, not after");
    worker.stop_now();
    worker.finished().await;
}

/// Cancelled and retried at once, a job may be claimed again by the process whose first claim has not stopped yet.
pub(super) async fn a_second_claim_of_a_job_stops_the_first(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let running = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&running);
    let worker = start(
        &queue,
        kinds(move |_, context| {
            let seen = Arc::clone(&seen);
            async move {
                seen.fetch_add(1, Ordering::SeqCst);
                let stopped = until_stopped(context).await;
                seen.fetch_sub(1, Ordering::SeqCst);
                stopped
            }
        }),
        brisk(10),
    )
    .await;
    let id = push_one(&queue, work(1)).await;

    for _ in 0..8 {
        wait_for_state(&queue, id, JobState::Running).await;
        queue.cancel(id).await.expect("cancel");
        queue.retry(id).await.expect("retry");
    }

    wait_for_state(&queue, id, JobState::Running).await;
    eventually("only the last claim runs", || async {
        (running.load(Ordering::SeqCst) == 1 && worker.running() == 1).then_some(())
    })
    .await;
    worker.stop_now();
    assert_eq!(worker.finished().await.released, 1);
    check_invariants(&queue).await;
}

/// A worker with nothing to do renews its lease, and that does not wake anybody.
pub(super) async fn an_idle_worker_leaves_the_database_alone(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let slow = |name: &str| WorkerOptions {
        name: name.into(),
        lease: Duration::from_secs(600),
        beat_every: Duration::from_secs(200),
        sweep_every: Duration::from_secs(200),
        poll_every: Duration::from_secs(200),
        ..brisk(1)
    };
    let first = start(&queue, kinds(|_, _| async { Ok(Value::Null) }), slow("first")).await;
    let other_queue = ground.open().await;
    let second = start(&other_queue, kinds(|_, _| async { Ok(Value::Null) }), slow("second")).await;
    let seen = async || -> Vec<_> {
        queue.workers().await.expect("workers").into_iter().map(|worker| worker.seen_at).collect()
    };
    let id = push_one(&queue, work(1)).await;
    wait_for_state(&queue, id, JobState::Completed).await;

    // Whatever the push set in motion has come to rest when nothing changes for several looks of the watcher.
    let mut last = seen().await;
    let mut quiet = 0;
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = seen().await;
        quiet = if now == last { quiet + 1 } else { 0 };
        last = now;
        if quiet == 10 {
            break;
        }
    }

    assert_eq!(quiet, 10, "the workers keep each other awake");
    first.stop_now();
    second.stop_now();
    first.finished().await;
    second.finished().await;
}

/// The kind reserves what it needs, and what is reserved is not free: two jobs of 60 bytes never share 100.
pub(super) async fn a_worker_claims_what_its_scratch_space_can_hold(ground: Arc<Ground>) {
    const NEEDED: u64 = 60;
    let queue = ground.open().await;
    let free = Arc::new(AtomicU64::new(100));
    let (asked, held) = (Arc::clone(&free), Arc::clone(&free));
    let reserving = kinds(move |_, _| {
        let held = Arc::clone(&held);
        async move {
            let reserve = |bytes: u64| bytes.checked_sub(NEEDED);
            if held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, reserve).is_err() {
                return Err(Failure::Snooze(Duration::from_millis(5)));
            }
            tokio::task::yield_now().await;
            held.fetch_add(NEEDED, Ordering::SeqCst);
            Ok(Value::Null)
        }
    });
    let options =
        WorkerOptions { free_scratch: Some(Arc::new(move || asked.load(Ordering::SeqCst))), ..brisk(3) };
    let needing = |n, scratch_bytes| NewJob { scratch_bytes, ..work(n) };
    let large = push_one(&queue, needing(99, 500).priority(90)).await;
    let ids = push_all(&queue, (0..20).map(|n| needing(n, NEEDED))).await;

    let worker = start(&queue, reserving, options).await;
    for id in ids {
        wait_for_state(&queue, id, JobState::Completed).await;
    }

    let untouched = queue.get(large).await.expect("get").expect("the job");
    assert_eq!((untouched.state, untouched.fence.0), (JobState::Pending, 0), "it never fits");
    leave(worker).await;
    check_invariants(&queue).await;
}
