//! The finisher: outcomes are settled together while the last ones commit, then their slots are free.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;

use super::{MAX_BATCH, Phase, Shared, is_worth_another};
use crate::claim::{Finish, Outcome, Settled};
use crate::job::Job;

/// A job that no longer runs, and the slot it leaves.
#[derive(Debug)]
pub(super) struct Ended {
    job: Arc<Job>,
    slot: u32,
    finish: Option<Finish>,
}

impl Ended {
    /// Without a `finish`, the claim had been refused.
    pub(super) fn new(job: Arc<Job>, slot: u32, finish: Option<Finish>) -> Self {
        Self { job, slot, finish }
    }
}

pub(super) async fn settle_until_left(shared: Arc<Shared>, mut outcomes: mpsc::UnboundedReceiver<Ended>) {
    let mut phase = shared.phase.subscribe();
    let mut under_way = FuturesUnordered::new();
    let mut batch = Vec::new();
    loop {
        if is_worth_another(under_way.len(), batch.len()) {
            gather(&mut outcomes, &mut batch).await;
            under_way.push(settle(&shared, std::mem::take(&mut batch)));
        }
        let room = MAX_BATCH - batch.len();
        tokio::select! {
            Some(()) = under_way.next() => {}
            received = outcomes.recv_many(&mut batch, room), if room > 0 => {
                if received == 0 {
                    return;
                }
            }
            _ = phase.wait_for(|phase| *phase == Phase::Left) => return,
        }
    }
}

/// Lets jobs that are ending at this moment end, and takes them along. Without it a batch of quick jobs falls apart:
/// its first one is settled alone, then claimed for alone, and so on for ever.
async fn gather(outcomes: &mut mpsc::UnboundedReceiver<Ended>, batch: &mut Vec<Ended>) {
    while batch.len() < MAX_BATCH {
        tokio::task::yield_now().await;
        let before = batch.len();
        while batch.len() < MAX_BATCH
            && let Ok(ended) = outcomes.try_recv()
        {
            batch.push(ended);
        }
        if batch.len() == before {
            return;
        }
    }
}

async fn settle(shared: &Shared, batch: Vec<Ended>) {
    let mut finishes = Vec::with_capacity(batch.len());
    let mut leaving = Vec::with_capacity(batch.len());
    for ended in batch {
        shared.tally_refusal(ended.finish.is_none());
        finishes.extend(ended.finish);
        leaving.push((ended.job, ended.slot));
    }
    let settled = finish_until_stored(shared, &finishes).await;
    for (finish, settled) in finishes.iter().zip(settled) {
        shared.tally(finish, settled);
    }
    if let Some(lineage) = &shared.options.lineage {
        leaving.iter().for_each(|(job, _)| lineage.ended(job));
    }
    shared.held.let_go(leaving.iter().map(|(job, _)| (job.id, job.fence)));
    shared.slots.give_back(leaving.iter().map(|(job, slot)| (job.lane.as_str(), *slot)));
    shared.slots.tell();
}

/// Work that is done is not thrown away because the database is away: `finish` may be repeated for as long as it
/// takes. Only a worker that leaves gives up; then the lease ends and others run the jobs again.
async fn finish_until_stored(shared: &Shared, finishes: &[Finish]) -> Vec<Settled> {
    if finishes.is_empty() {
        return Vec::new();
    }
    let mut delay = Duration::from_millis(20);
    loop {
        match shared.queue.finish(finishes).await {
            Ok(settled) => return settled,
            Err(error) => tracing::warn!(%error, jobs = finishes.len(), "could not settle; trying again"),
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(Duration::from_secs(2));
    }
}

impl Shared {
    fn tally_refusal(&self, refused: bool) {
        self.tally.refused.fetch_add(u64::from(refused), Ordering::Relaxed);
    }

    fn tally(&self, finish: &Finish, settled: Settled) {
        let count = match (settled, finish.outcome()) {
            (Settled::Refused, _) => {
                tracing::info!(
                    job.id = finish.job().0,
                    "outcome refused: another claim owns the job, or it was cancelled"
                );
                &self.tally.refused
            }
            (Settled::Accepted, Outcome::Complete { .. }) => &self.tally.completed,
            (Settled::Accepted, Outcome::Fail { .. } | Outcome::FailForGood { .. }) => &self.tally.failed,
            (Settled::Accepted, Outcome::Snooze { .. }) => &self.tally.snoozed,
            (Settled::Accepted, Outcome::Release) => &self.tally.released,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}
