//! Runs as a whole: how they are found, steered, watched and forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use telecine_queue::{
    AttemptOutcome, Beat, ClaimBeat, Claimed, Failure, Finish, Job, JobContext, JobFilter, JobState, Kind,
    Kinds, Need, Needed, NewJob, NewRecord, NewRun, OnFailed, Outcome, Push, Pushed, Queue, QueueError, Run,
    RunFilter, RunId, RunPage, RunState, Settled, Spawn, StepCount, Timestamp, WorkerId, WorkerOptions,
};

use crate::ground::{
    Ground, brisk, check_invariants, done, eventually, failed, list_all, pull, pull_one, register, settle,
    start, wait_until_none_is_live, work,
};

async fn push_run(queue: &Arc<dyn Queue>, jobs: impl IntoIterator<Item = NewJob>) -> Pushed {
    queue.push(vec![Push::run(NewRun::new("film"), jobs)]).await.expect("push").remove(0)
}

fn run_of(pushed: &Pushed) -> &RunId {
    pushed.run.as_ref().expect("a run")
}

async fn get_run(queue: &Arc<dyn Queue>, id: &RunId) -> Run {
    queue.get_run(id).await.expect("get_run").expect("the run")
}

async fn told(queue: &Arc<dyn Queue>, run: &RunId) -> Vec<String> {
    let events = queue.events(run, 0, 1_000).await.expect("events");
    assert!(events.iter().zip(1..).all(|(event, seq)| event.seq == seq), "{events:?}");
    events.into_iter().map(|event| event.name).collect()
}

/// A beat that says that the run of a claim can be played.
pub(super) fn playable(worker: WorkerId, claimed: &Claimed) -> Beat {
    let claim = ClaimBeat {
        job: claimed.job.id,
        fence: claimed.claim.fence(),
        slot: None,
        progress: None,
        checkpoint: None,
        records: vec![],
        playable: true,
    };
    Beat { worker, lease: Duration::from_secs(60), draining: false, claims: vec![claim] }
}

/// A beat that records something which the run tells of.
fn telling(worker: WorkerId, claimed: &Claimed, record: NewRecord) -> Beat {
    let mut beat = playable(worker, claimed);
    beat.claims[0].playable = false;
    beat.claims[0].records = vec![record];
    beat
}

pub(super) async fn a_record_tells_its_event_once(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let mut pulse = queue.pulse().await.expect("pulse");
    let pushed = push_run(&queue, [work(0), work(1)]).await;
    let run = run_of(&pushed);
    let output = |bytes: u64| {
        NewRecord::new("output", "poster", json!({ "bytes": bytes })).telling("output.ready", json!(bytes))
    };
    let (first, second) = (pull_one(&queue, worker).await, pull_one(&queue, worker).await);

    // Twice, as after a lost answer; once more with the outcome; then another, which is news.
    pulse.beat(&telling(worker, &first, output(1))).await.expect("beat");
    pulse.beat(&telling(worker, &first, output(1))).await.expect("beat");
    let stale = telling(worker, &first, output(9));
    let done_with =
        |claimed: Claimed, bytes| [Finish::new(claimed.claim, done()).recording(vec![output(bytes)])];
    assert_eq!(queue.finish(&done_with(first, 1)).await.expect("finish"), [Settled::Accepted]);
    pulse.beat(&stale).await.expect("beat");
    assert_eq!(queue.finish(&done_with(second, 2)).await.expect("finish"), [Settled::Accepted]);

    let story = ["run.created", "run.started", "output.ready", "output.ready", "run.succeeded"];
    assert_eq!(told(&queue, run).await, story);
    let events = queue.events(run, 2, 2).await.expect("events");
    assert_eq!(events.iter().map(|event| &event.body).collect::<Vec<_>>(), [&json!(1), &json!(2)]);
}

