use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use telecine_queue::{
    Event, Failure, Job, JobContext, JobFilter, JobState, Kind, Kinds, NewJob, NewRun, Pausable, Push, Queue,
    Relay, RunId, RunState, Sink, SinkError, Wakes,
};

use super::runs::playable;
use crate::child::{Process, Role, brisk_relay};
use crate::ground::{
    Database, Ground, LEASE, brisk, check_invariants, done, eventually, failed, list_all, pull_one, register,
    settle, start, wait_until_none_is_live, work,
};

const MANY: u32 = 1_000;

async fn push_run(queue: &Arc<dyn Queue>, jobs: u64) -> RunId {
    let run = NewRun { external_id: Some("theirs".into()), ..NewRun::new("film") };
    let pushed = queue.push(vec![Push::run(run, (0..jobs).map(work))]).await.expect("push");
    pushed[0].run.clone().expect("a run")
}

async fn events(queue: &Arc<dyn Queue>, run: &RunId) -> Vec<Event> {
    queue.events(run, 0, MANY).await.expect("events")
}

/// Types, and the generation each tells of.
async fn story(queue: &Arc<dyn Queue>, run: &RunId) -> Vec<String> {
    let told = events(queue, run).await;
    assert!(told.iter().zip(1..).all(|(event, seq)| event.seq == seq), "numbered without gaps: {told:?}");
    told.iter().map(|event| format!("{} {}", event.name, event.body["generation"])).collect()
}

/// Every run: numbered without gaps, and one terminal event per generation, which agrees with the row.
async fn check_events(queue: &Arc<dyn Queue>) -> usize {
    let jobs = list_all(queue, &JobFilter::default()).await;
    let runs: BTreeSet<RunId> = jobs.into_iter().filter_map(|job| job.run).collect();
    for id in &runs {
        let run = queue.get_run(id).await.expect("get_run").expect("the run");
        let told = events(queue, id).await;
        assert!(told.iter().zip(1..).all(|(event, seq)| event.seq == seq && event.run == *id), "{told:?}");
        assert_eq!(told[0].name, "run.created");
        let mut ends: HashMap<u64, Vec<&str>> = HashMap::new();
        for event in &told {
            let is_end = RunState::ALL.iter().any(|state| {
                !matches!(state, RunState::Queued | RunState::Running) && event.name == format!("run.{state}")
            });
            if is_end {
                assert_eq!(event.name, format!("run.{}", event.body["state"].as_str().expect("a state")));
                ends.entry(event.body["generation"].as_u64().expect("a number"))
                    .or_default()
                    .push(&event.name);
            }
        }
        let has_ended = run.finished_at.is_some();
        assert_eq!(ends.len() as u32, run.generation - u32::from(!has_ended), "{run:?} {told:?}");
        assert!(ends.values().all(|names| names.len() == 1), "{told:?}");
        if has_ended {
            assert_eq!(ends[&u64::from(run.generation)], [format!("run.{}", run.state)], "{run:?}");
        }
    }
    runs.len()
}

pub(super) async fn a_run_tells_its_life_in_order(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let run = push_run(&queue, 2).await;

    let first = pull_one(&queue, worker).await;
    let id = first.job.id;
    settle(&queue, first, done()).await;
    let second = pull_one(&queue, worker).await;
    settle(&queue, second, done()).await;
    queue.retry(id).await.expect("retry");
    let again = pull_one(&queue, worker).await;
    settle(&queue, again, done()).await;

    let expected = ["run.created 1", "run.started 1", "run.succeeded 1", "run.retried 2", "run.succeeded 2"];
    assert_eq!(story(&queue, &run).await, expected);
    let told = queue.events(&run, 2, 1).await.expect("events");
    let body = json!({"state": "succeeded", "name": "film", "external_id": "theirs", "generation": 1});
    assert_eq!((told.len(), told[0].seq, &told[0].body), (1, 3, &body));
    check_events(&queue).await;
    check_invariants(&queue).await;
}

