//! `make bench`: how many records a second become runs, beside what a consumer can insert at most.
//!
//! The limits read the same records with the same client and insert them, 500 in a transaction, offsets committed after it:
//! what anybody could write by hand, on the same database with the same durability. Of a run there are a row of its own, a job,
//! a key, an event and one of the outbox: the limit of `kafka_intake_*` writes as many, that of `kafka_intake_*_one_row` a single
//! one of two columns, which is as far as a consumer gets that queues nothing. In turn, medians of three.
//!
//! ```text
//! cargo bench -p telecine-connect --bench kafka
//! ```

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on has failed")]

#[path = "../../../media/benches/ladder/figure.rs"]
#[allow(dead_code, reason = "others have figures that are to be small")]
mod figure;
#[path = "../../tests/it/kafka_server.rs"]
#[allow(dead_code, reason = "the tests do more with their broker")]
mod kafka_server;
mod limit;
#[path = "../../../queue/tests/it/postgres_server.rs"]
#[allow(dead_code, reason = "the tests do more with their server")]
mod postgres_server;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use figure::{Figure, median};
use kafka_server::{KafkaServer, Sent};
use limit::Rows;
use postgres_server::PostgresServer;
use serde_json::json;
use telecine_connect::{Kafka, KafkaOptions};
use telecine_media::{Confinement, Toolbox};
use telecine_pipeline::{Blobs, Recipes, Scratch, Workshop};
use telecine_queue::{JobState, total};

const RECORDS: usize = 10_000;
const PARTITIONS: i32 = 6;
const ROUNDS: usize = 3;
/// Records in a transaction, of ours and of the limit.
const BATCH: usize = 500;
/// Of what writes as many rows.
const AS_MANY_ROWS: f64 = 0.2;
const PATIENCE: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    // `cargo test --benches` only wants to know that it links.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(Box::pin(measure()));
    ExitCode::SUCCESS
}

async fn measure() {
    let (kafka, postgres) = (KafkaServer::start(), PostgresServer::start());
    let topics = kafka.new_topics(PARTITIONS).await;
    let folder = tempfile::tempdir().unwrap();
    let film = folder.path().canonicalize().unwrap().join("film.mov");
    std::fs::write(&film, "is looked at only when it is worked on").unwrap();
    let request = |nth| {
        let id = format!("film-{nth}");
        let body = json!({"recipe": "web-video", "input": {"path": film}, "external_id": id, "metadata": {"user": nth}});
        Sent::new(body).key(&id)
    };
    for records in (0..RECORDS).collect::<Vec<_>>().chunks(1_000) {
        kafka.produce(&topics[0], records.iter().map(|nth| request(*nth)));
    }
    let mut figures = Vec::new();
    for (name, of_one, on_postgres) in [
        ("kafka_intake_sqlite", "kafka_intake_sqlite_one_row", false),
        ("kafka_intake_postgres", "kafka_intake_postgres_one_row", true),
    ] {
        let (mut ours, mut limits) = (Vec::new(), [Vec::new(), Vec::new()]);
        for round in 0..ROUNDS {
            let place = tempfile::tempdir().unwrap();
            let database = || match on_postgres {
                false => format!("sqlite:{}", place.path().join("queue.db").display()),
                true => postgres.new_database(),
            };
            let group = format!("{name}-{round}");
            ours.push(intake(&kafka, &topics, &group, &database(), &folder).await);
            for (nth, rows) in [Rows::OfARun, Rows::One].into_iter().enumerate() {
                let (raw, file) = (format!("{group}-raw-{nth}"), place.path().join(format!("raw-{nth}.db")));
                limits[nth].push(match on_postgres {
                    false => limit::sqlite(&kafka, &topics[0], &raw, &file, rows),
                    true => limit::postgres(&kafka, &topics[0], &raw, &database(), rows).await,
                });
            }
            let [of_a_run, one_row] = [limits[0][round], limits[1][round]];
            eprintln!("{group}: ours {:.0}, as many rows {of_a_run:.0}, one row {one_row:.0}", ours[round]);
        }
        let [of_a_run, one_row] = limits.map(median);
        let ours = median(ours);
        figures.push(Figure::at_least(name, ours, "records/s", of_a_run, AS_MANY_ROWS));
        figures.push(Figure::beside(of_one, ours, "records/s", one_row));
    }
    figure::print_table(&figures);
    figure::write_json(&figures);
    kafka.kill();
    postgres.stop();
}

/// Records a second, from the first poll to the last COMMIT.
async fn intake(
    server: &KafkaServer,
    topics: &[String; 3],
    group: &str,
    database: &str,
    inputs: &tempfile::TempDir,
) -> f64 {
    let queue = telecine_queue::open(database).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::in_folder(&folder.path().join("store")).unwrap();
    let scratch = Scratch::open(&folder.path().join("scratch")).unwrap();
    let toolbox = Toolbox::from_path(Confinement::None);
    let mut shop = Workshop::new(Arc::clone(&queue), toolbox, blobs, scratch);
    shop.input_folders.push(inputs.path().canonicalize().unwrap());
    let [request_topic, response_topic, dead_letter_topic] = topics.clone();
    let options = KafkaOptions {
        group: group.to_owned(),
        request_topic,
        response_topic,
        dead_letter_topic,
        batch: BATCH,
        max_backlog: u64::MAX,
        ..KafkaOptions::new(server.address())
    };
    let kafka = Kafka::new(Arc::new(shop), Recipes::load(None).unwrap(), options).unwrap();
    // As where results are told: each run's events have rows of the outbox.
    queue.add_sink(&telecine_connect::kafka::sink_of("")).await.unwrap();
    let intake = kafka.start_intake().unwrap();
    let jobs = async || total(&queue.counts().await.unwrap(), JobState::Pending);
    let mut wakes = queue.wakes();
    let patience = Instant::now() + PATIENCE;
    while jobs().await == 0 {
        assert!(Instant::now() < patience, "nothing was taken in");
        let _ = tokio::time::timeout(Duration::from_millis(5), wakes.changed()).await;
    }
    // The group was joined by now; the first batch is not counted.
    let (began, first) = (Instant::now(), jobs().await);
    while jobs().await < RECORDS as u64 {
        assert!(Instant::now() < patience, "not everything was taken in");
        let _ = tokio::time::timeout(Duration::from_millis(20), wakes.changed()).await;
    }
    let per_second = (RECORDS as u64 - first) as f64 / began.elapsed().as_secs_f64();
    intake.stop().await;
    queue.close().await;
    per_second
}
