//! Claims of workers in other languages.
//!
//! ```text
//!   POST /v1/claims ── register a worker row, pull one job ──► job + token
//!   POST …/beat     ── token ── beat of that row (own thread) ──► go on | cancelled | claim lost
//!   POST …/finish   ── token ── finish under the fence, sign the row off
//! ```
//! Each claim has a worker row of its own, whose lease its beats renew: a remote worker that falls silent is reaped as any
//! other. Nothing is remembered here between two requests: the token says which claim it is, so any process on the same
//! database can take the next one.

mod pulse;
mod token;

use std::sync::Arc;
use std::time::Duration;

use telecine_queue::{
    Beat, BeatReply, Claim, ClaimBeat, Claimed, Count, Finish, Job, JobId, JobState, NewWorker, Outcome,
    Pausable, Pull, Queue, QueueError, Settled, WorkerId, WorkerOptions, keep_up,
};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

pub(crate) use token::ClaimToken;

use crate::problem::{Code, Problem};
use crate::secret::Secret;
use pulse::PulseThread;

/// The name of the secret that tokens are signed with, among those of a database.
const SECRET: &str = "claims";

/// Where the remote claims of a process are handled.
pub(crate) struct Remote {
    queue: Arc<dyn Queue>,
    stopping: CancellationToken,
    keep_history: Duration,
    secret: OnceCell<Secret>,
    pulse: OnceCell<PulseThread>,
    upkeep: OnceCell<()>,
}

/// What a remote worker asks for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) name: String,
    pub(crate) kinds: Vec<String>,
    pub(crate) lane: String,
    pub(crate) lease: Duration,
}

/// A claim on its way to a remote worker. Dropped before it is sent, its job goes back at no cost.
pub(crate) struct Taken {
    queue: Arc<dyn Queue>,
    worker: WorkerId,
    claimed: Option<Claimed>,
}

/// What a beat tells.
#[derive(Clone, Debug, Default)]
pub(crate) struct News {
    pub(crate) progress: Option<f64>,
    pub(crate) checkpoint: Option<serde_json::Value>,
}

/// Why a token is no longer good for anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Cancelled,
    Lost,
}

impl Remote {
    pub(crate) fn new(queue: Arc<dyn Queue>, stopping: CancellationToken, keep_history: Duration) -> Self {
        Self {
            queue,
            stopping,
            keep_history,
            secret: OnceCell::new(),
            pulse: OnceCell::new(),
            upkeep: OnceCell::new(),
        }
    }

    pub(crate) async fn secret(&self) -> Result<&Secret, Problem> {
        self.secret.get_or_try_init(|| Secret::shared(&*self.queue, SECRET)).await
    }

    /// Claims a job now. In a task of its own: a caller that goes away in the middle must not leave a claim behind that
    /// nobody knows of.
    pub(crate) async fn take(&self, wanted: Wanted) -> Result<Option<Taken>, QueueError> {
        self.keep_queue_up().await;
        let queue = Arc::clone(&self.queue);
        let taking = tokio::spawn(async move { take(queue, wanted).await });
        taking.await.unwrap_or_else(|panic| Err(QueueError::Unexpected { reason: panic.to_string() }))
    }

    /// Where only remote workers run jobs, nobody else would promote what is due and free what the dead held.
    async fn keep_queue_up(&self) {
        let start = async || {
            let (queue, stopping) = (Arc::clone(&self.queue), self.stopping.clone());
            let options = WorkerOptions { keep_history: self.keep_history, ..WorkerOptions::default() };
            tokio::spawn(async move {
                stopping.run_until_cancelled(keep_up(queue, options)).await;
            });
        };
        self.upkeep.get_or_init(start).await;
    }

    /// Renews the lease of a claim and saves what is new; says whether somebody asked its worker to drain.
    pub(crate) async fn beat(
        &self,
        token: &ClaimToken,
        news: News,
    ) -> Result<Result<bool, Over>, QueueError> {
        let Some(job) = self.queue.get(token.job).await? else { return Ok(Err(Over::Lost)) };
        if let Some(over) = over(&job, token) {
            return Ok(Err(over));
        }
        let reply = match job.worker.filter(|_| job.state == JobState::Running) {
            Some(worker) => self.beat_as(worker, token, &news).await,
            None => Err(QueueError::WorkerGone),
        };
        let reply = match reply {
            Err(QueueError::WorkerGone) => self.beat_anew(&job, token, &news).await?,
            reply => reply?,
        };
        if !reply.refused.contains(&token.job) {
            return Ok(Ok(reply.drain));
        }
        self.why_over(token).await.map(Err)
    }

    async fn beat_as(
        &self,
        worker: WorkerId,
        token: &ClaimToken,
        news: &News,
    ) -> Result<BeatReply, QueueError> {
        let claim = ClaimBeat {
            job: token.job,
            fence: token.fence,
            slot: None,
            progress: news.progress,
            checkpoint: news.checkpoint.clone(),
            records: Vec::new(),
            playable: false,
        };
        let beat = Beat { worker, lease: token.lease(), draining: false, claims: vec![claim] };
        let pulse = self.pulse.get_or_try_init(async || PulseThread::start(Arc::clone(&self.queue))).await?;
        pulse.beat(beat).await
    }

