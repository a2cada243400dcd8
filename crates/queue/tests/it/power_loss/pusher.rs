//! The process that pushes one by one, and prints the id of each push once it is acknowledged.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use sqlx::Connection;
use telecine_queue::{OpenOptions, open_with};

use crate::ground::{push_one, work};

const PUSHES: &str = "TELECINE_TEST_POWER_LOSS_PUSHES";

/// Several, so that pushes share commits as they do under load.
const PRODUCERS: usize = 4;

/// What is pushed.
#[derive(Serialize, Deserialize)]
pub(super) enum Pushes {
    /// Jobs, by producers that share one handle of the queue.
    Jobs { url: String },
    /// Rows of a table, as durable as SQLite makes them at this setting.
    SqliteRows { url: String, synchronous: String },
    /// Rows of a table, as durable as the database's own setting makes them.
    PostgresRows { url: String },
}

/// A process that dies with its handle.
pub(super) struct Pusher {
    child: Child,
    lines: Receiver<i64>,
    acknowledged: Vec<i64>,
}

impl Pusher {
    pub(super) fn start(pushes: &Pushes) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("our own path"))
            .env(PUSHES, serde_json::to_string(pushes).expect("plain data"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("our own binary starts");
        let printed = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in printed.lines().map_while(Result::ok) {
                let _ = sender.send(line.parse().expect("an id"));
            }
        });
        Self { child, lines, acknowledged: Vec::new() }
    }

    pub(super) fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits until so many more pushes are acknowledged.
    pub(super) fn wait_for(&mut self, more: usize) {
        for _ in 0..more {
            let id = self.lines.recv_timeout(Duration::from_secs(60)).expect("the pusher goes on");
            self.acknowledged.push(id);
        }
    }

    /// All that is acknowledged by now.
    pub(super) fn acknowledged(&mut self) -> &[i64] {
        self.acknowledged.extend(self.lines.try_iter());
        &self.acknowledged
    }
}

impl Drop for Pusher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Pushes what the environment says, if it says so, until killed or unheard.
pub(crate) fn main_if_pusher() -> Option<ExitCode> {
    let pushes = std::env::var(PUSHES).ok()?;
    let pushes: Pushes = serde_json::from_str(&pushes).expect("pushes");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        match pushes {
            Pushes::Jobs { url } => push_jobs(&url).await,
            Pushes::SqliteRows { url, synchronous } => push_sqlite_rows(&url, &synchronous),
            Pushes::PostgresRows { url } => push_postgres_rows(&url).await,
        }
    });
    Some(ExitCode::SUCCESS)
}

async fn push_jobs(url: &str) {
    let options = OpenOptions { patience: Duration::from_secs(60), ..OpenOptions::default() };
    let queue = open_with(url, &options).await.expect("the database opens");
    let producers = (0..PRODUCERS).map(|_| async {
        for n in 0.. {
            acknowledge(push_one(&queue, work(n)).await.0);
        }
    });
    futures_util::future::join_all(producers).await;
}

fn push_sqlite_rows(url: &str, synchronous: &str) {
    let file = rusqlite::Connection::open(url.trim_start_matches("sqlite:")).expect("open");
    file.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE acknowledged (n INTEGER NOT NULL);",
    )
    .expect("a table");
    file.pragma_update(None, "synchronous", synchronous).expect("a setting");
    for n in 0_i64.. {
        file.execute("INSERT INTO acknowledged (n) VALUES (?1)", [n]).expect("insert");
        acknowledge(n);
    }
}

async fn push_postgres_rows(url: &str) {
    let mut connection = sqlx::PgConnection::connect(url).await.expect("connect");
    for n in 0_i64.. {
        let insert = sqlx::query("INSERT INTO acknowledged (n) VALUES ($1)").bind(n);
        insert.execute(&mut connection).await.expect("insert");
        acknowledge(n);
    }
}

fn acknowledge(id: i64) {
    let mut stdout = std::io::stdout();
    // In one write, and at once.
    stdout.write_all(format!("{id}\n").as_bytes()).and_then(|()| stdout.flush()).expect("the test reads");
}
