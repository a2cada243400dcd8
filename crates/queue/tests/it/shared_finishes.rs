//! Outcomes are settled together on Postgres: what holds up one of them changes nothing for the others.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use sqlx::{Connection, PgConnection, PgTransaction};
use telecine_queue::{Finish, JobState, Limit, NewJob, NewRun, Push, Queue, Settled, Spawn};

use crate::ground::{
    Database, Ground, check_invariants, done, eventually, pull, pull_one, push_one, register, register_for,
    run, wait_for_state, work,
};
use crate::postgres_server::PostgresServer;

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    let (one, other) = (server.clone(), server.clone());
    vec![
        Trial::test("postgres::a_completion_counts_whatever_holds_up_its_batch", move || {
            run(a_completion_counts_whatever_holds_up_its_batch(Ground::new(Database::Postgres, &one)))
        }),
        Trial::test("postgres::finishes_that_spawn_into_each_others_runs_do_not_deadlock", move || {
            run(finishes_that_spawn_into_each_others_runs_do_not_deadlock(Ground::new(
                Database::Postgres,
                &other,
            )))
        }),
    ]
}

async fn locking<'c>(holder: &'c mut PgConnection, sql: &'static str) -> PgTransaction<'c> {
    let mut held = holder.begin().await.expect("begin");
    sqlx::raw_sql(sql).execute(&mut *held).await.expect("lock");
    held
}

async fn wait_for_waiters(ground: &Ground, waiters: u32) {
    eventually("they wait for the lock", || async {
        let waits = "SELECT 'waiting=' || COUNT(*) FROM pg_stat_activity \
                     WHERE datname = current_database() AND wait_event_type = 'Lock'";
        ground.psql(waits).contains(&format!("waiting={waiters}")).then_some(())
    })
    .await;
}

async fn a_completion_counts_whatever_holds_up_its_batch(ground: Ground) {
    let queue = ground.open().await;
    push_one(&queue, work(1)).await;
    let silent = register_for(&queue, Duration::ZERO).await;
    let lost = pull_one(&queue, silent).await;
    eventually("the loss is noticed", || async {
        (queue.reap().await.expect("reap").freed == 1).then_some(())
    })
    .await;
    let plain = push_one(&queue, work(2).priority(60)).await;
    let worker = register(&queue).await;
    let claimed = pull_one(&queue, worker).await;
    assert_eq!(claimed.job.id, plain);
    let mut holder = PgConnection::connect(&ground.url).await.expect("connect");
    let held = locking(&mut holder, "SELECT 1 FROM telecine.job WHERE state = 'pending' FOR UPDATE").await;
    let finishing = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.finish(&[Finish::new(claimed.claim, done()), Finish::new(lost.claim, done())]).await }
    });
    wait_for_state(&queue, plain, JobState::Completed).await;
    wait_for_waiters(&ground, 1).await;

    queue.delete(plain).await.expect("delete");
    held.rollback().await.expect("rollback");

    let settled = finishing.await.expect("no panic").expect("finish");
    assert_eq!(settled, [Settled::Accepted, Settled::Accepted]);
    check_invariants(&queue).await;
}

async fn finishes_that_spawn_into_each_others_runs_do_not_deadlock(ground: Ground) {
    let queue = ground.open().await;
    queue.limit(Limit::new("k").max_running(9)).await.expect("limit");
    let of_two = || Push::run(NewRun::new("two"), [work(1), work(2)]);
    queue.push(vec![of_two(), of_two()]).await.expect("push");
    let worker = register(&queue).await;
    let mut claimed = pull(&queue, worker, 4).await;
    claimed.sort_by_key(|claimed| (claimed.job.run.clone(), claimed.job.id));
    let mut ends = claimed.into_iter().map(|claimed| Finish::new(claimed.claim, done()));
    let mut next = || ends.next().expect("four jobs");
    let [first_ends, first_spawns, second_ends, second_spawns] = [next(), next(), next(), next()];
    let spawn = || Spawn { jobs: vec![NewJob::new("work", 3.into()).limit_key("k")], edges: vec![] };
    let one = [first_ends, second_spawns.spawning(spawn())];
    let other = [first_spawns.spawning(spawn()), second_ends];
    let mut holder = PgConnection::connect(&ground.url).await.expect("connect");
    let held = locking(&mut holder, "LOCK TABLE telecine.job_limit IN ACCESS EXCLUSIVE MODE").await;
    let finish = |batch: [Finish; 2]| {
        let queue: Arc<dyn Queue> = Arc::clone(&queue);
        tokio::spawn(async move { queue.finish(&batch).await.expect("finish") })
    };
    let (one, other) = (finish(one), finish(other));
    wait_for_waiters(&ground, 2).await;

    held.rollback().await.expect("rollback");

    assert_eq!(one.await.expect("no panic"), [Settled::Accepted; 2]);
    assert_eq!(other.await.expect("no panic"), [Settled::Accepted; 2]);
    let deadlocks = ground.psql(
        "SELECT pg_stat_force_next_flush(); SELECT 'deadlocks=' || deadlocks FROM pg_stat_database \
         WHERE datname = current_database()",
    );
    assert!(deadlocks.contains("deadlocks=0"), "{deadlocks}");
    check_invariants(&queue).await;
}
