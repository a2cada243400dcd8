//! Requests from and results to a real broker, as an operator runs it: killed, restarted, watched.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rdkafka::message::{Message, OwnedMessage};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::clips;
use crate::kafka_server::{KafkaServer, Sent, header};
use crate::serve::Serving;
use crate::telecine::Place;

/// A soak of `make kafka-soak` lasts longer.
fn patience() -> Duration {
    Duration::from_secs(if soak().is_some() { 3_600 } else { 240 })
}

/// How many records a soak is to have.
fn soak() -> Option<usize> {
    std::env::var("TELECINE_TEST_KAFKA_RECORDS").ok()?.parse().ok()
}

fn configured(place: &Place, server: &KafkaServer, more: &str) {
    let folder = place.path("inputs");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let text = format!(
        "input_folders = [{folder:?}]\npoll_ms = 200\nsweep_ms = 500\n\n[kafka]\nbrokers = \"{}\"\n{more}\n",
        server.address()
    );
    place.write("telecine.toml", &text);
}

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience();
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: never");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Every record becomes one run and every run one result, through kills of the process and of the broker.
#[test]
fn nothing_is_lost_or_doubled_by_kills_of_the_process_and_the_broker() {
    let (records, kills) = (soak().unwrap_or(300), if soak().is_some() { 5 } else { 3 });
    let (place, server) = (Place::new(), KafkaServer::start_with("num.partitions=6"));
    let settings = "create_topics = true\nbatch = 20\nmax_backlog = 100\n[kafka.properties]\n\"session.timeout.ms\" = 6000";
    configured(&place, &server, settings);
    std::fs::write(place.path("inputs/no-film.txt"), "no film").expect("a file can be written");
    clips::film(1, &place.path("inputs/film.mp4"));
    let request = |nth: usize| {
        let file = if nth.is_multiple_of(50) { "inputs/film.mp4" } else { "inputs/no-film.txt" };
        let body = json!({"recipe": "thumbnail", "input": {"path": place.path(file)}, "external_id": format!("vid-{nth}")});
        let sent = Sent::new(body).key(&format!("vid-{nth}"));
        // Some callers name their requests, and some of those send them twice.
        if nth.is_multiple_of(3) { sent.header("idempotency-key", &format!("key-{nth}")) } else { sent }
    };
    let mut process = Serving::start(&place, &["up"]);

    let began = Instant::now();
    let each = records / (kills + 1);
    for round in 0..=kills {
        let last = if round == kills { records } else { (round + 1) * each };
        let numbers = (round * each)..last;
        let repeated = numbers.clone().filter(|nth| nth.is_multiple_of(15));
        server.produce("optimize-request", numbers.chain(repeated).map(request));
        if round == kills {
            break;
        }
        // In the middle of it, at another place each time.
        let so_many = round * each + (round + 1) * each / (kills + 1);
        until("results come", || server.count("optimize-response") >= so_many as i64);
        process.signal(Signal::KILL);
        process.is_gone();
        if round == kills / 2 {
            server.kill();
            process = Serving::start(&place, &["up"]);
            server.launch();
        } else {
            process = Serving::start(&place, &["up"]);
        }
    }
    until("all results are there", || told(&server).len() >= records);
    let seconds = began.elapsed().as_secs_f64();

    let results = server.read_all("optimize-response");
    let told = told(&server);
    assert_eq!(told.len(), records, "one result for each key");
    for (key, seqs) in &told {
        assert_eq!(seqs.len(), 1, "{key:?} has one run that has ended once: {seqs:?}");
    }
    let runs = runs(&place);
    let ids: BTreeSet<&str> = runs.iter().map(|(_, id)| id.as_str()).collect();
    assert_eq!((runs.len(), ids.len()), (records, records), "one run for each request");
    let of_results: BTreeSet<String> = told.values().flatten().map(|(run, _)| run.clone()).collect();
    assert_eq!(of_results, runs.iter().map(|(run, _)| run.clone()).collect());
    let succeeded = results.iter().filter(|result| body(result)["success"] == true);
    let succeeded: BTreeSet<_> = succeeded.filter_map(|it| it.key().map(<[u8]>::to_vec)).collect();
    assert_eq!(succeeded.len(), records.div_ceil(50), "the films, and nothing else");
    assert_eq!(server.count("optimize-request.dead"), 0);
    process.signal(Signal::TERM);
    let (code, talk) = process.ends();
    assert_eq!(code, Some(0), "{talk}");
    let asked = server.count("optimize-request");
    until("all is committed", || server.committed("telecine", "optimize-request") == asked);
    println!(
        "{records} requests ({asked} records) in {seconds:.0} s through {kills} kills -9 and a broker's: {} runs, {} results, \
         {} of them told twice",
        runs.len(),
        told.len(),
        results.len() - records
    );
    server.kill();
}

