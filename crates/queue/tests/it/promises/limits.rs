use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use telecine_queue::{
    Claimed, Finish, Job, JobFilter, JobId, JobState, Limit, LimitState, NewJob, Outcome, Pausable, Queue,
    QueueError, Settled, Timestamp, total,
};

use crate::child::{Process, Role};
use crate::ground::{
    Database, Ground, LEASE, check_invariants, done, eventually, failed, pull, pull_one, push_all, push_one,
    register, register_for, settle, wait_until_none_is_live, work,
};

const KEY: &str = "provider:one";

fn limited(n: u64) -> NewJob {
    work(n).limit_key(KEY)
}

async fn state_of(queue: &Arc<dyn Queue>) -> LimitState {
    queue.limits().await.expect("limits").pop().expect("the limit")
}

/// Running, admitted but not claimed, parked.
async fn standing(queue: &Arc<dyn Queue>) -> (u64, u64, u64) {
    let state = state_of(queue).await;
    (state.running, state.pending, state.parked)
}

async fn job(queue: &Arc<dyn Queue>, id: JobId) -> Job {
    queue.get(id).await.expect("get").expect("the job")
}

pub(super) async fn no_more_run_than_the_limit_says(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    queue.limit(Limit::new(KEY).max_running(2)).await.expect("limit");
    let ids = push_all(&queue, (0..5).map(limited)).await;
    assert_eq!(standing(&queue).await, (0, 2, 3));

    let mut held = pull(&queue, worker, 10).await;
    assert_eq!(held.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), ids[..2]);
    assert!(pull(&queue, worker, 10).await.is_empty());
    assert_eq!(standing(&queue).await, (2, 0, 3));

    // Whichever way one ends, the next comes in, in the order of the push.
    settle(&queue, held.remove(0), done()).await;
    assert_eq!(standing(&queue).await, (1, 1, 2));
    held.push(pull_one(&queue, worker).await);
    assert_eq!(held[1].job.id, ids[2]);
    queue.cancel(ids[1]).await.expect("cancel");
    held.remove(0);
    held.push(pull_one(&queue, worker).await);
    assert_eq!(held[1].job.id, ids[3]);
    let error = telecine_queue::JobError::new("bad_input", "no");
    settle(&queue, held.remove(0), Outcome::FailForGood { error }).await;
    assert_eq!(pull_one(&queue, worker).await.job.id, ids[4]);
    check_invariants(&queue).await;
}

pub(super) async fn a_key_without_a_limit_parks_nothing(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;

    let ids = push_all(&queue, (0..20).map(limited)).await;
    let mut held = pull(&queue, worker, 20).await;

    assert_eq!(held.len(), ids.len());
    assert!(queue.limits().await.expect("limits").is_empty());
    let released = held.pop().expect("one");
    let id = released.job.id;
    settle(&queue, released, Outcome::Release).await;
    assert_eq!(job(&queue, id).await.state, JobState::Pending);
    let over = held.pop().expect("one").job.id;
    queue.cancel(over).await.expect("cancel");
    queue.retry(over).await.expect("retry");
    assert_eq!(job(&queue, over).await.state, JobState::Pending);
    check_invariants(&queue).await;
}

pub(super) async fn a_job_that_goes_back_gives_up_its_place(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    queue.limit(Limit::new(KEY).max_running(1)).await.expect("limit");
    let ids = push_all(&queue, (0..3).map(limited)).await;

    // It stands first in the line still, so a release lets it in again; a delay lets the others pass.
    settle(&queue, pull_one(&queue, worker).await, Outcome::Release).await;
    let first = pull_one(&queue, worker).await;
    assert_eq!(first.job.id, ids[0]);
    settle(&queue, first, Outcome::Snooze { delay: Duration::from_secs(3_600) }).await;
    let second = pull_one(&queue, worker).await;
    assert_eq!((second.job.id, job(&queue, ids[0]).await.state), (ids[1], JobState::Scheduled));
    settle(&queue, second, failed("backs off")).await;
    let third = pull_one(&queue, worker).await;
    assert_eq!(third.job.id, ids[2]);

    // Due again while another runs: parked, not pending.
    ground.make_due(ids[0]);
    queue.promote().await.expect("promote");
    assert_eq!(job(&queue, ids[0]).await.state, JobState::Parked);
    assert_eq!(settle(&queue, third, done()).await, Settled::Accepted);
    assert_eq!(pull_one(&queue, worker).await.job.id, ids[0]);
    check_invariants(&queue).await;
}

