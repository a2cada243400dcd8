//! Kafka: records of a request topic become runs, and what became of runs goes to a response topic.
//!
//! ```text
//!   request topic ── intake ──► many records, one push, COMMIT ──► offsets committed
//!                       └─────► what can never be a run ──► dead-letter topic, acknowledged ──► offsets committed
//!   outbox ── relay ── sink `kafka` ──► response topic, acknowledged by all replicas ──► outbox told
//! ```
//! - A record's idempotency key is that of its header, of its CloudEvent or of its body; without one, its place in the topic.
//!   Whatever is read again after a crash or a rebalance therefore finds the run that it made before.
//! - Nothing is committed before it is stored: with the database away, intake stands still and goes on by itself.
//! - The consumer has a thread of its own and is polled also while it takes nothing, or the group would give its
//!   partitions to others.

mod broker;
mod client;
mod cloud_event;
mod complaint;
mod desk;
mod figures;
mod incoming;
mod intake;
mod lag;
mod membership;
mod publisher;
mod reader;
mod refusal;
mod request;
mod response;
mod sink;
mod unreadable;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rdkafka::error::RDKafkaErrorCode;
use telecine_pipeline::{NoRecipe, Recipes, Workshop};
use telecine_queue::{QueueError, Relay, RelayOptions, Sink};

pub use broker::Broker;
pub use client::RESERVED;
pub use intake::Intake;
pub use sink::{is_sink, sink_of};

use publisher::Publisher;

/// Which topics are read and written, and how.
#[derive(Clone, PartialEq, Eq)]
pub struct KafkaOptions {
    /// `host:port`, several with commas.
    pub brokers: String,
    /// Processes of one group share the partitions of the request topic.
    pub group: String,
    pub request_topic: String,
    pub response_topic: String,
    pub dead_letter_topic: String,
    pub format: Format,
    /// What is done with an input where the format does not name a recipe.
    pub recipe: String,
    /// Whose the runs are.
    pub tenant: String,
    /// With so many jobs waiting nothing more is taken in, until they are half as many.
    pub max_backlog: u64,
    /// Records that are stored in one transaction, at the most.
    pub batch: usize,
    /// Whether topics that are missing are made.
    pub create_topics: bool,
    pub results: Results,
    /// Of librdkafka, such as `security.protocol`. Their values may be secrets.
    pub properties: BTreeMap<String, String>,
}

/// How requests and results are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Requests as for `POST /v1/runs`.
    #[default]
    Telecine,
    /// Requests with bucket, key, user and media id.
    Optimize,
}

/// Which runs' results are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Results {
    #[default]
    All,
    /// Those that were asked for over Kafka.
    Kafka,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "telecine" => Ok(Self::Telecine),
            "optimize" => Ok(Self::Optimize),
            _ => Err(format!("must be telecine or optimize, not `{text}`")),
        }
    }
}

impl FromStr for Results {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            "kafka" => Ok(Self::Kafka),
            _ => Err(format!("must be all or kafka, not `{text}`")),
        }
    }
}

impl KafkaOptions {
    /// Those brokers, and everything else as it is when nobody says anything.
    pub fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            group: "telecine".into(),
            request_topic: "optimize-request".into(),
            response_topic: "optimize-response".into(),
            dead_letter_topic: "optimize-request.dead".into(),
            format: Format::Telecine,
            recipe: "optimize".into(),
            tenant: String::new(),
            max_backlog: 10_000,
            batch: 500,
            create_topics: false,
            results: Results::All,
            properties: BTreeMap::new(),
        }
    }

    fn topics(&self) -> [&str; 3] {
        [&self.request_topic, &self.response_topic, &self.dead_letter_topic]
    }
}

impl fmt::Debug for KafkaOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaOptions")
            .field("brokers", &self.brokers)
            .field("group", &self.group)
            .field("topics", &self.topics())
            .field("format", &self.format)
            .field("properties", &self.properties.keys())
            .finish_non_exhaustive()
    }
}