pub(crate) fn body(record: &OwnedMessage) -> Value {
    serde_json::from_slice(record.payload().expect("a result has a body")).expect("it is JSON")
}

/// Each key with the (run, seq) of its results, in order; what is there again is left out.
fn told(server: &KafkaServer) -> BTreeMap<Vec<u8>, Vec<(String, u64)>> {
    let mut told: BTreeMap<Vec<u8>, Vec<(String, u64)>> = BTreeMap::new();
    for result in server.read_all("optimize-response") {
        let named = |name| header(&result, name).expect("a result is named");
        let name = (named("telecine-run"), named("telecine-seq").parse().expect("a number"));
        let seen = told.entry(result.key().expect("a key").to_vec()).or_default();
        if !seen.contains(&name) {
            assert!(seen.iter().all(|(run, seq)| *run != name.0 || *seq < name.1), "out of order: {seen:?}");
            seen.push(name);
        }
    }
    told
}

/// Each run and what its caller calls it.
fn runs(place: &Place) -> Vec<(String, String)> {
    let (mut runs, mut cursor) = (Vec::new(), String::new());
    loop {
        let mut arguments = vec!["runs", "ls", "--limit", "1000"];
        if !cursor.is_empty() {
            arguments.extend(["--cursor", &cursor]);
        }
        let page = place.json(&arguments);
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let listed = page["data"].as_array().expect("a list").iter();
        runs.extend(listed.map(|run| (text(&run["id"]), text(&run["external_id"]))));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => return runs,
        }
    }
}

#[test]
fn topics_and_brokers_that_are_not_there_are_told_with_the_next_step() {
    let (place, server) = (Place::new(), KafkaServer::start());

    configured(&place, &server, "");
    let no_topics = place.run(&["kafka"]);
    let serving = place.run(&["serve", "--listen", "127.0.0.1:0"]);
    server.kill();
    let no_broker = place.run(&["kafka"]);
    place.write("telecine.toml", "");
    let not_configured = place.run(&["kafka"]);

    for refused in [&no_topics, &serving] {
        assert_eq!(refused.code, Some(2), "{refused:?}");
        for told in ["`optimize-request`", "`optimize-request.dead`", "create_topics", "kafka-topics.sh"] {
            assert!(refused.stderr.contains(told), "{refused:?}");
        }
    }
    assert!(no_broker.code == Some(2) && no_broker.stderr.contains("no broker answers"), "{no_broker:?}");
    assert!(
        no_broker.stderr.contains(&server.address()) && no_broker.stderr.contains("next:"),
        "{no_broker:?}"
    );
    assert!(not_configured.stderr.contains("TELECINE_KAFKA_BROKERS"), "{not_configured:?}");
}

#[test]
fn brokers_and_topics_are_a_part_of_health_and_figures() {
    let (place, server) = (Place::new(), KafkaServer::start());
    configured(&place, &server, "create_topics = true");
    let serve = Serving::start(&place, &["serve"]);
    let health = || {
        let (status, body) = serve.ask("GET", "/health/ready", None, None);
        let checks = if status == 200 { &body["checks"] } else { &body["errors"] };
        let names = checks
            .as_array()
            .expect("a list")
            .iter()
            .map(|check| check["name"].as_str().or(check["path"].as_str()).expect("a name").to_owned());
        (status, names.collect::<Vec<_>>())
    };

    until("it is ready", || health().0 == 200);
    assert!(health().1.contains(&"kafka".to_owned()));
    server.produce("optimize-request", [Sent::new("poison")]);
    until("figures tell of it", || {
        let figures = serve.text("/metrics");
        figures.contains("telecine_kafka_records_total{outcome=\"refused\"} 1")
            && figures.contains("telecine_kafka_consumer_lag{topic=\"optimize-request\",partition=\"0\"} 0")
            && figures.contains("telecine_kafka_paused 0")
    });
    server.kill();
    until("it is not", || health() == (503, vec!["kafka".to_owned()]));
    // The API itself is there without a broker, also when it starts anew.
    serve.signal(Signal::TERM);
    assert_eq!(serve.ends().0, Some(0));
    let serve = Serving::start(&place, &["serve"]);
    assert_eq!(serve.ask("GET", "/v1/runs", None, None).0, 200);
    server.launch();
    server.produce("optimize-request", [Sent::new("more")]);
    until("it takes requests when the broker is back", || server.count("optimize-request.dead") == 2);
    serve.signal(Signal::TERM);
    assert_eq!(serve.ends().0, Some(0));
    server.kill();
}