pub(super) async fn a_dead_workers_place_is_free_again(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let silent = register_for(&queue, Duration::from_millis(1)).await;
    queue.limit(Limit::new(KEY).max_running(1)).await.expect("limit");
    push_one(&queue, limited(0)).await;
    let lost = pull_one(&queue, silent).await;
    let better = push_one(&queue, limited(1).priority(90)).await;
    assert_eq!(standing(&queue).await, (1, 0, 1));

    eventually("the silent worker is declared dead", || async {
        (queue.reap().await.expect("reap").freed == 1).then_some(())
    })
    .await;

    assert_eq!(standing(&queue).await, (0, 1, 1), "one place, and the better job has it");
    let worker = register(&queue).await;
    let held = pull_one(&queue, worker).await;
    assert_eq!(held.job.id, better);
    // The lost one was only cut off, and nobody took its job since.
    assert_eq!(settle(&queue, lost, done()).await, Settled::Accepted);
    assert_eq!(standing(&queue).await, (1, 0, 0));
    check_invariants(&queue).await;
}

pub(super) async fn a_changed_limit_parks_and_admits_at_once(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let ids = push_all(&queue, (0..3_000).map(limited)).await;
    let _held = pull(&queue, worker, 3).await;

    queue.limit(Limit::new(KEY).max_running(5)).await.expect("limit");
    assert_eq!(standing(&queue).await, (3, 2, 2_995));
    queue.limit(Limit::new(KEY).max_running(1)).await.expect("limit");
    assert_eq!(standing(&queue).await, (3, 0, 2_997), "those that run go on");
    queue.limit(Limit::new(KEY).max_running(10)).await.expect("limit");
    assert_eq!(standing(&queue).await, (3, 7, 2_990));
    queue.delete(ids[3]).await.expect("delete");
    assert_eq!(standing(&queue).await, (3, 7, 2_989));
    queue.limit(Limit::new(KEY).max_running(0)).await.expect("limit");
    assert!(pull(&queue, worker, 10).await.is_empty(), "nothing may run");

    queue.limit(Limit::new(KEY)).await.expect("limit");
    assert!(queue.limits().await.expect("limits").is_empty());
    let counts = queue.counts().await.expect("counts");
    assert_eq!((total(&counts, JobState::Parked), total(&counts, JobState::Pending)), (0, 2_996));
    assert_eq!(pull_one(&queue, worker).await.job.id, ids[4], "in the order of the push");
    check_invariants(&queue).await;
}

pub(super) async fn a_bad_limit_is_refused(ground: Arc<Ground>) {
    let queue = ground.open().await;

    for bad in
        [Limit::new("").max_running(1), Limit::new(KEY).per_minute(0.0), Limit::new(KEY).per_minute(f64::NAN)]
    {
        assert!(matches!(queue.limit(bad).await, Err(QueueError::Invalid { .. })));
    }
    assert_eq!(queue.slow_down(KEY).await.expect("slow down"), None, "there is no limit to slow down");
}

/// A token every tenth of a second, admitted by `promote` alone, and never more of them than time has brought.
pub(super) async fn a_pace_is_kept_without_any_other_event(ground: Arc<Ground>) {
    const EVERY: Duration = Duration::from_millis(100);
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let began = std::time::Instant::now();
    queue.limit(Limit::new(KEY).per_minute(600.0)).await.expect("limit");
    push_all(&queue, (0..50).map(limited)).await;

    let mut started = 0;
    while started < 8 {
        let next_in = queue.promote().await.expect("promote").next_in.expect("parked jobs wait for a token");
        assert!(next_in <= EVERY * 2, "{next_in:?}");
        started += pull(&queue, worker, 50).await.len();
        let elapsed = began.elapsed();
        // What time has brought since, and one that the limit began with.
        let most = elapsed.as_millis() / EVERY.as_millis() + 1;
        assert!(started as u128 <= most, "{started} jobs in {elapsed:?}");
        eventually("the next token is there", || async {
            (queue.promote().await.expect("promote").jobs > 0).then_some(())
        })
        .await;
    }
    check_invariants(&queue).await;
}