pub(super) async fn a_run_is_playable_once_and_stays_so(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let mut pulse = queue.pulse().await.expect("pulse");
    let pushed = push_run(&queue, [work(0), work(1)]).await;
    let run = run_of(&pushed);
    let (first, second) = (pull_one(&queue, worker).await, pull_one(&queue, worker).await);
    assert_eq!(get_run(&queue, run).await.playable_at, None);

    pulse.beat(&playable(worker, &first)).await.expect("beat");
    let since = get_run(&queue, run).await.playable_at;
    pulse.beat(&playable(worker, &first)).await.expect("beat");
    let finish = |claimed: Claimed| [Finish::new(claimed.claim, done()).playable(true)];
    assert_eq!(queue.finish(&finish(second)).await.expect("finish"), [Settled::Accepted]);
    settle(&queue, first, done()).await;
    queue.retry(pushed.jobs[0]).await.expect("retry");
    let again = pull_one(&queue, worker).await;
    assert_eq!(queue.finish(&finish(again)).await.expect("finish"), [Settled::Accepted]);

    assert!(since.is_some());
    assert_eq!(get_run(&queue, run).await.playable_at, since);
    let story =
        ["run.created", "run.started", "run.playable", "run.succeeded", "run.retried", "run.succeeded"];
    assert_eq!(told(&queue, run).await, story);

    let late = push_run(&queue, [work(2), work(3)]).await;
    let claimed = pull_one(&queue, worker).await;
    let release = Finish::new(claimed.claim, Outcome::Release).playable(true);
    queue.finish(&[release]).await.expect("finish");
    assert!(get_run(&queue, run_of(&late)).await.playable_at.is_some(), "a finish says it as well as a beat");
    assert_eq!(told(&queue, run_of(&late)).await, ["run.created", "run.started", "run.playable"]);
    check_invariants(&queue).await;
}

pub(super) async fn only_a_claim_that_holds_makes_a_run_playable(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let mut pulse = queue.pulse().await.expect("pulse");
    let pushed = push_run(&queue, [work(0), work(1)]).await;
    let claimed = pull_one(&queue, worker).await;
    queue.cancel(claimed.job.id).await.expect("cancel");

    let reply = pulse.beat(&playable(worker, &claimed)).await.expect("beat");
    let id = claimed.job.id;
    let finish = Finish::new(claimed.claim, done()).playable(true);
    let settled = queue.finish(&[finish]).await.expect("finish");

    assert_eq!((reply.refused, settled), (vec![id], vec![Settled::Refused]));
    assert_eq!(get_run(&queue, run_of(&pushed)).await.playable_at, None);
    assert_eq!(told(&queue, run_of(&pushed)).await, ["run.created", "run.started"]);
}

/// `work`: records a segment, says that the run can be played, and looks.
struct Play(Arc<dyn Queue>);

#[async_trait::async_trait]
impl Kind for Play {
    fn name(&self) -> &'static str {
        "work"
    }

    async fn run(&self, job: &Job, context: &JobContext) -> Result<Value, Failure> {
        let run = job.run.as_ref().ok_or_else(|| Failure::for_good("no_run", "it belongs to a run"))?;
        context.record(NewRecord::new("segment", "0", json!(null)));
        context.playable();
        context.flushed().await?;
        let seen = self.0.get_run(run).await.map_err(|error| Failure::retry("get_run", error))?;
        Ok(json!(seen.is_some_and(|run| run.playable_at.is_some())))
    }
}

pub(super) async fn a_kind_makes_its_run_playable_at_once(ground: Arc<Ground>) {
    let (queue, other) = (ground.open().await, ground.open().await);
    let options =
        WorkerOptions { lease: Duration::from_secs(600), beat_every: Duration::from_secs(200), ..brisk(1) };
    let worker = start(&queue, Kinds::new().with(Play(Arc::clone(&other))), options).await;

    let pushed = push_run(&queue, [work(0)]).await;
    wait_until_none_is_live(&queue).await;

    let job = queue.get(pushed.jobs[0]).await.expect("get").expect("the job");
    assert_eq!(job.result, Some(json!(true)));
    assert_eq!(
        told(&queue, run_of(&pushed)).await,
        ["run.created", "run.started", "run.playable", "run.succeeded"]
    );
    worker.drain();
    worker.finished().await;
}

