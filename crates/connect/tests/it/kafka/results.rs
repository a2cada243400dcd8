//! Each end of a run is told on the response topic, whatever the broker does.

use std::collections::BTreeMap;

use libtest_mimic::Trial;
use rdkafka::message::{Message, OwnedMessage};
use serde_json::Value;
use telecine_connect::kafka::{Results, sink_of};
use telecine_queue::{NewJob, NewRun, Push, RunId};

use super::office::{Office, stop};
use super::shared;
use crate::kafka_server::{KafkaServer, Sent, header};
use crate::postgres_server::PostgresServer;
use crate::stage::{On, promises, promises_alone};

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    let mut trials: Vec<Trial> = promises!(
        "kafka::results",
        server,
        [
            a_result_is_keyed_named_and_says_what_went_wrong,
            results_of_one_key_come_in_the_order_of_their_ends
        ]
    );
    trials.extend(promises_alone!(
        "kafka::results",
        [
            a_broker_that_was_away_is_told_everything_in_order,
            what_is_too_large_is_told_in_short,
            of_others_nothing_is_told_where_that_is_wanted,
            a_tenants_topic_has_its_own_runs_alone,
        ]
    ));
    trials
}

fn body(record: &OwnedMessage) -> Value {
    serde_json::from_slice(record.payload().unwrap()).unwrap()
}

async fn a_result_is_keyed_named_and_says_what_went_wrong(on: On) {
    let office = Office::open(&shared(), &on).await;
    let (intake, relay, worker) = (office.intake(), office.relay().await, office.worker().await);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    office.produce([Sent::new(office.request("vid-42")).header("traceparent", trace)]);
    let results = office.server.read(&office.options.response_topic, 1);

    let (result, told) = (&results[0], body(&results[0]));
    assert_eq!(result.key().unwrap(), b"vid-42");
    assert_eq!((&told["success"], &told["type"]), (&Value::Bool(false), &Value::from("run.failed")));
    assert_eq!(told["error"], told["run"]["error"]);
    assert!(told["error"]["code"].is_string() && told["error"]["message"].is_string(), "{told}");
    assert_eq!(told["run"]["external_id"], "vid-42");
    assert_eq!(told["run_id"], told["run"]["id"]);
    for (name, value) in [
        ("content-type", Value::from("application/json")),
        ("telecine-run", told["run_id"].clone()),
        ("telecine-seq", told["seq"].to_string().into()),
        ("ce_id", told["id"].clone()),
        ("ce_type", "run.failed".into()),
        ("traceparent", trace.into()),
    ] {
        assert_eq!(header(result, name).as_deref(), value.as_str(), "{name}");
    }
    relay.stop().await;
    intake.stop().await;
    stop(worker).await;
    office.queue.close().await;
}

async fn a_broker_that_was_away_is_told_everything_in_order() {
    const RUNS: usize = 40;
    let server = KafkaServer::start();
    let office = Office::open(&server, &On::Sqlite).await;
    let (intake, relay, worker) = (office.intake(), office.relay().await, office.worker().await);
    office.produce_requests("film", RUNS / 2);
    office.server.read(&office.options.response_topic, RUNS / 2);

    // While it is away, all of them are started over and end again.
    server.kill();
    let mut expected: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for run in office.runs().await {
        office.queue.retry_run(&run.id, &[]).await.unwrap();
    }
    let waiting = async || {
        let depths = office.queue.outbox_depths().await.unwrap();
        depths.iter().find(|depth| depth.sink == sink_of("")).map_or(0, |depth| depth.waiting)
    };
    let have_ended = async || office.runs().await.iter().all(|run| run.finished_at.is_some());
    office.until(async || have_ended().await && waiting().await >= RUNS as u64 / 2).await;
    server.launch();
    office.until(async || waiting().await == 0).await;

    for run in office.runs().await {
        let events = office.queue.events(&run.id, 0, 100).await.unwrap();
        let ends = events.iter().filter(|event| event.name == "run.failed").map(|event| event.seq);
        expected.insert(run.id.to_string(), ends.collect());
    }
    let mut told: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for result in server.read(&office.options.response_topic, RUNS) {
        let seq = header(&result, "telecine-seq").unwrap().parse().unwrap();
        let seqs = told.entry(header(&result, "telecine-run").unwrap()).or_default();
        if !seqs.contains(&seq) {
            seqs.push(seq);
        }
    }
    assert_eq!(told, expected);
    assert!(expected.values().all(|seqs| seqs.len() == 2), "each has ended twice");
    // The consumer of requests is back, too.
    office.produce_requests("more", 5);
    office.until_runs(RUNS / 2 + 5).await;
    relay.stop().await;
    intake.stop().await;
    stop(worker).await;
    office.queue.close().await;
    server.kill();
}