#[test]
fn kafka_may_be_a_process_of_its_own_and_can_be_left() {
    let (place, server) = (Place::new(), KafkaServer::start());
    configured(&place, &server, "create_topics = true\nformat = \"optimize\"\nrecipe = \"thumbnail\"");
    let start = |command: &str| {
        let mut command = place.command(&[command, "--log", "error"]);
        command.env("TELECINE_SCRATCH", place.path("scratch")).env("TELECINE_INPUT_BUCKETS", "s3://films");
        command.stderr(std::process::Stdio::null()).spawn().expect("the binary can be started")
    };
    let mut processes = [start("kafka"), start("worker")];

    until("the topics are made", || server.has_topic("optimize-request"));
    // There is no such bucket: the worker finds out.
    let request = json!({"bucket": "films", "key": "a.mov", "userId": 7, "mediaId": "m-1"});
    server.produce("optimize-request", [Sent::new(request), Sent::new("poison")]);
    let runs = || place.json(&["runs", "ls"])["data"].clone();
    until("it is a run", || runs()[0]["external_id"] == "m-1");
    let run = runs()[0]["id"].as_str().expect("an id").to_owned();
    let _ = place.run(&["runs", "cancel", &run]);
    let results = server.read("optimize-response", 1);
    for process in &mut processes {
        let id = rustix::process::Pid::from_child(process);
        rustix::process::kill_process(id, Signal::TERM).expect("it is there");
        assert_eq!(process.wait().expect("it ends").code(), Some(0));
    }

    let told = body(&results[0]);
    assert_eq!(
        (&told["mediaId"], &told["userId"], &told["success"]),
        (&json!("m-1"), &json!(7), &json!(false))
    );
    assert_eq!(server.committed("telecine", "optimize-request"), 2);
    assert_eq!(server.count("optimize-request.dead"), 1);
    let codes = [0, 1].map(|_| place.run(&["kafka", "--leave"]).code);
    assert_eq!(codes, [Some(0), Some(1)], "left once, and then there is nothing to leave");
    server.kill();
}

#[test]
fn a_broker_that_hangs_keeps_nobody_from_leaving() {
    let (place, server) = (Place::new(), KafkaServer::start());
    configured(
        &place,
        &server,
        "create_topics = true\nbatch = 1\nformat = \"optimize\"\nrecipe = \"thumbnail\"",
    );
    let mut serves = [1, 2].map(|_| Serving::start(&place, &["serve"]));
    // Refused one by one, so that something is always about to be committed.
    until("the topics are made", || server.has_topic("optimize-request"));
    server.produce("optimize-request", (0..2_000).map(|_| Sent::new("poison")));
    until("they are taken in", || server.count("optimize-request.dead") > 0);

    server.freeze();
    let began = Instant::now();
    for serve in &serves {
        serve.signal(Signal::TERM);
    }
    // Nothing new is taken meanwhile; who asks twice does not wait at all.
    until("nobody is let in", || serves.iter().all(|serve| TcpStream::connect(&serve.address).is_err()));
    serves[1].signal(Signal::TERM);
    serves[1].is_gone();
    let hurried = began.elapsed();
    serves[0].is_gone();
    let patient = began.elapsed();

    assert!(hurried < Duration::from_secs(12), "{hurried:?}");
    assert!(patient < Duration::from_secs(60), "{patient:?}");
    server.kill();
}