/// Of each page, until there is none.
async fn list_runs(queue: &Arc<dyn Queue>, filter: &RunFilter, limit: u32) -> Vec<RunId> {
    let (mut ids, mut page) = (Vec::new(), RunPage::first(limit));
    loop {
        let listed = queue.list_runs(filter, page.clone()).await.expect("list_runs");
        assert!(listed.data.len() <= limit as usize);
        ids.extend(listed.data.into_iter().map(|run| run.id));
        match listed.next_cursor {
            Some(cursor) => page.before = Some(cursor),
            None => return ids,
        }
    }
}

pub(super) async fn runs_are_listed_newest_first(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let mut ids = Vec::new();
    for n in 0..11 {
        ids.push(run_of(&push_run(&queue, [work(n)]).await).clone());
    }
    // They are in four states by now.
    for outcome in [done(), failed("no")] {
        let claimed = pull_one(&queue, worker).await;
        settle(&queue, claimed, outcome).await;
    }
    queue.cancel_run(&ids[5]).await.expect("cancel_run");
    ids.sort_unstable_by(|one, other| other.cmp(one));

    let all = RunFilter::default();
    for limit in [1, 3, 10, 11, 12, 1_000] {
        assert_eq!(list_runs(&queue, &all, limit).await, ids, "each once, in pages of {limit}");
    }
    let first = queue.list_runs(&all, RunPage::first(1)).await.expect("list_runs").data.remove(0);
    assert_eq!(first, get_run(&queue, &first.id).await);
}

pub(super) async fn filters_narrow_a_list_of_runs(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let push = async |name: &str, external_id: Option<&str>, tenant: &str| -> RunId {
        let run = NewRun { external_id: external_id.map(str::to_owned), ..NewRun::new(name) };
        let push = Push::run(run, [work(1)]).tenant(tenant);
        queue.push(vec![push]).await.expect("push").remove(0).run.expect("a run")
    };
    let ours = push("film", Some("a"), "us").await;
    let claimed = pull_one(&queue, worker).await;
    settle(&queue, claimed, done()).await;
    let clip = push("clip", Some("b"), "us").await;
    let theirs = push("film", Some("a"), "them").await;
    let nobodys = push("film", None, "").await;
    let newest_first = |ids: &[&RunId]| {
        let mut ids: Vec<RunId> = ids.iter().map(|id| (*id).clone()).collect();
        ids.sort_unstable_by(|one, other| other.cmp(one));
        ids
    };
    let listed = async |filter: RunFilter| list_runs(&queue, &filter, 1).await;

    let all = RunFilter::default;
    let (us, film, a) = (Some("us".to_owned()), Some("film".to_owned()), Some("a".to_owned()));
    let queued = vec![RunState::Queued];
    assert_eq!(listed(RunFilter { tenant: us.clone(), ..all() }).await, newest_first(&[&ours, &clip]));
    assert_eq!(listed(RunFilter { tenant: Some(String::new()), ..all() }).await, newest_first(&[&nobodys]));
    assert_eq!(
        listed(RunFilter { name: film.clone(), ..all() }).await,
        newest_first(&[&ours, &theirs, &nobodys])
    );
    assert_eq!(
        listed(RunFilter { states: queued.clone(), ..all() }).await,
        newest_first(&[&clip, &theirs, &nobodys])
    );
    let twice = vec![RunState::Succeeded, RunState::Succeeded, RunState::Failed];
    assert_eq!(listed(RunFilter { states: twice, ..all() }).await, newest_first(&[&ours]));
    assert_eq!(listed(RunFilter { external_id: a.clone(), ..all() }).await, newest_first(&[&ours, &theirs]));
    assert_eq!(
        listed(RunFilter { external_id: a.clone(), tenant: us.clone(), ..all() }).await,
        newest_first(&[&ours])
    );
    let live_ones =
        RunFilter { states: queued, tenant: us.clone(), name: film.clone(), external_id: a.clone() };
    assert!(listed(live_ones.clone()).await.is_empty());
    assert_eq!(listed(RunFilter { states: vec![], ..live_ones }).await, [ours]);
    assert!(listed(RunFilter { tenant: Some("nobody".into()), ..all() }).await.is_empty());
}

