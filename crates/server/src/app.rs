//! What every handler works with.

use std::sync::Arc;
use std::time::Duration;

use telecine_pipeline::{Blobs, Recipes, Workshop};
use telecine_queue::Queue;
use tokio_util::sync::CancellationToken;

use crate::meter::Stock;
use crate::readiness::Readiness;
use crate::remote::Remote;

/// Shared by all requests of a process.
#[derive(Debug)]
pub struct App {
    pub(crate) shop: Arc<Workshop>,
    pub(crate) recipes: Recipes,
    pub(crate) options: ServerOptions,
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
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            trust_loopback: true,
            cors_origins: Vec::new(),
            max_json_bytes: 256 * 1024,
            max_header_bytes: 16 * 1024,
            header_within: Duration::from_secs(10),
            body_idle: Duration::from_secs(60),
            max_connections: 4096,
            metrics_public: false,
        }
    }
}

impl App {
    pub fn new(shop: Arc<Workshop>, recipes: Recipes, options: ServerOptions) -> Arc<Self> {
        let stopping = CancellationToken::new();
        let remote = Remote::new(Arc::clone(&shop.queue), stopping.clone());
        let readiness = Readiness::new(Arc::clone(&shop));
        let stock = Stock::new(Arc::clone(&shop.queue));
        Arc::new(Self { shop, recipes, options, stopping, remote, readiness, stock })
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
