//! The sink: an event becomes a delivery for each endpoint that wants it.
//!
//! Pushing is all it does, so it is quick and an endpoint's health is nothing to it. Whatever is pushed twice, because a
//! relay died before it could say that it had, has the same unique key and is there once.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use telecine_pipeline::RunMeta;
use telecine_queue::{Event, JobId, Limit, NewJob, NewRecord, Push, QueueError, Run, RunId, Sink, SinkError};

use super::deliver::{KIND, LANE};
use super::endpoint::{Endpoint, run_wants};
use super::message::{Message, Recipient, Telling};
use super::{Webhooks, short_hash};
use crate::told;
use crate::traceparent::is_traceparent;

/// What the outbox knows it by.
pub const SINK: &str = "webhooks";

/// The type of the records that tell which delivery was the last.
const LAST_TOLD: &str = "webhook";
/// What a delivery takes, for the tenant's place in the line.
const COST_MS: u32 = 100;
/// A delivery has no part in the deaths of workers.
const MAX_LOST: u16 = 10;
/// Limits of addresses that runs name.
const RUN_LIMITS: &str = "webhook:run:";
/// For so long a limit is taken to be there; a multiple of it unused, it is removed.
const LIMIT_KNOWN_FOR: Duration = Duration::from_hours(1);
const LIMIT_KEPT_FOR: Duration = Duration::from_hours(24);
const REMOVED_AT_ONCE: usize = 20;

pub(super) struct WebhookSink {
    webhooks: Webhooks,
    /// Limits that were seen, and when.
    limits: Mutex<HashMap<String, Instant>>,
}

/// Somebody to be told of a run.
struct Listener {
    recipient: Recipient,
    limit_key: String,
    /// `None`: the run named the address itself.
    endpoint: Option<Endpoint>,
}

impl Listener {
    fn wants(&self, event: &Event) -> bool {
        self.endpoint.as_ref().map_or_else(|| run_wants(&event.name), |it| it.wants(&event.name))
    }
}

/// The last event of a run that an endpoint was told, or is being told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LastTold {
    seq: u64,
    job: JobId,
}

#[async_trait]
impl Sink for WebhookSink {
    fn name(&self) -> &str {
        SINK
    }

    async fn deliver(&self, events: &[Event]) -> Result<(), SinkError> {
        self.push_deliveries(events).await.map_err(SinkError::new)
    }
}

impl WebhookSink {
    pub(super) fn new(webhooks: Webhooks) -> Self {
        Self { webhooks, limits: Mutex::new(HashMap::new()) }
    }

    async fn push_deliveries(&self, events: &[Event]) -> Result<(), QueueError> {
        let queue = self.webhooks.queue();
        let Some(first) = events.first() else { return Ok(()) };
        let Some(run) = queue.get_run(&first.run).await? else { return Ok(()) };
        let meta = RunMeta::of(&run).ok();
        let listeners = self.listeners(&run, meta.as_ref()).await?;
        let is_wanted = |event: &&Event| listeners.iter().any(|listener| listener.wants(event));
        let wanted: Vec<&Event> = events.iter().filter(is_wanted).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let document = told::document(queue, &run, meta.is_some()).await?;
        let traceparent = meta.as_ref().and_then(|meta| meta.traceparent.as_deref());
        let traceparent = traceparent.filter(|text| is_traceparent(text));
        let mut last_told = self.last_told(&run.id).await?;
        let before = last_told.clone();
        for event in wanted {
            let telling = Telling { event, document: &document, traceparent };
            let listeners: Vec<&Listener> = listeners.iter().filter(|it| it.wants(event)).collect();
            self.push_event(&run, &telling, &listeners, &mut last_told).await?;
        }
        self.remember(&run.id, &before, &last_told).await
    }

    async fn listeners(&self, run: &Run, meta: Option<&RunMeta>) -> Result<Vec<Listener>, QueueError> {
        let endpoints = self.webhooks.endpoints(&run.tenant).await?;
        let enabled = endpoints.into_iter().filter(|endpoint| endpoint.disabled.is_none());
        let mut listeners: Vec<Listener> = enabled
            .map(|endpoint| Listener {
                recipient: Recipient::Endpoint(endpoint.id.clone()),
                limit_key: endpoint.id.limit_key(),
                endpoint: Some(endpoint),
            })
            .collect();
        if let Some(webhook) = meta.and_then(|meta| meta.webhook.as_ref()) {
            let limit_key = self.limit_of_address(&run.tenant, &webhook.url).await?;
            let recipient = Recipient::Url(webhook.url.clone());
            listeners.push(Listener { recipient, limit_key, endpoint: None });
        }
        Ok(listeners)
    }

