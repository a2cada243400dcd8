//! What every handler works with.

use std::sync::Arc;
use std::time::Duration;

use telecine_connect::kafka::Broker;
use telecine_pipeline::{Blobs, Recipes, Workshop};
use telecine_queue::{Queue, QueueError};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::api::scan::{ScanOptions, Scans};
use crate::api::transcode::{Bench, TranscodeOptions};
use crate::api::uploads::{UploadOptions, Uploads};
use crate::api::{Looks, PLAYBACK_SECRET, Shelves};
use crate::caller::Known;
use crate::hub::Hub;
use crate::meter::Stock;
use crate::pace::Pace;
use crate::problem::Problem;
use crate::readiness::Readiness;
use crate::remote::Remote;
use crate::secret::Secret;
use crate::share::Shares;
use crate::trust::Trust;

/// Shared by all requests of a process.
#[derive(Debug)]
pub struct App {
    pub(crate) shop: Arc<Workshop>,
    pub(crate) recipes: Recipes,
    pub(crate) options: ServerOptions,
    pub(crate) known: Known,
    pub(crate) trust: Trust,
    pub(crate) pace: Pace,
    pub(crate) shares: Shares,
    pub(crate) uploads: Uploads,
    pub(crate) bench: Bench,
    pub(crate) scans: Scans,
    /// Cancelled when the process is asked to stop: streams without an end end by it.
    pub(crate) stopping: CancellationToken,
    /// Tells streams of events what happens.
    pub(crate) hub: Hub,
    /// Names of files that were asked for.
    pub(crate) shelves: Shelves,
    /// Who may look ahead at what a run would do.
    pub(crate) looks: Looks,
    /// What addresses for players are signed with, once somebody asked for one.
    playback_secret: OnceCell<Secret>,
    /// Claims of workers in other languages.
    pub(crate) remote: Remote,
    pub(crate) readiness: Readiness,
    pub(crate) stock: Stock,
}

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Callers from this machine need no key.
    pub trust_loopback: bool,
    /// That ends when the first key is made.
    pub trust_until_first_key: bool,
    /// What others call this server by, such as `https://media.example`: for addresses in answers, and to know its own pages.
    pub public_url: Option<String>,
    /// Pages of these origins (`https://app.example`) may call from a browser, with a key.
    pub cors_origins: Vec<String>,
    /// Of a body of JSON.
    pub max_json_bytes: usize,
    /// Of the first line and all headers of a request.
    pub max_header_bytes: usize,
    /// How long the headers of a request may take to arrive; also how long a connection is kept for the next one.
    pub header_within: Duration,
    /// How long a whole body of JSON may take to arrive.
    pub json_within: Duration,
    /// How long a body may stand still, in either direction.
    pub body_idle: Duration,
    pub max_connections: usize,
    /// How long a stream of events may be silent before it says that it is there.
    pub event_keep_alive: Duration,
    /// Figures need no key.
    pub metrics_public: bool,
    /// How long finished jobs are remembered: a process that serves remote claims prunes as workers do.
    pub keep_history: Duration,
    /// Of one key, or of one address without a key; 0 is without a bound.
    pub requests_per_second: u32,
    /// Kinds that this deployment's own workers run beside those of the pipeline and of webhooks: nobody pushes or claims
    /// jobs of them.
    pub own_kinds: Vec<&'static str>,
    pub uploads: UploadOptions,
    pub transcode: TranscodeOptions,
    /// The brokers that this process needs, if any.
    pub kafka: Option<Broker>,
    pub scan: ScanOptions,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            trust_loopback: true,
            trust_until_first_key: false,
            public_url: None,
            cors_origins: Vec::new(),
            max_json_bytes: 256 * 1024,
            max_header_bytes: 16 * 1024,
            header_within: Duration::from_secs(10),
            json_within: Duration::from_secs(60),
            body_idle: Duration::from_secs(60),
            max_connections: 4096,
            event_keep_alive: Duration::from_secs(15),
            metrics_public: false,
            keep_history: Duration::from_hours(30 * 24),
            requests_per_second: 1000,
            own_kinds: Vec::new(),
            uploads: UploadOptions::default(),
            transcode: TranscodeOptions::default(),
            kafka: None,
            scan: ScanOptions::default(),
        }
    }
}

impl App {
    pub fn new(shop: Arc<Workshop>, recipes: Recipes, options: ServerOptions) -> Arc<Self> {
        let uploads = Uploads::new(&options.uploads, &shop);
        let bench = Bench::new(options.transcode);
        let scans = Scans::new(options.scan);
        let stopping = CancellationToken::new();
        let remote = Remote::new(Arc::clone(&shop.queue), stopping.clone(), options.keep_history);
        let hub = Hub::new(Arc::clone(&shop.queue), stopping.clone());
        let pace = Pace::of(options.requests_per_second);
        let shares = Shares::of(options.max_connections);
        let readiness = Readiness::new(Arc::clone(&shop), options.kafka.clone());
        let stock = Stock::new(Arc::clone(&shop.queue), options.own_kinds.clone());
        let trust = Trust::of(&options);
        Arc::new(Self {
            shop,
            recipes,
            options,
            known: Known::new(),
            trust,
            pace,
            shares,
            uploads,
            bench,
            scans,
            stopping,
            hub,
            shelves: Shelves::new(),
            looks: Looks::new(),
            playback_secret: OnceCell::new(),
            remote,
            readiness,
            stock,
        })
    }

    pub(crate) fn queue(&self) -> &dyn Queue {
        self.shop.queue.as_ref()
    }

    pub(crate) fn blobs(&self) -> &Blobs {
        &self.shop.blobs
    }

    pub(crate) async fn playback_secret(&self) -> Result<&Secret, Problem> {
        self.playback_secret.get_or_try_init(|| Secret::shared(self.queue(), PLAYBACK_SECRET)).await
    }

    /// Whether programs on this machine need no key just now.
    pub async fn trusts_this_machine(&self) -> Result<bool, Arc<QueueError>> {
        self.trust.holds(self.queue()).await
    }

    /// How many streams of events are open.
    pub fn watchers(&self) -> usize {
        self.hub.listeners()
    }

    /// Ends what would never end by itself: streams of events, long polls.
    pub fn stop(&self) {
        self.stopping.cancel();
    }
}
