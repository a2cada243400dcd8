use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use telecine_queue::{
    Claimed, Finish, Job, JobFilter, JobId, JobState, Limit, NewJob, NewRun, Outcome, Push, Queue,
    QueueError, Settled, TenantPolicy, WorkerId, total,
};

use super::limits::most_at_once;
use super::limits::{finish_somehow, handles, run_to_the_end};
use crate::child::{Process, Role};
use crate::ground::{
    Database, Ground, LEASE, check_invariants, done, eventually, pull, pull_one, push_all, register,
    register_for, settle, work,
};

async fn push_for(queue: &Arc<dyn Queue>, tenant: &str, jobs: u64) -> Vec<JobId> {
    queue.push(vec![Push::jobs((0..jobs).map(work)).tenant(tenant)]).await.expect("push").remove(0).jobs
}

/// The tenants of the next jobs, in the order of the claim.
async fn next_tenants(queue: &Arc<dyn Queue>, worker: WorkerId, jobs: u32) -> Vec<String> {
    pull(queue, worker, jobs).await.into_iter().map(|claimed| claimed.job.tenant.clone()).collect()
}

pub(super) async fn a_flood_of_one_tenant_hardly_delays_another(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    for _ in 0..10 {
        push_for(&queue, "flood", 1_000).await;
    }

    let single = push_for(&queue, "single", 1).await[0];

    // The flood stands a second of work apart per job, and pushing it took some seconds on a busy machine.
    let next = pull(&queue, worker, 60).await;
    let place = next.iter().position(|claimed| claimed.job.id == single).expect("among the next");
    let took = claimed_span_s(&next);
    assert!(place as u64 <= took + 2, "behind {place} jobs of a flood of 10,000 that took {took} s to push");
    check_invariants(&queue).await;
}

/// How long the pushes took, in whole seconds begun.
fn claimed_span_s(claimed: &[telecine_queue::Claimed]) -> u64 {
    let created = claimed.iter().map(|claimed| claimed.job.created_at);
    let (first, last) = (created.clone().min().expect("one"), created.max().expect("one"));
    last.since(first).as_secs() + 1
}

pub(super) async fn tenants_with_a_backlog_take_turns(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    push_for(&queue, "a", 20).await;
    push_for(&queue, "b", 5).await;
    push_for(&queue, "b", 5).await;

    let order = next_tenants(&queue, worker, 20).await;

    let of_b = order.iter().filter(|tenant| *tenant == "b").count();
    assert!((8..=10).contains(&of_b), "{order:?}");
    check_invariants(&queue).await;
}

pub(super) async fn a_heavier_tenant_is_served_faster(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    queue.tenant(TenantPolicy::new("gold").weight(4.0)).await.expect("tenant");
    assert_eq!(queue.tenants().await.expect("tenants").len(), 1);
    push_for(&queue, "plain", 40).await;
    push_for(&queue, "gold", 40).await;

    let order = next_tenants(&queue, worker, 20).await;

    let gold = order.iter().filter(|tenant| *tenant == "gold").count();
    assert!((13..=17).contains(&gold), "{order:?}");
    let bad = TenantPolicy::new("gold").weight(0.0);
    assert!(matches!(queue.tenant(bad).await, Err(QueueError::Invalid { .. })));
    check_invariants(&queue).await;
}

pub(super) async fn a_tenant_that_has_caught_up_starts_anew(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    push_for(&queue, "a", 50).await;
    assert_eq!(pull(&queue, worker, 50).await.len(), 50);

    let late = push_for(&queue, "a", 1).await[0];
    push_for(&queue, "b", 1).await;

    assert_eq!(pull_one(&queue, worker).await.job.id, late, "what it ran is not held against it");
    check_invariants(&queue).await;
}

