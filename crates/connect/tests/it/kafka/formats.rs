//! The formats in which requests come and results go.

use libtest_mimic::Trial;
use rdkafka::message::Message;
use serde_json::{Value, json};
use telecine_connect::KafkaOptions;
use telecine_connect::kafka::{Format, KafkaError};
use telecine_pipeline::RunMeta;

use super::office::{Office, ids};
use super::shared;
use crate::kafka_server::{Sent, header};
use crate::stage::{On, promises_alone};

pub(crate) fn trials() -> Vec<Trial> {
    promises_alone!(
        "kafka::formats",
        [
            cloud_events_come_in_both_modes_and_once,
            requests_of_the_plain_media_worker_are_taken_and_answered,
            both_spellings_of_a_field_and_empty_names_are_taken,
            names_are_the_same_only_where_they_are,
            a_recipe_that_is_not_there_is_refused_at_once,
        ]
    )
    .into()
}

async fn cloud_events_come_in_both_modes_and_once() {
    let office = Office::with(&shared(), &On::Sqlite, 1, |_| ()).await;
    let binary = |id: &str, source: &str, asked: &str| {
        Sent::new(office.request(asked))
            .header("ce_specversion", "1.0")
            .header("ce_id", id)
            .header("ce_source", source)
            .header("ce_type", "media.asked")
            .header("content-type", "application/json")
    };
    let structured =
        |event: Value| Sent::new(event).header("content-type", "application/cloudevents+json; charset=UTF-8");
    let event = |id: &str, asked: &str| json!({"specversion": "1.0", "id": id, "source": "/shop", "type": "media.asked", "data": office.request(asked)});
    let records = [
        binary("1", "/shop", "a"),
        binary("1", "/shop", "a"),
        binary("1", "/elsewhere", "b"),
        structured(event("2", "c")),
        structured(event("2", "c")),
        // In either mode it is the same event.
        structured(event("1", "a")),
        binary("1", "/shop", "other"),
        structured(json!({"specversion": "1.0", "id": "3", "source": "/shop", "type": "media.asked"})),
        structured(json!({"id": "3", "source": "/shop", "type": "media.asked", "data": {}})),
        binary("9", "/shop", "d").header("idempotency-key", "ours"),
        Sent::new(office.request("d")).header("idempotency-key", "ours"),
    ];
    office.produce(records.clone());

    let intake = office.intake();
    office.until_committed(records.len() as i64).await;
    intake.stop().await;

    assert_eq!(ids(&office.runs().await), ["a", "b", "c", "d"]);
    let dead = office.server.read(&office.options.dead_letter_topic, 3);
    let mut codes: Vec<_> = dead.iter().map(|it| header(it, "telecine-problem-code").unwrap()).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["key_reused", "not_a_cloud_event", "not_a_cloud_event"]);
    office.queue.close().await;
}

async fn requests_of_the_plain_media_worker_are_taken_and_answered() {
    let arrange = |options: &mut telecine_connect::KafkaOptions| {
        options.format = Format::Optimize;
        options.recipe = "thumbnail".into();
    };
    let office = Office::with(&shared(), &On::Sqlite, 1, arrange).await;
    let request = |media: Value, user: Value| {
        json!({"bucket": "films", "key": "in/a b.mov", "userId": user, "mediaId": media, "type": "video",
               "tenantId": 7, "callback": {"queue": "q"}})
    };
    office.produce([
        Sent::new(request(json!("m-1"), json!("u-1"))),
        Sent::new(json!({"bucket": "films", "key": "a.jpg", "user_id": 5, "media_id": 12})),
        // Asked for again it is another run: the first may have failed.
        Sent::new(request(json!("m-1"), json!("u-1"))),
        Sent::new(request(json!("../m"), json!("u-1"))),
        Sent::new(request(json!("m-2"), Value::Null)),
        Sent::new(json!({"bucket": "others", "key": "a", "userId": "u", "mediaId": "m-3"})),
    ]);

    let (intake, relay) = (office.intake(), office.relay().await);
    let runs = office.until_runs(3).await;
    let dead = office.server.read(&office.options.dead_letter_topic, 3);
    for run in &runs {
        office.queue.cancel_run(&run.id).await.unwrap();
    }
    // Three that were cancelled, and three that could not become a run but say whose they are.
    let results = office.server.read(&office.options.response_topic, 6);

    assert_eq!(ids(&runs), ["12", "m-1", "m-1"]);
    let named = runs.iter().find(|run| run.external_id.as_deref() == Some("m-1")).unwrap();
    let meta = RunMeta::of(named).unwrap();
    assert_eq!(meta.input.to_string(), "s3://films/in/a b.mov");
    assert_eq!(meta.metadata, json!({"userId": "u-1", "mediaId": "m-1", "type": "video"}));
    let codes: Vec<_> = dead.iter().map(|it| header(it, "telecine-problem-code").unwrap()).collect();
    assert_eq!(codes, ["invalid_request", "invalid_request", "input_denied"]);
    let numbers = results.iter().find(|it| it.key() == Some(b"12")).unwrap();
    let told: Value = serde_json::from_slice(numbers.payload().unwrap()).unwrap();
    assert_eq!((&told["mediaId"], &told["userId"]), (&json!(12), &json!(5)));
    assert_eq!((&told["success"], &told["variants"]), (&json!(false), &json!([])));
    assert_eq!(told["error"], "the run was cancelled");
    assert_eq!(told["run"]["status"], "cancelled");
    assert_eq!(meta.publish_to.as_deref(), Some("u-1/{media}/m-1"));
    let refused = results.iter().find(|it| it.key() == Some(b"m-3")).unwrap();
    let told: Value = serde_json::from_slice(refused.payload().unwrap()).unwrap();
    assert_eq!((&told["mediaId"], &told["userId"]), (&json!("m-3"), &json!("u")));
    assert_eq!((&told["success"], &told["run"]), (&json!(false), &Value::Null));
    assert!(told["error"].as_str().unwrap().contains("s3://others/a"), "{told}");
    relay.stop().await;
    intake.stop().await;
    office.queue.close().await;
}

