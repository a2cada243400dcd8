//! A place where runs happen and are told of: a database, a worker, a relay.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use telecine_connect::webhooks::{
    DeliveryFilter, DeliveryShown, DeliveryStatus, Endpoint, EventPattern, KIND, NewEndpoint,
};
use telecine_connect::{WebhookOptions, Webhooks};
use telecine_pipeline::{Input, Recipe, RunMeta, RunWebhook};
use telecine_queue::{
    Backoff, Failure, Job, JobContext, JobFilter, Kind, Kinds, NewJob, NewRun, Page, Push, Queue, Relay,
    RelayOptions, RunId, Runtime, Slots, WorkerOptions,
};

use crate::postgres_server::PostgresServer;

pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Which database.
#[derive(Clone)]
pub(crate) enum On {
    Sqlite,
    Postgres(PostgresServer),
}

pub(crate) struct Stage {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) webhooks: Webhooks,
    workers: Vec<Runtime>,
    relays: Vec<Relay>,
    _folder: tempfile::TempDir,
}

/// Stands for all that makes a run.
struct Noop;

#[async_trait]
impl Kind for Noop {
    fn name(&self) -> &'static str {
        "noop"
    }

    async fn run(&self, _: &Job, _: &JobContext) -> Result<Value, Failure> {
        Ok(Value::Null)
    }
}

impl Stage {
    /// With a worker and a relay.
    pub(crate) async fn open(on: &On) -> Self {
        Self::with(on, |_| ()).await
    }

    pub(crate) async fn with(on: &On, arrange: impl FnOnce(&mut WebhookOptions)) -> Self {
        let mut stage = Self::idle(on, arrange).await;
        stage.start_worker().await;
        stage.start_relay().await;
        stage
    }

    /// Nobody works and nobody relays yet, but the outbox is filled.
    pub(crate) async fn idle(on: &On, arrange: impl FnOnce(&mut WebhookOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = match on {
            On::Sqlite => format!("sqlite:{}", folder.path().join("queue.db").display()),
            On::Postgres(server) => server.new_database(),
        };
        let queue = telecine_queue::open(&database).await.unwrap();
        let mut options = WebhookOptions {
            allow_private_urls: true,
            backoff: Backoff::constant(Duration::from_millis(50)),
            ..WebhookOptions::default()
        };
        arrange(&mut options);
        let webhooks = Webhooks::new(Arc::clone(&queue), options);
        queue.add_sink(telecine_connect::webhooks::SINK).await.unwrap();
        Self { queue, webhooks, workers: Vec::new(), relays: Vec::new(), _folder: folder }
    }

    pub(crate) async fn start_worker(&mut self) {
        let options = WorkerOptions {
            slots: Slots::Each(8),
            lease: Duration::from_secs(10),
            beat_every: Duration::from_millis(200),
            poll_every: Duration::from_millis(200),
            ..WorkerOptions::default()
        };
        let kinds = Kinds::new().with(Noop).with(self.webhooks.kind());
        self.workers.push(Runtime::start(Arc::clone(&self.queue), kinds, options).await.unwrap());
    }

    pub(crate) async fn start_relay(&mut self) {
        let options = RelayOptions { poll_every: Duration::from_millis(100), ..RelayOptions::default() };
        self.relays.push(self.webhooks.start_relay(options).await.unwrap());
    }

    pub(crate) async fn endpoint(&self, tenant: &str, url: &str, events: &[&str]) -> Endpoint {
        let events = events.iter().map(|it| EventPattern::try_from((*it).to_owned()).unwrap()).collect();
        let new = NewEndpoint { url: url.to_owned(), events, description: String::new() };
        self.webhooks.add_endpoint(tenant, new).await.unwrap()
    }

    /// A run that will succeed: three events.
    pub(crate) async fn run(&self, tenant: &str) -> RunId {
        self.run_telling(tenant, None).await
    }

    /// The same, that names an address of its own.
    pub(crate) async fn run_telling(&self, tenant: &str, url: Option<&str>) -> RunId {
        let meta = RunMeta {
            recipe: Recipe::new("test", Vec::new()),
            input: Input::Upload("01JX".into()),
            priority: 50,
            fresh: false,
            metadata: json!({"user": 7}),
            publish_to: None,
            webhook: url.map(|url| RunWebhook { url: url.to_owned() }),
            traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
            came_by: None,
        };
        let run = NewRun {
            name: "test".into(),
            external_id: Some("vid-42".into()),
            meta: serde_json::to_value(meta).unwrap(),
        };
        let push = Push::run(run, [NewJob::new("noop", Value::Null)]).tenant(tenant);
        self.queue.push(vec![push]).await.unwrap().remove(0).run.unwrap()
    }

    /// Waits until something holds.
    pub(crate) async fn until(&self, mut holds: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut wakes = self.queue.wakes();
        while !holds().await {
            assert!(Instant::now() < deadline, "it never came: {:#?}", self.deliveries("").await);
            // A wake-up or a moment: what is waited for may be elsewhere.
            let _ = tokio::time::timeout(Duration::from_millis(20), wakes.changed()).await;
        }
    }

    pub(crate) async fn deliveries(&self, tenant: &str) -> Vec<DeliveryShown> {
        let all = DeliveryFilter::default();
        self.webhooks.deliveries(tenant, &all, None, 1_000).await.unwrap().data
    }

    /// Waits until so many deliveries have ended; none is left.
    pub(crate) async fn ended(&self, tenant: &str, count: usize) -> Vec<DeliveryShown> {
        let has_ended =
            |it: &DeliveryShown| !matches!(it.status, DeliveryStatus::Pending | DeliveryStatus::Retrying);
        self.until(async || {
            let all = self.deliveries(tenant).await;
            all.len() >= count && all.iter().all(has_ended)
        })
        .await;
        let all = self.deliveries(tenant).await;
        assert_eq!(all.len(), count, "{all:#?}");
        all
    }

    pub(crate) async fn jobs(&self) -> Vec<Job> {
        let filter = JobFilter { kind: Some(KIND.into()), ..JobFilter::default() };
        self.queue.list(&filter, Page::first(1_000)).await.unwrap().data
    }

    pub(crate) async fn close(self) {
        for relay in self.relays {
            relay.stop().await;
        }
        for worker in self.workers {
            worker.stop_now();
            worker.finished().await;
        }
        self.queue.close().await;
    }
}

/// A promise on both databases.
pub(crate) fn on_both<F: Future<Output = ()> + 'static>(
    server: &PostgresServer,
    name: &str,
    promise: fn(On) -> F,
) -> [Trial; 2] {
    [("sqlite", On::Sqlite), ("postgres", On::Postgres(server.clone()))].map(|(database, on)| {
        Trial::test(format!("{database}::{name}"), move || {
            block_on(promise(on));
            Ok(())
        })
    })
}

pub(crate) fn block_on<F: Future<Output = ()>>(promise: F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(Box::pin(promise));
}

/// All promises of a file, each on both databases.
macro_rules! promises {
    ($subject:literal, $server:expr, [$($promise:ident),+ $(,)?]) => {
        [$($crate::stage::on_both($server, concat!($subject, "::", stringify!($promise)), $promise)),+]
            .into_iter()
            .flatten()
            .collect()
    };
}
pub(crate) use promises;

/// One trial for each promise, where the database makes no difference.
macro_rules! promises_alone {
    ($subject:literal, [$($promise:ident),+ $(,)?]) => {
        [$(libtest_mimic::Trial::test(concat!($subject, "::", stringify!($promise)), || {
            $crate::stage::block_on($promise());
            Ok(())
        })),+]
    };
}
pub(crate) use promises_alone;
