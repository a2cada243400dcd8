//! Figures for Prometheus: one recorder per process, rendered where somebody asks.
//!
//! What happens is counted where it happens (`figures.rs` of each crate); how much there is of something is looked up in
//! the database when a scrape comes, once for all who come within a moment ([`stock`]).

mod figures;
mod stock;

use std::sync::OnceLock;
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

pub(crate) use figures::answered;
pub(crate) use stock::Stock;

/// What is recorded is added up this often, whether or not anybody asks.
const ADD_UP_EVERY: Duration = Duration::from_secs(5);

const REQUEST_SECONDS: [f64; 13] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const JOB_SECONDS: [f64; 15] =
    [0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0];
const SPEED_RATIOS: [f64; 12] = [0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 20.0];

static METER: OnceLock<Option<Meter>> = OnceLock::new();

/// The recorder of this process.
#[derive(Clone, Debug)]
pub struct Meter {
    handle: PrometheusHandle,
}

impl Meter {
    /// Counts from now on. Harmless to repeat; `None`: another library's recorder was first.
    pub fn install() -> Option<&'static Self> {
        METER.get_or_init(Self::start).as_ref()
    }

    fn start() -> Option<Self> {
        let handle = builder().and_then(PrometheusBuilder::install_recorder);
        let handle = handle.inspect_err(|error| tracing::warn!(%error, "nothing is counted")).ok()?;
        figures::describe();
        let meter = Self { handle };
        meter.add_up_now_and_then();
        Some(meter)
    }

    /// The one that was installed.
    pub(crate) fn installed() -> Option<&'static Self> {
        METER.get()?.as_ref()
    }

    /// All figures in Prometheus' text format.
    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }

    /// A histogram keeps every value until it is added up: without this, one that nobody scrapes would grow for ever.
    fn add_up_now_and_then(&self) {
        let handle = self.handle.clone();
        let added_up = std::thread::Builder::new().name("metrics".into()).spawn(move || {
            loop {
                std::thread::sleep(ADD_UP_EVERY);
                handle.run_upkeep();
            }
        });
        if let Err(error) = added_up {
            tracing::warn!(%error, "figures are added up only when they are asked for");
        }
    }
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    let job = Matcher::Full("telecine_job_duration_seconds".into());
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_duration_seconds".into()), &REQUEST_SECONDS)?
        .set_buckets_for_metric(job, &JOB_SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_ratio".into()), &SPEED_RATIOS)
}