pub(super) async fn time_without_workers_is_not_made_up_for(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    queue.limit(Limit::new(KEY).per_minute(120.0)).await.expect("limit");
    push_all(&queue, (0..50).map(limited)).await;

    for _ in 0..5 {
        ground.rewind_limit(Duration::from_secs(3_600), None);
        queue.promote().await.expect("promote");
    }

    assert_eq!(pull(&queue, worker, 50).await.len(), 2, "a second's worth, not five hours'");
    check_invariants(&queue).await;
}

pub(super) async fn a_request_to_slow_down_is_kept_and_wears_off(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    queue.limit(Limit::new(KEY).max_running(8).per_minute(60_000.0)).await.expect("limit");
    push_all(&queue, (0..40).map(limited)).await;
    ground.rewind_limit(Duration::from_secs(1), None);
    queue.promote().await.expect("promote");
    assert_eq!(standing(&queue).await, (0, 8, 32));

    let near = |pace: Option<f64>, wanted: f64| pace.is_some_and(|pace| (pace - wanted).abs() < 0.02);
    assert!(near(queue.slow_down(KEY).await.expect("slow down"), 0.5));
    assert!(standing(&queue).await.1 <= 5, "half of it, and what recovered since");
    for _ in 0..5 {
        queue.slow_down(KEY).await.expect("slow down");
    }
    let state = state_of(&queue).await;
    assert!(near(Some(state.pace), 1.0 / 16.0), "{state:?}");
    assert!((1..=2).contains(&pull(&queue, worker, 50).await.len()));

    // Ten seconds bring a sixteenth back, by themselves; 150 all of it.
    ground.rewind_limit(Duration::from_secs(10), None);
    assert!(near(Some(state_of(&queue).await.pace), 2.0 / 16.0));
    ground.rewind_limit(Duration::from_secs(150), None);
    let promoted = queue.promote().await.expect("promote");
    assert!(promoted.jobs >= 6, "{promoted:?}");
    assert_eq!(state_of(&queue).await.pace, 1.0);
    check_invariants(&queue).await;
}

pub(super) async fn a_waiting_worker_goes_on_when_the_limit_lets_it(ground: Arc<Ground>) {
    let queue = ground.open().await;
    queue.limit(Limit::new(KEY).max_running(1).per_minute(1_200.0)).await.expect("limit");
    let mut worker = Process::start(&Role::Worker {
        url: ground.url.clone(),
        slots: 4,
        lease_ms: 60_000,
        log: ground.folder.path().join("ran").display().to_string(),
    });

    push_all(&queue, (0..10).map(limited)).await;
    let counts = wait_until_none_is_live(&queue).await;

    assert_eq!(total(&counts, JobState::Completed), 10);
    worker.drain();
    check_invariants(&queue).await;
}

