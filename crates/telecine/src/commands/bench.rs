//! `telecine bench`: how fast the queue is on the user's own database and disk.
//!
//! Its jobs have a lane and a kind of their own, so no worker takes them, and are forgotten at the end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};
use telecine_queue::{
    Failure, Job, JobContext, JobFilter, Kind, Kinds, NewJob, Push, Queue, Runtime, Slots, WorkerOptions,
    async_trait,
};
use tokio::sync::Notify;

use super::{Schema, open};
use crate::config::Config;
use crate::output::{Answer, List, Output, say};
use crate::table::Table;

const NAME: &str = "telecine_bench";
const PRODUCERS: u64 = 8;
const BULK: u64 = 1_000;
const PICKUPS: usize = 200;
const SLOTS: u32 = 500;

#[derive(Serialize)]
struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
}

pub(super) async fn run(jobs: u64, config: &Config, output: &Output) -> Result<Answer> {
    ensure!(jobs >= BULK, "--jobs must be at least {BULK}");
    let queue = open(config, Schema::Migrate).await?;
    let measured = measure(&queue, jobs).await;
    // Whatever came of it, nothing of ours stays.
    let ours = JobFilter { kind: Some(NAME.into()), ..JobFilter::default() };
    queue.cancel_all(&ours).await.context("cannot clean up")?;
    queue.clear(&ours).await.context("cannot clean up")?;
    let figures = measured?;
    if output.json {
        output.print_json(&List::whole(figures))?;
        return Ok(Answer::Yes);
    }
    let mut table = Table::new(["FIGURE", "VALUE", "UNIT"]);
    for figure in figures {
        table.row([figure.name.into(), format!("{:.1}", figure.value).into(), figure.unit.into()]);
    }
    output.print(&table.draw(output.colour))?;
    Ok(Answer::Yes)
}

async fn measure(queue: &Arc<dyn Queue>, jobs: u64) -> Result<Vec<Figure>> {
    let rate = |name, jobs: u64, took: Duration| Figure {
        name,
        value: jobs as f64 / took.as_secs_f64(),
        unit: "jobs/s",
    };
    say(format_args!("pushing {jobs} jobs one by one, {PRODUCERS} at a time"));
    let one_by_one = push_one_by_one(queue, jobs).await?;
    say(format_args!("pushing {jobs} jobs, {BULK} at a time"));
    let (bulk, in_bulk) = push_in_bulk(queue, jobs).await?;
    let total = jobs / PRODUCERS * PRODUCERS + in_bulk;
    say(format_args!("running {total} jobs that do nothing through {SLOTS} slots"));
    let clock = Arc::new(Clock::default());
    let worker = start(queue, &clock).await?;
    let drained = drain(&clock, total).await;
    say(format_args!("pushing {PICKUPS} jobs to a worker that waits"));
    let mut pickups = pick_up(queue, &clock).await?;
    worker.drain();
    worker.finished().await;
    pickups.sort_unstable();
    let percentile = |share: usize| pickups[(pickups.len() - 1) * share / 100].as_secs_f64() * 1_000.0;
    Ok(vec![
        rate("push_one", jobs, one_by_one),
        rate("push_bulk", in_bulk, bulk),
        rate("drain", total, drained),
        Figure { name: "pickup_p50", value: percentile(50), unit: "ms" },
        Figure { name: "pickup_p99", value: percentile(99), unit: "ms" },
    ])
}

fn job() -> NewJob {
    NewJob::new(NAME, json!({ "filler": "x".repeat(180) })).lane(NAME)
}

async fn push_one_by_one(queue: &Arc<dyn Queue>, jobs: u64) -> Result<Duration> {
    let started = Instant::now();
    let mut producers = tokio::task::JoinSet::new();
    for _ in 0..PRODUCERS {
        let queue = Arc::clone(queue);
        producers.spawn(async move {
            for _ in 0..jobs / PRODUCERS {
                queue.push(vec![job().into()]).await?;
            }
            Ok::<(), telecine_queue::QueueError>(())
        });
    }
    while let Some(produced) = producers.join_next().await {
        produced??;
    }
    Ok(started.elapsed())
}

async fn push_in_bulk(queue: &Arc<dyn Queue>, jobs: u64) -> Result<(Duration, u64)> {
    let started = Instant::now();
    for _ in 0..jobs / BULK {
        queue.push(vec![Push::jobs((0..BULK).map(|_| job()))]).await?;
    }
    Ok((started.elapsed(), jobs / BULK * BULK))
}

/// What the kind tells: how many ran, and when the last one began.
#[derive(Default)]
struct Clock {
    seen: Mutex<(u64, Option<Instant>)>,
    moved: Notify,
}

impl Clock {
    fn read(&self) -> (u64, Option<Instant>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait_for(&self, jobs: u64) -> Option<Instant> {
        loop {
            let moved = self.moved.notified();
            let (ran, last) = self.read();
            if ran >= jobs {
                return last;
            }
            moved.await;
        }
    }
}

struct Nothing(Arc<Clock>);

#[async_trait]
impl Kind for Nothing {
    fn name(&self) -> &'static str {
        NAME
    }

    fn lane(&self) -> &'static str {
        NAME
    }

    async fn run(&self, _: &Job, _: &JobContext) -> Result<Value, Failure> {
        let mut seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = (seen.0 + 1, Some(Instant::now()));
        drop(seen);
        self.0.moved.notify_one();
        Ok(Value::Null)
    }
}

async fn start(queue: &Arc<dyn Queue>, clock: &Arc<Clock>) -> Result<Runtime> {
    let options = WorkerOptions { name: NAME.into(), slots: Slots::Each(SLOTS), ..WorkerOptions::default() };
    Ok(Runtime::start(Arc::clone(queue), Kinds::new().with(Nothing(Arc::clone(clock))), options).await?)
}

async fn drain(clock: &Clock, jobs: u64) -> Duration {
    let started = Instant::now();
    clock.wait_for(jobs).await;
    started.elapsed()
}

async fn pick_up(queue: &Arc<dyn Queue>, clock: &Clock) -> Result<Vec<Duration>> {
    let mut pickups = Vec::with_capacity(PICKUPS);
    for _ in 0..PICKUPS {
        let (ran, _) = clock.read();
        let pushed = Instant::now();
        queue.push(vec![job().into()]).await?;
        let began = clock.wait_for(ran + 1).await;
        pickups.extend(began.map(|began| began.saturating_duration_since(pushed)));
    }
    Ok(pickups)
}
