//! What a consumer can insert at most, written by hand.

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

/// What is written of each record.
#[derive(Clone, Copy)]
pub(crate) enum Rows {
    /// One row of two columns, with a unique key.
    One,
    /// A row in each of the tables that a run has one in, with the indexes that a queue cannot do without.
    OfARun,
}

impl Rows {
    /// For both databases.
    fn tables(self) -> &'static str {
        match self {
            Self::One => "CREATE TABLE raw (name TEXT PRIMARY KEY, body TEXT NOT NULL)",
            Self::OfARun => {
                "CREATE TABLE run (name TEXT PRIMARY KEY, external_id TEXT NOT NULL, meta TEXT NOT NULL);
                 CREATE INDEX run_external ON run (external_id, name);
                 CREATE TABLE job (run TEXT PRIMARY KEY, lane TEXT NOT NULL, priority INTEGER NOT NULL, payload TEXT NOT NULL);
                 CREATE INDEX job_ready ON job (lane, priority DESC, run);
                 CREATE TABLE known (name TEXT PRIMARY KEY, run TEXT NOT NULL);
                 CREATE TABLE event (run TEXT NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (run, seq));
                 CREATE TABLE outbox (run TEXT NOT NULL, sink TEXT NOT NULL, due_at BIGINT NOT NULL, PRIMARY KEY (run, sink));
                 CREATE INDEX outbox_due ON outbox (sink, due_at)"
            }
        }
    }

    /// Of a record's name and body.
    fn inserts(self) -> &'static [&'static str] {
        match self {
            Self::One => &["INSERT INTO raw SELECT name, body"],
            Self::OfARun => &[
                "INSERT INTO run SELECT name, name, body",
                "INSERT INTO job SELECT name, 'cpu', 0, body",
                "INSERT INTO known SELECT name, name",
                "INSERT INTO event SELECT name, 1, body",
                "INSERT INTO outbox SELECT name, 'kafka', 0",
            ],
        }
    }
}

pub(crate) fn sqlite(server: &KafkaServer, topic: &str, group: &str, file: &Path, rows: Rows) -> f64 {
    let mut connection = rusqlite::Connection::open(file).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    connection.pragma_update(None, "synchronous", "FULL").unwrap();
    connection.execute_batch(rows.tables()).unwrap();
    let of_one = |insert: &&str| format!("{insert} FROM (SELECT ?1 AS name, ?2 AS body)");
    let inserts: Vec<String> = rows.inserts().iter().map(of_one).collect();
    let (consumer, mut pace) = (reading(server, topic, group), Pace::new());
    while !pace.is_over() {
        let records = gather(&consumer);
        if records.is_empty() {
            continue;
        }
        let transaction = connection.transaction().unwrap();
        for insert in &inserts {
            let mut insert = transaction.prepare_cached(insert).unwrap();
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

pub(crate) async fn postgres(
    server: &KafkaServer,
    topic: &str,
    group: &str,
    database: &str,
    rows: Rows,
) -> f64 {
    use sqlx::{AssertSqlSafe, Connection};

    let mut connection = sqlx::PgConnection::connect(database).await.unwrap();
    sqlx::raw_sql(rows.tables()).execute(&mut connection).await.unwrap();
    let of_many = |insert: &&str| format!("{insert} FROM unnest($1::text[], $2::text[]) AS it (name, body)");
    let inserts: Vec<String> = rows.inserts().iter().map(of_many).collect();
    let (consumer, mut pace) = (reading(server, topic, group), Pace::new());
    while !pace.is_over() {
        let records = tokio::task::block_in_place(|| gather(&consumer));
        if records.is_empty() {
            continue;
        }
        let names: Vec<String> = records.iter().map(name).collect();
        let bodies: Vec<&str> = records.iter().map(body).collect();
        let mut transaction = connection.begin().await.unwrap();
        for insert in &inserts {
            let insert = sqlx::query(AssertSqlSafe(insert.as_str())).bind(&names).bind(&bodies);
            insert.execute(&mut *transaction).await.unwrap();
        }
        transaction.commit().await.unwrap();
        let _ = consumer.commit_consumer_state(CommitMode::Async);
        pace.note(records.len());
    }
    pace.per_second()
}