pub(super) async fn a_flood_of_retries_hardly_delays_another_tenant(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    push_for(&queue, "flood", 200).await;
    queue.cancel_all(&JobFilter::default()).await.expect("cancel");
    queue.retry_all(&JobFilter::default()).await.expect("retry");

    push_for(&queue, "single", 1).await;

    let order = next_tenants(&queue, worker, 20).await;
    assert!(order.contains(&"single".to_owned()), "{order:?}");
    check_invariants(&queue).await;
}

pub(super) async fn the_nameless_tenant_is_served_in_the_order_of_its_pushes(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;

    let mut ids = push_all(&queue, (0..10).map(work)).await;
    ids.extend(push_all(&queue, (0..10).map(work)).await);

    let order: Vec<JobId> =
        pull(&queue, worker, 20).await.into_iter().map(|claimed| claimed.job.id).collect();
    assert_eq!(order, ids);
    check_invariants(&queue).await;
}

pub(super) async fn parked_jobs_of_tenants_take_turns_too(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    queue.limit(Limit::new("key").max_running(1)).await.expect("limit");
    for (tenant, jobs) in [("flood", 30), ("single", 1)] {
        let jobs = (0..jobs).map(|n| work(n).limit_key("key"));
        queue.push(vec![Push::run(NewRun::new("a run"), jobs).tenant(tenant)]).await.expect("push");
    }

    let mut order = Vec::new();
    for _ in 0..4 {
        let claimed = pull_one(&queue, worker).await;
        order.push(claimed.job.tenant.clone());
        settle(&queue, claimed, done()).await;
    }

    assert!(order.contains(&"single".to_owned()), "{order:?}");
    check_invariants(&queue).await;
}

async fn cap(queue: &Arc<dyn Queue>, tenant: &str, jobs: u32) {
    queue.tenant(TenantPolicy::new(tenant).max_running(jobs)).await.expect("tenant");
}

async fn push_jobs(
    queue: &Arc<dyn Queue>,
    tenant: &str,
    jobs: impl IntoIterator<Item = NewJob>,
) -> Vec<JobId> {
    queue.push(vec![Push::jobs(jobs).tenant(tenant)]).await.expect("push").remove(0).jobs
}

/// Running, pending, parked.
async fn standing(queue: &Arc<dyn Queue>, tenant: &str) -> (u64, u64, u64) {
    let states = queue.tenants().await.expect("tenants");
    let state = states.into_iter().find(|state| state.policy.name == tenant).expect("the tenant");
    (state.running, state.pending, state.parked)
}

async fn job(queue: &Arc<dyn Queue>, id: JobId) -> Job {
    queue.get(id).await.expect("get").expect("the job")
}

/// Whichever way one of its jobs gives up its place, the next comes in.
pub(super) async fn no_more_of_a_tenant_run_than_its_cap_says(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    cap(&queue, "small", 2).await;
    let ids = push_for(&queue, "small", 9).await;
    push_for(&queue, "other", 1).await;
    assert_eq!(standing(&queue, "small").await, (0, 2, 7));

    let mut held = pull(&queue, worker, 10).await;
    assert_eq!(held.len(), 3, "two of it, and the other's");
    held.retain(|claimed| claimed.job.tenant == "small");
    assert!(pull(&queue, worker, 10).await.is_empty());

    settle(&queue, held.remove(0), done()).await;
    assert_eq!(standing(&queue, "small").await, (1, 1, 6));
    held.push(pull_one(&queue, worker).await);
    assert_eq!(held[1].job.id, ids[2], "in the order of the push");
    settle(&queue, held.remove(0), Outcome::Snooze { delay: Duration::from_secs(3_600) }).await;
    held.push(pull_one(&queue, worker).await);
    queue.cancel(held.remove(0).job.id).await.expect("cancel");
    held.push(pull_one(&queue, worker).await);
    settle(&queue, held.remove(0), crate::ground::failed("backs off")).await;
    held.push(pull_one(&queue, worker).await);
    let released = held.remove(0);
    let again = released.job.id;
    settle(&queue, released, Outcome::Release).await;
    assert_eq!(pull_one(&queue, worker).await.job.id, again, "it stands first in the line still");
    queue.cancel(again).await.expect("cancel");
    queue.delete(ids[6]).await.expect("delete");
    assert_eq!(standing(&queue, "small").await, (1, 1, 1));
    queue.retry(again).await.expect("retry");
    assert_eq!(job(&queue, again).await.state, JobState::Parked);
    check_invariants(&queue).await;
}

