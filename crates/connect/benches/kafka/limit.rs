//! What a consumer can insert at most: one row of two columns for each record.

use std::path::Path;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{Message, OwnedMessage};

use crate::kafka_server::KafkaServer;
use crate::{BATCH, RECORDS};

const POLL: Duration = Duration::from_millis(100);

/// A batch as the intake gathers one: what is there, and no more than so many.
fn gather(consumer: &BaseConsumer) -> Vec<OwnedMessage> {
    let (mut records, mut wait) = (Vec::new(), POLL);
    while let Some(Ok(record)) = consumer.poll(wait) {
        records.push(record.detach());
        if records.len() >= BATCH {
            break;
        }
        wait = Duration::ZERO;
    }
    records
}

fn reading(server: &KafkaServer, topic: &str, group: &str) -> BaseConsumer {
    let consumer = server.consumer_from_start(group);
    consumer.subscribe(&[topic]).expect("a topic");
    consumer
}

fn name(record: &OwnedMessage) -> String {
    format!("{}/{}/{}", record.topic(), record.partition(), record.offset())
}

fn body(record: &OwnedMessage) -> &str {
    record.payload().and_then(|bytes| std::str::from_utf8(bytes).ok()).expect("JSON")
}

/// Counts from the end of the first batch, when the group was joined.
struct Pace {
    began: Option<Instant>,
    first: usize,
    all: usize,
}

impl Pace {
    fn new() -> Self {
        Self { began: None, first: 0, all: 0 }
    }

    fn note(&mut self, records: usize) {
        self.all += records;
        if self.began.is_none() && self.all > 0 {
            (self.began, self.first) = (Some(Instant::now()), self.all);
        }
    }

    fn is_over(&self) -> bool {
        self.all >= RECORDS
    }

    fn per_second(&self) -> f64 {
        (self.all - self.first) as f64 / self.began.expect("records were read").elapsed().as_secs_f64()
    }
}

pub(crate) fn sqlite(server: &KafkaServer, topic: &str, group: &str, file: &Path) -> f64 {
    let mut connection = rusqlite::Connection::open(file).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    connection.pragma_update(None, "synchronous", "FULL").unwrap();
    connection
        .execute_batch("CREATE TABLE raw (name TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID")
        .unwrap();
    let (consumer, mut pace) = (reading(server, topic, group), Pace::new());
    while !pace.is_over() {
        let records = gather(&consumer);
        if records.is_empty() {
            continue;
        }
        let transaction = connection.transaction().unwrap();
        {
            let mut insert =
                transaction.prepare_cached("INSERT INTO raw (name, body) VALUES (?1, ?2)").unwrap();
            for record in &records {
                insert.execute((name(record), body(record))).unwrap();
            }
        }
        transaction.commit().unwrap();
        let _ = consumer.commit_consumer_state(CommitMode::Async);
        pace.note(records.len());
    }
    pace.per_second()
}

pub(crate) async fn postgres(server: &KafkaServer, topic: &str, group: &str, database: &str) -> f64 {
    use sqlx::Connection;

    let mut connection = sqlx::PgConnection::connect(database).await.unwrap();
    sqlx::query("CREATE TABLE raw (name text PRIMARY KEY, body jsonb NOT NULL)")
        .execute(&mut connection)
        .await
        .unwrap();
    let (consumer, mut pace) = (reading(server, topic, group), Pace::new());
    while !pace.is_over() {
        let records = tokio::task::block_in_place(|| gather(&consumer));
        if records.is_empty() {
            continue;
        }
        let names: Vec<String> = records.iter().map(name).collect();
        let bodies: Vec<&str> = records.iter().map(body).collect();
        sqlx::query("INSERT INTO raw (name, body) SELECT name, body::jsonb FROM unnest($1::text[], $2::text[]) AS it (name, body)")
            .bind(&names)
            .bind(&bodies)
            .execute(&mut connection)
            .await
            .unwrap();
        let _ = consumer.commit_consumer_state(CommitMode::Async);
        pace.note(records.len());
    }
    pace.per_second()
}
