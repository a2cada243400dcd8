//! Small pushes share a statement on Postgres: what the server refuses of one is no fault of the others.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use libtest_mimic::Trial;
use sqlx::{Connection, PgConnection};
use telecine_queue::{NewJob, QueueError};

use crate::ground::{Database, Ground, check_invariants, eventually, push_one, run, work};
use crate::postgres_server::PostgresServer;

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    let server = server.clone();
    vec![Trial::test("postgres::a_refused_push_takes_none_with_it", move || {
        run(a_refused_push_takes_none_with_it(Ground::new(Database::Postgres, &server)))
    })]
}

async fn a_refused_push_takes_none_with_it(ground: Ground) {
    let queue = ground.open().await;
    // What no check of ours foresees: the server itself says no.
    ground.psql("ALTER TABLE telecine.job ADD CONSTRAINT refused CHECK (kind <> 'refused')");
    let mut holder = PgConnection::connect(&ground.url).await.expect("connect");
    let mut held = holder.begin().await.expect("begin");
    sqlx::query("LOCK TABLE telecine.job IN EXCLUSIVE MODE").execute(&mut *held).await.expect("lock");
    let first = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { push_one(&queue, work(0)).await }
    });
    eventually("the first waits for the table", || async {
        let waits = "SELECT 'waiting=' || COUNT(*) FROM pg_locks WHERE NOT granted";
        ground.psql(waits).contains("waiting=1").then_some(())
    })
    .await;

    // All of these come while the first is under way, and so go together after it.
    let jobs = (1..10).map(|n| if n == 4 { NewJob::new("refused", 4.into()) } else { work(n) });
    let mut together: Vec<_> = jobs.map(|job| Box::pin(queue.push(vec![job.into()]))).collect();
    poll_fn(|context| {
        assert!(together.iter_mut().all(|push| push.as_mut().poll(context).is_pending()));
        Poll::Ready(())
    })
    .await;
    held.rollback().await.expect("rollback");

    let first = first.await.expect("the first is stored");
    assert!(queue.get(first).await.expect("get").is_some());
    for (push, n) in together.into_iter().zip(1_u64..) {
        match push.await {
            Ok(pushed) => {
                let job = queue.get(pushed[0].jobs[0]).await.expect("get").expect("it is stored");
                assert_eq!(job.payload["n"], n, "each is told of its own");
            }
            Err(QueueError::Unexpected { reason }) => {
                assert!(n == 4 && reason.contains("refused"), "push {n}: {reason}");
            }
            Err(error) => panic!("push {n}: {error}"),
        }
    }
    assert_eq!(ground.rows("job"), 9, "all but the refused one");
    check_invariants(&queue).await;
}