    /// It was silent for longer than its lease. If nobody took the job since, it goes on under another row.
    async fn beat_anew(&self, job: &Job, token: &ClaimToken, news: &News) -> Result<BeatReply, QueueError> {
        let wanted = Wanted {
            name: "remote".into(),
            kinds: vec![job.kind.clone()],
            lane: job.lane.clone(),
            lease: token.lease(),
        };
        let worker = self
            .queue
            .register(NewWorker { holding: vec![(token.job, token.fence)], ..row(&wanted) })
            .await?;
        let reply = self.beat_as(worker, token, news).await?;
        if reply.refused.contains(&token.job) {
            self.queue.deregister(worker).await?;
        }
        Ok(reply)
    }

    /// Settles a claim. Repeating it is harmless: what this fence settled stays settled.
    pub(crate) async fn finish(
        &self,
        token: &ClaimToken,
        outcome: Outcome,
    ) -> Result<Result<(), Over>, QueueError> {
        let Some(job) = self.queue.get(token.job).await? else { return Ok(Err(Over::Lost)) };
        let worker = job.worker.filter(|_| job.state == JobState::Running && job.fence == token.fence);
        let claim = Claim::kept_elsewhere(job, token.fence, token.attempt, token.lost);
        let settled = self.queue.finish(&[Finish::new(claim, outcome)]).await?;
        match settled.first() {
            Some(Settled::Accepted) => {
                sign_off(&*self.queue, worker).await;
                Ok(Ok(()))
            }
            Some(Settled::Refused) | None => self.why_over(token).await.map(Err),
        }
    }

    async fn why_over(&self, token: &ClaimToken) -> Result<Over, QueueError> {
        let job = self.queue.get(token.job).await?;
        Ok(job.and_then(|job| over(&job, token)).unwrap_or(Over::Lost))
    }
}

/// What a look at the job already tells.
fn over(job: &Job, token: &ClaimToken) -> Option<Over> {
    match job.state {
        JobState::Cancelled => Some(Over::Cancelled),
        state if state.is_terminal() || job.fence != token.fence => Some(Over::Lost),
        _ => None,
    }
}

fn row(wanted: &Wanted) -> NewWorker {
    NewWorker {
        name: wanted.name.clone(),
        host: "remote".into(),
        pid: 0,
        slots: [(wanted.lane.clone(), 1)].into(),
        kinds: wanted.kinds.clone(),
        lease: wanted.lease,
        holding: Vec::new(),
    }
}

async fn take(queue: Arc<dyn Queue>, wanted: Wanted) -> Result<Option<Taken>, QueueError> {
    // Whoever waits looks often; only where there may be something does it write.
    if !may_find(&*queue, &wanted).await? {
        return Ok(None);
    }
    let worker = queue.register(row(&wanted)).await?;
    let lanes = [(wanted.lane, 1)].into();
    let pull = Pull { worker, lanes, kinds: wanted.kinds, free_scratch_bytes: u64::MAX };
    match queue.pull(pull).await?.into_iter().next() {
        Some(claimed) => Ok(Some(Taken { queue, worker, claimed: Some(claimed) })),
        None => {
            sign_off(&*queue, Some(worker)).await;
            Ok(None)
        }
    }
}

async fn may_find(queue: &dyn Queue, wanted: &Wanted) -> Result<bool, QueueError> {
    let ready = ready_kinds(&queue.counts().await?, wanted);
    if ready.is_empty() {
        return Ok(false);
    }
    let paused = queue.paused().await?;
    let is_paused = |what: &Pausable| paused.iter().any(|paused| paused.what == *what);
    Ok(!is_paused(&Pausable::Lane(wanted.lane.clone()))
        && ready.into_iter().any(|kind| !is_paused(&Pausable::Kind(kind))))
}

fn ready_kinds(counts: &[Count], wanted: &Wanted) -> Vec<String> {
    let ready = counts.iter().filter(|count| count.state == JobState::Pending && count.jobs > 0);
    let ours = ready.filter(|count| count.lane == wanted.lane && wanted.kinds.contains(&count.kind));
    ours.map(|count| count.kind.clone()).collect()
}

impl Taken {
    /// The claim is sent now: from here on its lease looks after it.
    pub(crate) fn send(mut self) -> Option<Arc<Job>> {
        self.claimed.take().map(|claimed| claimed.job)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let (queue, worker) = (Arc::clone(&self.queue), self.worker);
        let Some(claimed) = self.claimed.take() else {
            return;
        };
        tokio::spawn(async move {
            let finish = Finish::new(claimed.claim, Outcome::Release);
            match queue.finish(&[finish]).await {
                Ok(_) => sign_off(&*queue, Some(worker)).await,
                Err(error) => {
                    tracing::warn!(%error, "could not give a claim back; its lease will end by itself")
                }
            }
        });
    }
}

/// A row that stays behind ends with its lease.
async fn sign_off(queue: &dyn Queue, worker: Option<WorkerId>) {
    let Some(worker) = worker else { return };
    if let Err(error) = queue.deregister(worker).await {
        tracing::warn!(%error, worker.id = worker.0, "could not sign a remote worker off; its lease will end by itself");
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Taken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Taken").field("worker", &self.worker).finish_non_exhaustive()
    }
}

/// What a worker is told whose token is good for nothing any more.
pub(crate) fn gone(over: Over, job: JobId) -> Problem {
    match over {
        Over::Cancelled => {
            Problem::new(Code::Cancelled, format!("job {job} was cancelled; stop, and drop what was made"))
        }
        Over::Lost => Problem::new(
            Code::ClaimLost,
            format!("this token's claim of job {job} is over: it was settled, or another claim owns the job"),
        ),
    }
}
