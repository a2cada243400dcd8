//! Each record becomes exactly one run, or a dead letter that says why not.

use libtest_mimic::Trial;
use rdkafka::message::Message;
use serde_json::{Value, json};
use telecine_pipeline::RunMeta;
use telecine_queue::testing::Faults;

use super::office::{Office, ids, stop};
use super::shared;
use crate::kafka_server::{Sent, header};
use crate::postgres_server::PostgresServer;
use crate::stage::{On, promises};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    promises!(
        "kafka::requests",
        server,
        [
            records_are_runs_once_also_when_they_are_read_again,
            a_poison_record_is_put_away_and_stops_nothing,
            a_key_is_one_run_and_another_body_is_refused,
            a_database_that_fails_loses_and_doubles_nothing,
            intake_stands_still_while_enough_waits,
        ]
    )
}

async fn records_are_runs_once_also_when_they_are_read_again(on: On) {
    const RECORDS: usize = 300;
    let office = Office::open(&shared(), &on).await;
    office.produce_requests("film", RECORDS - 1);
    office.produce([Sent::new(office.request("traced")).header("traceparent", TRACE)]);

    let intake = office.intake();
    let runs = office.until_runs(RECORDS).await;
    office.until_committed(RECORDS as i64).await;
    intake.stop().await;
    // As if it had died between COMMIT and the commit of its offsets: another group starts from the beginning.
    let again = |options: &mut telecine_connect::KafkaOptions| options.group += "-again";
    let intake = office.kafka_with(again).start_intake().unwrap();
    let group = format!("{}-again", office.options.group);
    let committed = || office.server.committed(&group, &office.options.request_topic);
    office.until(async || committed() >= RECORDS as i64).await;
    intake.stop().await;

    assert_eq!(office.runs().await.len(), RECORDS);
    let traced = runs.iter().find(|run| run.external_id.as_deref() == Some("traced")).unwrap();
    let meta = RunMeta::of(traced).unwrap();
    assert_eq!((meta.traceparent.as_deref(), meta.came_by.as_deref()), (Some(TRACE), Some("kafka")));
    office.queue.close().await;
}

async fn a_poison_record_is_put_away_and_stops_nothing(on: On) {
    let office = Office::with(&shared(), &on, 1, |_| ()).await;
    let good = |id: &str| Sent::new(office.request(id));
    let mut unknown_recipe = office.request("x");
    unknown_recipe["recipe"] = json!("no-such");
    let mut unknown_field = office.request("x");
    unknown_field["colour"] = json!("red");
    let elsewhere = json!({"recipe": "thumbnail", "input": {"s3": "s3://not-ours/a.mov"}});
    let poison = [
        (Sent::new("{nonsense"), "not_json"),
        (Sent::new(""), "empty"),
        (Sent::new(unknown_field), "invalid_request"),
        (Sent::new(json!({"recipe": "thumbnail"})), "invalid_request"),
        (Sent::new(unknown_recipe), "unknown_recipe"),
        (Sent::new(elsewhere), "input_denied"),
        (good("x").header("idempotency-key", &"k".repeat(201)), "invalid_request"),
        (Sent::new(json!({"recipe": "r".repeat(300_000)})), "too_large"),
        (Sent::new(json!([1, 2])), "invalid_request"),
    ];
    let mut records = vec![good("first")];
    for (nth, (record, _)) in poison.iter().enumerate() {
        records.push(record.clone().key(&format!("bad-{nth}")).header("origin", "test"));
        records.push(good(&format!("good-{nth}")));
    }
    office.produce(records.clone());

    let intake = office.intake();
    let dead = office.server.read(&office.options.dead_letter_topic, poison.len());
    office.until_runs(poison.len() + 1).await;
    office.until_committed(records.len() as i64).await;
    intake.stop().await;

    assert_eq!(dead.len(), poison.len());
    for (nth, (letter, (record, code))) in dead.iter().zip(&poison).enumerate() {
        assert_eq!(header(letter, "telecine-problem-code").as_deref(), Some(*code), "{nth}");
        assert_eq!(letter.key().unwrap(), format!("bad-{nth}").as_bytes());
        assert_eq!(letter.payload().unwrap_or_default(), record.value);
        assert_eq!(header(letter, "origin").as_deref(), Some("test"));
        assert_eq!(header(letter, "telecine-source-topic"), Some(office.options.request_topic.clone()));
        assert_eq!(header(letter, "telecine-source-partition").as_deref(), Some("0"));
        assert_eq!(header(letter, "telecine-source-offset"), Some((2 * nth + 1).to_string()));
        assert!(!header(letter, "telecine-problem-detail").unwrap().is_empty());
        let problem: Value = serde_json::from_str(&header(letter, "telecine-problem").unwrap()).unwrap();
        assert_eq!(problem["code"], *code);
    }
    let problem: Value = serde_json::from_str(&header(&dead[4], "telecine-problem").unwrap()).unwrap();
    assert_eq!(problem["errors"][0]["path"], "recipe");
    // Who said whose the request is hears that there will be no result.
    let answers = office.server.read(&office.options.response_topic, 3);
    let told: Value = serde_json::from_slice(answers[1].payload().unwrap()).unwrap();
    assert_eq!((answers.len(), answers[1].key()), (3, Some(b"x".as_slice())));
    assert_eq!((&told["success"], &told["error"]["code"]), (&json!(false), &json!("unknown_recipe")));
    office.queue.close().await;
}

