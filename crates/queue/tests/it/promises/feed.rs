use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, Executor};
use telecine_queue::{
    FedEvent, FeedCursor, Kinds, NewRun, PostgresQueue, Push, Queue, QueueError, RunId, RunState,
};

use super::events::Talk;
use crate::ground::{
    Database, Ground, brisk, done, eventually, pull_one, register, settle, start, wait_until_none_is_live,
    work,
};

async fn push_run(queue: &Arc<dyn Queue>, tenant: &str) -> RunId {
    let push = Push::run(NewRun::new("film"), [work(1)]).tenant(tenant);
    queue.push(vec![push]).await.expect("push").remove(0).run.expect("a run")
}

/// Somebody who follows the feed: remembers where it was, and checks that each run's events come once and in order.
#[derive(Default)]
struct Follower {
    at: Option<FeedCursor>,
    seen: BTreeMap<RunId, u64>,
}

impl Follower {
    async fn look(&mut self, queue: &Arc<dyn Queue>, limit: u32) -> Vec<FedEvent> {
        let fed = queue.feed(self.at.take(), limit).await.expect("feed");
        assert!(fed.events.len() <= limit as usize);
        for FedEvent { event, .. } in &fed.events {
            let last = self.seen.entry(event.run.clone()).or_default();
            assert_eq!(event.seq, *last + 1, "the next event of {}", event.run);
            *last = event.seq;
        }
        self.at = Some(fed.next);
        fed.events
    }

    fn events(&self) -> u64 {
        self.seen.values().sum()
    }

    /// Other tests' transactions on the same server may hold up the feed.
    async fn follow_until(&mut self, queue: &Arc<dyn Queue>, events: u64) -> Vec<FedEvent> {
        let (mut fed, until) = (Vec::new(), std::time::Instant::now() + std::time::Duration::from_secs(180));
        while self.events() < events {
            assert!(std::time::Instant::now() < until, "{} of {events} events were fed", self.events());
            fed.extend(self.look(queue, 7).await);
        }
        assert_eq!(self.events(), events);
        fed
    }
}

pub(super) async fn the_feed_tells_of_all_runs_and_goes_on_where_it_was(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let start = queue.feed_end().await.expect("feed_end");
    assert_eq!(start.to_string(), "0", "nothing has happened yet");
    let worker = register(&queue).await;
    let (ours, theirs) = (push_run(&queue, "us").await, push_run(&queue, "them").await);
    let claimed = pull_one(&queue, worker).await;
    settle(&queue, claimed, done()).await;

    let mut follower = Follower::default();
    let fed = follower.follow_until(&queue, 4).await;
    assert_eq!(follower.seen, BTreeMap::from([(ours.clone(), 3), (theirs.clone(), 1)]));
    for FedEvent { tenant, event, .. } in &fed {
        assert_eq!(tenant, if event.run == ours { "us" } else { "them" });
        let told = queue.events(&event.run, event.seq - 1, 1).await.expect("events");
        assert_eq!(told, std::slice::from_ref(event), "the feed tells what the run tells");
    }
    assert_eq!(queue.feed(None, 2).await.expect("feed").events, fed[..2]);
    let second = queue.feed(Some(fed[1].cursor.clone()), 100).await.expect("feed");
    assert_eq!((&second.events[..], &second.next), (&fed[2..], &fed[3].cursor));
    assert_eq!(queue.feed_end().await.expect("feed_end"), second.next);
    let nothing = queue.feed(Some(second.next.clone()), 100).await.expect("feed");
    assert_eq!((nothing.events, &nothing.next), (vec![], &second.next));

    // As a process that wrote its place down and was started again.
    let noted = second.next.to_string();
    queue.close().await;
    let queue = ground.open().await;
    queue.tell(&theirs, "output.ready", json!(1)).await.expect("tell");
    follower.at = Some(noted.parse().expect("a cursor"));
    let later = follower.follow_until(&queue, 5).await;
    assert_eq!((later.len(), &later[0].event.run, later[0].event.seq), (1, &theirs, 2));
}

