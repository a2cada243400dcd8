use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use telecine_queue::{
    Beat, ClaimBeat, Claimed, Edge, Failure, Finish, Job, JobContext, JobFilter, JobId, JobState, Kind,
    Kinds, Need, Needed, NewJob, NewRecord, NewRun, OnFailed, Outcome, Push, Pushed, Queue, QueueError,
    RunId, RunState, Settled, Spawn, WorkerId,
};

use crate::ground::{
    Ground, brisk, check_invariants, done, failed, list_all, pull, pull_one, register, settle, start,
    wait_until_none_is_live, work,
};

async fn push_run(queue: &Arc<dyn Queue>, jobs: impl IntoIterator<Item = NewJob>) -> Pushed {
    queue.push(vec![Push::run(NewRun::new("film"), jobs)]).await.expect("push").remove(0)
}

async fn states(queue: &Arc<dyn Queue>, ids: &[JobId]) -> Vec<JobState> {
    let mut states = Vec::new();
    for id in ids {
        states.push(queue.get(*id).await.expect("get").expect("the job").state);
    }
    states
}

async fn run_state(queue: &Arc<dyn Queue>, pushed: &Pushed) -> RunState {
    queue.get_run(run_of(pushed)).await.expect("get_run").expect("the run").state
}

fn run_of(pushed: &Pushed) -> &RunId {
    pushed.run.as_ref().expect("a run")
}

fn needing(nth: usize, on_failed: OnFailed) -> Need {
    Need { on: Needed::Nth(nth), on_failed }
}

/// Pulls one job and completes it.
async fn complete_one(queue: &Arc<dyn Queue>, worker: WorkerId) -> JobId {
    let claimed = pull_one(queue, worker).await;
    let id = claimed.job.id;
    assert_eq!(settle(queue, claimed, done()).await, Settled::Accepted);
    id
}

pub(super) async fn a_job_waits_for_what_it_needs(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    // Listed in an order in which they cannot run: package needs encode and audio, both need ingest.
    let jobs = [work(1).after(1).after(2), work(2).after(3), work(3).after(3), work(4)];
    let pushed = push_run(&queue, jobs).await;
    let [package, encode, audio, ingest] = pushed.jobs[..] else { panic!("four jobs") };

    assert_eq!(complete_one(&queue, worker).await, ingest);
    let both: HashSet<JobId> =
        pull(&queue, worker, 9).await.into_iter().map(|claimed| claimed.job.id).collect();
    assert_eq!(both, HashSet::from([encode, audio]), "the package still waits");
    assert_eq!(queue.get(package).await.expect("get").expect("the job").needs_left, 2);
    check_invariants(&queue).await;
}

pub(super) async fn a_fan_in_of_a_thousand_is_released_once(ground: Arc<Ground>) {
    const PARTS: usize = 1_000;
    let queue = ground.open().await;
    let parts = (0..PARTS as u64).map(work);
    let package = (0..PARTS).fold(work(9_999), NewJob::after);
    let pushed = push_run(&queue, parts.chain([package])).await;
    let package = pushed.jobs[PARTS];

    // Four workers finish in batches side by side, so that several last needs meet.
    let mut finishers = Vec::new();
    for _ in 0..4 {
        let queue = ground.open().await;
        finishers.push(tokio::spawn(async move {
            let worker = register(&queue).await;
            let mut mine = Vec::new();
            loop {
                let batch = pull(&queue, worker, 13).await;
                if batch.is_empty() {
                    return mine;
                }
                mine.extend(batch.iter().map(|claimed| claimed.job.id));
                let finishes: Vec<_> =
                    batch.into_iter().map(|claimed| Finish::new(claimed.claim, done())).collect();
                queue.finish(&finishes).await.expect("finish");
            }
        }));
    }
    let mut ran = Vec::new();
    for finisher in finishers {
        ran.extend(finisher.await.expect("no panic"));
    }
    let worker = register(&queue).await;
    ran.extend(pull(&queue, worker, 1).await.into_iter().map(|claimed| claimed.job.id));

    assert_eq!(ran.len(), PARTS + 1);
    assert_eq!(ran.iter().filter(|id| **id == package).count(), 1);
    assert_eq!(ran.iter().collect::<HashSet<_>>().len(), PARTS + 1);
    check_invariants(&queue).await;
}

