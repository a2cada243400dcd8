//! What every handler works with.

use std::sync::Arc;
use std::time::Duration;

use telecine_pipeline::{Blobs, Recipes, Workshop};
use telecine_queue::Queue;
use tokio_util::sync::CancellationToken;

use crate::api::uploads::{UploadOptions, Uploads};
use crate::caller::Known;
use crate::meter::Stock;
use crate::pace::Pace;
use crate::readiness::Readiness;
use crate::remote::Remote;

/// Shared by all requests of a process.
#[derive(Debug)]
pub struct App {
    pub(crate) shop: Arc<Workshop>,
    pub(crate) recipes: Recipes,
    pub(crate) options: ServerOptions,
    pub(crate) known: Known,
    pub(crate) pace: Pace,
    pub(crate) uploads: Uploads,
    /// Cancelled when the process is asked to stop: streams without an end end by it.
    pub(crate) stopping: CancellationToken,
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
    /// How long a body may stand still, in either direction.
    pub body_idle: Duration,
    pub max_connections: usize,
    /// Figures need no key.
    pub metrics_public: bool,
    /// Of one key, or of one address without a key; 0 is without a bound.
    pub requests_per_second: u32,
    pub uploads: UploadOptions,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            trust_loopback: true,
            public_url: None,
            cors_origins: Vec::new(),
            max_json_bytes: 256 * 1024,
            max_header_bytes: 16 * 1024,
            header_within: Duration::from_secs(10),
            body_idle: Duration::from_secs(60),
            max_connections: 4096,
            metrics_public: false,
            requests_per_second: 1000,
            uploads: UploadOptions::default(),
        }
    }
}

impl App {
    pub fn new(shop: Arc<Workshop>, recipes: Recipes, options: ServerOptions) -> Arc<Self> {
        let uploads = Uploads::new(&options.uploads, &shop);
        let stopping = CancellationToken::new();
        let remote = Remote::new(Arc::clone(&shop.queue), stopping.clone());
        let readiness = Readiness::new(Arc::clone(&shop));
        let stock = Stock::new(Arc::clone(&shop.queue));
        let pace = Pace::of(options.requests_per_second);
        Arc::new(Self {
            shop,
            recipes,
            options,
            known: Known::new(),
            pace,
            uploads,
            stopping,
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

    /// Ends what would never end by itself: streams of events, long polls.
    pub fn stop(&self) {
        self.stopping.cancel();
    }
}