pub(super) async fn the_steps_of_a_run_are_counted(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let mut pulse = queue.pulse().await.expect("pulse");
    let jobs = [
        work(0).step("ingest"),
        work(1).step("hls"),
        work(2).step("hls"),
        work(3).step("hls"),
        work(4).step("package").after(1),
        work(5),
    ];
    let pushed = push_run(&queue, jobs).await;
    push_run(&queue, [work(9).step("hls")]).await;
    let ingest = pull_one(&queue, worker).await;
    settle(&queue, ingest, done()).await;
    for progress in [0.25, 0.5] {
        let claimed = pull_one(&queue, worker).await;
        let mut beat = playable(worker, &claimed);
        beat.claims[0].progress = Some(progress);
        pulse.beat(&beat).await.expect("beat");
    }

    let steps = queue.run_steps(run_of(&pushed)).await.expect("run_steps");

    let count = |step: Option<&str>, state, progress| StepCount {
        step: step.map(str::to_owned),
        state,
        jobs: if progress > 0.0 { 2 } else { 1 },
        progress,
    };
    let expected = [
        count(None, JobState::Pending, 0.0),
        count(Some("hls"), JobState::Pending, 0.0),
        count(Some("hls"), JobState::Running, 0.75),
        count(Some("ingest"), JobState::Completed, 0.0),
        count(Some("package"), JobState::Waiting, 0.0),
    ];
    assert_eq!(steps, expected);
    assert!(queue.run_steps(&RunId::new()).await.expect("run_steps").is_empty());
}

pub(super) async fn a_cancelled_run_ends_at_once(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let later = Timestamp::now().plus(Duration::from_secs(3_600));
    let jobs = [
        work(0).priority(90),
        work(1).priority(80),
        work(2),
        work(3).run_at(later),
        work(4).after(1),
        NewJob { needs: vec![], ..work(5) }
            .needing(Need { on: Needed::Nth(4), on_failed: OnFailed::RunAnyway }),
    ];
    let pushed = push_run(&queue, jobs).await;
    let other = push_run(&queue, [work(9)]).await;
    let run = run_of(&pushed);
    let ended = pull_one(&queue, worker).await;
    settle(&queue, ended, done()).await;
    let running = pull_one(&queue, worker).await;

    assert_eq!(queue.cancel_run(run).await.expect("cancel_run"), 5);

    let found = get_run(&queue, run).await;
    assert_eq!((found.state, found.jobs_left, found.jobs_cancelled), (RunState::Cancelled, 0, 5));
    assert_eq!(told(&queue, run).await, ["run.created", "run.started", "run.cancelled"]);
    let attempts = queue.attempts(running.job.id).await.expect("attempts");
    assert_eq!(attempts.iter().map(|it| it.outcome).collect::<Vec<_>>(), [AttemptOutcome::Cancelled]);
    assert_eq!(settle(&queue, running, done()).await, Settled::Refused);
    let again = queue.cancel_run(run).await;
    assert!(matches!(again, Err(QueueError::WrongRunState { state: RunState::Cancelled, .. })), "{again:?}");
    let nobody = queue.cancel_run(&RunId::new()).await;
    assert!(matches!(nobody, Err(QueueError::NoSuchRun(_))), "{nobody:?}");
    assert_eq!(get_run(&queue, run_of(&other)).await.state, RunState::Queued, "others go on");
    check_invariants(&queue).await;

    queue.retry_run(run, &[]).await.expect("retry_run");
    let restarted = get_run(&queue, run).await;
    assert_eq!((restarted.state, restarted.generation, restarted.jobs_left), (RunState::Running, 2, 5));
    check_invariants(&queue).await;
}