pub(super) async fn a_failed_need_is_followed_by_the_policy(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let jobs = [
        work(0).max_attempts(1),
        work(1).needing(needing(0, OnFailed::Skip)),
        work(2).needing(needing(0, OnFailed::Fail)),
        work(3).needing(needing(0, OnFailed::RunAnyway)),
        // What needs a skipped or failed job follows its own policy in turn.
        work(4).needing(needing(1, OnFailed::Fail)),
        work(5).needing(needing(2, OnFailed::RunAnyway)),
        work(6).needing(needing(4, OnFailed::Skip)),
    ];
    let pushed = push_run(&queue, jobs).await;
    let claimed = pull_one(&queue, worker).await;

    settle(&queue, claimed, failed("no")).await;

    assert_eq!(
        states(&queue, &pushed.jobs).await,
        [
            JobState::Failed,
            JobState::Skipped,
            JobState::Failed,
            JobState::Pending,
            JobState::Failed,
            JobState::Pending,
            JobState::Skipped,
        ]
    );
    let blamed = queue.get(pushed.jobs[2]).await.expect("get").expect("the job").error.expect("an error");
    assert_eq!(
        (blamed.code.as_str(), blamed.message.contains(&pushed.jobs[0].to_string())),
        ("need_failed", true)
    );
    complete_one(&queue, worker).await;
    complete_one(&queue, worker).await;
    assert_eq!(run_state(&queue, &pushed).await, RunState::Failed);
    check_invariants(&queue).await;
}

pub(super) async fn a_cancelled_need_takes_along_what_waits_for_it(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let pushed = push_run(&queue, [work(0), work(1).after(0), work(2).after(1)]).await;

    queue.cancel(pushed.jobs[0]).await.expect("cancel");

    assert_eq!(
        states(&queue, &pushed.jobs).await,
        [JobState::Cancelled, JobState::Skipped, JobState::Skipped]
    );
    assert_eq!(run_state(&queue, &pushed).await, RunState::Cancelled);
    check_invariants(&queue).await;
}

pub(super) async fn needs_that_cannot_be_met_are_refused(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let bad: [(Push, &str); 5] = [
        (Push::run(NewRun::new("r"), [work(0).after(1), work(1).after(0)]), "in a circle"),
        (Push::run(NewRun::new("r"), [work(0).after(0)]), "in a circle"),
        (Push::run(NewRun::new("r"), [work(0).after(7)]), "which is not there"),
        (Push::jobs([work(0), work(1).after(0)]), "push them with a run"),
        (Push::run(NewRun::new("r"), [work(0).unique_key("k"), work(1).after(0)]), "unique key"),
    ];

    for (push, expected) in bad {
        let error = queue.push(vec![push]).await.expect_err(expected);
        assert!(error.to_string().contains(expected), "`{error}` should say `{expected}`");
    }
    assert!(list_all(&queue, &JobFilter::default()).await.is_empty());
}

pub(super) async fn an_optional_failure_makes_a_run_partial(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let pushed =
        push_run(&queue, [work(0).max_attempts(1).optional(), work(1), work(2).after(0).optional()]).await;

    let poster = pull_one(&queue, worker).await;
    settle(&queue, poster, failed("black")).await;
    complete_one(&queue, worker).await;

    assert_eq!(run_state(&queue, &pushed).await, RunState::Partial);
    queue.retry_run(run_of(&pushed), &[]).await.expect("retry");
    complete_one(&queue, worker).await;
    complete_one(&queue, worker).await;
    assert_eq!(run_state(&queue, &pushed).await, RunState::Succeeded);
    check_invariants(&queue).await;
}

