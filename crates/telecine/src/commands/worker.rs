//! `telecine worker`: runs jobs until asked to stop.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use telecine_connect::Kafka;
use telecine_pipeline::Workshop;
use telecine_pipeline::kinds::schedule_sweeps;
use telecine_queue::{Kinds, Lineage, Queue, Runtime, Slots, WorkerOptions};
use telecine_server::{App, Meter, RunTraces, Server, ServerOptions, Traces};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Schema, open};
use crate::cli::WorkerFlags;
use crate::config::{Config, Key};
use crate::output::{Answer, say};
use crate::signals::Signals;
use crate::{human, kinds, recipes, webhooks, workshop};

const SAY_EVERY: Duration = Duration::from_secs(5);

pub(super) async fn run(flags: &WorkerFlags, config: &Config, traces: Option<&Traces>) -> Result<Answer> {
    // Before anything is claimed, so that no signal finds the process without a handler.
    let mut signals = Signals::listen()?;
    follow_parent(flags)?;
    let queue = open(config, Schema::Migrate).await?;
    let shop = Arc::new(workshop::open(config, &queue)?);
    let kinds = chosen_kinds(config, &shop)?;
    let names = kinds.names().join(", ");
    let watched = watched(config, &shop, None).await?;
    let relay = webhooks::start(config, &shop).await?;
    let runtime = start(config, queue, &shop, kinds, traces).await?;
    say(format_args!(
        "worker {} runs {names} on {}; Ctrl-C drains it",
        runtime.worker_id(),
        config.database_shown()
    ));

    let answer = until_asked_to_stop(&runtime, config.drain_within, &mut signals, &Leaving::default()).await;
    relay.stop().await;
    if let Some(watched) = watched {
        watched.stop(Duration::ZERO).await;
    }
    Ok(answer)
}

/// The health and the figures of this process, where somebody wants to see them.
pub(super) async fn watched(
    config: &Config,
    shop: &Arc<Workshop>,
    kafka: Option<&Kafka>,
) -> Result<Option<Server>> {
    let Some(address) = config.metrics_listen else { return Ok(None) };
    Meter::install();
    let kafka = kafka.map(|kafka| kafka.broker().clone());
    let options = ServerOptions { metrics_public: true, kafka, ..ServerOptions::default() };
    let app = App::new(Arc::clone(shop), recipes::all(config)?, options);
    let server = Server::start_watched(&app, address).await.with_context(|| {
        format!(
            "metrics_listen is {}\nnext: stop whatever listens there, or choose another address",
            config.shown(Key::MetricsListen)
        )
    })?;
    say(format_args!("health and figures are on http://{}", server.address()));
    Ok(Some(server))
}

/// Slots that run jobs from here on.
pub(super) async fn start(
    config: &Config,
    queue: Arc<dyn Queue>,
    shop: &Arc<Workshop>,
    kinds: Kinds,
    traces: Option<&Traces>,
) -> Result<Runtime> {
    schedule_sweeps(shop).await?;
    warn_of_idle_kinds(&kinds.names(), &config.slots);
    let lineage =
        traces.map(|traces| -> Arc<dyn Lineage> { Arc::new(RunTraces::new(traces, Arc::clone(&queue))) });
    let options = WorkerOptions { lineage, ..options(config, shop) };
    Ok(Runtime::start(queue, kinds, options).await?)
}

/// All kinds, or those that the configuration names.
pub(super) fn chosen_kinds(config: &Config, shop: &Arc<Workshop>) -> Result<Kinds> {
    Ok(match &config.kinds {
        Some(names) => kinds::all(shop).only(names)?,
        None => kinds::all(shop),
    })
}

/// What was asked of this process, for whoever works beside the worker in it.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    pub(super) drain: CancellationToken,
    /// Asked again: at once.
    pub(super) hurry: CancellationToken,
}

/// A kind whose lane has no slot never runs here: allowed, but seldom meant.
fn warn_of_idle_kinds(names: &[&str], slots: &Slots) {
    let Slots::PerLane(lanes) = slots else { return };
    for name in names {
        if let Some(lane) = kinds::lane_of(name).filter(|lane| !lanes.contains_key(*lane)) {
            say(format_args!(
                "warning: kind {name} runs in lane {lane}, which has no slot here; add {lane}=1 to --slots"
            ));
        }
    }
}

pub(super) fn follow_parent(flags: &WorkerFlags) -> Result<()> {
    if flags.leave_with_parent { leave_with_parent() } else { Ok(()) }
}

#[cfg(target_os = "linux")]
fn leave_with_parent() -> Result<()> {
    use rustix::process::{Signal, set_parent_process_death_signal};

    Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
}

/// Elsewhere the parent's own clean-up has to do.
#[cfg(not(target_os = "linux"))]
fn leave_with_parent() -> Result<()> {
    Ok(())
}

pub(crate) fn options(config: &Config, shop: &Arc<Workshop>) -> WorkerOptions {
    let defaults = WorkerOptions::default();
    let shop = Arc::clone(shop);
    WorkerOptions {
        name: config.name.clone().unwrap_or_else(|| defaults.name.clone()),
        slots: config.slots.clone(),
        lease: config.lease,
        beat_every: config.beat_every,
        sweep_every: config.sweep_every,
        poll_every: config.poll_every,
        drain_within: config.drain_within,
        keep_history: config.keep_history,
        free_scratch: Some(Arc::new(move || shop.scratch.free_bytes())),
        ..defaults
    }
}

pub(super) async fn until_asked_to_stop(
    runtime: &Runtime,
    drain_within: Duration,
    signals: &mut Signals,
    leaving: &Leaving,
) -> Answer {
    let mut clean = Answer::Yes;
    tokio::select! {
        // Somebody asked by `telecine workers drain`.
        _ = runtime.finished() => {}
        () = signals.next() => {
            runtime.drain();
            leaving.drain.cancel();
            tokio::select! {
                _ = runtime.finished() => {}
                () = say_what_is_left(runtime, drain_within) => {}
                () = signals.next() => {
                    say("stopping at once; what was running goes back to the queue");
                    runtime.stop_now();
                    leaving.hurry.cancel();
                    clean = Answer::No;
                }
            }
        }
    }
    leaving.drain.cancel();
    let report = tokio::select! {
        report = runtime.finished() => report,
        // The third time it is meant.
        () = signals.next() => {
            say("gone without signing off; when the lease ends, others take what was running");
            leaving.hurry.cancel();
            return Answer::No;
        }
    };
    say(format_args!(
        "stopped: {} completed, {} failed, {} given back",
        report.completed, report.failed, report.released
    ));
    clean
}

/// Never returns: the drain's end is the runtime's to tell.
async fn say_what_is_left(runtime: &Runtime, drain_within: Duration) {
    let until = Instant::now() + drain_within;
    loop {
        let running = runtime.running();
        if running > 0 {
            let jobs = human::count(running as u64, "job");
            let left = until.saturating_duration_since(Instant::now()).as_secs_f64().round();
            say(format_args!(
                "draining: {jobs} still running, {left} s left; press Ctrl-C again to stop at once"
            ));
        }
        tokio::time::sleep(SAY_EVERY).await;
    }
}
