//! The claims a worker holds: what their kinds report, and the means to stop them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::graph::{NewRecord, Spawn};
use crate::job::{Fence, JobId, check_json};
use crate::worker::ClaimBeat;

/// Why a job is told to stop before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopReason {
    /// It was cancelled, or another claim owns it: nothing it does counts any more.
    Refused,
    /// The worker leaves: the job goes back at no cost.
    Leaving,
    /// The lease is about to end and the kind acts outside: the job goes back at no cost.
    LeaseEnding,
    TimedOut,
}

/// What a running kind has of its worker.
#[derive(Clone, Debug)]
pub struct JobContext {
    pub(super) claim: Arc<HeldClaim>,
    pub(super) news: Arc<Notify>,
    pub(super) slot: u32,
}

impl JobContext {
    /// Tells how far the job is, 0.0 to 1.0. Cheap: it is sent with the next beat.
    pub fn progress(&self, fraction: f64) {
        if fraction.is_finite() {
            self.claim.lock().progress = Some(fraction.clamp(0.0, 1.0));
        }
    }

    /// Saves a small document that the job's next claim receives, should this one not finish. Sent at once.
    pub fn save(&self, checkpoint: Value) {
        if let Err(error) = check_json("the checkpoint", &checkpoint) {
            tracing::warn!(%error, "checkpoint not saved");
            return;
        }
        self.claim.lock().checkpoint = Some(checkpoint);
        self.news.notify_one();
    }

    /// Writes a record of the job's run, at once and under the claim's fence.
    pub fn record(&self, record: NewRecord) {
        if let Err(error) = record.check() {
            tracing::warn!(%error, "record not written");
            return;
        }
        self.claim.lock().records.push(record);
        self.news.notify_one();
    }

    /// Adds jobs to the run in the transaction that completes this job. A later call replaces an earlier one.
    pub fn spawn(&self, spawn: Spawn) {
        *self.claim.spawn.lock().unwrap_or_else(PoisonError::into_inner) = spawn;
    }

    /// Cancelled when the job should stop: cancelled by someone, out of time, or its worker leaves.
    pub fn stopping(&self) -> CancellationToken {
        // A child: what a kind does with its own token is not a stop.
        self.claim.stopping.child_token()
    }

    /// The number of the slot it runs in.
    pub fn slot(&self) -> u32 {
        self.slot
    }
}

#[derive(Debug)]
pub(super) struct HeldClaim {
    pub(super) fence: Fence,
    acts_outside: bool,
    stopping: CancellationToken,
    reason: OnceLock<StopReason>,
    news: Mutex<News>,
    spawn: Mutex<Spawn>,
}

/// What the next beat has to tell.
#[derive(Debug, Default)]
struct News {
    slot: Option<u32>,
    progress: Option<f64>,
    checkpoint: Option<Value>,
    records: Vec<NewRecord>,
}

impl HeldClaim {
    /// The first reason counts.
    pub(super) fn stop(&self, why: StopReason) {
        let _ = self.reason.set(why);
        self.stopping.cancel();
    }

    /// Returns when the job is told to stop.
    pub(super) async fn stopped(&self) {
        self.stopping.cancelled().await;
    }

    /// What the finish has to take along: jobs to spawn, and records that no beat has sent yet.
    pub(super) fn take_along(&self) -> (Spawn, Vec<NewRecord>) {
        let spawn = std::mem::take(&mut *self.spawn.lock().unwrap_or_else(PoisonError::into_inner));
        (spawn, std::mem::take(&mut self.lock().records))
    }

    pub(super) fn stop_reason(&self) -> Option<StopReason> {
        self.reason.get().copied()
    }

    fn lock(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub(super) struct Held {
    claims: Mutex<HashMap<JobId, Arc<HeldClaim>>>,
    /// Rung when something should be told at once.
    pub(super) news: Arc<Notify>,
}

impl Held {
    pub(super) fn hold(&self, job: JobId, fence: Fence, slot: u32, acts_outside: bool) -> JobContext {
        let claim = Arc::new(HeldClaim {
            fence,
            acts_outside,
            stopping: CancellationToken::new(),
            reason: OnceLock::new(),
            news: Mutex::new(News { slot: Some(slot), ..News::default() }),
            spawn: Mutex::default(),
        });
        // Another claim of the job by this process: the younger one has taken it over, whichever answer came first.
        let mut claims = self.lock();
        match claims.get(&job).filter(|held| held.fence > fence) {
            Some(_) => claim.stop(StopReason::Refused),
            None => {
                if let Some(older) = claims.insert(job, Arc::clone(&claim)) {
                    older.stop(StopReason::Refused);
                }
            }
        }
        drop(claims);
        JobContext { claim, news: Arc::clone(&self.news), slot }
    }

    pub(super) fn let_go(&self, settled: impl Iterator<Item = (JobId, Fence)>) {
        let mut claims = self.lock();
        for (job, fence) in settled {
            // A process that was declared dead may hold two claims of one job for a moment.
            if claims.get(&job).is_some_and(|claim| claim.fence == fence) {
                claims.remove(&job);
            }
        }
    }

    pub(super) fn claims(&self) -> Vec<(JobId, Fence)> {
        self.lock().iter().map(|(job, claim)| (*job, claim.fence)).collect()
    }

    /// What the next beat tells. News that could not be sent come back by [`Held::keep`].
    pub(super) fn take_news(&self) -> Vec<ClaimBeat> {
        let claims = self.lock();
        claims
            .iter()
            .map(|(job, claim)| {
                let news = std::mem::take(&mut *claim.lock());
                ClaimBeat {
                    job: *job,
                    fence: claim.fence,
                    slot: news.slot,
                    progress: news.progress,
                    checkpoint: news.checkpoint,
                    records: news.records,
                }
            })
            .collect()
    }

    /// Keeps news of a beat that failed, unless there is newer.
    pub(super) fn keep(&self, unsent: Vec<ClaimBeat>) {
        let claims = self.lock();
        for beat in unsent {
            let Some(claim) = claims.get(&beat.job).filter(|claim| claim.fence == beat.fence) else {
                continue;
            };
            let mut news = claim.lock();
            news.slot = news.slot.or(beat.slot);
            news.progress = news.progress.or(beat.progress);
            news.checkpoint = news.checkpoint.take().or(beat.checkpoint);
            // The older ones first: of two writes of one record the later counts.
            news.records.splice(0..0, beat.records);
        }
    }

    pub(super) fn refuse(&self, job: JobId, fence: Fence) {
        if let Some(claim) = self.lock().get(&job).filter(|claim| claim.fence == fence) {
            claim.stop(StopReason::Refused);
        }
    }

    pub(super) fn stop_all(&self, why: StopReason) {
        for claim in self.lock().values() {
            claim.stop(why);
        }
    }

    pub(super) fn stop_outside_effects(&self) {
        for claim in self.lock().values().filter(|claim| claim.acts_outside) {
            claim.stop(StopReason::LeaseEnding);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, Arc<HeldClaim>>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