pub(super) async fn a_dead_workers_place_under_a_cap_is_free_again(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let silent = register_for(&queue, Duration::from_millis(1)).await;
    cap(&queue, "small", 1).await;
    push_for(&queue, "small", 2).await;
    let lost = pull_one(&queue, silent).await;

    eventually("the silent worker is declared dead", || async {
        (queue.reap().await.expect("reap").freed == 1).then_some(())
    })
    .await;

    assert_eq!(standing(&queue, "small").await, (0, 1, 1));
    let worker = register(&queue).await;
    assert_eq!(pull_one(&queue, worker).await.job.id, lost.job.id);
    assert_eq!(settle(&queue, lost, done()).await, Settled::Refused);
    check_invariants(&queue).await;
}

pub(super) async fn a_job_with_a_key_and_a_capped_tenant_needs_room_in_both(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    cap(&queue, "small", 2).await;
    queue.limit(Limit::new("key").max_running(2)).await.expect("limit");
    let keyed = |n| work(n).limit_key("key");
    push_jobs(&queue, "small", (0..3_000).map(keyed)).await;
    let plain = push_for(&queue, "small", 1).await[0];
    let theirs = push_jobs(&queue, "other", (0..2).map(keyed)).await;
    assert_eq!(standing(&queue, "small").await, (0, 2, 2_999));

    // The tenant and the key are full with the same two. As they end, neither holds up the other: the key's other tenant
    // gets its turn among 3,000, and the place that leaves free with the tenant goes to its job without a key.
    let mut held = pull(&queue, worker, 10).await;
    check_bounds(&held);
    let mut ran = Vec::new();
    for _ in 0..40 {
        let first = held.remove(0);
        ran.push(first.job.id);
        settle(&queue, first, done()).await;
        held.extend(pull(&queue, worker, 10).await);
        check_bounds(&held);
    }
    assert!(ran.contains(&plain) && theirs.iter().all(|id| ran.contains(id)), "{ran:?}");
    queue.cancel_all(&JobFilter::default()).await.expect("cancel");
    check_invariants(&queue).await;
}

fn check_bounds(held: &[Claimed]) {
    let small = held.iter().filter(|claimed| claimed.job.tenant == "small").count();
    let keyed = held.iter().filter(|claimed| claimed.job.limit_key.is_some()).count();
    assert!(small <= 2 && keyed <= 2, "{small} of the tenant and {keyed} of the key run");
}

pub(super) async fn a_full_key_does_not_hold_up_its_tenants_other_jobs(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    cap(&queue, "small", 2).await;
    queue.limit(Limit::new("full").max_running(0)).await.expect("limit");
    let stuck = push_jobs(&queue, "small", (0..2_500).map(|n| work(n).limit_key("full"))).await;
    let plain = push_for(&queue, "small", 3).await;
    let keyed = push_jobs(&queue, "small", [work(0).limit_key("free")]).await;

    assert_eq!(standing(&queue, "small").await, (0, 2, 2_502));
    let mut ran = Vec::new();
    for _ in 0..4 {
        let claimed = pull_one(&queue, worker).await;
        ran.push(claimed.job.id);
        settle(&queue, claimed, done()).await;
    }
    assert_eq!(ran, [plain, keyed].concat());
    assert!(pull(&queue, worker, 10).await.is_empty());

    queue.limit(Limit::new("full").max_running(5)).await.expect("limit");
    assert_eq!(standing(&queue, "small").await, (0, 2, 2_498));
    assert_eq!(pull_one(&queue, worker).await.job.id, stuck[0]);
    queue.cancel_all(&JobFilter::default()).await.expect("cancel");
    check_invariants(&queue).await;
}