pub(super) async fn a_finishing_job_spawns_jobs_and_edges(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let pushed = push_run(&queue, [work(0), work(1).after(0)]).await;
    let [ingest, package] = pushed.jobs[..] else { panic!("two jobs") };
    let claimed = pull_one(&queue, worker).await;

    // Two ranges and a check of the first; the package, which only waited for ingest, now waits for them too.
    let on_ingest = Need { on: Needed::Job(ingest), on_failed: OnFailed::Skip };
    let spawn = Spawn {
        jobs: vec![work(10), work(11).needing(on_ingest), work(12).after(0)],
        edges: (0..3).map(|nth| Edge { job: package, need: needing(nth, OnFailed::Skip) }).collect(),
    };
    let finish = [Finish::new(claimed.claim, done()).spawning(spawn)];
    for _ in 0..2 {
        assert_eq!(
            queue.finish(&finish).await.expect("finish"),
            [Settled::Accepted],
            "sent twice, done once"
        );
    }

    let run = queue.get_run(run_of(&pushed)).await.expect("get_run").expect("the run");
    assert_eq!((run.jobs_total, run.jobs_left, run.state), (5, 4, RunState::Running));
    let mut order = Vec::new();
    for _ in 0..4 {
        let claimed = pull_one(&queue, worker).await;
        order.push(claimed.job.payload["n"].as_u64().expect("a number"));
        settle(&queue, claimed, done()).await;
    }
    assert_eq!(order, [10, 11, 12, 1]);
    assert_eq!(run_state(&queue, &pushed).await, RunState::Succeeded);
    check_invariants(&queue).await;
}

pub(super) async fn a_spawn_may_need_what_has_ended_already(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let pushed = push_run(&queue, [work(0), work(1).max_attempts(1), work(2)]).await;
    let good = complete_one(&queue, worker).await;
    let bad = pull_one(&queue, worker).await;
    let bad_id = bad.job.id;
    settle(&queue, bad, failed("no")).await;
    let last = pull_one(&queue, worker).await;

    let on = |id, on_failed| Need { on: Needed::Job(id), on_failed };
    let spawn = Spawn::jobs([
        work(10).needing(on(good, OnFailed::Skip)),
        work(11).needing(on(bad_id, OnFailed::Skip)),
        work(12).needing(on(bad_id, OnFailed::RunAnyway)).needing(on(good, OnFailed::Fail)),
        work(13).needing(on(JobId(1 << 40), OnFailed::Fail)),
    ]);
    queue.finish(&[Finish::new(last.claim, done()).spawning(spawn)]).await.expect("finish");

    let filter = JobFilter { run: pushed.run.clone(), ..JobFilter::default() };
    let mut spawned = list_all(&queue, &filter).await;
    spawned.retain(|job| !pushed.jobs.contains(&job.id));
    spawned.sort_by_key(|job| job.id);
    let spawned: Vec<JobState> = spawned.into_iter().map(|job| job.state).collect();
    assert_eq!(spawned, [JobState::Pending, JobState::Skipped, JobState::Pending, JobState::Failed]);
    check_invariants(&queue).await;
}

pub(super) async fn a_bad_spawn_fails_the_job_and_not_the_worker(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let pushed = push_run(&queue, [work(0)]).await;
    let claimed = pull_one(&queue, worker).await;

    let circle = Spawn::jobs([work(1).after(1), work(2).after(0)]);
    queue.finish(&[Finish::new(claimed.claim, done()).spawning(circle)]).await.expect("finish");

    let job = queue.get(pushed.jobs[0]).await.expect("get").expect("the job");
    assert_eq!(
        (job.state, job.error.map(|error| error.code)),
        (JobState::Failed, Some("spawn_refused".into()))
    );
    assert_eq!(list_all(&queue, &JobFilter::default()).await.len(), 1);
}