/// Eight slots in four processes, one of which is killed half-way. What the kinds wrote down tells how many ran at once.
pub(super) async fn a_limit_is_exact_over_processes_and_kills(ground: Arc<Ground>) {
    const MOST: u32 = 3;
    const JOBS: u64 = 200;
    const PARKED: u64 = 100_000;
    let queue = ground.open().await;
    queue.limit(Limit::new(KEY).max_running(MOST)).await.expect("limit");
    let spans = ground.folder.path().join("spans").display().to_string();
    let short = |n| NewJob::new("span", json!({ "n": n, "log": spans, "ms": 5 })).limit_key(KEY).priority(90);
    push_all(&queue, (0..JOBS).map(short)).await;
    push_all(&queue, (0..PARKED).map(limited)).await;
    let role =
        Role::Worker { url: ground.url.clone(), slots: 2, lease_ms: 60_000, log: spans.clone() + ".work" };
    // Long enough that only its death ends it.
    let lease_ms = (LEASE * 2).as_millis().try_into().expect("short");
    let doomed = Role::Worker { url: ground.url.clone(), slots: 2, lease_ms, log: spans.clone() + ".work" };

    let mut workers: Vec<Process> = (0..3).map(|_| Process::start(&role)).collect();
    let mut victim = Process::start(&doomed);
    eventually("half of them are done", || async {
        let counts = queue.counts().await.expect("counts");
        (total(&counts, JobState::Completed) >= JOBS / 2).then_some(())
    })
    .await;
    victim.kill();
    // What the victim held comes back when its lease has ended; the others go on meanwhile.
    let counts = eventually("the rest is done", || async {
        let state = state_of(&queue).await;
        assert!(state.running + state.pending <= u64::from(MOST), "{state:?}");
        let counts = queue.counts().await.expect("counts");
        let spans = counts.iter().filter(|count| count.kind == "span" && count.state == JobState::Completed);
        let others = total(&counts, JobState::Completed).saturating_sub(JOBS);
        (spans.map(|count| count.jobs).sum::<u64>() == JOBS && others >= 500).then_some(counts)
    })
    .await;
    workers.iter_mut().for_each(Process::drain);

    assert!(total(&counts, JobState::Parked) > PARKED / 2, "many are parked all the while");
    let log = std::fs::read_to_string(&spans).expect("they wrote");
    let (most, ran) = most_at_once(&log);
    assert!(most <= MOST as usize, "{most} ran at once");
    assert_eq!(ran.len() as u64, JOBS, "each ran");
    check_invariants(&queue).await;
}

/// Counting what others have not committed yet is where a limit breaks: each would see room for itself.
pub(super) async fn pushes_at_once_share_one_limit(ground: Arc<Ground>) {
    let handles = handles(&ground).await;
    for round in 0..15 {
        let key = format!("key:{round}");
        handles[0].limit(Limit::new(&key).max_running(2)).await.expect("limit");

        push_at_once(&handles, &key).await;

        assert_eq!(admitted_and_parked(&handles[0], &key).await, (2, 18), "round {round}");
    }
    check_invariants(&handles[0]).await;
}

/// A push that found no limit lets its jobs in; a limit that is set meanwhile has to know of them.
pub(super) async fn a_limit_that_is_set_during_pushes_counts_them(ground: Arc<Ground>) {
    let handles = handles(&ground).await;
    for round in 0..15 {
        let key = format!("key:{round}");
        let limit = ground.open().await;

        let (_, set) =
            tokio::join!(push_at_once(&handles, &key), limit.limit(Limit::new(&key).max_running(2)));

        set.expect("limit");
        assert_eq!(admitted_and_parked(&handles[0], &key).await, (2, 18), "round {round}");
        limit.close().await;
    }
    check_invariants(&handles[0]).await;
}

pub(super) async fn handles(ground: &Ground) -> Vec<Arc<dyn Queue>> {
    let mut handles = Vec::new();
    for _ in 0..4 {
        handles.push(ground.open().await);
    }
    handles
}

/// Five jobs from each handle.
async fn push_at_once(handles: &[Arc<dyn Queue>], key: &str) {
    let mut tasks = tokio::task::JoinSet::new();
    for queue in handles {
        let (queue, key) = (Arc::clone(queue), key.to_owned());
        tasks.spawn(async move { push_all(&queue, (0..5).map(|n| work(n).limit_key(&key))).await });
    }
    tasks.join_all().await;
}

async fn admitted_and_parked(queue: &Arc<dyn Queue>, key: &str) -> (u64, u64) {
    let limits = queue.limits().await.expect("limits");
    let state = limits.iter().find(|state| state.limit.key == key).expect("the limit");
    (state.pending + state.running, state.parked)
}