pub(super) async fn every_end_of_a_run_is_told_once(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let jobs_of = async |run: &RunId| {
        list_all(&queue, &JobFilter { run: Some(run.clone()), ..JobFilter::default() }).await
    };

    let cancelled = push_run(&queue, 2).await;
    for job in jobs_of(&cancelled).await {
        queue.cancel(job.id).await.expect("cancel");
    }
    let deleted = push_run(&queue, 1).await;
    queue.delete(jobs_of(&deleted).await[0].id).await.expect("delete");
    let broken =
        queue.push(vec![Push::run(NewRun::new("film"), [work(1).max_attempts(1)])]).await.expect("push");
    let broken = broken[0].run.clone().expect("a run");
    let claimed = pull_one(&queue, worker).await;
    settle(&queue, claimed, failed("no")).await;
    let twice = || Push::run(NewRun::new("film"), [work(1).unique_key("one")]);
    let empty = queue.push(vec![twice(), twice()]).await.expect("push")[1].run.clone().expect("a run");

    assert_eq!(story(&queue, &cancelled).await, ["run.created 1", "run.cancelled 1"]);
    assert_eq!(story(&queue, &deleted).await, ["run.created 1", "run.succeeded 1"]);
    assert_eq!(story(&queue, &broken).await, ["run.created 1", "run.started 1", "run.failed 1"]);
    assert_eq!(story(&queue, &empty).await, ["run.created 1", "run.succeeded 1"]);
    check_invariants(&queue).await;
}

pub(super) async fn callers_may_tell_of_their_own(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let run = push_run(&queue, 1).await;

    assert_eq!(queue.tell(&run, "output.ready", json!({"key": "a.mp4"})).await.expect("tell"), Some(2));
    let tellers: Vec<_> = (0..20)
        .map(|n| {
            let (queue, run) = (Arc::clone(&queue), run.clone());
            tokio::spawn(async move { queue.tell(&run, "output.ready", json!(n)).await.expect("tell") })
        })
        .collect();
    let mut seqs = BTreeSet::new();
    for teller in tellers {
        seqs.extend(teller.await.expect("no panic"));
    }

    assert_eq!(seqs, (3..23).collect());
    assert_eq!(queue.tell(&RunId::new(), "output.ready", Value::Null).await.expect("tell"), None);
    assert!(queue.tell(&run, "", Value::Null).await.is_err());
    check_events(&queue).await;
}

pub(super) async fn events_stay_until_their_run_is_forgotten_and_every_sink_has_them(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    queue.add_sink("slow").await.expect("add_sink");
    let run = push_run(&queue, 1).await;
    let claimed = pull_one(&queue, worker).await;
    settle(&queue, claimed, done()).await;
    let prune = async || {
        tokio::time::sleep(Duration::from_millis(2)).await;
        queue.prune(Duration::ZERO).await.expect("prune");
    };

    prune().await;
    assert_eq!(events(&queue, &run).await.len(), 3, "a sink waits for them");
    let parcels = queue.outbox_take("slow", 10, Duration::from_secs(60)).await.expect("take");
    assert_eq!(queue.outbox_done("slow", &[parcels[0].delivered()]).await.expect("done"), 1);
    prune().await;

    assert_eq!((queue.get_run(&run).await.expect("get_run"), events(&queue, &run).await), (None, vec![]));
    assert_eq!((ground.rows("event"), ground.rows("outbox")), (0, 0));
}