/// Why something about Kafka was not done.
#[derive(Debug, thiserror::Error)]
pub enum KafkaError {
    /// Correct the property: librdkafka does not take it.
    #[error("the property `{property}` cannot be used: {reason}")]
    Property { property: String, reason: String },
    /// Correct one of them: each may be right by itself.
    #[error("no client can be made with these properties: {reason}")]
    Properties { reason: String },
    /// Check the address and whether a broker is there; or try again.
    #[error("no broker answers at {brokers}: {reason}")]
    Unreachable { brokers: String, reason: String },
    /// Correct user, password or mechanism, here or there; or try again.
    #[error("the brokers at {brokers} do not let this user in: {reason}")]
    NotLetIn { brokers: String, reason: String },
    /// Name the authority that signed the brokers' certificate, or have them show another; or try again.
    #[error("no TLS with the brokers at {brokers}: {reason}")]
    NoTls { brokers: String, reason: String },
    /// Give the user the right to it; or try again.
    #[error("the brokers at {brokers} do not let this user at topic `{topic}`")]
    Forbidden { brokers: String, topic: String },
    /// Make the topics.
    #[error("there is no topic {}", topics.iter().map(|topic| format!("`{topic}`")).collect::<Vec<_>>().join(", "))]
    NoTopic { topics: Vec<String> },
    /// Allow it, or wait: a broker has answered, and this is what it says.
    #[error("the topic `{topic}` cannot be used: {code}")]
    Topic { topic: String, code: RDKafkaErrorCode },
    #[error("the topic `{topic}` cannot be made: {reason}")]
    NotMade { topic: String, reason: String },
    /// Name another recipe: with this one every request would be refused.
    #[error("the recipe of requests cannot be used: {0}")]
    Recipe(#[from] NoRecipe),
    /// Look into the log: it is being tried again.
    #[error("requests are not taken in")]
    IntakeBroken,
    #[error("no thread can be started: {0}")]
    Thread(#[from] std::io::Error),
}

impl KafkaError {
    /// Whether it may be put right on the brokers' side, or by itself, so that asking again helps.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::NotLetIn { .. }
            | Self::NoTls { .. }
            | Self::Forbidden { .. }
            | Self::IntakeBroken => true,
            Self::Topic { code, .. } => *code == RDKafkaErrorCode::LeaderNotAvailable,
            Self::Property { .. }
            | Self::Properties { .. }
            | Self::NoTopic { .. }
            | Self::NotMade { .. }
            | Self::Recipe(_)
            | Self::Thread(_) => false,
        }
    }

    /// For whoever may ask: without addresses, names and reasons.
    pub fn in_short(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "no broker of Kafka answers",
            Self::NotLetIn { .. } => "the brokers of Kafka do not take user and password",
            Self::NoTls { .. } => "there is no TLS with the brokers of Kafka",
            Self::Forbidden { .. } => "a topic of Kafka may not be used",
            Self::Topic { .. } => "a topic of Kafka cannot be used",
            Self::NoTopic { .. } | Self::NotMade { .. } => "a topic of Kafka is missing",
            Self::IntakeBroken => "requests are not taken in from Kafka",
            Self::Property { .. } | Self::Properties { .. } | Self::Recipe(_) | Self::Thread(_) => {
                "no client of Kafka can be made"
            }
        }
    }
}

/// Both directions.
#[derive(Clone)]
pub struct Kafka {
    shop: Arc<Workshop>,
    recipes: Arc<Recipes>,
    options: Arc<KafkaOptions>,
    publisher: Arc<Publisher>,
    broker: Broker,
}

impl Kafka {
    /// Speaks with nobody yet.
    pub fn new(shop: Arc<Workshop>, recipes: Recipes, options: KafkaOptions) -> Result<Self, KafkaError> {
        if options.format == Format::Optimize {
            recipes.get(&options.recipe)?;
        }
        let options = Arc::new(options);
        let publisher = Arc::new(Publisher::new(&options)?);
        let broker = Broker::new(Arc::clone(&options))?;
        Ok(Self { shop, recipes: Arc::new(recipes), options, publisher, broker })
    }

    pub fn options(&self) -> &KafkaOptions {
        &self.options
    }

    /// The cluster, for a look at it.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Takes requests in from now on. Any number of processes may do it at the same time.
    pub fn start_intake(&self) -> Result<Intake, KafkaError> {
        Intake::start(self).inspect_err(|_| self.broker.tell_intake_broken(true))
    }

    /// What a relay needs to tell results.
    pub fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(sink::KafkaSink::new(self))
    }

    /// Tells results from now on. Any number of processes may do it at the same time.
    pub async fn start_relay(&self, options: RelayOptions) -> Result<Relay, QueueError> {
        Relay::start(Arc::clone(&self.shop.queue), vec![self.sink()], options).await
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka").field("options", &self.options).finish_non_exhaustive()
    }
}