async fn both_spellings_of_a_field_and_empty_names_are_taken() {
    let arrange = |options: &mut KafkaOptions| {
        (options.format, options.recipe) = (Format::Optimize, "thumbnail".into());
    };
    let office = Office::with(&shared(), &On::Sqlite, 1, arrange).await;
    let request = |media: &str, more: Value| {
        let mut body = json!({"bucket": "films", "key": "a.mov", "userId": "u", "mediaId": media});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Sent::new(body)
    };
    let records = [
        request("m-1", json!({"id": 1, "requestId": "r", "type": "video", "mediaType": "mov"})),
        // The same request, of which its own name says so.
        request("m-1", json!({"requestId": "r", "type": "video"})),
        request("m-2", json!({"media_id": "other", "user_id": 3})),
        // No names: two requests.
        request("m-3", json!({"id": ""})),
        request("m-4", json!({"id": ""})),
        request("m-5", json!({"id": null, "requestId": [1]})),
    ];
    office.produce(records.clone());

    let intake = office.intake();
    office.until_committed(records.len() as i64).await;
    intake.stop().await;

    assert_eq!(ids(&office.runs().await), ["m-1", "m-2", "m-3", "m-4"]);
    let dead = office.server.read(&office.options.dead_letter_topic, 1);
    let details: Vec<_> = dead.iter().map(|it| header(it, "telecine-problem-detail").unwrap()).collect();
    assert_eq!(details, ["requestId: it must be a text or a whole number"]);
    office.queue.close().await;
}

async fn names_are_the_same_only_where_they_are() {
    let office = Office::with(&shared(), &On::Sqlite, 1, |_| ()).await;
    let event = |source: &str, id: &str, asked: &str| {
        Sent::new(office.request(asked)).header("ce_id", id).header("ce_source", source)
    };
    let records = [
        event("a", "b#c", "m-1"),
        event("a#b", "c", "m-2"),
        event("a", "", "m-3"),
        event("a", "", "m-4"),
        // Another body under a key is refused; whose it is hears of it, unless a run of theirs is told of anyway.
        Sent::new(office.request("m-5")).header("idempotency-key", "k"),
        Sent::new(office.request("m-6")).header("idempotency-key", "k"),
        {
            let mut other = office.request("m-5");
            other["priority"] = json!(7);
            Sent::new(other).header("idempotency-key", "k")
        },
        // The last of a name counts.
        Sent::new(office.request("m-7")).header("idempotency-key", "k").header("idempotency-key", "k-7"),
        Sent::new(office.request("m-8")).raw_header("idempotency-key", b"\xff"),
    ];
    office.produce(records.clone());

    let intake = office.intake();
    office.until_committed(records.len() as i64).await;
    intake.stop().await;

    assert_eq!(ids(&office.runs().await), ["m-1", "m-2", "m-3", "m-4", "m-5", "m-7"]);
    let dead = office.server.read(&office.options.dead_letter_topic, 3);
    let mut codes: Vec<_> = dead.iter().map(|it| header(it, "telecine-problem-code").unwrap()).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["invalid_request", "key_reused", "key_reused"]);
    let answers = office.server.read(&office.options.response_topic, 2);
    let mut told: Vec<_> = answers.iter().map(|it| it.key().unwrap()).collect();
    told.sort_unstable();
    assert_eq!(told, [b"m-6", b"m-8"]);
    office.queue.close().await;
}

async fn a_recipe_that_is_not_there_is_refused_at_once() {
    let office = Office::open(&shared(), &On::Sqlite).await;
    let with = |format: Format| {
        office.try_kafka_with(|options| (options.format, options.recipe) = (format, "nope".into()))
    };

    let refused = with(Format::Optimize).unwrap_err();
    assert!(matches!(&refused, KafkaError::Recipe(_)), "{refused:?}");
    assert!(refused.to_string().contains("`nope`"), "{refused}");
    assert!(with(Format::Telecine).is_ok(), "there each request names its own");
    office.queue.close().await;
}
