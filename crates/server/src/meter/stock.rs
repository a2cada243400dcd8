//! How much there is of something: looked up in the database when a scrape comes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{Label, gauge};
use telecine_connect::webhooks;
use telecine_pipeline::kinds::lane_of;
use telecine_queue::{Pausable, Queue, QueueError, Timestamp};
use tokio::sync::Mutex;

/// Scrapes within this time see the same look.
const REMEMBERED: Duration = Duration::from_secs(1);
const WITHIN: Duration = Duration::from_secs(2);

/// Whoever may push jobs can invent kinds and lanes. So many pairs of others are told apart, the rest are `other`; a place that
/// nothing waits in any more is free for the next one.
const MOST_KINDS: usize = 200;
const OTHER: &str = "other";

/// What a look found: a value by name and labels.
type Found = BTreeMap<(&'static str, Vec<(&'static str, String)>), f64>;

pub(crate) struct Stock {
    queue: Arc<dyn Queue>,
    /// Of the deployment itself, beside those of the pipeline: always told apart.
    own_kinds: Vec<&'static str>,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    at: Option<Instant>,
    found: Found,
    /// The pairs of others that are told apart.
    kinds: BTreeSet<(String, String)>,
}

impl Stock {
    pub(crate) fn new(queue: Arc<dyn Queue>, own_kinds: Vec<&'static str>) -> Self {
        Self { queue, own_kinds, last: Mutex::default() }
    }

    /// Sets the gauges, unless somebody did a moment ago. A database that is away leaves them as they were, and says so.
    pub(crate) async fn take(&self) {
        let mut last = self.last.lock().await;
        if last.at.is_some_and(|at| at.elapsed() < REMEMBERED) {
            return;
        }
        let last = &mut *last;
        let found = tokio::time::timeout(WITHIN, look(&*self.queue, &self.own_kinds, &mut last.kinds)).await;
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

async fn look(
    queue: &dyn Queue,
    own_kinds: &[&str],
    kinds: &mut BTreeSet<(String, String)>,
) -> Result<Found, QueueError> {
    let mut found = Found::new();
    let mut counts = queue.counts().await?;
    counts.retain(|count| !count.state.is_terminal() && count.jobs > 0);
    let ages = queue.waiting_ages().await?;
    let live: BTreeSet<(&str, &str)> = (counts.iter().map(|count| (&*count.lane, &*count.kind)))
        .chain(ages.iter().map(|age| (&*age.lane, &*age.kind)))
        .collect();
    kinds.retain(|(lane, kind)| live.contains(&(&**lane, &**kind)));
    for count in counts {
        let (lane, kind) = told_apart(own_kinds, kinds, count.lane, count.kind);
        let labels = vec![("lane", lane), ("kind", kind), ("state", count.state.to_string())];
        *found.entry(("telecine_queue_jobs", labels)).or_default() += count.jobs as f64;
    }
    let now = Timestamp::now();
    for age in ages {
        let (lane, kind) = told_apart(own_kinds, kinds, age.lane, age.kind);
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

fn told_apart(
    own_kinds: &[&str],
    kinds: &mut BTreeSet<(String, String)>,
    lane: String,
    kind: String,
) -> (String, String) {
    let is_own =
        lane_of(&kind).is_some() || kind == webhooks::KIND || own_kinds.iter().any(|own| *own == kind);
    let pair = (lane, kind);
    if is_own {
        return pair;
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use telecine_queue::{JobFilter, NewJob, Push};

    use super::*;

    fn kinds_of(found: &Found) -> BTreeSet<&str> {
        let labels = found.keys().filter(|(name, _)| *name == "telecine_queue_jobs").flat_map(|(_, it)| it);
        labels.filter(|(name, _)| *name == "kind").map(|(_, kind)| kind.as_str()).collect()
    }

    #[tokio::test]
    async fn what_others_invented_and_is_gone_makes_room_and_our_own_kinds_need_none() {
        let folder = tempfile::tempdir().unwrap();
        let queue = telecine_queue::open(&format!("sqlite:{}", folder.path().join("queue.db").display()))
            .await
            .unwrap();
        let push = async |kinds: Vec<String>| {
            let jobs = kinds.into_iter().map(|kind| NewJob::new(kind, json!({})).lane("elsewhere"));
            queue.push(vec![Push::jobs(jobs)]).await.unwrap();
        };
        let mut kinds = BTreeSet::new();

        push((0..=MOST_KINDS).map(|nth| format!("invented_{nth}")).collect()).await;
        look(&*queue, &["pause"], &mut kinds).await.unwrap();
        push(vec!["pause".into(), "ingest".into(), "late".into()]).await;
        let crowded = look(&*queue, &["pause"], &mut kinds).await.unwrap();
        for nth in 0..=MOST_KINDS {
            let filter = JobFilter { kind: Some(format!("invented_{nth}")), ..JobFilter::default() };
            queue.cancel_all(&filter).await.unwrap();
        }
        let emptied = look(&*queue, &["pause"], &mut kinds).await.unwrap();

        let crowded = kinds_of(&crowded);
        assert!(["pause", "ingest", OTHER].iter().all(|kind| crowded.contains(kind)), "{crowded:?}");
        assert!(!crowded.contains("late"));
        assert_eq!(kinds_of(&emptied), ["ingest", "late", "pause"].into());
        queue.close().await;
    }
}
