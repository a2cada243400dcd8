//! Records that can never become a run stop nothing, whatever they are, and whatever the topics take.

use libtest_mimic::Trial;
use rdkafka::message::{Headers, Message, OwnedMessage};
use serde_json::{Value, json};
use telecine_connect::KafkaOptions;
use telecine_connect::kafka::Format;

use super::office::{Office, ids};
use super::{raw_record, shared};
use crate::kafka_server::{KafkaServer, Sent, header};
use crate::stage::{On, promises_alone};

pub(crate) fn trials() -> Vec<Trial> {
    promises_alone!(
        "kafka::poison",
        [
            a_header_whose_name_is_no_text_stops_nothing,
            an_answer_that_nobody_takes_stops_nothing,
            small_records_keep_all_that_they_have_in_a_topic_of_small_batches,
            what_was_put_away_is_not_put_away_again_for_anothers_sake,
            of_what_was_far_too_large_only_the_place_is_kept,
            a_batch_that_nobody_can_unpack_stops_nothing,
        ]
    )
    .into()
}

/// Topics of a partition each, of which one is made with settings of its own.
async fn office_with(
    server: &KafkaServer,
    particular: usize,
    settings: &[(&str, &str)],
    arrange: impl FnOnce(&mut KafkaOptions),
) -> Office {
    let name = server.new_names()[particular].clone();
    server.make_topic(&name, 1, settings).await;
    let arrange = |options: &mut KafkaOptions| {
        let topics =
            [&mut options.request_topic, &mut options.response_topic, &mut options.dead_letter_topic];
        topics.into_iter().nth(particular).unwrap().clone_from(&name);
        arrange(options);
    };
    Office::with(server, &On::Sqlite, 1, arrange).await
}

/// A header behind those that the record came with.
fn added(letter: &OwnedMessage, came_with: usize, name: &str) -> String {
    let headers = letter.headers().unwrap();
    let found = (came_with..headers.count()).map(|nth| headers.get(nth)).find(|it| it.key == name);
    String::from_utf8_lossy(found.unwrap().value.unwrap()).into_owned()
}

async fn a_header_whose_name_is_no_text_stops_nothing() {
    let office = Office::with(&shared(), &On::Sqlite, 1, |_| ()).await;
    let (address, topic) = (office.server.address(), &office.options.request_topic);
    let value = office.request("foreign").to_string();
    raw_record::produce(&address, topic, value.as_bytes(), (b"\xff\xfe", b"x"));
    raw_record::produce(&address, topic, value.as_bytes(), (b"plain", b"x"));
    office.produce([Sent::new(office.request("after"))]);

    let intake = office.intake();
    let runs = office.until_runs(2).await;
    office.until_committed(3).await;
    intake.stop().await;

    assert_eq!(ids(&runs), ["after", "foreign"]);
    let dead = office.server.read(&office.options.dead_letter_topic, 1);
    assert_eq!(dead.len(), 1);
    assert_eq!(added(&dead[0], 1, "telecine-problem-code"), "bad_header");
    assert_eq!(added(&dead[0], 1, "telecine-source-offset"), "0");
    assert_eq!(dead[0].payload(), Some(value.as_bytes()));
    office.queue.close().await;
}

async fn an_answer_that_nobody_takes_stops_nothing() {
    // So small that no answer fits.
    let settings = [("max.message.bytes", "200")];
    let arrange = |options: &mut KafkaOptions| options.format = Format::Optimize;
    let office = office_with(&shared(), 1, &settings, arrange).await;
    let request =
        |media: &str, user: &str| json!({"bucket": "no", "key": "k", "userId": user, "mediaId": media});
    // As large as its sender may make it: with anything more it cannot be sent back.
    let long = "u".repeat(999_500);

    office.produce([Sent::new(request("m-1", &long)), Sent::new(request("m-2", "u"))]);
    let intake = office.intake();
    office.until_committed(2).await;
    intake.stop().await;

    let dead = office.server.read(&office.options.dead_letter_topic, 2);
    let codes: Vec<_> = dead.iter().map(|it| header(it, "telecine-problem-code").unwrap()).collect();
    assert_eq!(codes, ["too_large", "input_denied"], "each once");
    assert_eq!(office.server.count(&office.options.response_topic), 0);
    office.queue.close().await;

    // Where there is room for answers, what is too long is left out of them.
    let office = Office::with(&shared(), &On::Sqlite, 1, arrange).await;
    office.produce([Sent::new(request("m-1", &long))]);
    let intake = office.intake();
    office.until_committed(1).await;
    intake.stop().await;

    let answers = office.server.read(&office.options.response_topic, 1);
    let told: Value = serde_json::from_slice(answers[0].payload().unwrap()).unwrap();
    assert_eq!((&told["mediaId"], &told["userId"]), (&json!("m-1"), &Value::Null));
    office.queue.close().await;
}

