//! A place where requests are taken in and results are told: a database, a workshop, topics.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use telecine_connect::Kafka;
use telecine_connect::kafka::{Intake, KafkaError, KafkaOptions};
use telecine_media::{Confinement, Toolbox};
use telecine_pipeline::{Blobs, Recipes, Scratch, Workshop, kinds};
use telecine_queue::testing::{Faults, faulty};
use telecine_queue::{Queue, Relay, RelayOptions, Run, RunFilter, RunPage, Runtime, Slots, WorkerOptions};

use crate::kafka_server::{KafkaServer, Sent};
use crate::stage::{On, PATIENCE};

pub(crate) struct Office {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) server: KafkaServer,
    pub(crate) options: KafkaOptions,
    shop: Arc<Workshop>,
    folder: tempfile::TempDir,
}

impl Office {
    pub(crate) async fn open(server: &KafkaServer, on: &On) -> Self {
        Self::with(server, on, 3, |_| ()).await
    }

    pub(crate) async fn with(
        server: &KafkaServer,
        on: &On,
        partitions: i32,
        arrange: impl FnOnce(&mut KafkaOptions),
    ) -> Self {
        Self::faulty(server, on, partitions, &Faults::new(), arrange).await
    }

    /// On a database that fails as the script says.
    pub(crate) async fn faulty(
        server: &KafkaServer,
        on: &On,
        partitions: i32,
        faults: &Faults,
        arrange: impl FnOnce(&mut KafkaOptions),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = match on {
            On::Sqlite => format!("sqlite:{}", folder.path().join("queue.db").display()),
            On::Postgres(server) => server.new_database(),
        };
        let queue = faulty(telecine_queue::open(&database).await.unwrap(), faults);
        let [request_topic, response_topic, dead_letter_topic] = server.new_topics(partitions).await;
        let group = format!("group-{request_topic}");
        let mut options = KafkaOptions {
            group,
            request_topic,
            response_topic,
            dead_letter_topic,
            ..KafkaOptions::new(server.address())
        };
        arrange(&mut options);
        let blobs = Blobs::in_folder(&folder.path().join("store")).unwrap();
        let scratch = Scratch::open(&folder.path().join("scratch")).unwrap();
        let toolbox = Toolbox::from_path(Confinement::None);
        let mut shop = Workshop::new(Arc::clone(&queue), toolbox, blobs, scratch);
        shop.input_folders.push(folder.path().canonicalize().unwrap());
        shop.input_buckets.push("s3://films".into());
        let office = Self { queue, server: server.clone(), options, shop: Arc::new(shop), folder };
        // One that may be named as an input, and that no recipe can do anything with.
        std::fs::write(office.file(), "no film").unwrap();
        office
    }

    /// A file that is there and is no film: its runs fail at once, for good.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("no-film.txt")
    }

    pub(crate) fn shop(&self) -> &Workshop {
        &self.shop
    }

    pub(crate) fn kafka(&self) -> Kafka {
        self.kafka_with(|_| ())
    }

    pub(crate) fn kafka_with(&self, arrange: impl FnOnce(&mut KafkaOptions)) -> Kafka {
        self.try_kafka_with(arrange).unwrap()
    }

    pub(crate) fn try_kafka_with(
        &self,
        arrange: impl FnOnce(&mut KafkaOptions),
    ) -> Result<Kafka, KafkaError> {
        let mut options = self.options.clone();
        arrange(&mut options);
        Kafka::new(Arc::clone(&self.shop), Recipes::load(None).unwrap(), options)
    }

    pub(crate) fn intake(&self) -> Intake {
        self.kafka().start_intake().unwrap()
    }

    pub(crate) async fn relay(&self) -> Relay {
        let options = RelayOptions { poll_every: Duration::from_millis(100), ..RelayOptions::default() };
        self.kafka().start_relay(options).await.unwrap()
    }

    pub(crate) async fn worker(&self) -> Runtime {
        let options = WorkerOptions {
            slots: Slots::Each(4),
            lease: Duration::from_secs(10),
            beat_every: Duration::from_millis(500),
            poll_every: Duration::from_millis(200),
            ..WorkerOptions::default()
        };
        Runtime::start(Arc::clone(&self.queue), kinds::all(&self.shop), options).await.unwrap()
    }

    /// A request for the file that is no film.
    pub(crate) fn request(&self, id: &str) -> Value {
        json!({"recipe": "thumbnail", "input": {"path": self.file()}, "external_id": id})
    }

    /// So many requests, with ids `PREFIX-0`, `PREFIX-1`, …, as keys too.
    pub(crate) fn produce_requests(&self, prefix: &str, count: usize) {
        let ids = (0..count).map(|nth| format!("{prefix}-{nth}"));
        self.produce(ids.map(|id| Sent::new(self.request(&id)).key(&id)));
    }

    pub(crate) fn produce(&self, records: impl IntoIterator<Item = Sent>) {
        self.server.produce(&self.options.request_topic, records);
    }

    /// All runs, the oldest first.
    pub(crate) async fn runs(&self) -> Vec<Run> {
        let (mut runs, mut before) = (Vec::new(), None);
        loop {
            let page = RunPage { before: before.clone(), limit: RunPage::MAX_LIMIT };
            let Ok(listed) = self.queue.list_runs(&RunFilter::default(), page).await else { continue };
            runs.extend(listed.data);
            before = listed.next_cursor;
            if before.is_none() {
                runs.reverse();
                return runs;
            }
        }
    }

    pub(crate) async fn until_runs(&self, count: usize) -> Vec<Run> {
        self.until(async || self.runs().await.len() >= count).await;
        let runs = self.runs().await;
        assert_eq!(runs.len(), count);
        runs
    }

    /// Until the group has committed so many records.
    pub(crate) async fn until_committed(&self, count: i64) {
        let committed = || self.server.committed(&self.options.group, &self.options.request_topic);
        self.until(async || committed() >= count).await;
        assert_eq!(committed(), count);
    }

    pub(crate) async fn until(&self, mut holds: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut wakes = self.queue.wakes();
        while !holds().await {
            assert!(Instant::now() < deadline, "it never came");
            // A wake-up or a moment: what is waited for may be elsewhere.
            let _ = tokio::time::timeout(Duration::from_millis(20), wakes.changed()).await;
        }
    }
}

pub(crate) async fn stop(worker: Runtime) {
    worker.stop_now();
    worker.finished().await;
}

/// The ids of runs as their callers have them, sorted.
pub(crate) fn ids(runs: &[Run]) -> Vec<&str> {
    let mut ids: Vec<&str> = runs.iter().filter_map(|run| run.external_id.as_deref()).collect();
    ids.sort_unstable();
    ids
}
