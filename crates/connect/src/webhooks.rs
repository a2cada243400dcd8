//! Webhooks: every event of a run is told to whoever asked, signed, at least once.
//!
//! ```text
//!   event ── sink ──► for each endpoint that wants it: a job `deliver_webhook`, whose payload has the body as it will
//!                     be sent, every time the same, under a unique key (endpoint, run, seq)
//!   job ──── kind ──► looked up again: endpoint, secrets; signed; sent; what was answered decides
//! ```
//! - An [`Endpoint`] belongs to a tenant; a run may also name an address of its own ([`RunWebhook`]), which is signed
//!   with the tenant's own secret.
//! - Each endpoint has a limit of its own for how many deliveries are under way, each delivery a short timeout and its
//!   own backoff, and endpoints that give no answer share few slots: one that is dead delays no other.
//! - Events of one run go to one endpoint in the order of their numbers, as long as each is taken at its first try. One
//!   that had to be tried again comes late, and does not hold up those after it: `seq` tells.
//!
//! [`RunWebhook`]: telecine_pipeline::RunWebhook

mod answer;
mod configured;
mod deliver;
mod delivery;
mod doubt;
mod endpoint;
mod log;
mod message;
mod registry;
mod secret;
mod sink;

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use telecine_pipeline::outside::Outside;
use telecine_queue::{Backoff, Queue, QueueError, Relay, RelayOptions, Sink};

pub use configured::ConfiguredEndpoint;
pub use deliver::{DeliverWebhook, KIND, LANE};
pub use delivery::{DeliveryFilter, DeliveryId, DeliveryPage, DeliveryShown, DeliveryStatus};
pub use endpoint::{
    Disabled, Endpoint, EndpointChange, EndpointId, EventPattern, MAX_DESCRIPTION_CHARS, MAX_EVENTS,
    ManagedBy, NewEndpoint,
};
pub use log::{AttemptShown, Try};
pub use registry::MAX_ENDPOINTS;
pub use secret::{NoSecret, ROTATES_WITHIN, Secret, Secrets};
pub use sink::SINK;

pub(crate) use message::event_id;

/// How webhooks are delivered.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Whether addresses of this machine and of private networks may be told: for development and tests.
    pub allow_private_urls: bool,
    /// How long an endpoint has for its whole answer.
    pub answer_within: Duration,
    /// Deliveries to one endpoint that are under way at the same time, over all workers.
    pub in_flight: u32,
    pub max_attempts: u16,
    /// Between the tries of one delivery.
    pub backoff: Backoff,
    /// After this long a delivery is given up, also if its endpoint always asked for more time.
    pub give_up_after: Duration,
    /// How long an event waits for the one before it to be tried.
    pub in_order_within: Duration,
}

impl Default for WebhookOptions {
    fn default() -> Self {
        Self {
            allow_private_urls: false,
            answer_within: Duration::from_secs(10),
            in_flight: 4,
            max_attempts: 10,
            // 5 s, 25 s, 2 min, 10 min, 52 min, 4.3 h, 22 h, 24 h, 24 h: ten tries in 75 hours.
            backoff: Backoff { base_ms: 5_000, factor: 5, cap_ms: 24 * 60 * 60 * 1_000 },
            give_up_after: Duration::from_hours(5 * 24),
            in_order_within: Duration::from_secs(60),
        }
    }
}

/// Endpoints, deliveries, and what sends them.
#[derive(Clone)]
pub struct Webhooks {
    queue: Arc<dyn Queue>,
    outside: Outside,
    options: WebhookOptions,
}

/// Why something about webhooks was not done.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// Correct the field.
    #[error("{reason}")]
    Invalid { field: &'static str, reason: String },
    /// It is not there, or not this tenant's.
    #[error("there is no such {what}")]
    NotFound { what: &'static str },
    /// It is in a state in which this cannot be done.
    #[error("{reason}")]
    Conflict { reason: String },
    #[error(transparent)]
    Queue(#[from] QueueError),
    #[error("no secret can be made: {0}")]
    NoRandomness(#[from] getrandom::Error),
}

impl WebhookError {
    fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { field, reason: reason.into() }
    }

    fn conflict(reason: impl Into<String>) -> Self {
        Self::Conflict { reason: reason.into() }
    }
}

impl Webhooks {
    pub fn new(queue: Arc<dyn Queue>, options: WebhookOptions) -> Self {
        Self { queue, outside: Outside::reaching(options.allow_private_urls), options }
    }

    /// The kind that a worker needs to deliver.
    pub fn kind(&self) -> DeliverWebhook {
        DeliverWebhook::new(self.clone())
    }

    /// What a relay needs to tell events on.
    pub fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(sink::WebhookSink::new(self.clone()))
    }

    /// Starts to tell events on. Any number of processes may do it at the same time.
    pub async fn start_relay(&self, options: RelayOptions) -> Result<Relay, QueueError> {
        Relay::start(Arc::clone(&self.queue), vec![self.sink()], options).await
    }

    pub(crate) fn queue(&self) -> &dyn Queue {
        self.queue.as_ref()
    }
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhooks").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What the entries of a tenant begin with: of one length, whatever the tenant is called.
fn tenant_key(tenant: &str) -> String {
    short_hash(&[tenant])
}

pub(crate) fn short_hash(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