/// Jobs that add others as they end, and whatever can meet them: the run ends with the cancel, and stays so.
pub(super) async fn no_finish_adds_to_a_run_that_is_cancelled(ground: Arc<Ground>) {
    const ROUNDS: u64 = 12;
    let queue = ground.open().await;
    let others = [ground.open().await, ground.open().await, ground.open().await];
    let mut cancelled_early = 0;
    for round in 0..ROUNDS {
        // The package comes first, as in a film: it waits for ranges that are not there yet.
        let ranges = (0..4).map(|n| work(n).priority(60));
        let package = (1..=4).fold(work(99), NewJob::after);
        let pushed = push_run(&queue, [package].into_iter().chain(ranges)).await;
        let run = run_of(&pushed).clone();
        let mut workers = Vec::new();
        for queue in others.iter().map(Arc::clone) {
            workers.push(tokio::spawn(async move { spawn_until_refused(&queue).await }));
        }
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        if round.is_multiple_of(2) {
            eventually("something was added", || async {
                (get_run(&queue, &run).await.jobs_total > 5).then_some(())
            })
            .await;
        }

        cancelled_early += queue.cancel_run(&run).await.expect("it never ends by itself");

        let mut finished = 0;
        for worker in workers {
            finished += worker.await.expect("no panic");
        }
        let ended = get_run(&queue, &run).await;
        assert_eq!((ended.state, ended.jobs_left), (RunState::Cancelled, 0), "round {round}: {ended:?}");
        let filter = JobFilter { run: Some(run.clone()), ..JobFilter::default() };
        let jobs = list_all(&queue, &filter).await;
        assert!(jobs.iter().all(|job| job.state.is_terminal()), "round {round}: {jobs:?}");
        let completed = jobs.iter().filter(|job| job.state == JobState::Completed).count();
        assert_eq!((jobs.len() as u32, completed as u64), (ended.jobs_total, finished), "round {round}");
        let story = told(&queue, &run).await;
        assert_eq!(story.iter().filter(|name| *name == "run.cancelled").count(), 1, "{story:?}");
        assert_eq!(story.last().map(String::as_str), Some("run.cancelled"), "{story:?}");
    }
    assert!(cancelled_early > ROUNDS, "there was something to cancel");
    check_invariants(&queue).await;
}

/// Claims two jobs at a time and lets each add two more as it ends; says how many ended so.
async fn spawn_until_refused(queue: &Arc<dyn Queue>) -> u64 {
    let worker = register(queue).await;
    let mut finished = 0;
    loop {
        let claimed = pull(queue, worker, 2).await;
        let finishes: Vec<Finish> = claimed
            .into_iter()
            .map(|claimed| {
                let spawn = Spawn::jobs([work(7), work(8).after(0)]);
                Finish::new(claimed.claim, done()).spawning(spawn)
            })
            .collect();
        let settled = queue.finish(&finishes).await.expect("finish");
        finished += settled.iter().filter(|it| **it == Settled::Accepted).count() as u64;
        if settled.is_empty() || settled.contains(&Settled::Refused) {
            return finished;
        }
    }
}

pub(super) async fn a_priority_counts_for_all_jobs_of_a_run(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let pushed = push_run(&queue, [work(0), work(1), work(2).after(1)]).await;
    let run = run_of(&pushed);
    let other = push_run(&queue, [work(8).priority(70)]).await;
    queue.prioritise_run(run_of(&other), 30).await.expect("prioritise_run");

    assert_eq!(queue.prioritise_run(run, 80).await.expect("prioritise_run"), 3);

    assert_eq!(get_run(&queue, run).await.priority, Some(80));
    let first = pull_one(&queue, worker).await;
    assert_eq!((first.job.id, first.job.priority), (pushed.jobs[0], 80));
    let spawn = Spawn::jobs([work(10).priority(5)]);
    queue.finish(&[Finish::new(first.claim, done()).spawning(spawn)]).await.expect("finish");
    queue.retry(pushed.jobs[0]).await.expect("retry");
    let mut ran = BTreeSet::new();
    for _ in 0..4 {
        let claimed = pull_one(&queue, worker).await;
        assert_eq!(claimed.job.priority, 80, "{claimed:?}");
        ran.insert(claimed.job.payload["n"].as_u64().expect("a number"));
        settle(&queue, claimed, done()).await;
    }
    assert_eq!(ran, BTreeSet::from([0, 1, 2, 10]), "also what was spawned and started over");
    let last = pull_one(&queue, worker).await;
    assert_eq!((last.job.id, last.job.priority), (other.jobs[0], 30));

    let ended = queue.prioritise_run(run, 10).await;
    assert!(matches!(ended, Err(QueueError::WrongRunState { state: RunState::Succeeded, .. })), "{ended:?}");
    let absent = queue.prioritise_run(&RunId::new(), 10).await;
    assert!(matches!(absent, Err(QueueError::NoSuchRun(_))), "{absent:?}");
    let high = queue.prioritise_run(run, 101).await;
    assert!(matches!(high, Err(QueueError::Invalid { .. })), "{high:?}");
    check_invariants(&queue).await;
}