pub(super) async fn a_full_tenant_does_not_hold_up_a_keys_other_tenants(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    cap(&queue, "none", 0).await;
    queue.limit(Limit::new("key").max_running(2)).await.expect("limit");
    let keyed = |n| work(n).limit_key("key");
    let stuck = push_jobs(&queue, "none", (0..2_500).map(keyed)).await;
    let theirs = push_jobs(&queue, "other", (0..4).map(keyed)).await;

    let mut ran = Vec::new();
    for _ in 0..4 {
        let claimed = pull_one(&queue, worker).await;
        ran.push(claimed.job.id);
        settle(&queue, claimed, done()).await;
    }
    assert_eq!(ran, theirs);
    assert!(pull(&queue, worker, 10).await.is_empty());

    cap(&queue, "none", 1).await;
    assert_eq!(standing(&queue, "none").await, (0, 1, 2_499));
    assert_eq!(pull_one(&queue, worker).await.job.id, stuck[0]);
    queue.cancel_all(&JobFilter::default()).await.expect("cancel");
    check_invariants(&queue).await;
}

/// A key for each job, all of them limited: none is held up by its key, all are by their tenant.
pub(super) async fn a_completion_under_a_cap_moves_one_job_however_many_keys_wait(ground: Arc<Ground>) {
    const JOBS: u64 = 500;
    const MOST: u64 = 3;
    const MORE: u32 = 100;
    let queue = ground.open().await;
    let worker = register(&queue).await;
    cap(&queue, "small", u32::try_from(MOST).expect("small")).await;
    let key_of = |n: u64| format!("key:{n}");
    let limits = (0..JOBS).map(|n| queue.limit(Limit::new(key_of(n)).max_running(1)));
    futures_util::future::try_join_all(limits).await.expect("limits");
    ground.watch_lines();
    let ids = push_jobs(&queue, "small", (0..JOBS).map(|n| work(n).limit_key(key_of(n)))).await;
    assert_eq!(standing(&queue, "small").await, (0, MOST, JOBS - MOST));
    assert_eq!(ground.rows("line_change"), MOST);

    let mut held = pull(&queue, worker, 10).await;
    let mut ran: Vec<JobId> = held.iter().map(|claimed| claimed.job.id).collect();
    for done_before in 0..30 {
        settle(&queue, held.remove(0), done()).await;
        let left = JOBS - MOST - done_before - 1;
        assert_eq!(standing(&queue, "small").await, (MOST - 1, 1, left), "exactly one comes in");
        assert_eq!(ground.rows("line_change"), MOST + done_before + 1, "and no other changes its line");
        held.push(pull_one(&queue, worker).await);
        ran.push(held[2].job.id);
    }

    // So it goes with all of them, only faster.
    cap(&queue, "small", MORE).await;
    while !held.is_empty() {
        let finishes: Vec<Finish> =
            held.drain(..).map(|claimed| Finish::new(claimed.claim, done())).collect();
        queue.finish(&finishes).await.expect("finish");
        held = pull(&queue, worker, 2 * MORE).await;
        assert!(held.len() <= MORE as usize, "{} run", held.len());
        ran.extend(held.iter().map(|claimed| claimed.job.id));
    }

    assert_eq!(ran, ids, "each, in the order of the push");
    assert_eq!(total(&queue.counts().await.expect("counts"), JobState::Completed), JOBS);
    assert_eq!(ground.rows("line_change"), JOBS, "each was called once, and none was sent back");
    check_invariants(&queue).await;
}