/// A run of no recipe, that nobody ends.
async fn idle_run(office: &Office, tenant: &str) -> RunId {
    let run = NewRun { external_id: Some("x".into()), ..NewRun::new("other") };
    let push = Push::run(run, [NewJob::new("nobody-runs-this", Value::Null)]).tenant(tenant);
    office.queue.push(vec![push]).await.unwrap().remove(0).run.unwrap()
}

async fn ended_run(office: &Office, tenant: &str) -> RunId {
    let run = idle_run(office, tenant).await;
    office.queue.cancel_run(&run).await.unwrap();
    run
}

fn runs_told(office: &Office, count: usize) -> Vec<String> {
    let told = office.server.read(&office.options.response_topic, count);
    told.iter().map(|result| header(result, "telecine-run").unwrap()).collect()
}

/// Whoever keeps the last record of each key must not keep an older one.
async fn results_of_one_key_come_in_the_order_of_their_ends(on: On) {
    let office = Office::open(&shared(), &on).await;
    office.queue.add_sink(&sink_of("")).await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..8 {
        runs.push(idle_run(&office, "").await);
    }
    runs.reverse();
    for run in &runs {
        office.queue.cancel_run(run).await.unwrap();
        let ended = office.queue.get_run(run).await.unwrap().unwrap().finished_at.unwrap();
        // Those that end within the same millisecond have no order.
        office.until(async || telecine_queue::Timestamp::now() > ended).await;
    }

    let relay = office.relay().await;
    let told = runs_told(&office, runs.len());

    assert_eq!(told, runs.iter().map(ToString::to_string).collect::<Vec<_>>());
    relay.stop().await;
    office.queue.close().await;
}

/// Each tenant may have brokers of its own, and must not see or miss anything because another has, too.
async fn a_tenants_topic_has_its_own_runs_alone() {
    let office = Office::with(&shared(), &On::Sqlite, 1, |options| options.tenant = "acme".into()).await;
    let (acmes, nobodys) = (office.relay().await, office.kafka_with(|options| options.tenant.clear()));
    nobodys.start_relay(telecine_queue::RelayOptions::default()).await.unwrap().stop().await;

    ended_run(&office, "globex").await;
    ended_run(&office, "").await;
    let own = ended_run(&office, "acme").await;

    assert_eq!(runs_told(&office, 1), [own.to_string()]);
    let waiting = async || {
        let depths = office.queue.outbox_depths().await.unwrap();
        depths.into_iter().map(|depth| (depth.sink, depth.waiting > 0)).collect::<Vec<_>>()
    };
    let expected = [(sink_of(""), true), (sink_of("acme"), false)];
    office.until(async || waiting().await == expected).await;
    acmes.stop().await;
    office.queue.close().await;
}

async fn what_is_too_large_is_told_in_short() {
    let server = shared();
    let office = Office::open(&server, &On::Sqlite).await;
    let small = format!("{}-small", office.options.response_topic);
    server.make_topic(&small, 1, &[("max.message.bytes", "3000")]).await;
    let kafka = office.kafka_with(|options| options.response_topic = small.clone());
    let mut request = office.request("long");
    request["metadata"] = serde_json::json!({ "long": "x".repeat(3_500) });
    let relay = kafka.start_relay(telecine_queue::RelayOptions::default()).await.unwrap();
    let (intake, worker) = (office.intake(), office.worker().await);

    office.produce([Sent::new(request)]);
    let told = body(&server.read(&small, 1)[0]);

    assert_eq!(told["success"], false);
    assert!(told["omitted"].as_array().unwrap().contains(&"run.metadata".into()), "{told}");
    assert_eq!(told["run"]["external_id"], "long");
    relay.stop().await;
    intake.stop().await;
    stop(worker).await;
    office.queue.close().await;
}

async fn of_others_nothing_is_told_where_that_is_wanted() {
    let office = Office::with(&shared(), &On::Sqlite, 1, |options| options.results = Results::Kafka).await;
    let relay = office.relay().await;
    let (intake, worker) = (office.intake(), office.worker().await);

    ended_run(&office, "").await;
    office.produce_requests("ours", 1);
    let told = office.server.read(&office.options.response_topic, 1);
    relay.stop().await;

    assert_eq!(told.len(), 1);
    assert_eq!(told[0].key().unwrap(), b"ours-0");
    let all = office.kafka_with(|options| options.results = Results::All);
    let run = ended_run(&office, "").await;
    let events = office.queue.events(&run, 0, 10).await.unwrap();
    all.sink().deliver(&events).await.unwrap();
    let told = office.server.read(&office.options.response_topic, 2);
    assert_eq!(body(&told[1])["error"]["code"], "cancelled");
    intake.stop().await;
    stop(worker).await;
    office.queue.close().await;
}