    /// One transaction for all who are told of an event.
    async fn push_event(
        &self,
        run: &Run,
        telling: &Telling<'_>,
        listeners: &[&Listener],
        last_told: &mut BTreeMap<String, LastTold>,
    ) -> Result<(), QueueError> {
        let seq = telling.event.seq;
        let jobs = listeners.iter().map(|listener| {
            let last = last_told.get(listener.recipient.key());
            let after = last.filter(|last| last.seq < seq).map(|last| last.job);
            let message = telling.to(&listener.recipient, after);
            let unique_key = format!("{}:{}:{seq}", listener.recipient.key(), run.id);
            Ok(self.webhooks.job(&message, &listener.limit_key)?.unique_key(unique_key))
        });
        let jobs: Vec<NewJob> = jobs.collect::<Result<_, QueueError>>()?;
        let push = Push::jobs(jobs).tenant(run.tenant.clone());
        let pushed = self.webhooks.queue().push(vec![push]).await?;
        let ids = pushed.into_iter().flat_map(|pushed| pushed.jobs);
        for (listener, job) in listeners.iter().zip(ids) {
            last_told.insert(listener.recipient.key().to_owned(), LastTold { seq, job });
        }
        Ok(())
    }

    async fn last_told(&self, run: &RunId) -> Result<BTreeMap<String, LastTold>, QueueError> {
        let records = self.webhooks.queue().records(run, Some(LAST_TOLD)).await?;
        let read = |json: &Value| LastTold::deserialize(json).ok();
        Ok(records.into_iter().filter_map(|record| Some((record.key, read(&record.json)?))).collect())
    }

    async fn remember(
        &self,
        run: &RunId,
        before: &BTreeMap<String, LastTold>,
        now: &BTreeMap<String, LastTold>,
    ) -> Result<(), QueueError> {
        for (key, told) in now.iter().filter(|(key, told)| before.get(*key) != Some(*told)) {
            let record = NewRecord::new(LAST_TOLD, key, json!(told));
            match self.webhooks.queue().put_record(run, record, None).await {
                // It was deleted meanwhile: there is nothing more to tell of it.
                Ok(_) | Err(QueueError::NoSuchRun(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The key of the limit for an address that runs name, and the limit itself if it is not there.
    async fn limit_of_address(&self, tenant: &str, url: &str) -> Result<String, QueueError> {
        let origin = reqwest::Url::parse(url).map(|url| url.origin().ascii_serialization());
        let key = format!("{RUN_LIMITS}{}", short_hash(&[tenant, &origin.unwrap_or_default()]));
        let is_known = |limits: &HashMap<String, Instant>| {
            limits.get(&key).is_some_and(|seen| seen.elapsed() < LIMIT_KNOWN_FOR)
        };
        if is_known(&self.limits.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(key);
        }
        self.require_limit(&key).await?;
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.retain(|_, seen| seen.elapsed() < LIMIT_KNOWN_FOR);
        limits.insert(key.clone(), Instant::now());
        Ok(key)
    }

    /// Runs may name any number of addresses, so limits that nothing needs any more are removed on the way.
    async fn require_limit(&self, key: &str) -> Result<(), QueueError> {
        let queue = self.webhooks.queue();
        let all = queue.limits().await?;
        let now = telecine_queue::Timestamp::now();
        let is_idle = |it: &&telecine_queue::LimitState| {
            it.limit.key.starts_with(RUN_LIMITS)
                && it.limit.key != key
                && it.running + it.pending + it.parked == 0
                && now.since(it.changed_at) > LIMIT_KEPT_FOR
        };
        for idle in all.iter().filter(is_idle).take(REMOVED_AT_ONCE) {
            queue.limit(Limit::new(&idle.limit.key)).await?;
        }
        if all.iter().any(|it| it.limit.key == key) {
            return Ok(());
        }
        queue.limit(Limit::new(key).max_running(self.webhooks.options.in_flight)).await
    }
}

impl Webhooks {
    /// A delivery to be pushed.
    pub(super) fn job(&self, message: &Message, limit_key: &str) -> Result<NewJob, QueueError> {
        let payload = serde_json::to_value(message)
            .map_err(|error| QueueError::Unexpected { reason: error.to_string() })?;
        let job = NewJob::new(KIND, payload)
            .lane(LANE)
            .max_attempts(self.options.max_attempts)
            .backoff(self.options.backoff)
            .limit_key(limit_key);
        Ok(NewJob { cost_ms: COST_MS, max_lost: MAX_LOST, ..job })
    }
}
