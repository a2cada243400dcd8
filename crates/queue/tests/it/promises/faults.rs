use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use telecine_queue::{
    Failure, Finish, Job, JobContext, JobState, Kind, Kinds, OpenOptions, Queue, Settled, open_with,
};

use crate::ground::{
    Database, Ground, brisk, check_invariants, done, eventually, failed, pull, push_all, push_one, register,
    start, wait_until_none_is_live, work,
};
use crate::postgres_server::PostgresServer;
use crate::proxy::Proxy;

struct Work;

#[async_trait::async_trait]
impl Kind for Work {
    fn name(&self) -> &'static str {
        "work"
    }

    async fn run(&self, _: &Job, _: &JobContext) -> Result<Value, Failure> {
        Ok(Value::Null)
    }
}

/// Postgres: the whole server is killed while jobs are pushed and run, twice. SQLite has no server to kill; its
/// processes are killed in `processes`.
pub(super) async fn a_database_that_dies_loses_nothing(ground: Arc<Ground>) {
    let (url, server) = match ground.database {
        Database::Sqlite => (ground.url.clone(), None),
        Database::Postgres => {
            let server = tokio::task::block_in_place(PostgresServer::start);
            (server.new_database(), Some(server))
        }
        Database::Bouncer => {
            let server = tokio::task::block_in_place(PostgresServer::start);
            (tokio::task::block_in_place(|| server.new_database_behind_bouncer()), Some(server))
        }
    };
    let options = OpenOptions { patience: Duration::from_millis(500), ..OpenOptions::default() };
    let queue = open_with(&url, &options).await.expect("open");
    let worker = start(&queue, Kinds::new().with(Work), brisk(4)).await;

    let mut accepted = Vec::new();
    let mut refusals = 0;
    for n in 0..600 {
        if let (Some(server), 200 | 400) = (&server, n) {
            tokio::task::block_in_place(|| server.kill());
            let down = queue.push(vec![work(n).into()]).await;
            assert!(down.as_ref().is_err_and(|error| error.is_transient()), "{down:?}");
            tokio::task::block_in_place(|| server.launch());
        }
        let pushed = eventually("the database takes the push", || async {
            let key = format!("job-{n}");
            queue.push(vec![telecine_queue::Push::from(work(n)).idempotency_key(key)]).await.ok()
        })
        .await;
        refusals += u32::from(pushed[0].replayed);
        accepted.push(pushed[0].jobs[0]);
    }
    wait_until_live_is_empty_through_faults(&queue).await;

    let mut ended = 0;
    for id in &accepted {
        let job = queue.get(*id).await.expect("get").expect("an accepted job is there");
        ended += u32::from(job.state == JobState::Completed);
    }
    assert_eq!(ended, 600, "{refusals} pushes were repeated after a lost answer");
    worker.drain();
    assert!(worker.finished().await.completed >= 590, "the same worker went on by itself");
    check_invariants(&queue).await;
    queue.close().await;
    if let Some(server) = server {
        tokio::task::block_in_place(|| server.stop());
    }
}

async fn wait_until_live_is_empty_through_faults(queue: &Arc<dyn Queue>) {
    eventually("the database answers again", || async { queue.counts().await.ok() }).await;
    wait_until_none_is_live(queue).await;
}

/// Postgres: a proxy throws the answer away after the server has committed. SQLite answers in the process itself,
/// where only a repeated call can play the part.
pub(super) async fn a_lost_answer_of_a_commit_is_settled_by_asking_again(ground: Arc<Ground>) {
    let direct = ground.open().await;
    let proxy = Proxy::in_front_of(ground.port()).await;
    let queue = match ground.database {
        Database::Sqlite => ground.open().await,
        Database::Postgres | Database::Bouncer => {
            let url = ground.url_at(proxy.port);
            // One connection, so that the answer that is lost is the one we mean.
            let options = OpenOptions { max_connections: 1, ..OpenOptions::default() };
            open_with(&url, &options).await.expect("open through the proxy")
        }
    };
    let worker = register(&direct).await;
    let ids = push_all(&direct, (0..2).map(work)).await;
    let claimed = pull(&direct, worker, 2).await;
    let finishes: Vec<Finish> = claimed
        .into_iter()
        .zip([done(), failed("once")])
        .map(|(claimed, outcome)| Finish::new(claimed.claim, outcome))
        .collect();
    // Warm the connection up, so that the next thing on it is the finish.
    queue.get(ids[0]).await.expect("get");

    if ground.database != Database::Sqlite {
        proxy.lose_next_answer();
    } else {
        queue.finish(&finishes).await.expect("finish");
    }
    let settled =
        eventually("the finish comes through", || async { queue.finish(&finishes).await.ok() }).await;

    assert_eq!(settled, [Settled::Accepted; 2], "its own work is not refused");
    if ground.database != Database::Sqlite {
        assert_eq!(proxy.answers_lost(), 1, "the fault was really there");
    }
    let mut seen = Vec::new();
    for id in ids {
        let job = direct.get(id).await.expect("get").expect("the job");
        seen.push((job.state, job.attempt, direct.attempts(id).await.expect("attempts").len()));
    }
    assert_eq!(seen, [(JobState::Completed, 1, 1), (JobState::Scheduled, 1, 1)], "and it is not done twice");
    push_one(&queue, work(9)).await;
    check_invariants(&direct).await;
}

/// Postgres: connections that are open fall silent in the middle of the work, as behind a firewall that forgot them.
/// SQLite has none.
pub(super) async fn a_connection_that_freezes_is_given_up(ground: Arc<Ground>) {
    let proxy = Proxy::in_front_of(ground.port()).await;
    let url = match ground.database {
        Database::Sqlite => ground.url.clone(),
        Database::Postgres | Database::Bouncer => ground.url_at(proxy.port),
    };
    let options = OpenOptions { patience: Duration::from_millis(300), ..OpenOptions::default() };
    let queue = open_with(&url, &options).await.expect("open");
    let worker = start(&queue, Kinds::new().with(Work), brisk(4)).await;
    let direct = ground.open().await;
    push_all(&direct, (0..2_000).map(work)).await;
    eventually("the worker is busy", || async {
        let counts = direct.counts().await.expect("counts");
        (telecine_queue::total(&counts, JobState::Completed) > 50).then_some(())
    })
    .await;

    proxy.freeze_open_connections();

    wait_until_none_is_live(&direct).await;
    worker.drain();
    worker.finished().await;
    queue.close().await;
    check_invariants(&direct).await;
}
