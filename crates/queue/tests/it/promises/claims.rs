use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use telecine_queue::{
    AttemptOutcome, Finish, JobState, Limit, NewJob, Pull, Push, QueueError, Settled, Timestamp,
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

/// Whatever cannot run now must not be in the claim's way.
pub(super) async fn the_claim_uses_its_index_behind_a_deep_backlog(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let far = Timestamp::now().plus(Duration::from_secs(3_600));
    for _ in 0..100 {
        queue.push(vec![Push::jobs((0..1_000).map(|n| work(n).run_at(far)))]).await.expect("push");
    }
    queue.limit(Limit::new("full").max_running(0)).await.expect("limit");
    for _ in 0..20 {
        queue.push(vec![Push::jobs((0..1_000).map(|n| work(n).limit_key("full")))]).await.expect("push");
    }
    push_all(&queue, (0..1_000).map(work)).await;

    match ground.database {
        Database::Sqlite => {
            let file = rusqlite::Connection::open(ground.url.trim_start_matches("sqlite:")).expect("open");
            let sql = include_str!("../../../sql/sqlite/pull.sql");
            let mut explained = file.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("prepare");
            let plan: Vec<String> = explained
                .query_map(rusqlite::params![1, 0, "cpu", 0, "[\"work\"]", 10], |row| row.get(3))
                .expect("explain")
                .collect::<Result<_, _>>()
                .expect("rows");
            let plan = plan.join("\n");
            assert!(plan.contains("USING INDEX job_ready"), "{plan}");
            assert!(!plan.contains("TEMP B-TREE FOR ORDER BY"), "{plan}");
        }
        Database::Postgres | Database::Bouncer => {
            ground.psql("ANALYZE telecine.job");
            let claim = "SELECT id FROM telecine.job WHERE state = 'pending' AND lane = 'cpu' AND kind = ANY('{work}') \
                         AND scratch_bytes <= 1 ORDER BY priority DESC, fair_at, id LIMIT 10 FOR UPDATE SKIP LOCKED";
            let plan = ground.psql(&format!("EXPLAIN {claim}"));
            assert!(plan.contains("Index Scan using job_ready"), "{plan}");
            assert!(!plan.contains("Sort"), "{plan}");
            // And the whole of it, as a session of ours would plan it without looking at the parameters.
            let sql = include_str!("../../../sql/postgres/pull.sql");
            let whole = format!(
                "SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan; \
                 PREPARE claim AS {sql}; EXPLAIN EXECUTE claim (1, '{{cpu}}', '{{10}}', '{{work}}', 1, 1)"
            );
            let plan = ground.psql(&whole);
            assert!(plan.contains("Index Scan using job_ready"), "{plan}");
            assert!(!plan.contains("Seq Scan on job"), "{plan}");
        }
    }
    assert_eq!(pull(&queue, worker, 10).await.len(), 10);
}