pub(super) async fn a_runs_events_wait_for_its_first_unsent_one(ground: Arc<Ground>) {
    const LONG: Duration = Duration::from_secs(60);
    let queue = ground.open().await;
    assert!(queue.add_sink("here").await.expect("add_sink"));
    assert!(!queue.add_sink("here").await.expect("add_sink"), "known already");
    let run = push_run(&queue, 1).await;
    queue.tell(&run, "two", Value::Null).await.expect("tell");

    let first = queue.outbox_take("here", 10, LONG).await.expect("take").remove(0);
    assert_eq!(first.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2]);
    queue.tell(&run, "three", Value::Null).await.expect("tell");
    assert_eq!(
        queue.outbox_take("here", 10, LONG).await.expect("take"),
        [],
        "claimed, and what follows waits"
    );
    assert_eq!(queue.outbox_done("here", &[first.delivered()]).await.expect("done"), 1);
    let second = queue.outbox_take("here", 10, LONG).await.expect("take").remove(0);
    assert_eq!((second.events.len(), second.events[0].seq), (1, 3));

    // The claim is lost to another relay: what the first one says no longer counts.
    assert_eq!(queue.outbox_retry("here", &[second.undelivered(Duration::ZERO)]).await.expect("retry"), 1);
    let third = eventually("it is due again", || async {
        queue.outbox_take("here", 10, LONG).await.expect("take").pop()
    })
    .await;
    assert_eq!((third.attempt, &third.events), (2, &second.events));
    assert_eq!(queue.outbox_done("here", &[second.delivered()]).await.expect("done"), 0);
    assert_eq!(queue.outbox_retry("here", &[second.undelivered(LONG)]).await.expect("retry"), 0);
    assert_eq!(queue.outbox_done("here", &[third.delivered()]).await.expect("done"), 1);
    assert_eq!(ground.rows("outbox"), 0);
    queue.tell(&run, "four", Value::Null).await.expect("tell");
    assert!(queue.remove_sink("here").await.expect("remove_sink"));
    assert!(!queue.remove_sink("here").await.expect("remove_sink"));
    assert_eq!(ground.rows("outbox"), 0);
}

pub(super) async fn what_waits_for_sinks_is_counted(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let depths = async || {
        let depths = queue.outbox_depths().await.expect("outbox_depths");
        depths.into_iter().map(|depth| (depth.sink, depth.waiting, depth.oldest_at)).collect::<Vec<_>>()
    };
    assert_eq!(depths().await, []);
    queue.add_sink("slow").await.expect("add_sink");
    let first = push_run(&queue, 1).await;
    queue.add_sink("fast").await.expect("add_sink");
    queue.tell(&first, "two", Value::Null).await.expect("tell");
    let second = push_run(&queue, 1).await;
    let at = [events(&queue, &first).await, events(&queue, &second).await].concat();

    let (slow, fast) = ("slow".to_owned(), "fast".to_owned());
    let oldest = |from: usize| at[from..].iter().map(|event| event.at).min();
    assert_eq!(depths().await, [(fast.clone(), 2, oldest(1)), (slow.clone(), 3, oldest(0))]);
    let parcels = queue.outbox_take("fast", 10, Duration::from_secs(60)).await.expect("take");
    assert_eq!(depths().await[0].1, 2, "what is under way has not arrived");
    let delivered: Vec<_> = parcels.iter().map(telecine_queue::Parcel::delivered).collect();
    queue.outbox_done("fast", &delivered).await.expect("done");

    assert_eq!(depths().await, [(fast, 0, None), (slow, 3, oldest(0))]);
}

/// For sinks that tell runs of one external id in their order.
pub(super) async fn an_earlier_event_of_the_same_external_id_is_ahead(ground: Arc<Ground>) {
    let queue = ground.open().await;
    queue.add_sink("here").await.expect("add_sink");
    let (first, second) = (push_run(&queue, 1).await, push_run(&queue, 1).await);
    let ended = async |run: &RunId| {
        tokio::time::sleep(Duration::from_millis(2)).await;
        queue.cancel_run(run).await.expect("cancel_run");
        events(&queue, run).await.pop().expect("its end")
    };
    let ends = ["run.cancelled", "run.failed"];
    let is_ahead =
        async |of: &Event, types: &[&str]| queue.outbox_ahead("here", of, types).await.expect("outbox_ahead");

    let later = ended(&second).await;
    assert!(!is_ahead(&later, &ends).await, "what is no end does not count");
    let last = ended(&first).await;
    assert!(is_ahead(&last, &ends).await, "not the order in which they were pushed");
    assert!(!is_ahead(&later, &ends).await);
    assert!(!is_ahead(&last, &["run.failed"]).await);
    let parcels = queue.outbox_take("here", 10, Duration::from_secs(60)).await.expect("take");
    assert!(is_ahead(&last, &ends).await, "on its way, and not there");
    let of_second = parcels.iter().find(|parcel| parcel.run == second).expect("its parcel");
    queue.outbox_done("here", &[of_second.delivered()]).await.expect("done");

    assert!(!is_ahead(&last, &ends).await);
}

