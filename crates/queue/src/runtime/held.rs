//! The claims a worker holds: what their kinds report, and the means to stop them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Failure;
use crate::claim::Claim;
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
        self.claim.lock().tell(|news| news.checkpoint = Some(checkpoint));
        self.news.notify_one();
    }

    /// Writes a record of the job's run, at once and under the claim's fence. Does not wait: it is sent with the next
    /// beat, or at the latest with the job's outcome.
    pub fn record(&self, record: NewRecord) {
        if let Err(error) = self.tell_record(record) {
            tracing::warn!(%error, "record not written");
        }
    }

    /// Writes a record of the job's run, and returns when it is committed under the claim's fence: from then on it is
    /// there whatever becomes of this process. It takes about as long as a beat; while the database is away it waits.
    pub async fn record_now(&self, record: NewRecord) -> Result<(), NotRecorded> {
        self.tell_record(record)?;
        self.flushed().await
    }

    /// Returns when all that this claim has told so far (records, checkpoint, playable) is committed.
    pub async fn flushed(&self) -> Result<(), NotRecorded> {
        let told = self.claim.lock().told;
        self.claim.committed(told).await
    }

    /// Says that what the run makes can be played from now on: the first to say so sets
    /// [`Run::playable_at`](crate::Run::playable_at) and makes the run tell `run.playable`. Sent at once, in the same
    /// transaction as the records before it.
    pub fn playable(&self) {
        self.claim.lock().tell(|news| news.playable = true);
        self.news.notify_one();
    }

    fn tell_record(&self, record: NewRecord) -> Result<(), NotRecorded> {
        record.check().map_err(|refusal| NotRecorded::Invalid { reason: refusal.to_string() })?;
        if !self.claim.in_run {
            return Err(NotRecorded::Invalid { reason: "a job without a run has no records".into() });
        }
        self.claim.lock().tell(|news| news.records.push(record));
        self.news.notify_one();
        Ok(())
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

/// Why what a kind recorded will not be there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRecorded {
    /// Stop: nothing that this claim still does counts.
    #[error("the claim is over: the job was cancelled, or another claim owns it")]
    ClaimOver,
    /// Record something else: no database takes this.
    #[error("{reason}")]
    Invalid { reason: String },
}

impl From<NotRecorded> for Failure {
    fn from(why: NotRecorded) -> Self {
        match why {
            NotRecorded::ClaimOver => Self::retry("claim_over", why),
            NotRecorded::Invalid { .. } => Self::for_good("record_refused", why),
        }
    }
}

#[derive(Debug)]
pub(super) struct HeldClaim {
    pub(super) fence: Fence,
    acts_outside: bool,
    in_run: bool,
    stopping: CancellationToken,
    reason: OnceLock<StopReason>,
    news: Mutex<News>,
    /// Rung when a beat that told something has ended, and when the claim is over.
    beaten: Notify,
    spawn: Mutex<Spawn>,
}

/// What the next beat has to tell, and how far the last ones got.
#[derive(Debug, Default)]
struct News {
    slot: Option<u32>,
    progress: Option<f64>,
    checkpoint: Option<Value>,
    records: Vec<NewRecord>,
    playable: bool,
    /// How often something was told that somebody may wait for.
    told: u64,
    /// How much of that is committed.
    committed: u64,
    /// A beat that nobody has an answer to has something of the run in it.
    under_way: bool,
    /// Nothing more will be committed.
    over: bool,
}

impl News {
    fn tell(&mut self, what: impl FnOnce(&mut Self)) {
        what(self);
        self.told += 1;
    }

    /// Leaves nothing for the next beat but what it is about.
    fn take(&mut self, job: JobId, fence: Fence) -> ClaimBeat {
        self.under_way = !self.records.is_empty() || self.playable;
        ClaimBeat {
            job,
            fence,
            slot: self.slot.take(),
            progress: self.progress.take(),
            checkpoint: self.checkpoint.take(),
            records: std::mem::take(&mut self.records),
            playable: std::mem::take(&mut self.playable),
        }
    }

    /// Takes back what a beat could not tell, unless there is newer.
    fn keep(&mut self, unsent: ClaimBeat) {
        self.slot = self.slot.or(unsent.slot);
        self.progress = self.progress.or(unsent.progress);
        self.checkpoint = self.checkpoint.take().or(unsent.checkpoint);
        // The older ones first: of two writes of one record the later counts.
        self.records.splice(0..0, unsent.records);
        self.playable |= unsent.playable;
    }
}

/// What the finish has to take along.
pub(super) struct TakenAlong {
    pub(super) spawn: Spawn,
    pub(super) records: Vec<NewRecord>,
    pub(super) playable: bool,
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

