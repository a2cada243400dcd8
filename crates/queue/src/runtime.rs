//! The worker: a process with slots that pulls jobs, runs their kinds and settles their claims.
//!
//! ```text
//!            wakes, poll                 one per job                recv_many
//! queue ── fetcher ── pull ──► slot ── Kind::run ──► finisher ── finish ──► queue
//!   ▲                            ▲ stop                                        │
//!   └── beat (own thread, own connection): lease, progress, what was refused   └─► slot is free
//!   └── upkeep: promote, reap, prune
//! ```
//! A slot is free again only when its outcome is committed. Nothing here decides what an outcome means: that is data
//! on the job's row.

mod beat;
mod fetch;
mod held;
mod kind;
mod settle;
mod slots;
mod upkeep;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub use held::{JobContext, NotRecorded};
pub use kind::{Failure, Kind, Kinds};
pub use slots::Slots;
pub use upkeep::keep_up;

use crate::error::{QueueError, Result};
use crate::job::Job;
use crate::queue::Queue;
use crate::worker::{NewWorker, WorkerId};
use held::{Held, StopReason};
use settle::Ended;
use slots::SlotTable;

/// How a worker behaves. The defaults suit production; tests shorten the intervals.
#[derive(Clone)]
pub struct WorkerOptions {
    /// Shown in lists; need not be unique.
    pub name: String,
    pub slots: Slots,
    /// Silence after which the worker's jobs are given to others.
    pub lease: Duration,
    /// How often the lease is renewed.
    pub beat_every: Duration,
    /// How often this worker looks for others that fell silent.
    pub sweep_every: Duration,
    /// How often an idle worker looks for jobs that no wake-up told it of.
    pub poll_every: Duration,
    /// How long running jobs may go on when the worker is asked to leave.
    pub drain_within: Duration,
    /// How long a job that was told to stop may take before it is dropped.
    pub stop_within: Duration,
    /// How long finished jobs are remembered.
    pub keep_history: Duration,
    /// How many bytes of scratch space are free, asked before every claim and to be answered without waiting. Jobs that
    /// need more, by themselves or together with others of the same claim, are left for later or for others. `None`:
    /// there is no end of it.
    ///
    /// What it answers is to be less by what running kinds have reserved. A kind reserves when it begins, which may be
    /// after the next claim was asked for; so it must be ready to find too little (and then [`Failure::Snooze`]).
    pub free_scratch: Option<Arc<dyn Fn() -> u64 + Send + Sync>>,
    /// Who knows to which trace a job belongs.
    pub lineage: Option<Arc<dyn Lineage>>,
}

/// Joins the spans of jobs to the traces of whoever asked for them.
#[async_trait]
pub trait Lineage: Send + Sync + 'static {
    /// The job is about to run in this span, which nobody has entered yet. It waits for the answer.
    async fn adopt(&self, job: &Job, span: &tracing::Span);

    /// The job's claim is over, and what it ended is stored. Not waited for.
    fn ended(&self, job: &Arc<Job>);
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            name: format!("{}-{}", host(), std::process::id()),
            slots: Slots::Each(3),
            lease: Duration::from_secs(30),
            beat_every: Duration::from_secs(10),
            sweep_every: Duration::from_secs(5),
            poll_every: Duration::from_secs(1),
            drain_within: Duration::from_secs(25),
            stop_within: Duration::from_secs(5),
            keep_history: Duration::from_hours(30 * 24),
            free_scratch: None,
            lineage: None,
        }
    }
}

impl std::fmt::Debug for WorkerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerOptions")
            .field("name", &self.name)
            .field("slots", &self.slots)
            .field("lease", &self.lease)
            .field("beat_every", &self.beat_every)
            .field("sweep_every", &self.sweep_every)
            .field("poll_every", &self.poll_every)
            .field("drain_within", &self.drain_within)
            .field("stop_within", &self.stop_within)
            .field("keep_history", &self.keep_history)
            .field("bounds_scratch", &self.free_scratch.is_some())
            .field("joins_traces", &self.lineage.is_some())
            .finish()
    }
}