/// Who tells of a run holds it: a prune must not forget the run and keep the event.
pub(super) async fn a_run_that_is_told_of_as_it_is_pruned_is_whole_or_gone(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let run = push_run(&queue, 1).await;
    let claimed = pull_one(&queue, worker).await;
    settle(&queue, claimed, done()).await;
    tokio::time::sleep(Duration::from_millis(2)).await;

    if ground.database != Database::Sqlite {
        use sqlx::{AssertSqlSafe, Connection, Executor};
        let mut connection = ground.callers_connection().await;
        let mut tx = connection.begin().await.expect("begin");
        let tell = format!("UPDATE telecine.run SET playable_at = now() WHERE id = '{run}'");
        tx.execute(AssertSqlSafe(tell)).await.expect("it is told of");
        queue.prune(Duration::ZERO).await.expect("prune");
        tx.commit().await.expect("commit");
        assert_eq!(events(&queue, &run).await.len(), 4);
        assert!(queue.get_run(&run).await.expect("get_run").is_some(), "whole");
    }
    queue.prune(Duration::ZERO).await.expect("prune");

    assert_eq!(queue.get_run(&run).await.expect("get_run"), None, "gone");
    assert_eq!(ground.rows("event"), 0);
}

/// Whoever remembers the last event seen skips those that were written before it and committed after.
pub(super) async fn an_event_that_is_committed_late_is_not_skipped(ground: Arc<Ground>) {
    let queue = ground.open().await;
    queue.add_sink("here").await.expect("add_sink");
    let sent = async || {
        let parcels = queue.outbox_take("here", 10, Duration::from_secs(60)).await.expect("take");
        let delivered: Vec<_> = parcels.iter().map(telecine_queue::Parcel::delivered).collect();
        queue.outbox_done("here", &delivered).await.expect("done");
        parcels.into_iter().map(|parcel| parcel.run).collect::<Vec<_>>()
    };

    let early = match ground.database {
        Database::Postgres | Database::Bouncer => {
            use sqlx::Connection;
            let own =
                telecine_queue::PostgresQueue::open(&ground.url, &Default::default()).await.expect("open");
            let mut connection = ground.callers_connection().await;
            let mut tx = connection.begin().await.expect("begin");
            let push = Push::run(NewRun::new("film"), [work(1)]);
            let early = own.push_in(&mut tx, vec![push]).await.expect("push_in")[0].run.clone();
            let late = push_run(&queue, 1).await;
            assert_eq!(sent().await, [late], "nothing uncommitted is sent");
            tx.commit().await.expect("commit");
            early.expect("a run")
        }
        // One writer at a time: nothing can be committed late.
        Database::Sqlite => push_run(&queue, 1).await,
    };

    assert_eq!(sent().await, [early]);
    assert_eq!(ground.rows("outbox"), 0);
}

pub(super) async fn events_have_no_gaps_through_kills(ground: Arc<Ground>) {
    const RUNS: u64 = 150;
    let queue = ground.open().await;
    queue.add_sink("here").await.expect("add_sink");
    let role = Role::RunPusher { url: ground.url.clone(), runs: RUNS };
    let worker = Role::Worker {
        url: ground.url.clone(),
        slots: 4,
        lease_ms: LEASE.as_millis() as u64,
        log: ground.folder.path().join("ran").display().to_string(),
    };

    let mut workers = Vec::new();
    for kills in [5, 30, 80] {
        workers.push(Process::start(&worker));
        Process::start(&role).kill_after_lines(kills);
        workers.remove(0).kill();
    }
    let last = Process::start(&worker);
    Process::start(&role).output();
    wait_until_none_is_live(&queue).await;

    assert_eq!(check_events(&queue).await as u64, RUNS);
    assert_eq!(ground.rows("event"), ground.rows("outbox"), "and a sink is to hear of every one");
    drop(last);
    check_invariants(&queue).await;
}