/// What was written before an event that is fed already, and is committed after it, is fed all the same.
pub(super) async fn what_is_committed_late_is_fed(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let mut follower = Follower::default();
    let before = push_run(&queue, "us").await;
    follower.follow_until(&queue, 1).await;

    let early = match ground.database {
        Database::Postgres | Database::Bouncer => {
            let own = PostgresQueue::open(&ground.url, &Default::default()).await.expect("open");
            let mut connection = ground.callers_connection().await;
            let mut tx = connection.begin().await.expect("begin");
            let push = Push::run(NewRun::new("film"), [work(1)]).tenant("us");
            let early = own.push_in(&mut tx, vec![push]).await.expect("push_in").remove(0).run;
            let late = push_run(&queue, "us").await;
            assert_eq!(queue.events(&late, 0, 9).await.expect("events").len(), 1, "this one is there");
            assert_eq!(follower.look(&queue, 100).await, [], "and waits for the other");
            tx.commit().await.expect("commit");
            early.expect("a run")
        }
        // One writer at a time: nothing can be committed late.
        Database::Sqlite => {
            let early = push_run(&queue, "us").await;
            push_run(&queue, "us").await;
            early
        }
    };

    follower.follow_until(&queue, 3).await;
    assert_eq!((follower.seen[&before], follower.seen[&early]), (1, 1));
}

