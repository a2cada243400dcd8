use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use telecine_queue::{
    AttemptOutcome, Finish, JobId, JobState, NewJob, Pull, QueueError, Settled, Timestamp, WorkerId,
};

use crate::ground::{
    Database, Ground, check_invariants, done, eventually, pull, pull_one, pull_request, push_all, push_one,
    register, register_for, settle, work,
};

pub(super) async fn a_job_is_claimed_run_and_remembered(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let id = push_one(&queue, work(7)).await;

    let claimed = pull_one(&queue, worker).await;
    assert_eq!((claimed.job.id, claimed.job.state, claimed.job.attempt), (id, JobState::Running, 1));
    assert_eq!(claimed.job.payload, json!({"n": 7}));
    assert_eq!(settle(&queue, claimed, done()).await, Settled::Accepted);

    let job = queue.get(id).await.expect("get").expect("the job");
    assert_eq!((job.state, job.result), (JobState::Completed, Some(json!({"ok": true}))));
    let attempts = queue.attempts(id).await.expect("attempts");
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].outcome, attempts[0].worker), (AttemptOutcome::Completed, Some(worker)));
    assert!(pull(&queue, worker, 10).await.is_empty());
    check_invariants(&queue).await;
}

pub(super) async fn two_workers_never_get_the_same_job(ground: Arc<Ground>) {
    const JOBS: u64 = 2_000;
    let first = ground.open().await;
    push_all(&first, (0..JOBS).map(work)).await;

    let mut pullers = Vec::new();
    for n in 0..8 {
        let queue = if n % 2 == 0 { Arc::clone(&first) } else { ground.open().await };
        pullers.push(tokio::spawn(async move {
            let worker = register(&queue).await;
            let mut mine = Vec::new();
            loop {
                let batch = pull(&queue, worker, 7).await;
                if batch.is_empty() {
                    return mine;
                }
                mine.extend(batch.iter().map(|claimed| claimed.job.id));
                let finishes: Vec<_> =
                    batch.into_iter().map(|claimed| Finish::new(claimed.claim, done())).collect();
                let settled = queue.finish(&finishes).await.expect("finish");
                assert!(settled.iter().all(|settled| *settled == Settled::Accepted));
            }
        }));
    }
    let (mut total, mut distinct) = (0, HashSet::new());
    for puller in pullers {
        let mine = puller.await.expect("no panic");
        total += mine.len();
        distinct.extend(mine);
    }

    assert_eq!((total, distinct.len()), (JOBS as usize, JOBS as usize));
    check_invariants(&first).await;
}

pub(super) async fn jobs_of_one_priority_run_in_the_order_of_their_push(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let mut pushed = push_all(&queue, (0..20).map(work)).await;
    for n in 20..40 {
        pushed.push(push_one(&queue, work(n)).await);
    }

    let mut pulled = Vec::new();
    while pulled.len() < pushed.len() {
        pulled.extend(pull(&queue, worker, 3).await.into_iter().map(|claimed| claimed.job.id));
    }

    assert_eq!(pulled, pushed);
}

pub(super) async fn a_higher_priority_runs_first(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let ids = push_all(&queue, [10, 90, 50, 90].map(|priority| work(1).priority(priority))).await;

    let order: Vec<_> = pull(&queue, worker, 4).await.into_iter().map(|claimed| claimed.job.id).collect();

    assert_eq!(order, [ids[1], ids[3], ids[2], ids[0]]);
}

pub(super) async fn a_scheduled_job_is_not_early(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let due_at = Timestamp::now().plus(Duration::from_millis(700));
    let soon = push_one(&queue, work(1).run_at(due_at)).await;
    let later = push_one(&queue, work(2).run_at(due_at.plus(Duration::from_secs(3_600)))).await;
    let past = push_one(&queue, work(3).run_at(Timestamp::from_ms(0))).await;

    let now = pull(&queue, worker, 10).await;
    assert_eq!(now.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [past]);
    let promoted = queue.promote().await.expect("promote");
    assert_eq!(promoted.jobs, 0, "nothing is due yet");
    assert!(promoted.next_in.is_some_and(|wait| wait <= Duration::from_millis(700)), "{promoted:?}");

    let claimed = eventually("the scheduled job can be claimed", || async {
        queue.promote().await.expect("promote");
        pull(&queue, worker, 10).await.pop()
    })
    .await;
    assert_eq!(claimed.job.id, soon);
    assert!(claimed.job.claimed_at.is_some_and(|at| at >= due_at), "claimed before it was due");
    let waiting = queue.get(later).await.expect("get").expect("the job");
    assert_eq!(waiting.state, JobState::Scheduled);
    check_invariants(&queue).await;
}

