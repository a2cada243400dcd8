//! Whether this process can work: database, store, scratch, programs, brokers, and the virus scanner where it cannot do
//! without.
//!
//! A look is bounded in time and remembered for a moment, and only one is under way at once: asking often costs nothing.
//! What exactly went wrong is for the log, not for whoever may ask.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use telecine_connect::kafka::Broker;
use telecine_media::Program;
use telecine_pipeline::{ScanPolicy, Workshop};
use tokio::sync::Mutex;
use utoipa::ToSchema;

/// How long any one check may take.
const WITHIN: Duration = Duration::from_secs(2);
/// Less, so that there is time to say why there was no answer.
const BROKERS_WITHIN: Duration = Duration::from_millis(1_500);
const REMEMBERED: Duration = Duration::from_millis(1_500);
/// A request to a bucket costs money; it is asked less often.
const STORE_REMEMBERED: Duration = Duration::from_secs(10);
/// A blob that need not be there: the store only has to say whether it is.
const PROBE_KEY: &str = "health/probe";

/// How one part fares.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Check {
    /// `database`, `store`, `scratch`, `tools`, `kafka` or `clamd`.
    pub(crate) name: &'static str,
    pub(crate) ok: bool,
    /// What is wrong, in a few words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<&'static str>,
    /// How long the look took.
    pub(crate) ms: f64,
    /// Of scratch: what jobs may still use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) free_bytes: Option<u64>,
}

/// The last look, and the means to take another.
#[derive(Debug)]
pub(crate) struct Readiness {
    shop: Arc<Workshop>,
    kafka: Option<Broker>,
    last: Mutex<Option<Look>>,
}

#[derive(Clone, Debug)]
struct Look {
    at: Instant,
    checks: Vec<Check>,
    store: (Instant, Check),
}

impl Readiness {
    pub(crate) fn new(shop: Arc<Workshop>, kafka: Option<Broker>) -> Self {
        Self { shop, kafka, last: Mutex::new(None) }
    }

    /// How all parts fare, as of a moment ago at the latest.
    pub(crate) async fn look(&self) -> Vec<Check> {
        // Whoever comes while a look is under way waits for it, and finds it fresh.
        let mut last = self.last.lock().await;
        if let Some(look) = last.as_ref().filter(|look| look.at.elapsed() < REMEMBERED) {
            return look.checks.clone();
        }
        let known_store = last.as_ref().map(|look| look.store.clone());
        let known_store = known_store.filter(|(at, check)| check.ok && at.elapsed() < STORE_REMEMBERED);
        let (database, store, scratch, kafka, clamd) = tokio::join!(
            self.database(),
            self.store_unless(known_store),
            self.scratch(),
            self.kafka(),
            self.clamd()
        );
        let mut checks = vec![database, store.1.clone(), scratch, self.tools()];
        checks.extend(kafka.into_iter().chain(clamd));
        *last = Some(Look { at: Instant::now(), checks: checks.clone(), store });
        checks
    }

    async fn database(&self) -> Check {
        timed("database", async {
            match self.shop.queue.entry("health", "probe").await {
                Ok(_) => Ok(()),
                Err(error) => {
                    tracing::warn!(%error, "not ready: the database");
                    Err("the database does not answer")
                }
            }
        })
        .await
    }

    async fn store_unless(&self, known: Option<(Instant, Check)>) -> (Instant, Check) {
        match known {
            Some(known) => known,
            None => (Instant::now(), self.store().await),
        }
    }

    async fn store(&self) -> Check {
        timed("store", async {
            let blobs = self.shop.blobs.clone();
            // In a task of its own: a folder on a disk that hangs blocks whoever touches it.
            let looked = tokio::spawn(async move {
                match blobs.local_path(PROBE_KEY) {
                    Some(_) => blobs.check().await,
                    None => blobs.exists(PROBE_KEY).await.map(drop),
                }
            });
            match looked.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "not ready: the store");
                    Err("the store cannot be used")
                }
                Err(_) => Err("the store cannot be looked at"),
            }
        })
        .await
    }

    async fn scratch(&self) -> Check {
        let shop = Arc::clone(&self.shop);
        let look = tokio::task::spawn_blocking(move || {
            // Made and removed: that it is there does not say that it can be written to.
            let made = shop.scratch.job().map(drop);
            (made, shop.scratch.free_bytes())
        });
        let mut free_bytes = None;
        let check = timed("scratch", async {
            match look.await {
                Ok((Ok(()), free)) => {
                    free_bytes = Some(free);
                    if free > 0 { Ok(()) } else { Err("the scratch space is full") }
                }
                Ok((Err(error), _)) => {
                    tracing::warn!(%error, "not ready: the scratch space");
                    Err("the scratch space cannot be written to")
                }
                Err(_) => Err("the scratch space cannot be looked at"),
            }
        })
        .await;
        Check { free_bytes, ..check }
    }

    async fn kafka(&self) -> Option<Check> {
        let broker = self.kafka.as_ref()?;
        let check = timed("kafka", async {
            broker.check(BROKERS_WITHIN).await.map_err(|error| {
                tracing::warn!(%error, "not ready: Kafka");
                error.in_short()
            })
        });
        Some(check.await)
    }

    /// Of interest where inputs are not read without it.
    async fn clamd(&self) -> Option<Check> {
        let scanning = &self.shop.scanning;
        let clamd = scanning.clamd.as_ref().filter(|_| scanning.scan == ScanPolicy::Required)?;
        let check = timed("clamd", async {
            match clamd.ping().await {
                Ok(()) => Ok(()),
                Err(error) => {
                    tracing::warn!(%error, "not ready: the virus scanner");
                    Err("the virus scanner does not answer")
                }
            }
        });
        Some(check.await)
    }

    /// They were looked for when the process began.
    fn tools(&self) -> Check {
        let toolbox = &self.shop.toolbox;
        let error = match (toolbox.has(Program::Ffmpeg), toolbox.has(Program::Ffprobe)) {
            (true, true) => None,
            (false, _) => Some("ffmpeg is not installed"),
            (true, false) => Some("ffprobe is not installed"),
        };
        Check { name: "tools", ok: error.is_none(), error, ms: 0.0, free_bytes: None }
    }
}

async fn timed(name: &'static str, look: impl Future<Output = Result<(), &'static str>>) -> Check {
    let began = Instant::now();
    let looked = tokio::time::timeout(WITHIN, look).await;
    let error = looked.unwrap_or(Err("no answer in time")).err();
    let ms = (began.elapsed().as_secs_f64() * 1e6).round() / 1e3;
    Check { name, ok: error.is_none(), error, ms, free_bytes: None }
}
