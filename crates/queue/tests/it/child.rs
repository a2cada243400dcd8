//! The other process: this test binary, started again as a worker or a pusher.

use std::fs::OpenOptions as FileOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use telecine_queue::{
    Backoff, Event, Failure, Job, JobContext, Kind, Kinds, NewRecord, NewRun, OpenOptions, Push, Queue,
    Relay, RelayOptions, Runtime, Sink, SinkError, WorkerOptions, open_with,
};

use crate::ground::{brisk, work};

const ROLE: &str = "TELECINE_TEST_CHILD";

/// What a child process is to do.
#[derive(Serialize, Deserialize)]
pub(crate) enum Role {
    /// Runs jobs until it is told to drain (a line on its standard input) or killed.
    Worker { url: String, slots: u32, lease_ms: u64, log: String },
    /// Pushes `jobs` jobs one by one, each under the idempotency key of its number, and says which were accepted.
    Pusher { url: String, from: u64, to: u64 },
    /// Pushes runs of two jobs one by one, each under the idempotency key of its number.
    RunPusher { url: String, runs: u64 },
    /// Relays to a sink that fails half the time, until its test is gone.
    Relay { url: String, log: String, seed: u64 },
}

/// A process that dies with its handle.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(role: &Role) -> Self {
        Self::start_with(role, &[])
    }

    pub(crate) fn start_with(role: &Role, environment: &[(&str, &str)]) -> Self {
        let child = Command::new(std::env::current_exe().expect("our own path"))
            .env(ROLE, serde_json::to_string(role).expect("plain data"))
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("our own binary starts");
        Self(child)
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).expect("the child takes signals");
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Asks a worker to drain and waits for its end.
    pub(crate) fn drain(&mut self) {
        if let Some(mut stdin) = self.0.stdin.take() {
            let _ = stdin.write_all(b"drain\n");
            let _ = self.0.wait();
        }
    }

    /// Waits for the end; gives what it printed, line by line.
    pub(crate) fn output(mut self) -> Vec<String> {
        let stdout = self.0.stdout.take().expect("piped");
        let lines = BufReader::new(stdout).lines().map_while(Result::ok).collect();
        let _ = self.0.wait();
        lines
    }

    /// Kills it after it has printed so many lines; gives all it had printed.
    pub(crate) fn kill_after_lines(mut self, lines: usize) -> Vec<String> {
        let mut reader = BufReader::new(self.0.stdout.take().expect("piped"));
        let mut printed: Vec<String> = reader.by_ref().lines().map_while(Result::ok).take(lines).collect();
        let _ = self.0.kill();
        let _ = self.0.wait();
        printed.extend(reader.lines().map_while(Result::ok));
        printed
    }

    pub(crate) fn wait_code(&mut self) -> Option<i32> {
        // `wait` would close its standard input, which tells a worker that its test is gone.
        let stdin = self.0.stdin.take();
        let code = self.0.wait().ok().and_then(|status| status.code());
        drop(stdin);
        code
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Plays the role named in the environment, if there is one.
pub(crate) fn main_if_child() -> Option<ExitCode> {
    let role = std::env::var(ROLE).ok()?;
    let role: Role = serde_json::from_str(&role).expect("a role");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        match role {
            Role::Worker { url, slots, lease_ms, log } => {
                be_worker(&url, slots, Duration::from_millis(lease_ms), &log).await;
            }
            Role::Pusher { url, from, to } => be_pusher(&url, from, to).await,
            Role::RunPusher { url, runs } => be_run_pusher(&url, runs).await,
            Role::Relay { url, log, seed } => be_relay(&url, log, seed).await,
        }
    });
    Some(ExitCode::SUCCESS)
}

async fn be_worker(url: &str, slots: u32, lease: Duration, log: &str) {
    let queue: Arc<dyn Queue> = open_patiently(url).await;
    let kinds = Kinds::new()
        .with(Note { log: log.to_owned() })
        .with(Hold)
        .with(Span)
        .with(Segments { log: log.to_owned() })
        .with(Abort { log: log.to_owned() });
    let worker = Arc::new(
        Runtime::start(queue, kinds, WorkerOptions { lease, ..brisk(slots) })
            .await
            .expect("the worker starts"),
    );
    let drained = Arc::clone(&worker);
    std::thread::spawn(move || {
        let mut line = String::new();
        match std::io::stdin().read_line(&mut line) {
            Ok(bytes) if bytes > 0 => drained.drain(),
            // The test that started us is gone.
            _ => std::process::exit(3),
        }
    });
    worker.finished().await;
}

async fn be_pusher(url: &str, from: u64, to: u64) {
    let queue = open_patiently(url).await;
    let mut stdout = std::io::stdout();
    for n in from..to {
        let push = Push::from(work(n)).idempotency_key(n.to_string());
        let pushed = queue.push(vec![push]).await.expect("push");
        writeln!(stdout, "{}", pushed[0].jobs[0]).expect("the test reads");
        stdout.flush().expect("the test reads");
    }
}