async fn small_records_keep_all_that_they_have_in_a_topic_of_small_batches() {
    const POISON: usize = 400;
    let office = office_with(&shared(), 2, &[("max.message.bytes", "20000")], |_| ()).await;
    let poison = |nth: usize| Sent::new("x".repeat(300)).key(&format!("bad-{nth}"));
    office.produce((0..POISON).map(poison));

    let intake = office.intake();
    office.until_committed(POISON as i64).await;
    intake.stop().await;

    let dead = office.server.read(&office.options.dead_letter_topic, POISON);
    assert_eq!(dead.len(), POISON, "each once");
    for letter in &dead {
        assert_eq!(letter.payload().map(<[u8]>::len), Some(300));
        assert!(letter.key().is_some_and(|key| key.starts_with(b"bad-")));
    }
    office.queue.close().await;
}

async fn what_was_put_away_is_not_put_away_again_for_anothers_sake() {
    const POISON: usize = 20;
    let server = shared();
    let response = server.new_names()[1].clone();
    let office = Office::with(&server, &On::Sqlite, 1, |options| {
        options.response_topic.clone_from(&response);
        // What is not there is known not to be there sooner.
        options.properties.insert("topic.metadata.propagation.max.ms".into(), "1000".into());
        options.properties.insert("topic.metadata.refresh.fast.interval.ms".into(), "100".into());
    })
    .await;
    // One of them is to be answered, on a topic that is not there yet.
    let mut answered = office.request("whose");
    answered["recipe"] = json!("no-such");
    office.produce((0..POISON).map(|_| Sent::new("poison")).chain([Sent::new(answered)]));

    let intake = office.intake();
    let mut paused = intake.paused();
    office.until(async || *paused.borrow_and_update()).await;
    server.make_topic(&response, 1, &[]).await;
    office.until_committed(POISON as i64 + 1).await;
    intake.stop().await;

    assert_eq!(server.count(&response), 1);
    assert_eq!(server.count(&office.options.dead_letter_topic), POISON as i64 + 1, "each once");
    office.queue.close().await;
}

async fn of_what_was_far_too_large_only_the_place_is_kept() {
    let office = Office::with(&shared(), &On::Sqlite, 1, |_| ()).await;
    let mut vast = office.request("vast");
    vast["metadata"] = json!({ "zeros": "0".repeat(20 << 20) });
    let bytes = vast.to_string().len();
    // Small for the broker, which measures what is compressed.
    let properties = [("compression.type", "lz4"), ("message.max.bytes", "100000000")];
    let (topic, sent) = (&office.options.request_topic, Sent::new(vast).key("vast"));
    office.server.produce_with(&properties, topic, [sent]);
    office.produce([Sent::new(office.request("after"))]);

    let intake = office.intake();
    office.until_runs(1).await;
    office.until_committed(2).await;
    intake.stop().await;

    let dead = office.server.read(&office.options.dead_letter_topic, 1);
    assert_eq!(header(&dead[0], "telecine-problem-code").as_deref(), Some("too_large"));
    assert_eq!(header(&dead[0], "telecine-source-offset").as_deref(), Some("0"));
    assert_eq!(header(&dead[0], "telecine-value-omitted-bytes"), Some(bytes.to_string()));
    assert_eq!((dead[0].key(), dead[0].payload()), (None, None));
    assert_eq!(office.server.count(&office.options.response_topic), 0, "it was not looked into");
    office.queue.close().await;
}

async fn a_batch_that_nobody_can_unpack_stops_nothing() {
    let arrange = |options: &mut KafkaOptions| {
        for name in ["fetch.max.bytes", "receive.message.max.bytes"] {
            options.properties.insert(name.into(), "2000000".into());
        }
        *options.properties.get_mut("fetch.max.bytes").unwrap() = "1000000".into();
    };
    let office = Office::with(&shared(), &On::Sqlite, 2, arrange).await;
    let (topic, zeros) = (&office.options.request_topic, "0".repeat(5 << 20));
    // It is the first of its partition, and again behind one that can be read.
    let packed = [("compression.type", "zstd"), ("message.max.bytes", "10000000")];
    office.server.produce_with(&packed, topic, [Sent::new(&zeros).key("here")]);
    office.produce([Sent::new(office.request("first")).key("here")]);
    office.server.produce_with(&packed, topic, [Sent::new(&zeros).key("here")]);
    office.produce([Sent::new(office.request("second")).key("here")]);
    office.produce_requests("all-over", 10);

    let intake = office.intake();
    office.until_runs(12).await;
    office.until_committed(14).await;
    intake.stop().await;

    let dead = office.server.read(&office.options.dead_letter_topic, 2);
    let named = |letter, name: &str| header(letter, name).unwrap();
    let mut told: Vec<_> = dead
        .iter()
        .map(|it| (named(it, "telecine-source-offset"), named(it, "telecine-problem-code")))
        .collect();
    told.sort_unstable();
    assert_eq!(told, [("0".into(), "unreadable".into()), ("2".into(), "unreadable".into())]);
    office.queue.close().await;
}