impl WorkerOptions {
    fn check(&self) -> Result<()> {
        if self.beat_every * 2 > self.lease {
            return Err(QueueError::invalid(format!(
                "a beat every {:?} cannot keep a lease of {:?}: beat at least twice per lease",
                self.beat_every, self.lease
            )));
        }
        Ok(())
    }
}

/// What a worker did, from start to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub completed: u64,
    /// Attempts that failed, whether or not the job is tried again.
    pub failed: u64,
    pub snoozed: u64,
    /// Jobs given back because the worker left.
    pub released: u64,
    /// Outcomes that no longer counted: the job was cancelled, or another claim owned it.
    pub refused: u64,
}

/// A worker at work.
///
/// Dropping it leaves the tasks running; call [`Runtime::drain`] and await [`Runtime::finished`] to end it.
#[derive(Debug)]
pub struct Runtime {
    shared: Arc<Shared>,
    report: watch::Receiver<Option<Report>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Working,
    /// Nothing new is claimed; what runs may go on until then.
    Draining {
        until: Instant,
    },
    /// What runs is told to stop.
    Stopping,
    /// Every slot is empty.
    Left,
}

/// As many jobs as a database claims or settles in one go without keeping others waiting.
const MAX_BATCH: usize = 512;

/// Whether to start another exchange with the database for what waits: while one commits, the next can be written, but
/// little is not worth a second one and goes along when the first has ended.
fn is_worth_another(under_way: usize, waiting: usize) -> bool {
    match under_way {
        0 => waiting > 0,
        1 => waiting >= 250,
        _ => false,
    }
}

/// What the parts of a worker share.
struct Shared {
    queue: Arc<dyn Queue>,
    kinds: Kinds,
    options: WorkerOptions,
    lanes: BTreeMap<String, u32>,
    worker: AtomicI64,
    held: Held,
    slots: SlotTable,
    phase: watch::Sender<Phase>,
    ended: mpsc::UnboundedSender<Ended>,
    tally: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    completed: AtomicU64,
    failed: AtomicU64,
    snoozed: AtomicU64,
    released: AtomicU64,
    refused: AtomicU64,
}

impl Runtime {
    /// Registers the worker and starts it.
    pub async fn start(queue: Arc<dyn Queue>, kinds: Kinds, options: WorkerOptions) -> Result<Self> {
        options.check()?;
        let lanes = options.slots.per_lane(&kinds)?;
        let (ended, outcomes) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            slots: SlotTable::new(&lanes),
            worker: AtomicI64::new(0),
            held: Held::default(),
            phase: watch::Sender::new(Phase::Working),
            tally: Tally::default(),
            queue,
            kinds,
            options,
            lanes,
            ended,
        });
        shared.register().await?;
        let beat = beat::start(Arc::clone(&shared))?;
        let fetcher = tokio::spawn(fetch::fetch_until_drained(Arc::clone(&shared)));
        tokio::spawn(settle::settle_until_left(Arc::clone(&shared), outcomes));
        let upkeep = tokio::spawn(upkeep::keep_up(Arc::clone(&shared.queue), shared.options.clone()));
        let (told, report) = watch::channel(None);
        let supervised = Arc::clone(&shared);
        tokio::spawn(async move {
            supervised.wait_until_empty(fetcher).await;
            upkeep.abort();
            supervised.leave(beat).await;
            told.send_replace(Some(supervised.tally.report()));
        });
        Ok(Self { shared, report })
    }

    /// Takes nothing new, lets what runs end, then leaves. May be called again; the first call's deadline stays.
    pub fn drain(&self) {
        self.shared.drain();
    }

    /// Tells what runs to stop now; it goes back into the queue at no cost.
    pub fn stop_now(&self) {
        self.shared.phase.send_if_modified(|phase| {
            let stops = matches!(phase, Phase::Working | Phase::Draining { .. });
            if stops {
                *phase = Phase::Stopping;
            }
            stops
        });
    }

    /// Waits until the worker has left, by its own wish or because somebody asked it to over the database.
    pub async fn finished(&self) -> Report {
        let mut report = self.report.clone();
        match report.wait_for(Option::is_some).await {
            Ok(told) => told.unwrap_or_default(),
            Err(_) => self.shared.tally.report(),
        }
    }

    /// The number this worker is registered under. Changes if it was declared dead and came back.
    pub fn worker_id(&self) -> WorkerId {
        self.shared.worker()
    }

    /// How many jobs it runs at the moment.
    pub fn running(&self) -> usize {
        self.shared.slots.busy()
    }

    /// Whether it takes no more jobs.
    pub fn is_draining(&self) -> bool {
        *self.shared.phase.borrow() != Phase::Working
    }
}