async fn a_key_is_one_run_and_another_body_is_refused(on: On) {
    let office = Office::with(&shared(), &on, 1, |_| ()).await;
    let keyed = |id: &str, key: &str| Sent::new(office.request(id)).header("idempotency-key", key);
    office.produce([keyed("before", "k0")]);
    let intake = office.intake();
    office.until_runs(1).await;

    let mut records: Vec<Sent> = (0..40).map(|nth| keyed(&format!("n-{nth}"), &format!("n-{nth}"))).collect();
    // Of a key that was used before, and of one that the same batch uses: the first is the run, one repeats it.
    records.insert(7, keyed("other", "k0"));
    records.insert(15, keyed("before", "k0"));
    records.insert(23, keyed("other", "n-3"));
    records.insert(31, keyed("n-4", "n-4"));
    office.produce(records.clone());
    office.until_committed(records.len() as i64 + 1).await;
    intake.stop().await;

    let runs = office.until_runs(41).await;
    assert!(!ids(&runs).contains(&"other"));
    let dead = office.server.read(&office.options.dead_letter_topic, 2);
    let told: Vec<_> = dead.iter().map(|it| header(it, "telecine-problem-code").unwrap()).collect();
    assert_eq!(told, ["key_reused", "key_reused"]);
    let places: Vec<_> = dead.iter().map(|it| header(it, "telecine-source-offset").unwrap()).collect();
    assert_eq!(places, ["8", "24"]);
    office.queue.close().await;
}

async fn a_database_that_fails_loses_and_doubles_nothing(on: On) {
    const RECORDS: usize = 120;
    let faults = Faults::new().refuse("push", 3).lose_answer("push", 4).refuse("counts", 5);
    let office = Office::faulty(&shared(), &on, 2, &faults, |options| options.batch = 10).await;
    office.produce_requests("film", RECORDS);

    let intake = office.intake();
    office.until_runs(RECORDS).await;
    office.until_committed(RECORDS as i64).await;
    intake.stop().await;

    let runs = office.runs().await;
    let mut expected: Vec<String> = (0..RECORDS).map(|nth| format!("film-{nth}")).collect();
    expected.sort_unstable();
    assert_eq!(ids(&runs), expected);
    assert!(faults.injected("push") > 2, "the faults were really there");
    office.queue.close().await;
}

async fn intake_stands_still_while_enough_waits(on: On) {
    const RECORDS: usize = 200;
    let arrange = |options: &mut telecine_connect::KafkaOptions| {
        (options.max_backlog, options.batch) = (40, 10);
    };
    let office = Office::with(&shared(), &on, 2, arrange).await;
    office.produce_requests("film", RECORDS);

    let intake = office.intake();
    let mut paused = intake.paused();
    office.until(async || *paused.borrow_and_update()).await;
    let taken = office.runs().await.len();
    let worker = office.worker().await;
    office.until_runs(RECORDS).await;
    office.until_committed(RECORDS as i64).await;
    office.until(async || !*paused.borrow_and_update()).await;

    assert_eq!(taken, 50, "one batch more than may wait");
    intake.stop().await;
    stop(worker).await;
    office.queue.close().await;
}
