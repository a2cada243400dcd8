//! The other process: this binary, started again to wait for work.

use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

use async_trait::async_trait;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use telecine_queue::{Failure, Job, JobContext, Kind, Kinds, Runtime, open};

use crate::ground::{KIND, worker_options};
use crate::limit::{Limit, PostgresLimit, SqliteLimit};

const ROLE: &str = "TELECINE_BENCH_CHILD";
const READY: &str = "ready";

/// What a child process is to do, until its standard input ends.
#[derive(Serialize, Deserialize)]
pub(crate) enum Role {
    /// A worker of the queue. Prints the pickup latency of every job, in nanoseconds.
    Worker { url: String, slots: u32 },
    /// The raw loop in its place.
    Raw { url: String, bell: PathBuf },
}

/// A process that ends with its handle.
pub(crate) struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub(crate) fn start(role: &Role) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("our own path"))
            .env(ROLE, serde_json::to_string(role).expect("plain data"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("our own binary starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines }
    }

    pub(crate) fn next_line(&mut self) -> String {
        self.lines.next().expect("the child lives").expect("text")
    }

    pub(crate) fn wait_until_ready(&mut self) {
        assert_eq!(self.next_line(), READY);
    }

    /// Processor time used so far.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let stat = self.proc_file("stat");
        // The name, in parentheses, may hold anything.
        let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
        let ticks: f64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|field| field.parse::<f64>().expect("utime, stime"))
            .sum();
        ticks / rustix::param::clock_ticks_per_second() as f64
    }

    pub(crate) fn memory_mb(&self) -> f64 {
        let status = self.proc_file("status");
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a resident set");
        let kib: f64 = rss.trim().trim_end_matches(" kB").parse().expect("a number");
        kib * 1_024.0 / 1e6
    }

    fn proc_file(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).expect("the child lives")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One clock for all processes of this host.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Plays the role named in the environment, if there is one.
pub(crate) fn main_if_child() -> Option<ExitCode> {
    let role = std::env::var(ROLE).ok()?;
    let role: Role = serde_json::from_str(&role).expect("a role");
    std::thread::spawn(|| {
        let _ = std::io::stdin().lines().count();
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        match role {
            Role::Worker { url, slots } => work(&url, slots).await,
            Role::Raw { url, bell } => {
                let limit: Box<dyn Limit> = match url.strip_prefix("sqlite:") {
                    Some(file) => Box::new(SqliteLimit::new(file.into())),
                    None => Box::new(PostgresLimit::new(&url)),
                };
                limit.answer_bells(&bell, &|| println!("{READY}"), &tell_latency).await;
            }
        }
    });
    Some(ExitCode::SUCCESS)
}

async fn work(url: &str, slots: u32) {
    let queue = open(url).await.expect("the database opens");
    let worker = Runtime::start(queue, Kinds::new().with(Stopwatch), worker_options(slots)).await;
    let worker = worker.expect("the worker starts");
    println!("{READY}");
    worker.finished().await;
}

/// Tells how long ago the job says it was sent.
struct Stopwatch;

#[async_trait]
impl Kind for Stopwatch {
    fn name(&self) -> &'static str {
        KIND
    }

    async fn run(&self, job: &Job, _: &JobContext) -> Result<Value, Failure> {
        tell_latency(job.payload["n"].as_u64().unwrap_or_default());
        Ok(Value::Null)
    }
}

fn tell_latency(sent_ns: u64) {
    println!("{}", now_ns() - sent_ns);
}
