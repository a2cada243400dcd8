//! What goes wrong around intake does not end it, and is not kept secret.

use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::json;
use telecine_connect::KafkaOptions;
use telecine_pipeline::{Input, Recipes, RunRequest, submit};
use telecine_queue::testing::Faults;

use super::office::{Office, ids};
use super::shared;
use crate::kafka_server::{KafkaServer, Sent};
use crate::postgres_server::PostgresServer;
use crate::stage::{On, promises, promises_alone};

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    let mut trials: Vec<Trial> = promises!("kafka::troubles", server, [work_of_others_does_not_stop_intake]);
    trials.extend(promises_alone!(
        "kafka::troubles",
        [
            an_intake_that_breaks_starts_anew_and_is_not_ready_meanwhile,
            a_broker_that_hangs_does_not_keep_intake_from_stopping,
            a_batch_whose_checks_are_slow_is_taken_in,
            offsets_that_went_back_are_committed,
        ]
    ));
    trials
}

async fn an_intake_that_breaks_starts_anew_and_is_not_ready_meanwhile() {
    let faults = Faults::new().panic("push", 2);
    let office = Office::faulty(&shared(), &On::Sqlite, 1, &faults, |_| ()).await;
    let kafka = office.kafka();
    let is_ready = async || kafka.broker().check(Duration::from_secs(10)).await.is_ok();
    let intake = kafka.start_intake().unwrap();
    office.produce([Sent::new(office.request("before"))]);
    office.until_runs(1).await;
    assert!(is_ready().await);

    office.produce([Sent::new(office.request("broken"))]);
    office.until(async || !is_ready().await).await;
    let paused = *intake.paused().borrow();
    office.until_runs(2).await;
    office.until_committed(2).await;
    office.until(is_ready).await;
    intake.stop().await;

    assert!(paused, "nothing was taken in, and that was told");
    assert_eq!(faults.injected("push"), 1, "the fault was really there");
    office.queue.close().await;
}

async fn a_broker_that_hangs_does_not_keep_intake_from_stopping() {
    let server = KafkaServer::start();
    let faults = Faults::new().delay("push", 2, Duration::from_secs(3));
    let office = Office::faulty(&server, &On::Sqlite, 1, &faults, |_| ()).await;
    let intake = office.intake();
    office.produce([Sent::new(office.request("first"))]);
    office.until_committed(1).await;

    // What is stored while nobody answers cannot be committed.
    office.produce([Sent::new(office.request("second"))]);
    office.until(async || faults.injected("push") == 1).await;
    server.freeze();
    office.until_runs(2).await;
    let stopped = tokio::time::timeout(Duration::from_secs(45), intake.stop()).await;

    assert!(stopped.is_ok(), "it is waited for only so long");
    server.kill();
    office.queue.close().await;
}

async fn a_batch_whose_checks_are_slow_is_taken_in() {
    const RECORDS: usize = 70;
    // Together more than a batch may take.
    let faults = Faults::new().delay("known_push", 1, Duration::from_secs(1));
    let office = Office::faulty(&shared(), &On::Sqlite, 1, &faults, |_| ()).await;
    let refused = |nth: usize| {
        let id = format!("bad-{nth}");
        json!({"recipe": "no-such", "input": {"path": office.file()}, "external_id": id})
    };
    office.produce((0..RECORDS).map(|nth| Sent::new(refused(nth))));
    office.produce_requests("good", 3);

    let intake = office.intake();
    let runs = office.until_runs(3).await;
    office.until_committed(RECORDS as i64 + 3).await;
    intake.stop().await;

    assert_eq!(ids(&runs), ["good-0", "good-1", "good-2"]);
    let dead = office.server.read(&office.options.dead_letter_topic, RECORDS);
    assert_eq!(dead.len(), RECORDS);
    office.queue.close().await;
}

async fn offsets_that_went_back_are_committed() {
    let office = Office::with(&shared(), &On::Sqlite, 1, |_| ()).await;
    let intake = office.intake();
    office.produce_requests("old", 20);
    office.until_committed(20).await;

    office.server.delete_topic(&office.options.request_topic).await;
    office.server.make_topic(&office.options.request_topic, 1, &[]).await;
    office.produce_requests("new", 5);
    office.until_runs(25).await;
    office.until_committed(5).await;
    intake.stop().await;

    office.queue.close().await;
}

async fn work_of_others_does_not_stop_intake(on: On) {
    const OTHERS: usize = 60;
    let arrange = |options: &mut KafkaOptions| {
        options.tenant = "ours".into();
        (options.max_backlog, options.batch) = (20, 10);
    };
    let office = Office::with(&shared(), &on, 1, arrange).await;
    let recipes = Recipes::load(None).unwrap();
    for _ in 0..OTHERS {
        let request = RunRequest::new("thumbnail", Input::Path(office.file()));
        let submission = request.into_submission("others", &recipes, office.shop()).await.unwrap();
        submit(office.queue.as_ref(), submission).await.unwrap();
    }

    office.produce_requests("film", 50);
    let intake = office.intake();
    let mut paused = intake.paused();
    office.until(async || *paused.borrow_and_update()).await;
    let runs = office.runs().await;
    intake.stop().await;

    assert_eq!(runs.len(), OTHERS + 30, "one batch more than may wait of our own");
    office.queue.close().await;
}