    /// The claim is no longer ours, whatever it was told before.
    fn refuse(&self) {
        self.stop(StopReason::Refused);
        self.end();
    }

    /// Nobody waits for it any longer.
    fn end(&self) {
        self.lock().over = true;
        self.beaten.notify_waiters();
    }

    /// Jobs to spawn, and what no beat has told of the run. If one is about to, it is waited for: should it fail, what
    /// it had with it must not be left behind.
    pub(super) async fn take_along(&self) -> TakenAlong {
        let take = |news: &mut News| (std::mem::take(&mut news.records), std::mem::take(&mut news.playable));
        let (records, playable) =
            self.wait_until(|news| (news.over || !news.under_way).then(|| take(news))).await;
        let spawn = std::mem::take(&mut *self.spawn.lock().unwrap_or_else(PoisonError::into_inner));
        TakenAlong { spawn, records, playable }
    }

    async fn committed(&self, told: u64) -> Result<(), NotRecorded> {
        self.wait_until(|news| match news.committed >= told {
            true => Some(Ok(())),
            false => news.over.then_some(Err(NotRecorded::ClaimOver)),
        })
        .await
    }

    async fn wait_until<T>(&self, mut found: impl FnMut(&mut News) -> Option<T>) -> T {
        loop {
            let mut beaten = std::pin::pin!(self.beaten.notified());
            // Before the look, so that what happens after it is not missed.
            beaten.as_mut().enable();
            if let Some(value) = found(&mut self.lock()) {
                return value;
            }
            beaten.await;
        }
    }

    /// A beat has told all up to here, and the claim still is ours.
    fn note_committed(&self, told: u64) {
        let mut news = self.lock();
        news.committed = news.committed.max(told);
        news.under_way = false;
        drop(news);
        self.beaten.notify_waiters();
    }

    /// A beat told nothing for certain.
    fn note_unsent(&self, unsent: ClaimBeat) {
        let mut news = self.lock();
        news.keep(unsent);
        news.under_way = false;
        drop(news);
        self.beaten.notify_waiters();
    }

    pub(super) fn stop_reason(&self) -> Option<StopReason> {
        self.reason.get().copied()
    }

    fn lock(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A claim that a beat under way tells of.
pub(super) struct Beating {
    claim: Arc<HeldClaim>,
    /// What the beat tells, counted from the first.
    told: u64,
}

impl Beating {
    pub(super) fn committed(self) {
        self.claim.note_committed(self.told);
    }

    pub(super) fn refused(self) {
        self.claim.refuse();
    }

    /// The beat failed; what it had to tell is for the next one.
    pub(super) fn unsent(self, unsent: ClaimBeat) {
        self.claim.note_unsent(unsent);
    }
}

#[derive(Debug, Default)]
pub(super) struct Held {
    claims: Mutex<HashMap<JobId, Arc<HeldClaim>>>,
    /// Rung when something should be told at once.
    pub(super) news: Arc<Notify>,
}

impl Held {
    pub(super) fn hold(&self, claim: &Claim, slot: u32, acts_outside: bool) -> JobContext {
        let (job, fence) = (claim.job(), claim.fence());
        let claim = Arc::new(HeldClaim {
            fence,
            acts_outside,
            in_run: claim.in_run(),
            stopping: CancellationToken::new(),
            reason: OnceLock::new(),
            news: Mutex::new(News { slot: Some(slot), ..News::default() }),
            beaten: Notify::new(),
            spawn: Mutex::default(),
        });
        // Another claim of the job by this process: the younger one has taken it over, whichever answer came first.
        let mut claims = self.lock();
        match claims.get(&job).filter(|held| held.fence > fence) {
            Some(_) => claim.refuse(),
            None => {
                if let Some(older) = claims.insert(job, Arc::clone(&claim)) {
                    older.refuse();
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
            if claims.get(&job).is_some_and(|claim| claim.fence == fence)
                && let Some(claim) = claims.remove(&job)
            {
                claim.end();
            }
        }
    }

    pub(super) fn claims(&self) -> Vec<(JobId, Fence)> {
        self.lock().iter().map(|(job, claim)| (*job, claim.fence)).collect()
    }

    /// What the next beat tells of each claim, and whom to tell what became of it.
    pub(super) fn take_news(&self) -> (Vec<ClaimBeat>, Vec<Beating>) {
        let claims = self.lock();
        let taken = claims.iter().map(|(job, claim)| {
            let mut news = claim.lock();
            (news.take(*job, claim.fence), Beating { claim: Arc::clone(claim), told: news.told })
        });
        taken.unzip()
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