/// Two relays, a sink that fails half the time (with and without having taken the events), and one of the relays is
/// killed in the middle.
pub(super) async fn a_relay_loses_and_reorders_nothing(ground: Arc<Ground>) {
    const RUNS: u64 = 60;
    let queue = ground.open().await;
    let log = ground.folder.path().join("sent");
    let relay = |seed| Role::Relay { url: ground.url.clone(), log: log.display().to_string(), seed };
    queue.add_sink("flaky").await.expect("add_sink");
    let (mut victim, survivor) = (Process::start(&relay(1)), Process::start(&relay(2)));
    let worker = start(&queue, Kinds::new().with(Talk(Arc::clone(&queue))), brisk(3)).await;
    let lines = || std::fs::read_to_string(&log).unwrap_or_default();

    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(push_run(&queue, 2).await);
    }
    eventually("some are sent", || async { (lines().lines().count() > 60).then_some(()) }).await;
    victim.kill();
    wait_until_none_is_live(&queue).await;
    for job in list_all(&queue, &JobFilter::default()).await.iter().take(20) {
        queue.retry(job.id).await.expect("retry");
    }
    wait_until_none_is_live(&queue).await;
    eventually("all is sent", || async { (ground.rows("outbox") == 0).then_some(()) }).await;

    let mut next: HashMap<String, u64> = HashMap::new();
    let mut repeats = 0;
    for line in lines().lines() {
        let (run, seq) = line.split_once(' ').expect("a run and a number");
        let (seq, next): (u64, _) = (seq.parse().expect("a number"), next.entry(run.into()).or_insert(1));
        assert!(seq <= *next, "event {seq} of {run} came before {next}");
        repeats += u64::from(seq < *next);
        *next = (*next).max(seq + 1);
    }
    assert_eq!(next.len() as u64, RUNS, "nothing that is not an event");
    for run in &runs {
        assert_eq!(events(&queue, run).await.len() as u64 + 1, next[run.as_str()], "each was sent");
    }
    assert!(repeats > 10, "the sink really failed: {repeats}");
    worker.drain();
    worker.finished().await;
    check_events(&queue).await;
    drop(survivor);
}

/// A kind that tells of itself.
pub(super) struct Talk(pub(super) Arc<dyn Queue>);

#[async_trait]
impl Kind for Talk {
    fn name(&self) -> &'static str {
        "work"
    }

    async fn run(&self, job: &Job, _: &JobContext) -> Result<Value, Failure> {
        let run = job.run.as_ref().ok_or_else(|| Failure::retry("no_run", "not part of a run"))?;
        self.0
            .tell(run, "output.ready", job.payload.clone())
            .await
            .map_err(|error| Failure::retry("tell", error))?;
        Ok(Value::Null)
    }
}

/// Notes what it is given, or never takes anything.
struct Told {
    name: &'static str,
    works: bool,
    asked: AtomicU32,
    taken: AtomicU32,
}

impl Told {
    fn new(name: &'static str, works: bool) -> Arc<Self> {
        Arc::new(Self { name, works, asked: AtomicU32::new(0), taken: AtomicU32::new(0) })
    }
}

#[async_trait]
impl Sink for Told {
    fn name(&self) -> &str {
        self.name
    }

    async fn deliver(&self, events: &[Event]) -> Result<(), SinkError> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        match self.works {
            true => self.taken.fetch_add(events.len() as u32, Ordering::SeqCst),
            false if asked.is_multiple_of(2) => return Err(SinkError::new("down")),
            false => std::future::pending().await,
        };
        Ok(())
    }
}

pub(super) async fn a_sink_that_always_fails_delays_no_other(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let (down, up) = (Told::new("down", false), Told::new("up", true));
    let relay = Relay::start(Arc::clone(&queue), vec![down.clone(), up.clone()], brisk_relay()).await;
    let relay = relay.expect("the relay starts");

    for _ in 0..100 {
        push_run(&queue, 1).await;
    }
    eventually("the other has all", || async { (up.taken.load(Ordering::SeqCst) == 100).then_some(()) })
        .await;
    eventually("the one that is down is asked again", || async {
        (down.asked.load(Ordering::SeqCst) > 40).then_some(())
    })
    .await;
    relay.stop().await;

    assert_eq!((down.taken.load(Ordering::SeqCst), ground.rows("outbox")), (0, 100), "and nothing is lost");
}