pub(super) async fn a_retried_step_runs_again_with_all_that_needs_it(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let jobs = [
        work(0).step("ingest"),
        work(1).step("hls").after(0),
        work(2).step("poster").after(0),
        work(3).step("package").after(1).after(2),
    ];
    let pushed = push_run(&queue, jobs).await;
    for _ in 0..4 {
        complete_one(&queue, worker).await;
    }
    assert_eq!(run_state(&queue, &pushed).await, RunState::Succeeded);

    let restarted = queue.retry_run(run_of(&pushed), &["hls".into()]).await.expect("retry_run");

    assert_eq!(restarted, 1);
    assert_eq!(
        states(&queue, &pushed.jobs).await,
        [JobState::Completed, JobState::Pending, JobState::Completed, JobState::Waiting]
    );
    let run = queue.get_run(run_of(&pushed)).await.expect("get_run").expect("the run");
    assert_eq!((run.state, run.generation, run.jobs_left), (RunState::Running, 2, 2));
    assert_eq!(complete_one(&queue, worker).await, pushed.jobs[1]);
    assert_eq!(complete_one(&queue, worker).await, pushed.jobs[3]);
    assert_eq!(run_state(&queue, &pushed).await, RunState::Succeeded);
    let nobody = queue.retry_run(&RunId::new(), &[]).await;
    assert!(matches!(nobody, Err(QueueError::NoSuchRun(_))), "{nobody:?}");
    check_invariants(&queue).await;
}

pub(super) async fn a_job_that_others_wait_for_is_not_deleted(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let pushed = push_run(&queue, [work(0), work(1).after(0)]).await;

    let refused = queue.delete(pushed.jobs[0]).await;
    assert!(matches!(refused, Err(QueueError::WrongState { .. })), "{refused:?}");
    let pending = JobFilter { states: vec![JobState::Pending], ..JobFilter::default() };
    assert_eq!(queue.clear(&pending).await.expect("clear"), 0);

    assert_eq!(queue.clear(&JobFilter::default()).await.expect("clear"), 2, "together they can go");
    check_invariants(&queue).await;
}

pub(super) async fn records_are_written_under_the_fence(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let mut pulse = queue.pulse().await.expect("pulse");
    let pushed = push_run(&queue, [work(0), work(1)]).await;
    let run = run_of(&pushed);
    let (first, second) = (pull_one(&queue, worker).await, pull_one(&queue, worker).await);
    let segment = |key: &str, bytes: u32| NewRecord::new("segment", key, json!({ "bytes": bytes }));
    let beat = |claimed: &Claimed, records| Beat {
        worker,
        lease: Duration::from_secs(60),
        draining: false,
        claims: vec![ClaimBeat {
            job: claimed.job.id,
            fence: claimed.claim.fence(),
            slot: None,
            progress: None,
            checkpoint: None,
            records,
            playable: false,
        }],
    };

    pulse.beat(&beat(&first, vec![segment("0", 10), segment("1", 11)])).await.expect("beat");
    pulse.beat(&beat(&first, vec![segment("1", 12)])).await.expect("beat");
    queue.cancel(second.job.id).await.expect("cancel");
    pulse.beat(&beat(&second, vec![segment("9", 9)])).await.expect("beat");
    let stale = Finish::new(second.claim, done()).recording(vec![segment("8", 8)]);
    assert_eq!(queue.finish(&[stale]).await.expect("finish"), [Settled::Refused]);
    let last = Finish::new(first.claim, Outcome::Release).recording(vec![segment("2", 13)]);
    queue.finish(&[last]).await.expect("finish");

    let records = queue.records(run, Some("segment")).await.expect("records");
    let told: Vec<_> = records
        .iter()
        .map(|record| (record.key.as_str(), record.version, record.json["bytes"].as_u64()))
        .collect();
    assert_eq!(
        told,
        [("0", 1, Some(10)), ("1", 2, Some(12)), ("2", 1, Some(13))],
        "nothing of the cancelled claim"
    );
    assert!(queue.records(run, Some("other")).await.expect("records").is_empty());
    let keys = ["7", "2", "it's \"9\""].map(str::to_owned);
    let named = queue.records_named(run, "segment", &keys).await.expect("records_named");
    let alone: Vec<_> = records.iter().filter(|record| record.key == "2").cloned().collect();
    assert_eq!(named, alone, "those that are there, of that type alone");
    assert!(queue.records_named(run, "segment", &[]).await.expect("records_named").is_empty());
}

