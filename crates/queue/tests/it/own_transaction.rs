//! `push_in`: jobs as part of the caller's own Postgres transaction.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::json;
use sqlx::Connection;
use telecine_queue::{
    Failure, Job, JobContext, JobState, Kind, Kinds, Limit, OpenOptions, PostgresQueue, Push, Queue,
    QueueError, TenantPolicy, WorkerOptions,
};

use crate::ground::{
    Database, Ground, brisk, check_invariants, done, eventually, pull_one, register, run, settle, start,
    wait_for_state, work,
};
use crate::postgres_server::PostgresServer;

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    let on = |database: Database| {
        let server = server.clone();
        let name = format!("{}::a_push_inside_the_callers_transaction_shares_its_fate", database.name());
        Trial::test(name, move || {
            run(a_push_inside_the_callers_transaction_shares_its_fate(Ground::new(database, &server)))
        })
    };
    let late = server.clone();
    let late = Trial::test("postgres::a_key_that_comes_up_during_a_balance_is_left_to_the_next", move || {
        run(a_key_that_comes_up_during_a_balance_is_left_to_the_next(Ground::new(Database::Postgres, &late)))
    });
    vec![on(Database::Postgres), on(Database::Bouncer), late]
}

struct Work;

#[async_trait::async_trait]
impl Kind for Work {
    fn name(&self) -> &'static str {
        "work"
    }

    async fn run(&self, _: &Job, _: &JobContext) -> Result<serde_json::Value, Failure> {
        Ok(json!(null))
    }
}

async fn a_push_inside_the_callers_transaction_shares_its_fate(ground: Ground) {
    let postgres = Arc::new(PostgresQueue::open(&ground.url, &OpenOptions::default()).await.expect("open"));
    let queue: Arc<dyn Queue> = Arc::clone(&postgres) as Arc<dyn Queue>;
    // Only the wake-up that comes with the commit can bring the job to this worker.
    let idle = WorkerOptions { poll_every: Duration::from_secs(3_600), ..brisk(1) };
    let worker = start(&queue, Kinds::new().with(Work), idle).await;
    let mut connection = ground.callers_connection().await;
    sqlx::raw_sql("CREATE TABLE upload (name TEXT)")
        .execute(&mut connection)
        .await
        .expect("the caller's own table");

    let mut kept = connection.begin().await.expect("begin");
    sqlx::raw_sql("INSERT INTO upload VALUES ('a.mov')").execute(&mut *kept).await.expect("insert");
    let pushed = postgres.push_in(&mut kept, vec![work(1).into()]).await.expect("push_in").remove(0);
    assert_eq!(queue.get(pushed.jobs[0]).await.expect("get"), None, "nothing is there before the commit");
    kept.commit().await.expect("commit");
    wait_for_state(&queue, pushed.jobs[0], JobState::Completed).await;

    let mut dropped = connection.begin().await.expect("begin");
    let push = Push::from(work(2)).idempotency_key("k");
    let gone = postgres.push_in(&mut dropped, vec![push.clone()]).await.expect("push_in").remove(0);
    dropped.rollback().await.expect("rollback");
    assert_eq!(queue.get(gone.jobs[0]).await.expect("get"), None);
    let again = queue.push(vec![push]).await.expect("push").remove(0);
    assert!(!again.replayed, "the key went with the transaction");

    let outside = postgres.push_in(&mut connection, vec![work(3).into()]).await;
    assert!(matches!(outside, Err(QueueError::Invalid { .. })), "{outside:?}");
    wait_for_state(&queue, again.jobs[0], JobState::Completed).await;
    worker.drain();
    worker.finished().await;
    check_invariants(&queue).await;
}

/// A balance has seen what waits for its tenant, and waits for the tenant itself; meanwhile a job with another key comes.
async fn a_key_that_comes_up_during_a_balance_is_left_to_the_next(ground: Ground) {
    let postgres = Arc::new(PostgresQueue::open(&ground.url, &OpenOptions::default()).await.expect("open"));
    let queue: Arc<dyn Queue> = Arc::clone(&postgres) as Arc<dyn Queue>;
    let worker = register(&queue).await;
    queue.tenant(TenantPolicy::new("small").max_running(1)).await.expect("tenant");
    queue.limit(Limit::new("late").max_running(1)).await.expect("limit");
    queue.push(vec![Push::from(work(1)).tenant("small")]).await.expect("push");
    let first = pull_one(&queue, worker).await;
    let mut connection = ground.callers_connection().await;
    let mut holder = connection.begin().await.expect("begin");
    let hold = "SELECT 1 FROM telecine.job_limit WHERE scope = 'tenant' FOR NO KEY UPDATE";
    sqlx::raw_sql(hold).execute(&mut *holder).await.expect("hold");

    let finishing = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { settle(&queue, first, done()).await }
    });
    eventually("the balance waits for the tenant", || async {
        let waiting = "SELECT COUNT(*) FROM pg_stat_activity \
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        (ground.psql(waiting).trim() == "1").then_some(())
    })
    .await;
    let mut other = ground.callers_connection().await;
    let mut pushing = other.begin().await.expect("begin");
    let late = Push::from(work(2).limit_key("late")).tenant("small");
    let late = postgres.push_in(&mut pushing, vec![late]).await.expect("push_in").remove(0).jobs[0];
    pushing.commit().await.expect("commit");
    holder.rollback().await.expect("let go");
    finishing.await.expect("finish");

    // It was not called to the line of a key at which nobody looks.
    assert_eq!(
        ground.psql(&format!("SELECT parked_on FROM telecine.job WHERE id = {late}")).trim(),
        "tenant"
    );
    let promoted = queue.promote().await.expect("promote");
    assert_eq!((promoted.jobs, promoted.next_in), (1, None), "and nobody has to look again");
    assert_eq!(pull_one(&queue, worker).await.job.id, late);
    check_invariants(&queue).await;
}
