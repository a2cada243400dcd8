//! A worker in a process of its own, to be killed.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use telecine_media::{Confinement, Toolbox};
use telecine_pipeline::{Blobs, Scratch, Workshop, kinds};
use telecine_queue::{Runtime, Slots, WorkerOptions};

const WORKER: &str = "play-worker";
pub(crate) const SLOTS: u32 = 2;

/// Where a worker works.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) database: String,
    /// A folder or `s3://…`.
    pub(crate) store: String,
    /// How the store is reached.
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) scratch: PathBuf,
    pub(crate) inputs: PathBuf,
    /// What it tells, one line each; those of all its workers one behind another.
    pub(crate) log: PathBuf,
}

/// Plays the worker, where this process was started as one.
pub(crate) fn main_if_worker() -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (first, rest) = arguments.split_first()?;
    if first != WORKER {
        return None;
    }
    let [database, store, scratch, inputs] = rest else { return Some(ExitCode::FAILURE) };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(work(database, store, Path::new(scratch), Path::new(inputs)));
    Some(ExitCode::SUCCESS)
}

/// Until its stdin ends.
async fn work(database: &str, store: &str, scratch: &Path, inputs: &Path) {
    let queue = telecine_queue::open(database).await.unwrap();
    let toolbox = Toolbox::from_path(Confinement::launcher());
    let blobs = Blobs::open(store).unwrap();
    let mut shop = Workshop::new(Arc::clone(&queue), toolbox, blobs, Scratch::open(scratch).unwrap());
    shop.input_folders.push(inputs.canonicalize().unwrap());
    let shop = Arc::new(shop);
    let options = WorkerOptions {
        slots: Slots::Each(SLOTS),
        lease: Duration::from_millis(2_000),
        beat_every: Duration::from_millis(400),
        sweep_every: Duration::from_millis(200),
        poll_every: Duration::from_millis(200),
        ..WorkerOptions::default()
    };
    let worker = Runtime::start(Arc::clone(&queue), kinds::all(&shop), options).await.unwrap();
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]));
    let _ = ended.await;
    worker.drain();
    worker.finished().await;
    drop(worker);
    queue.close().await;
}

/// A worker process. Killed when it is dropped.
pub(crate) struct Worker(Child);

impl Worker {
    pub(crate) fn start(place: &Place) -> Self {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&place.log).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .arg(WORKER)
            .args([&place.database, &place.store])
            .args([&place.scratch, &place.inputs])
            .envs(&place.variables)
            .stdin(Stdio::piped())
            .stderr(log)
            .spawn();
        Self(child.unwrap())
    }

    /// As the kernel's out-of-memory killer does it.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// As an administrator does it.
    pub(crate) fn leave(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Place {
    /// How many lines of the log tell of this.
    pub(crate) fn count(&self, what: &str) -> usize {
        let log = std::fs::File::open(&self.log).unwrap();
        std::io::BufReader::new(log).lines().filter(|line| line.as_ref().unwrap().contains(what)).count()
    }
}
