//! Nothing is lost between the outbox and the deliveries, and nothing is there twice.

use std::collections::BTreeMap;
use std::time::Duration;

use libtest_mimic::Trial;
use telecine_connect::webhooks::SINK;

use crate::postgres_server::PostgresServer;
use crate::receiver::Receiver;
use crate::stage::{On, Stage, promises};

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    promises!(
        "relays",
        server,
        [
            a_relay_that_dies_after_its_push_repeats_nothing,
            two_relays_and_two_workers_tell_everything_once,
            an_answer_that_is_lost_makes_it_told_again,
        ]
    )
}

async fn a_relay_that_dies_after_its_push_repeats_nothing(on: On) {
    let (mut stage, receiver) = (Stage::idle(&on, |_| ()).await, Receiver::taking());
    stage.endpoint("", &receiver.url(), &[]).await;
    stage.run("").await;

    // One relay takes the events and pushes their deliveries, twice, and is gone before it can say so.
    let lease = Duration::from_millis(1);
    for _ in 0..2 {
        stage
            .until(async || {
                let taken = stage.queue.outbox_take(SINK, 10, lease).await.unwrap();
                for parcel in &taken {
                    stage.webhooks.sink().deliver(&parcel.events).await.unwrap();
                }
                !taken.is_empty()
            })
            .await;
    }
    stage.start_worker().await;
    stage.start_relay().await;
    stage.ended("", 3).await;

    assert_eq!(stage.jobs().await.len(), 3);
    let ids: Vec<String> = receiver.seen().iter().map(|it| it.event()).collect();
    assert_eq!(ids, ["run.created", "run.started", "run.succeeded"]);
    stage.close().await;
}

async fn two_relays_and_two_workers_tell_everything_once(on: On) {
    const RUNS: usize = 20;
    let (mut stage, receiver) = (Stage::open(&on).await, Receiver::taking());
    stage.start_worker().await;
    stage.start_relay().await;
    for url in [receiver.url(), format!("{}?second", receiver.url())] {
        stage.endpoint("", &url, &[]).await;
    }

    for _ in 0..RUNS {
        stage.run("").await;
    }
    stage.ended("", RUNS * 3 * 2).await;

    let mut told = BTreeMap::<(String, String), usize>::new();
    for received in receiver.seen() {
        *told.entry((received.id().to_owned(), received.path)).or_default() += 1;
    }
    assert_eq!(told.len(), RUNS * 3 * 2);
    assert!(told.values().all(|times| *times == 1), "{told:?}");
    stage.close().await;
}

/// At least once: the endpoint has it, the queue does not know, so it is told again under the same id.
async fn an_answer_that_is_lost_makes_it_told_again(on: On) {
    let receiver = Receiver::start(|nth, _, stream| match nth {
        // It takes what it is sent, and the answer is lost on the way.
        0 => {}
        _ => crate::receiver::respond(stream, 200, &[], ""),
    });
    let stage = Stage::open(&on).await;
    stage.endpoint("", &receiver.url(), &["run.succeeded"]).await;

    stage.run("").await;
    stage.ended("", 1).await;

    let seen = receiver.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!((seen[0].id(), &seen[0].body), (seen[1].id(), &seen[1].body));
    stage.close().await;
}