impl Shared {
    fn worker(&self) -> WorkerId {
        WorkerId(self.worker.load(Ordering::Acquire))
    }

    /// Registers, taking along what is held from an earlier registration.
    async fn register(&self) -> Result<()> {
        let worker = NewWorker {
            name: self.options.name.clone(),
            host: host(),
            pid: std::process::id(),
            slots: self.lanes.clone(),
            kinds: self.kinds.names().into_iter().map(str::to_owned).collect(),
            lease: self.options.lease,
            holding: self.held.claims(),
        };
        let id = self.queue.register(worker).await?;
        self.worker.store(id.0, Ordering::Release);
        tracing::info!(worker.id = id.0, worker.name = %self.options.name, "worker registered");
        Ok(())
    }

    fn drain(&self) {
        let until = Instant::now() + self.options.drain_within;
        self.phase.send_if_modified(|phase| {
            let starts = *phase == Phase::Working;
            if starts {
                *phase = Phase::Draining { until };
            }
            starts
        });
    }

    fn is_working(&self) -> bool {
        *self.phase.borrow() == Phase::Working
    }

    /// Returns when the worker was asked to leave and its slots are empty, or can be waited for no longer.
    async fn wait_until_empty(&self, mut fetcher: JoinHandle<()>) {
        let mut phase = self.phase.subscribe();
        let asked = phase.wait_for(|phase| *phase != Phase::Working).await.map(|phase| *phase);
        let emptied = match asked {
            Ok(Phase::Draining { until }) => tokio::select! {
                () = self.emptied(&mut fetcher) => true,
                () = tokio::time::sleep_until(until) => false,
                _ = phase.wait_for(|phase| *phase == Phase::Stopping) => false,
            },
            _ => false,
        };
        if !emptied {
            self.stop_what_runs(&mut fetcher).await;
        }
        self.phase.send_replace(Phase::Left);
    }

    /// The fetcher first: a pull that is under way may still bring jobs.
    async fn emptied(&self, fetcher: &mut JoinHandle<()>) {
        if !fetcher.is_finished() {
            let _ = fetcher.await;
        }
        self.slots.wait_until_idle().await;
    }

    async fn stop_what_runs(&self, fetcher: &mut JoinHandle<()>) {
        self.phase.send_replace(Phase::Stopping);
        self.held.stop_all(StopReason::Leaving);
        let stopped = async {
            if !fetcher.is_finished() {
                let _ = (&mut *fetcher).await;
            }
            // Again: a pull that was under way may have brought jobs after the first call.
            self.held.stop_all(StopReason::Leaving);
            self.slots.wait_until_idle().await;
        };
        // Twice: once for the kinds to stop, once for their outcomes to be stored.
        if tokio::time::timeout(self.options.stop_within * 2, stopped).await.is_err() {
            let jobs = self.slots.busy();
            tracing::warn!(jobs, "leaving with jobs unsettled; when the lease ends, others take them");
            // What a pull still brings would be run by nobody who settles it.
            fetcher.abort();
        }
    }

    async fn leave(&self, beat: beat::BeatThread) {
        beat.stop().await;
        if self.slots.busy() > 0 {
            return;
        }
        if let Err(error) = self.queue.deregister(self.worker()).await {
            tracing::warn!(%error, "could not sign off; the lease will end by itself");
        }
    }
}

impl Tally {
    fn report(&self) -> Report {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Report {
            completed: read(&self.completed),
            failed: read(&self.failed),
            snoozed: read(&self.snoozed),
            released: read(&self.released),
            refused: read(&self.refused),
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("id", &self.worker())
            .field("lanes", &self.lanes)
            .finish_non_exhaustive()
    }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