pub(super) async fn a_claim_is_bounded_by_slots_lanes_and_kinds(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    push_all(&queue, (0..5).map(work)).await;
    push_all(&queue, (0..5).map(|n| work(n).lane("net"))).await;
    push_all(&queue, (0..5).map(|n| work(n).lane("io"))).await;
    push_all(&queue, (0..5).map(|n| NewJob::new("other", json!(n)).priority(100))).await;

    let pull = Pull {
        worker,
        lanes: BTreeMap::from([("cpu".into(), 3), ("net".into(), 2)]),
        kinds: vec!["work".into()],
        free_scratch_bytes: u64::MAX,
    };
    let claimed = queue.pull(pull).await.expect("pull");

    let in_lane = |lane| claimed.iter().filter(|claimed| claimed.job.lane == lane).count();
    assert_eq!((in_lane("cpu"), in_lane("net"), in_lane("io")), (3, 2, 0));
    assert!(claimed.iter().all(|claimed| claimed.job.kind == "work"));
}

pub(super) async fn a_job_that_needs_more_scratch_is_left_for_others(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let big = push_one(&queue, NewJob { scratch_bytes: 1_000, ..work(1) }).await;
    let small = push_one(&queue, work(2)).await;

    let tight = Pull { free_scratch_bytes: 999, ..pull_request(worker, 5) };
    let here = queue.pull(tight).await.expect("pull");
    let there = pull(&queue, worker, 5).await;

    assert_eq!(here.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [small]);
    assert_eq!(there.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [big]);
}

pub(super) async fn what_one_pull_claims_fits_into_the_scratch_together(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let needing = |n, scratch_bytes| NewJob { scratch_bytes, ..work(n) };
    let jobs = [needing(0, 60), needing(1, 50), needing(2, 30), work(3), needing(4, 10).lane("net")];
    let ids = push_all(&queue, jobs).await;
    let claims = async |free_scratch_bytes| -> Vec<JobId> {
        let request = pull_request(worker, 9);
        let lanes = BTreeMap::from([("cpu".into(), 9), ("net".into(), 9)]);
        let claimed = queue.pull(Pull { free_scratch_bytes, lanes, ..request }).await.expect("pull");
        claimed.into_iter().map(|claimed| claimed.job.id).collect()
    };

    let first = claims(100).await;
    let second = claims(40).await;

    assert!(first.contains(&ids[0]) && first.contains(&ids[3]), "{first:?}");
    assert!(!first.contains(&ids[1]), "110 bytes do not fit into 100");
    assert!(!first.contains(&ids[2]) || !first.contains(&ids[4]), "{first:?}");
    assert!(second.contains(&ids[2]) && !second.contains(&ids[1]), "{second:?}");
    assert_eq!(claims(0).await, [], "nothing fits into nothing");
    assert_eq!(claims(u64::MAX).await, [ids[1]]);
    check_invariants(&queue).await;
}

pub(super) async fn a_dead_worker_cannot_claim(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register_for(&queue, Duration::ZERO).await;
    push_one(&queue, work(1)).await;
    eventually("the silent worker is buried", || async {
        (queue.reap().await.expect("reap").workers == 1).then_some(())
    })
    .await;

    let refused = queue.pull(pull_request(worker, 1)).await;

    assert!(matches!(refused, Err(QueueError::WorkerGone)), "{refused:?}");
}

/// Whatever cannot run now must not be in the claim's way: neither its plan nor what it touches may depend on it.
pub(super) async fn the_claim_uses_its_index_behind_a_deep_backlog(ground: Arc<Ground>) {
    // Unoptimised, a million rows take minutes to fill in.
    const SCHEDULED: u64 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    const PARKED: u64 = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
    const CLAIMED: u64 = 10;
    let queue = ground.open().await;
    let worker = register(&queue).await;
    push_all(&queue, (0..1_000).map(work)).await;
    let (plan_alone, cost_alone) = ground.explain_claim(worker, CLAIMED);

    ground.fill_job(SCHEDULED, "'scheduled'", "NULL");
    ground.fill_job(PARKED, "'parked'", "'full'");
    let (plan, cost) = ground.explain_claim(worker, CLAIMED);

    assert_eq!(plan, plan_alone);
    assert!(
        plan.contains("job_ready") && !plan.contains("ORDER BY") && !plan.contains("Seq Scan on job"),
        "{plan}"
    );
    match ground.database {
        Database::Sqlite => assert_eq!(cost, cost_alone, "steps of the virtual machine"),
        // A larger table has indexes one level deeper: a page more for each job that is looked up and moved.
        Database::Postgres | Database::Bouncer => {
            assert!(cost <= cost_alone + 6 * CLAIMED, "{cost} pages instead of {cost_alone}");
        }
    }
    assert_eq!(ground.rows("job"), SCHEDULED + PARKED + 1_000);
    assert_eq!(pull(&queue, worker, 10).await.len(), 10);
}

