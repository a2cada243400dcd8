//! How much there is of something: looked up in the database when a scrape comes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{Label, gauge};
use telecine_queue::{Pausable, Queue, QueueError, Timestamp};
use tokio::sync::Mutex;

/// Scrapes within this time see the same look.
const REMEMBERED: Duration = Duration::from_secs(1);
const WITHIN: Duration = Duration::from_secs(2);

/// Whoever may push jobs can invent kinds and lanes. So many pairs are told apart, all others are `other`.
const MOST_KINDS: usize = 200;
const OTHER: &str = "other";

/// What a look found: a value by name and labels.
type Found = BTreeMap<(&'static str, Vec<(&'static str, String)>), f64>;

pub(crate) struct Stock {
    queue: Arc<dyn Queue>,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    at: Option<Instant>,
    found: Found,
    kinds: BTreeSet<(String, String)>,
}

impl Stock {
    pub(crate) fn new(queue: Arc<dyn Queue>) -> Self {
        Self { queue, last: Mutex::default() }
    }

    /// Sets the gauges, unless somebody did a moment ago. A database that is away leaves them as they were, and says so.
    pub(crate) async fn take(&self) {
        let mut last = self.last.lock().await;
        if last.at.is_some_and(|at| at.elapsed() < REMEMBERED) {
            return;
        }
        let last = &mut *last;
        let found = tokio::time::timeout(WITHIN, look(&*self.queue, &mut last.kinds)).await;
        last.at = Some(Instant::now());
        let is_up = matches!(found, Ok(Ok(_)));
        gauge!("telecine_database_up").set(f64::from(u8::from(is_up)));
        match found {
            Ok(Ok(found)) => last.show(found),
            Ok(Err(error)) => tracing::warn!(%error, "no look into the queue for its figures"),
            Err(_) => tracing::warn!("no look into the queue for its figures within {WITHIN:?}"),
        }
    }
}

impl Last {
    /// What is no longer there is nought, or it would be shown as it last was for ever.
    fn show(&mut self, found: Found) {
        let gone = self.found.keys().filter(|key| !found.contains_key(*key)).map(|key| (key, 0.0));
        let there = found.iter().map(|(key, value)| (key, *value));
        for ((name, labels), value) in gone.chain(there) {
            let labels: Vec<Label> =
                labels.iter().map(|(name, value)| Label::new(*name, value.clone())).collect();
            gauge!(*name, labels).set(value);
        }
        self.found = found;
    }
}

async fn look(queue: &dyn Queue, kinds: &mut BTreeSet<(String, String)>) -> Result<Found, QueueError> {
    let mut found = Found::new();
    for count in
        queue.counts().await?.into_iter().filter(|count| !count.state.is_terminal() && count.jobs > 0)
    {
        let (lane, kind) = told_apart(kinds, count.lane, count.kind);
        let labels = vec![("lane", lane), ("kind", kind), ("state", count.state.to_string())];
        *found.entry(("telecine_queue_jobs", labels)).or_default() += count.jobs as f64;
    }
    let now = Timestamp::now();
    for age in queue.waiting_ages().await? {
        let (lane, kind) = told_apart(kinds, age.lane, age.kind);
        let seconds = now.since(age.oldest_ready_at).as_secs_f64();
        // Of those that are not told apart, the oldest.
        let oldest = found.entry(("telecine_queue_age_seconds", vec![("lane", lane), ("kind", kind)]));
        let oldest = oldest.or_default();
        *oldest = oldest.max(seconds);
    }
    for depth in queue.outbox_depths().await? {
        let sink = vec![("sink", depth.sink)];
        let seconds = depth.oldest_at.map_or(0.0, |at| now.since(at).as_secs_f64());
        found.insert(("telecine_outbox_age_seconds", sink.clone()), seconds);
        found.insert(("telecine_outbox_depth", sink), depth.waiting as f64);
    }
    for paused in queue.paused().await? {
        let (scope, name) = match paused.what {
            Pausable::Lane(name) => ("lane", name),
            Pausable::Kind(name) => ("kind", name),
        };
        found.insert(("telecine_queue_paused", vec![("scope", scope.to_owned()), ("name", name)]), 1.0);
    }
    let workers = queue.workers().await?;
    let alive = workers.iter().filter(|worker| worker.alive).count();
    found.insert(("telecine_workers", Vec::new()), alive as f64);
    Ok(found)
}

fn told_apart(kinds: &mut BTreeSet<(String, String)>, lane: String, kind: String) -> (String, String) {
    let pair = (lane, kind);
    if kinds.contains(&pair) || kinds.len() < MOST_KINDS {
        kinds.insert(pair.clone());
        return pair;
    }
    (OTHER.into(), OTHER.into())
}

impl std::fmt::Debug for Stock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stock").finish_non_exhaustive()
    }
}