async fn be_run_pusher(url: &str, runs: u64) {
    let queue = open_patiently(url).await;
    let mut stdout = std::io::stdout();
    for n in 0..runs {
        let push = Push::run(NewRun::new("film"), [work(n), work(n)]).idempotency_key(n.to_string());
        queue.push(vec![push]).await.expect("push");
        writeln!(stdout, "{n}").expect("the test reads");
        stdout.flush().expect("the test reads");
    }
}

/// Options of a relay whose every interval is short.
pub(crate) fn brisk_relay() -> RelayOptions {
    RelayOptions {
        lease: Duration::from_millis(1_500),
        deliver_within: Duration::from_millis(500),
        poll_every: Duration::from_millis(50),
        in_flight: 4,
        backoff: Backoff { base_ms: 20, factor: 2, cap_ms: 100 },
    }
}

async fn be_relay(url: &str, log: String, seed: u64) {
    let queue = open_patiently(url).await;
    let sink = Flaky { log, dice: Mutex::new(fastrand::Rng::with_seed(seed)) };
    let relay = Relay::start(queue, vec![Arc::new(sink)], brisk_relay()).await.expect("the relay starts");
    let gone = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    let _ = gone.await;
    relay.stop().await;
}

/// Takes half of what it is given; of the other half it takes half without saying so.
struct Flaky {
    log: String,
    dice: Mutex<fastrand::Rng>,
}

#[async_trait]
impl Sink for Flaky {
    fn name(&self) -> &str {
        "flaky"
    }

    async fn deliver(&self, events: &[Event]) -> Result<(), SinkError> {
        let roll = self.dice.lock().expect("no panic").u8(0..4);
        if roll == 0 {
            return Err(SinkError::new("not taken"));
        }
        let lines: String = events.iter().map(|event| format!("{} {}\n", event.run, event.seq)).collect();
        append(&self.log, &lines);
        if roll == 1 { Err(SinkError::new("taken, but the answer is lost")) } else { Ok(()) }
    }
}

/// With more patience than a busy machine can try.
async fn open_patiently(url: &str) -> Arc<dyn Queue> {
    let options = OpenOptions { patience: Duration::from_secs(60), ..OpenOptions::default() };
    open_with(url, &options).await.expect("the database opens")
}

/// `work`: writes down that it ran.
struct Note {
    log: String,
}

#[async_trait]
impl Kind for Note {
    fn name(&self) -> &'static str {
        "work"
    }

    async fn run(&self, job: &Job, _: &JobContext) -> Result<Value, Failure> {
        note(&self.log, job);
        Ok(Value::Null)
    }
}

/// `hold`: runs until the file that its payload names exists, or until it is told to stop.
struct Hold;

#[async_trait]
impl Kind for Hold {
    fn name(&self) -> &'static str {
        "hold"
    }

    async fn run(&self, job: &Job, context: &JobContext) -> Result<Value, Failure> {
        let gate = job.payload["gate"].as_str().unwrap_or_default().to_owned();
        let stopping = context.stopping();
        while !Path::new(&gate).exists() {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
                () = stopping.cancelled() => return Err(Failure::retry("stopped", "told to stop")),
            }
        }
        Ok(Value::from(std::process::id()))
    }
}

/// `span`: writes down when it begins and when it ends, so that one can tell how many ran at once.
struct Span;

#[async_trait]
impl Kind for Span {
    fn name(&self) -> &'static str {
        "span"
    }

    async fn run(&self, job: &Job, _: &JobContext) -> Result<Value, Failure> {
        let log = job.payload["log"].as_str().unwrap_or_default();
        append(log, &format!("begin {} {}\n", job.id, std::process::id()));
        tokio::time::sleep(Duration::from_millis(job.payload["ms"].as_u64().unwrap_or_default())).await;
        append(log, &format!("end {} {}\n", job.id, std::process::id()));
        Ok(Value::Null)
    }
}

/// `segments`: records one segment after the other, and writes each down once it is told that it is there.
struct Segments {
    log: String,
}

#[async_trait]
impl Kind for Segments {
    fn name(&self) -> &'static str {
        "segments"
    }

    async fn run(&self, job: &Job, context: &JobContext) -> Result<Value, Failure> {
        for n in 0..job.payload["count"].as_u64().unwrap_or_default() {
            let key = format!("{}-{n}", job.fence.0);
            context.record_now(NewRecord::new("segment", &key, Value::from(n))).await?;
            append(&self.log, &format!("{key}\n"));
        }
        Ok(Value::Null)
    }
}

/// `abort`: takes its process with it.
struct Abort {
    log: String,
}

#[async_trait]
impl Kind for Abort {
    fn name(&self) -> &'static str {
        "abort"
    }

    async fn run(&self, job: &Job, _: &JobContext) -> Result<Value, Failure> {
        note(&self.log, job);
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            .map_err(|error| Failure::retry("unkillable", error))?;
        std::future::pending().await
    }
}

/// One line per run.
fn note(log: &str, job: &Job) {
    append(log, &format!("{} {}\n", job.id, job.fence.0));
}

/// In one write, so that lines of several processes do not mix.
fn append(log: &str, line: &str) {
    let file = FileOptions::new().append(true).create(true).open(log);
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the log can be written");
}