/// Everything at once, from four handles, while the limit itself changes: it holds at every look, and nothing is
/// forgotten in the end.
pub(super) async fn a_limit_holds_whatever_happens_at_once(ground: Arc<Ground>) {
    const ROUNDS: u64 = 60;
    let queue = ground.open().await;
    let keys = ["a", "b"];
    for key in keys {
        queue.limit(Limit::new(key).max_running(4)).await.expect("limit");
    }
    let mut tasks = tokio::task::JoinSet::new();
    for nth in 0..3_u64 {
        let (queue, ground) = (ground.open().await, Arc::clone(&ground));
        tasks.spawn(async move {
            let worker = register(&queue).await;
            for round in 0..ROUNDS {
                let job = |n: u64| work(n).limit_key(keys[(n % 2) as usize]);
                let ids = push_all(&queue, (round..round + 4).map(job)).await;
                let claimed = pull(&queue, worker, 3).await;
                let finishes: Vec<Finish> = claimed.into_iter().zip(round..).map(finish_somehow).collect();
                queue.finish(&finishes).await.expect("finish");
                match (round + nth) % 4 {
                    // Whether it is still there, and in a state for this, is up to the others.
                    0 => drop(queue.cancel(ids[0]).await),
                    1 => drop(queue.delete(ids[1]).await),
                    2 => drop(queue.retry(JobId(ids[0].0 - 8)).await),
                    _ => drop(queue.promote().await.expect("promote")),
                }
            }
            drop(ground);
        });
    }
    let changer = ground.open().await;
    tasks.spawn(async move {
        for round in 0..ROUNDS {
            let most = 1 + u32::try_from(round % 4).expect("small");
            changer.limit(Limit::new("a").max_running(most)).await.expect("limit");
            let state = changer.limits().await.expect("limits");
            assert!(state[1].running + state[1].pending <= 4, "{state:?}");
        }
    });
    while let Some(ended) = tasks.join_next().await {
        ended.expect("none of them fails");
    }

    run_to_the_end(&queue).await;
    check_invariants(&queue).await;
}

/// Whoever is left runs to its end, with nothing but the queue's own verbs.
pub(super) async fn run_to_the_end(queue: &Arc<dyn Queue>) {
    let worker = register(queue).await;
    eventually("all of them have ended", || async {
        queue.promote().await.expect("promote");
        for claimed in pull(queue, worker, 100).await {
            settle(queue, claimed, done()).await;
        }
        let counts = queue.counts().await.expect("counts");
        counts.iter().all(|count| count.state.is_terminal()).then_some(())
    })
    .await;
}

pub(super) fn finish_somehow((claimed, n): (Claimed, u64)) -> Finish {
    let outcome = match n % 4 {
        0 => Outcome::Release,
        1 => Outcome::Snooze { delay: Duration::from_millis(1) },
        _ => done(),
    };
    Finish::new(claimed.claim, outcome)
}

/// The most jobs whose beginning was written and whose end was not. The killed process wrote no end: its jobs are over
/// when they begin again, at the latest.
pub(super) fn most_at_once(log: &str) -> (usize, HashMap<&str, u32>) {
    let (mut open, mut most, mut ran) = (HashMap::new(), 0, HashMap::new());
    for line in log.lines() {
        let mut words = line.split(' ');
        let (what, id, pid) = (words.next(), words.next().expect("an id"), words.next());
        match what {
            Some("begin") => {
                open.insert(id, pid);
                *ran.entry(id).or_default() += 1;
            }
            _ => drop(open.remove(id)),
        }
        most = most.max(open.len());
    }
    (most, ran)
}

pub(super) async fn a_paused_lane_or_kind_is_not_claimed(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    push_all(&queue, (0..3).map(work)).await;
    let held = pull_one(&queue, worker).await;

    for what in [Pausable::Lane("cpu".into()), Pausable::Kind("work".into())] {
        assert!(queue.pause(&what).await.expect("pause"));
        assert!(!queue.pause(&what).await.expect("pause"), "it was paused before");
        assert_eq!(queue.paused().await.expect("paused")[0].what, what);
        assert!(pull(&queue, worker, 10).await.is_empty());

        let seen = queue.wakes().borrow().ready;
        assert!(queue.resume(&what).await.expect("resume"));
        assert!(!queue.resume(&what).await.expect("resume"), "it was resumed before");
        eventually("waiting workers are woken", || async {
            (queue.wakes().borrow().ready > seen).then_some(())
        })
        .await;
    }
    queue.pause(&Pausable::Lane("net".into())).await.expect("pause");
    queue.pause(&Pausable::Kind("other".into())).await.expect("pause");

    assert_eq!(settle(&queue, held, done()).await, Settled::Accepted, "what ran goes on");
    assert_eq!(pull(&queue, worker, 10).await.len(), 2, "other pauses do not concern it");
    assert_eq!(queue.paused().await.expect("paused").len(), 2);
    check_invariants(&queue).await;
}