pub(super) async fn a_run_with_records_outlives_its_history(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let (kept, forgotten) = (push_run(&queue, [work(0)]).await, push_run(&queue, [work(1)]).await);
    let (kept, forgotten) = (run_of(&kept), run_of(&forgotten));
    for _ in 0..2 {
        let claimed = pull_one(&queue, worker).await;
        settle(&queue, claimed, done()).await;
    }
    queue.put_record(kept, NewRecord::new("output", "film", json!({})), None).await.expect("record");

    crate::ground::eventually("the other is forgotten", || async {
        queue.prune(Duration::ZERO).await.expect("prune");
        queue.get_run(forgotten).await.expect("get_run").is_none().then_some(())
    })
    .await;

    assert!(queue.get_run(kept).await.expect("get_run").is_some());
    assert_eq!(queue.records(kept, None).await.expect("records").len(), 1);
    assert!(queue.run_steps(kept).await.expect("steps").is_empty(), "its jobs are history");
    queue.delete_run(kept).await.expect("delete_run");
    assert!(queue.get_run(kept).await.expect("get_run").is_none());
    assert_eq!((ground.rows("record"), ground.rows("event")), (0, 0));
}

pub(super) async fn an_edit_of_a_record_names_the_version_it_saw(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let pushed = push_run(&queue, [work(0)]).await;
    let run = run_of(&pushed);
    let title = |text: &str| NewRecord::new("asset", "title", json!(text));

    assert_eq!(queue.put_record(run, title("one"), Some(0)).await.expect("new"), 1);
    assert_eq!(queue.put_record(run, title("two"), Some(1)).await.expect("seen"), 2);
    let late = queue.put_record(run, title("late"), Some(1)).await;
    let again = queue.put_record(run, title("again"), Some(0)).await;
    assert_eq!(queue.put_record(run, title("forced"), None).await.expect("any"), 3);
    let nobody = queue.put_record(&RunId::new(), title("x"), None).await;

    assert!(matches!(late, Err(QueueError::Stale { expected: 1, found: 2, .. })), "{late:?}");
    assert!(matches!(again, Err(QueueError::Stale { expected: 0, found: 2, .. })), "{again:?}");
    assert!(matches!(nobody, Err(QueueError::NoSuchRun(_))), "{nobody:?}");
    assert_eq!(queue.records(run, None).await.expect("records")[0].json, json!("forced"));
}

/// `work`: number 0 cuts the film, the others record what they made; the last one sees all of it.
struct Cut(Arc<dyn Queue>);

#[async_trait::async_trait]
impl Kind for Cut {
    fn name(&self) -> &'static str {
        "work"
    }

    async fn run(&self, job: &Job, context: &JobContext) -> Result<Value, Failure> {
        let run = job.run.as_ref().ok_or_else(|| Failure::for_good("no_run", "a cut belongs to a run"))?;
        match job.payload["n"].as_u64() {
            Some(0) => {
                let package = (0..20).fold(work(99), NewJob::after);
                context.spawn(Spawn::jobs((1..=20).map(work).chain([package])));
                Ok(Value::Null)
            }
            Some(99) => {
                let records =
                    self.0.records(run, None).await.map_err(|error| Failure::retry("records", error))?;
                Ok(json!(records.len()))
            }
            _ => {
                context.record(NewRecord::new("segment", job.id.to_string(), job.payload.clone()));
                Ok(Value::Null)
            }
        }
    }
}

pub(super) async fn a_worker_runs_a_graph_to_its_end(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = start(&queue, Kinds::new().with(Cut(Arc::clone(&queue))), brisk(4)).await;

    let pushed = push_run(&queue, [work(0)]).await;
    wait_until_none_is_live(&queue).await;

    assert_eq!(run_state(&queue, &pushed).await, RunState::Succeeded);
    let filter = JobFilter { run: pushed.run.clone(), ..JobFilter::default() };
    let last =
        list_all(&queue, &filter).await.into_iter().find(|job| job.payload["n"] == 99).expect("the package");
    assert_eq!(last.result, Some(json!(20)), "it saw the record of every part");
    worker.drain();
    worker.finished().await;
    check_invariants(&queue).await;
}
