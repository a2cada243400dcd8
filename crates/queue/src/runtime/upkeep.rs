//! What has to happen when nobody asks: due jobs become ready, schedules tick, dead workers are found, old
//! history goes.
//!
//! Every worker does it; each step is one guarded statement, so it does not matter who comes first.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::WorkerOptions;
use crate::error::Result;
use crate::queue::Queue;

const PRUNE_EVERY: Duration = Duration::from_secs(10 * 60);

/// A job that is due is never promoted in a busier loop than this.
const SHORTEST_NAP: Duration = Duration::from_millis(1);

/// Keeps a queue up for as long as it is polled: for a process without a [`Runtime`](super::Runtime), which does it by
/// itself, whose jobs others run.
pub async fn keep_up(queue: Arc<dyn Queue>, options: WorkerOptions) {
    let mut wakes = queue.wakes();
    let (mut sweep_at, mut prune_at) = (Instant::now(), Instant::now() + PRUNE_EVERY);
    loop {
        let seen = *wakes.borrow_and_update();
        let next_due = match queue.promote().await {
            Ok(promoted) => promoted.next_in,
            Err(error) => {
                tracing::warn!(%error, "could not promote scheduled jobs; trying again");
                Some(options.poll_every)
            }
        };
        let next_due = sooner(next_due, tick(&*queue, options.poll_every).await);
        if Instant::now() >= sweep_at {
            note(queue.reap().await.map(drop), "could not look for dead workers");
            sweep_at = Instant::now() + options.sweep_every;
        }
        if Instant::now() >= prune_at {
            note(queue.prune(options.keep_history).await.map(drop), "could not prune history");
            prune_at = Instant::now() + PRUNE_EVERY;
        }
        let due_at = next_due.map(|next_in| Instant::now() + next_in.max(SHORTEST_NAP));
        let nap_until = due_at.map_or(sweep_at, |at| at.min(sweep_at)).min(prune_at);
        tokio::select! {
            () = tokio::time::sleep_until(nap_until) => {}
            Ok(now) = wakes.wait_for(|now| now.scheduled != seen.scheduled || now.died != seen.died) => {
                if now.died != seen.died {
                    sweep_at = Instant::now();
                }
            }
        }
    }
}

/// Pushes what schedules are due; says how long until the next one is.
async fn tick(queue: &dyn Queue, poll_every: Duration) -> Option<Duration> {
    match queue.tick().await {
        // Another process is at it, and will be done in a moment.
        Ok(ticked) => ticked.next_in.map(|next_in| next_in.max(SHORTEST_NAP * 10)),
        Err(error) => {
            tracing::warn!(%error, "could not push what schedules are due; trying again");
            Some(poll_every)
        }
    }
}

fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

fn note(result: Result<()>, what: &'static str) {
    if let Err(error) = result {
        tracing::warn!(%error, "{what}");
    }
}