/// Whoever makes room in a key need not know whose jobs wait for it.
pub(super) async fn a_key_that_others_free_comes_to_a_tenant_with_room(ground: Arc<Ground>) {
    const KEYS: u64 = 20;
    let queue = ground.open().await;
    let worker = register(&queue).await;
    cap(&queue, "small", 3).await;
    let key_of = |n: u64| format!("key:{}", n % KEYS);
    for n in 0..KEYS {
        queue.limit(Limit::new(key_of(n)).max_running(2)).await.expect("limit");
    }
    push_jobs(&queue, "other", (0..2 * KEYS).map(|n| work(n).limit_key(key_of(n)).priority(90))).await;
    let mut others = pull(&queue, worker, 100).await;
    assert_eq!(others.len() as u64, 2 * KEYS, "every key is full");
    ground.watch_lines();
    let keyed = push_jobs(&queue, "small", (0..10 * KEYS).map(|n| work(n).limit_key(key_of(n)))).await;
    let plain = push_for(&queue, "small", 12).await;

    // One job of each key waits there for all: what the tenant runs meanwhile moves no other.
    for id in &plain {
        let claimed = pull_one(&queue, worker).await;
        assert_eq!(claimed.job.id, *id);
        settle(&queue, claimed, done()).await;
    }
    assert_eq!(ground.rows("line_change"), KEYS);
    assert_eq!(standing(&queue, "small").await, (0, 0, 10 * KEYS));

    // The first key is free in both places at once, the second in one: the tenant is full, and the third finds nobody.
    let mut free = |n: u64| {
        let at = others.iter().position(|other| other.job.limit_key == Some(key_of(n))).expect("one");
        Finish::new(others.remove(at).claim, done())
    };
    queue.finish(&[free(0), free(0)]).await.expect("finish");
    assert_eq!(standing(&queue, "small").await, (0, 2, 10 * KEYS - 2));
    queue.finish(&[free(1)]).await.expect("finish");
    queue.finish(&[free(2)]).await.expect("finish");
    assert_eq!(standing(&queue, "small").await, (0, 3, 10 * KEYS - 3));
    let mut held = pull(&queue, worker, 10).await;
    held.sort_by_key(|claimed| claimed.job.id);
    let ran: Vec<JobId> = held.iter().map(|claimed| claimed.job.id).collect();
    assert_eq!(ran, [keyed[0], keyed[1], keyed[KEYS as usize]]);

    // The tenant has room again, and comes to what is free.
    settle(&queue, held.pop().expect("one"), done()).await;
    assert_eq!(pull_one(&queue, worker).await.job.id, keyed[2]);
    let finishes: Vec<Finish> =
        others.into_iter().chain(held).map(|claimed| Finish::new(claimed.claim, done())).collect();
    queue.finish(&finishes).await.expect("finish");
    assert_eq!(standing(&queue, "small").await, (1, 2, 10 * KEYS - 6));
    queue.cancel_all(&JobFilter::default()).await.expect("cancel");
    check_invariants(&queue).await;
}

impl Ground {
    /// Notes in a table `line_change` whenever a job goes to another line.
    fn watch_lines(&self) {
        match self.database {
            Database::Sqlite => {
                let file = rusqlite::Connection::open(self.url.trim_start_matches("sqlite:")).expect("open");
                file.busy_timeout(Duration::from_secs(60)).expect("busy timeout");
                file.execute_batch(
                    "CREATE TABLE line_change (job INTEGER);
                     CREATE TRIGGER line_changes AFTER UPDATE OF parked_on ON job
                         WHEN OLD.parked_on IS NOT NEW.parked_on
                         BEGIN INSERT INTO line_change VALUES (NEW.id); END;",
                )
                .expect("watch");
            }
            Database::Postgres | Database::Bouncer => drop(self.psql(
                "CREATE TABLE telecine.line_change (job BIGINT);
                 CREATE FUNCTION telecine.note_line_change() RETURNS TRIGGER LANGUAGE plpgsql AS
                     'BEGIN INSERT INTO telecine.line_change VALUES (NEW.id); RETURN NULL; END';
                 CREATE TRIGGER line_changes AFTER UPDATE OF parked_on ON telecine.job FOR EACH ROW
                     WHEN (OLD.parked_on IS DISTINCT FROM NEW.parked_on)
                     EXECUTE FUNCTION telecine.note_line_change();",
            )),
        }
    }
}