/// With a poll of an hour, only a wake-up can bring the event.
pub(super) async fn a_relay_is_woken_by_another_process(ground: Arc<Ground>) {
    let (queue, other) = (ground.open().await, ground.open().await);
    let up = Told::new("up", true);
    let idle = telecine_queue::RelayOptions { poll_every: Duration::from_secs(3_600), ..brisk_relay() };
    let relay = Relay::start(Arc::clone(&queue), vec![up.clone()], idle).await.expect("the relay starts");
    // The first may come before LISTEN does.
    let warm = push_run(&other, 1).await;
    eventually("it listens", || async {
        other.tell(&warm, "warm", Value::Null).await.expect("tell");
        (up.taken.load(Ordering::SeqCst) > 0).then_some(())
    })
    .await;
    eventually("it has caught up", || async { (ground.rows("outbox") == 0).then_some(()) }).await;

    for _ in 0..10 {
        let before = up.taken.load(Ordering::SeqCst);
        push_run(&other, 1).await;
        eventually("it is sent", || async { (up.taken.load(Ordering::SeqCst) > before).then_some(()) }).await;
    }
    let worker = register(&other).await;
    let claimed = pull_one(&other, worker).await;
    eventually("it has caught up", || async { (ground.rows("outbox") == 0).then_some(()) }).await;
    let before = up.taken.load(Ordering::SeqCst);
    let mut pulse = other.pulse().await.expect("pulse");
    pulse.beat(&playable(worker, &claimed)).await.expect("beat");
    eventually("what a beat tells is sent", || async {
        (up.taken.load(Ordering::SeqCst) > before).then_some(())
    })
    .await;

    relay.stop().await;
    let counts = queue.counts().await.expect("counts");
    assert_eq!(telecine_queue::total(&counts, JobState::Pending), 10);
}

/// A run may end without anybody finishing a job of it; who waits for its events hears of it all the same.
pub(super) async fn runs_that_end_by_delete_clear_and_reap_wake_relays(ground: Arc<Ground>) {
    let (queue, other) = (ground.open().await, ground.open().await);
    let worker = register(&queue).await;
    let wakes = other.wakes();
    let told_after = |before: u64| {
        let wakes = &wakes;
        eventually("who listens is told", move || async move { (wakes.borrow().told > before).then_some(()) })
    };
    eventually("the other listens", || async {
        resume_something(&queue).await;
        (wakes.borrow().ready > 0).then_some(())
    })
    .await;

    push_run(&queue, 1).await;
    let job = list_all(&queue, &JobFilter::default()).await.remove(0).id;
    let before = told_by_now(&queue, &wakes).await;
    queue.delete(job).await.expect("delete");
    told_after(before).await;

    push_run(&queue, 2).await;
    let before = told_by_now(&queue, &wakes).await;
    assert_eq!(queue.clear(&JobFilter::default()).await.expect("clear"), 2);
    told_after(before).await;

    let late = NewJob { timeout_ms: Some(1), max_attempts: 1, ..work(0) };
    queue.push(vec![Push::run(NewRun::new("late"), [late])]).await.expect("push");
    ground.rewind_deadline(pull_one(&queue, worker).await.job.id);
    let before = told_by_now(&queue, &wakes).await;
    assert_eq!(queue.reap().await.expect("reap").overdue, 1);
    told_after(before).await;
    assert_eq!(check_events(&queue).await, 1);
}

async fn resume_something(queue: &Arc<dyn Queue>) {
    let nothing = Pausable::Kind("nothing".into());
    queue.pause(&nothing).await.expect("pause");
    queue.resume(&nothing).await.expect("resume");
}

/// What the other has heard once everything up to now has reached it: wake-ups come in their order.
async fn told_by_now(queue: &Arc<dyn Queue>, wakes: &tokio::sync::watch::Receiver<Wakes>) -> u64 {
    let before = wakes.borrow().ready;
    resume_something(queue).await;
    eventually("the wake-up has come", || async { (wakes.borrow().ready > before).then_some(()) }).await;
    wakes.borrow().told
}
