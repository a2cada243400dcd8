//! The beat: on a thread, a runtime and a connection of its own, so that no load on the others can starve it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::Shared;
use crate::error::{QueueError, Result};
use crate::queue::{Pulse, Wakes};
use crate::worker::{Beat, BeatReply};

/// How soon a beat that failed is tried again.
const AFTER_ERROR: Duration = Duration::from_millis(500);

/// Beats on news are this far apart at least.
const NEWS_EVERY: Duration = Duration::from_millis(20);

pub(super) struct BeatThread {
    stop: watch::Sender<bool>,
    ended: watch::Receiver<bool>,
}

impl BeatThread {
    pub(super) async fn stop(mut self) {
        self.stop.send_replace(true);
        // An error means that the thread is gone, which is what we wait for.
        let _ = self.ended.wait_for(|ended| *ended).await;
    }
}

pub(super) fn start(shared: Arc<Shared>) -> Result<BeatThread> {
    let (stop, stopping) = watch::channel(false);
    let (end, ended) = watch::channel(false);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(QueueError::unexpected)?;
    let wakes = shared.queue.wakes();
    std::thread::Builder::new()
        .name("queue-beat".into())
        .spawn(move || {
            runtime.block_on(beat_until_stopped(&shared, wakes, stopping));
            end.send_replace(true);
        })
        .map_err(QueueError::unexpected)?;
    Ok(BeatThread { stop, ended })
}

async fn beat_until_stopped(
    shared: &Shared,
    mut wakes: watch::Receiver<Wakes>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut heart = Heart { shared, pulse: None, lease_until: Instant::now() + shared.options.lease };
    let mut next_in = Duration::ZERO;
    let mut seen = wakes.borrow().revoked;
    loop {
        tokio::select! {
            () = tokio::time::sleep(next_in) => {}
            () = shared.held.news.notified() => tokio::time::sleep(NEWS_EVERY).await,
            () = revoked_since(&mut wakes, seen) => {}
            _ = stopping.wait_for(|stop| *stop) => return,
        }
        // Before the beat: what is taken away while it is under way is for the next one.
        seen = wakes.borrow().revoked;
        next_in = heart.beat().await;
    }
}

/// Returns when a claim of somebody was taken away since `seen`.
async fn revoked_since(wakes: &mut watch::Receiver<Wakes>, seen: u64) {
    if wakes.wait_for(|now| now.revoked != seen).await.is_err() {
        std::future::pending::<()>().await;
    }
}

struct Heart<'a> {
    shared: &'a Shared,
    pulse: Option<Box<dyn Pulse>>,
    /// Until when the database takes us for alive, at the least.
    lease_until: Instant,
}

impl Heart<'_> {
    /// Beats once; says when to beat next.
    async fn beat(&mut self) -> Duration {
        let options = &self.shared.options;
        let started = Instant::now();
        match self.try_beat().await {
            Ok(reply) => {
                self.lease_until = started + options.lease;
                if reply.drain {
                    self.shared.drain();
                }
                options.beat_every
            }
            Err(QueueError::WorkerGone) => {
                tracing::warn!("declared dead after a long silence; registering again");
                match self.shared.register().await {
                    Ok(()) => Duration::ZERO,
                    Err(error) => self.endure(&error),
                }
            }
            Err(error) => self.endure(&error),
        }
    }

    async fn try_beat(&mut self) -> Result<BeatReply> {
        let shared = self.shared;
        let pulse = match &mut self.pulse {
            Some(pulse) => pulse,
            none => none.insert(shared.queue.pulse().await?),
        };
        let (claims, beating) = shared.held.take_news();
        let beat = Beat {
            worker: shared.worker(),
            lease: shared.options.lease,
            draining: !shared.is_working(),
            claims,
        };
        let answer = pulse.beat(&beat).await;
        for (claim, told) in beating.into_iter().zip(beat.claims) {
            match &answer {
                Ok(reply) if reply.refused.contains(&told.job) => claim.refused(),
                Ok(_) => claim.committed(),
                Err(_) => claim.unsent(told),
            }
        }
        answer
    }

    /// No beat came through. Encoders run on, for their work counts if nobody takes the job; what acts outside stops
    /// while the lease still holds.
    fn endure(&mut self, error: &QueueError) -> Duration {
        tracing::warn!(%error, "could not beat; trying again");
        self.pulse = None;
        let left = self.lease_until.saturating_duration_since(Instant::now());
        if left < self.shared.options.lease / 3 {
            self.shared.held.stop_outside_effects();
        }
        AFTER_ERROR.min(self.shared.options.beat_every)
    }
}