pub(super) async fn a_cap_set_on_a_running_queue_counts_what_is_there(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    push_for(&queue, "small", 2_500).await;
    let mut held = pull(&queue, worker, 3).await;

    cap(&queue, "small", 2).await;

    assert_eq!(standing(&queue, "small").await, (3, 0, 2_497), "those that run go on");
    settle(&queue, held.remove(0), done()).await;
    assert!(pull(&queue, worker, 10).await.is_empty());
    settle(&queue, held.remove(0), done()).await;
    assert_eq!(standing(&queue, "small").await, (1, 1, 2_496));
    cap(&queue, "small", 5).await;
    assert_eq!(standing(&queue, "small").await, (1, 4, 2_493));
    cap(&queue, "small", 0).await;
    assert!(pull(&queue, worker, 10).await.is_empty(), "nothing may run");

    // Lifted, it frees all, whether they have a key or not.
    queue.limit(Limit::new("key").max_running(1)).await.expect("limit");
    push_jobs(&queue, "small", (0..1_500).map(|n| work(n).limit_key("key"))).await;
    queue.tenant(TenantPolicy::new("small")).await.expect("tenant");
    assert!(queue.tenants().await.expect("tenants").is_empty());
    let counts = queue.counts().await.expect("counts");
    assert_eq!((total(&counts, JobState::Parked), total(&counts, JobState::Pending)), (1_499, 2_498));
    queue.limit(Limit::new("key")).await.expect("limit");
    assert_eq!(total(&queue.counts().await.expect("counts"), JobState::Parked), 0);
    check_invariants(&queue).await;
}

pub(super) async fn a_bad_cap_is_refused(ground: Arc<Ground>) {
    let queue = ground.open().await;

    for bad in [TenantPolicy::new("").max_running(1), TenantPolicy::new("a").max_running(u32::MAX)] {
        assert!(matches!(queue.tenant(bad).await, Err(QueueError::Invalid { .. })));
    }
    assert!(queue.tenants().await.expect("tenants").is_empty());
}

/// Eight slots in four processes, one of which is killed half-way. What the kinds wrote down tells how many ran at once.
pub(super) async fn a_cap_is_exact_over_processes_and_kills(ground: Arc<Ground>) {
    const MOST: u32 = 3;
    const JOBS: u64 = 200;
    let queue = ground.open().await;
    cap(&queue, "small", MOST).await;
    queue.limit(Limit::new("key").max_running(2)).await.expect("limit");
    let spans = ground.folder.path().join("spans").display().to_string();
    let short = |n: u64| {
        let job = NewJob::new("span", json!({ "n": n, "log": spans, "ms": 5 })).priority(90);
        if n.is_multiple_of(4) { job.limit_key("key") } else { job }
    };
    push_jobs(&queue, "small", (0..JOBS).map(short)).await;
    push_for(&queue, "small", 20_000).await;
    let log = spans.clone() + ".work";
    let role = Role::Worker { url: ground.url.clone(), slots: 2, lease_ms: 60_000, log: log.clone() };
    // Long enough that only its death ends it.
    let lease_ms = (LEASE * 2).as_millis().try_into().expect("short");
    let doomed = Role::Worker { url: ground.url.clone(), slots: 2, lease_ms, log };

    let mut workers: Vec<Process> = (0..3).map(|_| Process::start(&role)).collect();
    let mut victim = Process::start(&doomed);
    eventually("half of them are done", || async {
        let counts = queue.counts().await.expect("counts");
        (total(&counts, JobState::Completed) >= JOBS / 2).then_some(())
    })
    .await;
    victim.kill();
    // What the victim held comes back when its lease has ended; the others go on meanwhile.
    eventually("the rest is done", || async {
        let (running, pending, _) = standing(&queue, "small").await;
        assert!(running + pending <= u64::from(MOST), "{running} running, {pending} pending");
        let counts = queue.counts().await.expect("counts");
        let spans = counts.iter().filter(|count| count.kind == "span" && count.state == JobState::Completed);
        (spans.map(|count| count.jobs).sum::<u64>() == JOBS).then_some(())
    })
    .await;
    workers.iter_mut().for_each(Process::drain);

    let log = std::fs::read_to_string(&spans).expect("they wrote");
    let (most, ran) = most_at_once(&log);
    assert!(most <= MOST as usize, "{most} ran at once");
    assert_eq!(ran.len() as u64, JOBS, "each ran");
    check_invariants(&queue).await;
}