pub(super) async fn cancel_all_ends_what_matches_running_or_not(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    queue.limit(Limit::new(KEY).max_running(1)).await.expect("limit");
    push_all(&queue, (0..1_200).map(work)).await;
    let parked = push_all(&queue, (0..3).map(|n| limited(n).lane("net"))).await;
    let other = push_one(&queue, NewJob::new("other", json!(null))).await;
    let held = pull_one(&queue, worker).await;
    let far = Timestamp::now().plus(Duration::from_secs(3_600));
    push_one(&queue, work(0).run_at(far)).await;

    let filter = JobFilter { kind: Some("work".into()), ..JobFilter::default() };
    let narrow = JobFilter { states: vec![JobState::Scheduled], ..filter.clone() };
    assert_eq!(queue.cancel_all(&narrow).await.expect("cancel"), 1);
    assert_eq!(queue.cancel_all(&filter).await.expect("cancel"), 1_203);

    assert_eq!(job(&queue, parked[0]).await.state, JobState::Cancelled);
    assert_eq!(job(&queue, other).await.state, JobState::Pending);
    assert_eq!(settle(&queue, held, done()).await, Settled::Refused);
    assert_eq!(queue.cancel_all(&filter).await.expect("cancel"), 0);
    check_invariants(&queue).await;
}

pub(super) async fn retry_all_starts_what_matches_over(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    queue.limit(Limit::new(KEY).max_running(1)).await.expect("limit");
    push_all(&queue, (0..600).map(work).chain((0..3).map(limited))).await;
    let taken = push_one(&queue, work(0).unique_key("one")).await;
    queue.cancel_all(&JobFilter::default()).await.expect("cancel");
    let holder = push_one(&queue, work(0).unique_key("one")).await;

    let filter = JobFilter { states: vec![JobState::Cancelled], ..JobFilter::default() };
    assert_eq!(queue.retry_all(&filter).await.expect("retry"), 603);

    assert_eq!(job(&queue, taken).await.state, JobState::Cancelled, "a live job has its unique key");
    assert_eq!(job(&queue, holder).await.state, JobState::Pending);
    assert_eq!(standing(&queue).await, (0, 1, 2));
    let again = pull(&queue, worker, 2).await.pop().expect("the job after the holder");
    assert_eq!((again.job.generation, again.job.attempt), (2, 1));
    assert_eq!(queue.retry_all(&filter).await.expect("retry"), 0);
    check_invariants(&queue).await;
}

impl Ground {
    /// Lets a scheduled job's time come, in place of waiting for it.
    fn make_due(&self, id: JobId) {
        self.execute(
            &format!("UPDATE job SET run_at = 1 WHERE id = {id}"),
            &format!("UPDATE telecine.job SET run_at = to_timestamp(1) WHERE id = {id}"),
        );
    }

    /// Lets time pass for the limits, in place of waiting for it.
    fn rewind_limit(&self, by: Duration, tokens: Option<f64>) {
        let (ms, tokens) = (by.as_millis(), tokens.map_or("tokens".into(), |tokens| tokens.to_string()));
        self.execute(
            &format!("UPDATE job_limit SET refilled_at = refilled_at - {ms}, tokens = {tokens}"),
            &format!(
                "UPDATE telecine.job_limit SET refilled_at = refilled_at - {ms} * INTERVAL '1 millisecond', \
                 tokens = {tokens}"
            ),
        );
    }

    fn execute(&self, sqlite: &str, postgres: &str) {
        match self.database {
            Database::Sqlite => {
                let file = rusqlite::Connection::open(self.url.trim_start_matches("sqlite:")).expect("open");
                file.busy_timeout(Duration::from_secs(60)).expect("busy timeout");
                assert_eq!(file.execute(sqlite, []).expect("execute"), 1);
            }
            Database::Postgres | Database::Bouncer => {
                let done = self.psql(postgres);
                assert!(done.contains("UPDATE 1"), "{done}");
            }
        }
    }
}