/// A transaction that began earlier may add to a run after one that began later has.
pub(super) async fn a_runs_events_are_fed_in_order_whoever_began_first(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let run = push_run(&queue, "us").await;

    match ground.database {
        Database::Postgres | Database::Bouncer => {
            let mut connection = ground.callers_connection().await;
            let mut tx = connection.begin().await.expect("begin");
            tx.execute("SELECT pg_current_xact_id()").await.expect("it has begun");
            assert_eq!(queue.tell(&run, "second", json!(null)).await.expect("tell"), Some(2));
            let sql = format!("UPDATE telecine.run SET state = 'running' WHERE id = '{run}'");
            tx.execute(AssertSqlSafe(sql)).await.expect("update");
            tx.commit().await.expect("commit");
            let run = queue.get_run(&run).await.expect("get_run").expect("the run");
            assert_eq!(run.state, RunState::Running);
        }
        Database::Sqlite => {
            queue.tell(&run, "second", json!(null)).await.expect("tell");
            queue.tell(&run, "third", json!(null)).await.expect("tell");
        }
    }
    assert_eq!(queue.tell(&run, "fourth", json!(null)).await.expect("tell"), Some(4));

    let fed = Follower::default().follow_until(&queue, 4).await;
    assert_eq!(fed.iter().map(|fed| fed.event.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

/// Processes that push and tell at once, a worker that ends runs, and two that follow from the start and from half-way.
pub(super) async fn a_follower_sees_each_event_once_whoever_writes(ground: Arc<Ground>) {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 12;
    let queue = ground.open().await;
    let mut shared = Vec::new();
    for _ in 0..3 {
        shared.push(push_run(&queue, "us").await);
    }
    let writing = Arc::new(AtomicBool::new(true));
    let reader = tokio::spawn({
        let (ground, writing) = (Arc::clone(&ground), Arc::clone(&writing));
        async move {
            let (queue, mut follower, mut half_way) = (ground.open().await, Follower::default(), None);
            while writing.load(Ordering::Acquire) {
                follower.look(&queue, 5).await;
                if follower.events() > 40 && half_way.is_none() {
                    half_way = Some((follower.at.clone(), follower.seen.clone()));
                }
            }
            let (at, seen) = half_way.unwrap_or_default();
            (queue, follower, Follower { at, seen })
        }
    });
    let worker = start(&queue, Kinds::new().with(Talk(Arc::clone(&queue))), brisk(3)).await;

    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (ground, shared) = (Arc::clone(&ground), shared.clone());
            tokio::spawn(async move {
                let queue = ground.open().await;
                for round in 0..ROUNDS {
                    push_run(&queue, "us").await;
                    for run in &shared {
                        queue.tell(run, "output.ready", json!([writer, round])).await.expect("tell");
                    }
                }
                queue.close().await;
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("no panic");
    }
    wait_until_none_is_live(&queue).await;
    worker.drain();
    worker.finished().await;
    writing.store(false, Ordering::Release);
    let (reading, mut follower, mut from_half_way) = reader.await.expect("in order");

    let events = ground.rows("event");
    assert!(events >= ((3 + WRITERS * ROUNDS) * 4 + WRITERS * ROUNDS * 3) as u64, "{events}");
    follower.follow_until(&reading, events).await;
    from_half_way.follow_until(&reading, events).await;
    assert_eq!(follower.seen, from_half_way.seen);
    for (run, last) in follower.seen {
        assert_eq!(queue.events(&run, 0, 1_000).await.expect("events").len() as u64, last);
    }
}

pub(super) async fn forgotten_runs_leave_the_feed_without_harm(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let mut follower = Follower::default();
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(push_run(&queue, "us").await);
        let claimed = pull_one(&queue, worker).await;
        settle(&queue, claimed, done()).await;
    }
    let fed = follower.follow_until(&queue, 9).await;

    // The last that there is, and one in the middle that a cursor stands on.
    queue.delete_run(&runs[2]).await.expect("delete_run");
    let rest = queue.feed(Some(fed[4].cursor.clone()), 100).await.expect("feed").events;
    assert_eq!(rest.iter().map(|fed| (&fed.event.run, fed.event.seq)).collect::<Vec<_>>(), [(&runs[1], 3)]);
    queue.delete_run(&runs[1]).await.expect("delete_run");
    let rest = queue.feed(Some(fed[4].cursor.clone()), 100).await.expect("feed");
    assert_eq!((rest.events, &rest.next), (vec![], &fed[4].cursor));
    queue.delete_run(&runs[0]).await.expect("delete_run");
    let end = queue.feed_end().await.expect("feed_end");
    assert_eq!(end.to_string(), "0", "nothing is left");

    // No place is given twice: who was at the end of all that is gone is told of what comes.
    let after_all = queue.feed(follower.at.clone(), 100).await.expect("feed");
    assert_eq!((after_all.events, &after_all.next), (vec![], &fed[8].cursor));
    queue.close().await;
    let queue = ground.open().await;
    let new = push_run(&queue, "us").await;
    follower.follow_until(&queue, 10).await;
    assert_eq!(follower.seen[&new], 1);
    let from_end = eventually("it is fed", || async {
        Some(queue.feed(Some(end.clone()), 100).await.expect("feed").events)
            .filter(|events| !events.is_empty())
    })
    .await;
    assert_eq!(from_end.iter().map(|fed| &fed.event.run).collect::<Vec<_>>(), [&new]);
}

pub(super) async fn a_cursor_that_cannot_be_of_this_database_is_refused(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let run = push_run(&queue, "us").await;
    let of_sqlite: FeedCursor = "s1".parse().expect("a cursor");
    let of_postgres: FeedCursor = format!("p900.1.{run}").parse().expect("a cursor");
    let (foreign, ahead) = match ground.database {
        Database::Sqlite => (of_postgres, "s1000".to_owned()),
        Database::Postgres | Database::Bouncer => (of_sqlite, format!("p99999999999.1.{run}")),
    };

    for cursor in [foreign, ahead.parse().expect("a cursor")] {
        let refused = queue.feed(Some(cursor.clone()), 10).await;
        assert!(matches!(refused, Err(QueueError::Invalid { .. })), "{cursor}: {refused:?}");
    }
    let start: FeedCursor = "0".parse().expect("the start");
    let from_start = eventually("it is fed", || async {
        Some(queue.feed(Some(start.clone()), 10).await.expect("feed").events)
            .filter(|events| !events.is_empty())
    })
    .await;
    assert_eq!(from_start[0].event.run, run);
}

/// Each server counts its own transactions, and a dump brings stamps of one that has counted further.
pub(super) async fn events_that_came_from_another_server_are_fed(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let runs = [push_run(&queue, "us").await, push_run(&queue, "us").await];
    queue.close().await;
    if ground.database != Database::Sqlite {
        let far = 1_u64 << 40;
        ground.psql(&format!(
            "UPDATE telecine.event SET xid = '{far}'; UPDATE telecine.run SET event_xid = '{far}'"
        ));
    }

    let queue = ground.open().await;
    queue.tell(&runs[0], "output.ready", json!(1)).await.expect("tell");

    let mut follower = Follower::default();
    follower.follow_until(&queue, 3).await;
    assert_eq!((follower.seen[&runs[0]], follower.seen[&runs[1]]), (2, 1));
}