/// Everything at once, from four handles, while caps and limits change: they hold at every look, no deadlock ends a verb,
/// and nothing is forgotten in the end.
pub(super) async fn caps_and_limits_hold_whatever_happens_at_once(ground: Arc<Ground>) {
    const ROUNDS: u64 = 60;
    const TENANTS: [&str; 4] = ["a", "b", "c", "uncapped"];
    const KEYS: [Option<&str>; 3] = [Some("x"), Some("y"), None];
    let queue = ground.open().await;
    for tenant in &TENANTS[..3] {
        cap(&queue, tenant, 3).await;
    }
    for key in KEYS.iter().flatten() {
        queue.limit(Limit::new(*key).max_running(4)).await.expect("limit");
    }
    let mut tasks = tokio::task::JoinSet::new();
    for nth in 0..3_u64 {
        let queue = ground.open().await;
        tasks.spawn(async move {
            let worker = register(&queue).await;
            for round in 0..ROUNDS {
                let mut ids = Vec::new();
                for (n, tenant) in TENANTS.iter().enumerate() {
                    let job = |n: u64| match KEYS[n as usize % KEYS.len()] {
                        Some(key) => work(n).limit_key(key),
                        None => work(n),
                    };
                    ids.extend(push_jobs(&queue, tenant, [job(round + n as u64 + nth)]).await);
                }
                let claimed = pull(&queue, worker, 4).await;
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
        });
    }
    let changer = ground.open().await;
    tasks.spawn(async move {
        for round in 0..ROUNDS {
            let most = 1 + u32::try_from(round % 4).expect("small");
            cap(&changer, "a", most).await;
            changer.limit(Limit::new("x").max_running(most)).await.expect("limit");
            let (running, pending, parked) = standing(&changer, "b").await;
            assert!(running + pending <= 3, "{running} running, {pending} pending, {parked} parked");
        }
    });
    while let Some(ended) = tasks.join_next().await {
        ended.expect("none of them fails");
    }

    run_to_the_end(&queue).await;
    check_invariants(&queue).await;
}

/// A push that found no cap lets its jobs in; a cap that is set meanwhile has to know of them.
pub(super) async fn a_cap_that_is_set_during_pushes_counts_them(ground: Arc<Ground>) {
    let handles = handles(&ground).await;
    let setter = ground.open().await;
    for round in 0..15 {
        let tenant = format!("tenant:{round}");
        let mut tasks = tokio::task::JoinSet::new();
        for queue in &handles {
            let (queue, tenant) = (Arc::clone(queue), tenant.clone());
            tasks.spawn(async move { push_for(&queue, &tenant, 5).await });
        }

        cap(&setter, &tenant, 2).await;
        tasks.join_all().await;

        assert_eq!(standing(&setter, &tenant).await, (0, 2, 18), "round {round}");
    }
    check_invariants(&setter).await;
}