pub(super) async fn a_deleted_run_leaves_nothing(ground: Arc<Ground>) {
    const TABLES: [&str; 8] = ["run", "job", "job_done", "attempt", "need", "record", "event", "idempotency"];
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let push = || {
        let jobs = [work(0).max_attempts(2), work(1).after(0)];
        vec![Push::run(NewRun::new("film"), jobs).idempotency_key("once")]
    };
    let pushed = queue.push(push()).await.expect("push").remove(0);
    let run = run_of(&pushed);
    let claimed = pull_one(&queue, worker).await;
    let record = NewRecord::new("segment", "0", json!(1));
    let released = Finish::new(claimed.claim, Outcome::Release).recording(vec![record]);
    queue.finish(&[released]).await.expect("finish");
    let live = queue.delete_run(run).await;
    for _ in 0..2 {
        let claimed = pull_one(&queue, worker).await;
        settle(&queue, claimed, done()).await;
    }
    assert!(TABLES.iter().all(|table| *table == "job" || ground.rows(table) > 0));

    queue.delete_run(run).await.expect("delete_run");

    assert!(matches!(live, Err(QueueError::WrongRunState { state: RunState::Running, .. })), "{live:?}");
    for table in TABLES {
        assert_eq!(ground.rows(table), 0, "{table}");
    }
    let again = queue.delete_run(run).await;
    assert!(matches!(again, Err(QueueError::NoSuchRun(_))), "{again:?}");
    let anew = queue.push(push()).await.expect("push").remove(0);
    assert!(!anew.replayed && anew.run != pushed.run, "its key is free");
    check_invariants(&queue).await;
}

pub(super) async fn a_run_is_not_deleted_before_its_end_is_told(ground: Arc<Ground>) {
    let queue = ground.open().await;
    queue.add_sink("webhooks").await.expect("add_sink");
    let pushed = push_run(&queue, [work(0)]).await;
    let run = run_of(&pushed);
    queue.cancel_run(run).await.expect("cancel_run");

    let early = queue.delete_run(run).await.expect_err("nobody heard of it");
    let lease = Duration::from_secs(60);
    let parcel = queue.outbox_take("webhooks", 1, lease).await.expect("outbox_take").remove(0);
    queue.outbox_done("webhooks", &[parcel.delivered()]).await.expect("outbox_done");
    queue.delete_run(run).await.expect("delete_run");

    assert!(matches!(early, QueueError::WrongRunState { .. }), "{early:?}");
    assert!(early.to_string().contains("`webhooks`"), "{early}");
    assert_eq!((ground.rows("event"), ground.rows("outbox"), ground.rows("run")), (0, 0, 0));
}

pub(super) async fn a_run_that_is_retried_as_it_is_deleted_is_whole_or_gone(ground: Arc<Ground>) {
    let (queue, other) = (ground.open().await, ground.open().await);
    for _ in 0..20 {
        let pushed = push_run(&queue, [work(0), work(1).after(0)]).await;
        let run = run_of(&pushed);
        queue.cancel_run(run).await.expect("cancel_run");

        let (deleted, retried) = tokio::join!(queue.delete_run(run), other.retry_run(run, &[]));

        let filter = JobFilter { run: Some(run.clone()), ..JobFilter::default() };
        let left = list_all(&queue, &filter).await.len();
        match (deleted, retried) {
            (Ok(()), Err(QueueError::NoSuchRun(_))) => assert_eq!(left, 0),
            (Err(QueueError::WrongRunState { .. }), Ok(_)) => {
                assert_eq!((left, get_run(&queue, run).await.jobs_left), (2, 2));
                queue.cancel_run(run).await.expect("cancel_run");
                queue.delete_run(run).await.expect("delete_run");
            }
            both => panic!("{both:?} with {left} jobs left"),
        }
    }
    assert_eq!((ground.rows("run"), ground.rows("job_done"), ground.rows("job")), (0, 0, 0));
    check_invariants(&queue).await;
}