impl Ground {
    /// Jobs that cannot run now, past every verb: a million pushes would take minutes.
    pub(super) fn fill_job(&self, jobs: u64, state: &str, limit_key: &str) {
        let columns = "tenant, kind, lane, priority, fair_at, state, run_at, max_attempts, max_lost, backoff_base_ms, \
                       backoff_factor, backoff_cap_ms, limit_key, parked_on, payload, created_at";
        let values = |run_at: &str, now: &str| {
            format!(
                "'', 'work', 'cpu', 50, n, {state}, {run_at}, 3, 3, 1, 1, 1, {limit_key}, 'key', '{{}}', {now}"
            )
        };
        match self.database {
            Database::Sqlite => {
                let file = self.sqlite_file();
                let values = values("n + 1000000000000000", "1");
                let sql = format!(
                    "WITH RECURSIVE every (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM every WHERE n < {jobs}) \
                     INSERT INTO job ({columns}) SELECT {values} FROM every"
                );
                assert_eq!(file.execute(&sql, []).expect("fill") as u64, jobs);
            }
            Database::Postgres | Database::Bouncer => {
                let values = values("now() + INTERVAL '1 hour'", "now()");
                let sql = format!(
                    "INSERT INTO telecine.job ({columns}) SELECT {values} FROM generate_series(1, {jobs}) AS n"
                );
                assert!(self.psql(&sql).contains(&format!("INSERT 0 {jobs}")));
            }
        }
    }

    fn sqlite_file(&self) -> rusqlite::Connection {
        let file = rusqlite::Connection::open(self.url.trim_start_matches("sqlite:")).expect("open");
        file.busy_timeout(Duration::from_secs(60)).expect("busy timeout");
        file
    }

    /// The plan of a claim, and what one touches: steps of SQLite's machine, or pages of the table and its indexes. The
    /// claim is taken back.
    fn explain_claim(&self, worker: WorkerId, jobs: u64) -> (String, u64) {
        match self.database {
            Database::Sqlite => explain_on_sqlite(&mut self.sqlite_file(), worker, jobs),
            Database::Postgres | Database::Bouncer => self.explain_on_postgres(worker, jobs),
        }
    }

    fn explain_on_postgres(&self, worker: WorkerId, jobs: u64) -> (String, u64) {
        // As a session of ours plans it, without looking at the parameters.
        let sql = include_str!("../../../sql/postgres/pull.sql");
        let claim = format!("claim ({worker}, '{{cpu}}', '{{{jobs}}}', '{{work}}', 1, 1)");
        let prepare = format!(
            "SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan; \
             PREPARE claim AS {sql};"
        );
        self.psql("VACUUM ANALYZE telecine.job");
        let plan = self.psql(&format!("{prepare} EXPLAIN (COSTS OFF) EXECUTE {claim}"));
        let told = self.psql(&format!(
            "BEGIN; {prepare} EXECUTE {claim}; \
             SELECT 'pages=' || SUM(pg_stat_get_xact_blocks_fetched(oid)) FROM pg_class \
             WHERE oid = 'telecine.job'::REGCLASS OR oid IN \
             (SELECT indexrelid FROM pg_index WHERE indrelid = 'telecine.job'::REGCLASS); \
             ROLLBACK"
        ));
        let pages = told.split("pages=").nth(1).and_then(|rest| rest.split_whitespace().next());
        (plan, pages.and_then(|pages| pages.parse().ok()).unwrap_or_else(|| panic!("no number in {told}")))
    }
}

fn explain_on_sqlite(file: &mut rusqlite::Connection, worker: WorkerId, jobs: u64) -> (String, u64) {
    let sql = include_str!("../../../sql/sqlite/pull.sql");
    let values = rusqlite::params![worker.0, 0, "cpu", 0, "[\"work\"]", jobs.cast_signed()];
    let explained: Vec<String> = file
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .expect("prepare")
        .query_map(values, |row| row.get(3))
        .expect("explain")
        .collect::<Result<_, _>>()
        .expect("rows");
    let tx = file.transaction().expect("begin");
    let mut claim = tx.prepare(sql).expect("prepare");
    let claimed = claim.query_map(values, |_| Ok(())).expect("claim").count();
    assert_eq!(claimed as u64, jobs);
    let steps = claim.get_status(rusqlite::StatementStatus::VmStep);
    (explained.join("\n"), u64::try_from(steps).expect("a number"))
}
