//! Figures: what was measured, what it is held against, and how both are told.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::ground::Database;
use crate::pickup::Latencies;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    PushOne,
    PushBulk,
    Drain20k,
    Drain200k,
    DrainDeep,
    DrainPinned,
    PickupP50,
    PickupP99,
    IdleCpu,
    IdleMemory,
}

impl Name {
    pub(crate) const ALL: [Self; 10] = [
        Self::PushOne,
        Self::PushBulk,
        Self::Drain20k,
        Self::Drain200k,
        Self::DrainDeep,
        Self::DrainPinned,
        Self::PickupP50,
        Self::PickupP99,
        Self::IdleCpu,
        Self::IdleMemory,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::PushOne => "push_one",
            Self::PushBulk => "push_bulk",
            Self::Drain20k => "drain_20k",
            Self::Drain200k => "drain_200k",
            Self::DrainDeep => "drain_deep",
            Self::DrainPinned => "drain_pinned",
            Self::PickupP50 => "pickup_p50",
            Self::PickupP99 => "pickup_p99",
            Self::IdleCpu => "idle_cpu",
            Self::IdleMemory => "idle_memory",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::PushOne
            | Self::PushBulk
            | Self::Drain20k
            | Self::Drain200k
            | Self::DrainDeep
            | Self::DrainPinned => "jobs/s",
            Self::PickupP50 | Self::PickupP99 => "ms",
            Self::IdleCpu => "% of a core",
            Self::IdleMemory => "MB",
        }
    }

    /// What is long, or does not vary, is measured once.
    pub(crate) fn rounds(self) -> usize {
        match self {
            Self::Drain200k | Self::IdleCpu | Self::IdleMemory => 1,
            _ => usize::MAX,
        }
    }

    fn target(self, database: Database) -> Target {
        match (self, database) {
            (Self::PushOne, Database::Postgres) => Target::OfLimit(0.80),
            // Group commit: more than one job in a commit.
            (Self::PushOne, Database::Sqlite) => Target::OfLimit(3.0),
            (Self::PushBulk | Self::Drain20k | Self::Drain200k, _) => Target::OfLimit(0.65),
            (Self::DrainDeep | Self::DrainPinned, _) => Target::OfClean(0.85),
            (Self::PickupP50, _) => Target::TimesLimit(1.75),
            (Self::PickupP99, _) => Target::AtMostMs(10.0),
            (Self::IdleCpu | Self::IdleMemory, _) => Target::TimesLimit(1.0),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a figure is to reach.
enum Target {
    /// At least so much of the limit.
    OfLimit(f64),
    /// At least so much of `drain_20k`.
    OfClean(f64),
    /// At most so many times the limit.
    TimesLimit(f64),
    /// At most so long, or as long as the limit.
    AtMostMs(f64),
}

/// One line of `bench/results.json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    name: &'static str,
    database: &'static str,
    value: f64,
    unit: &'static str,
    limit: f64,
    ratio: f64,
    #[serde(skip)]
    verdict: String,
}

#[derive(Default)]
pub(crate) struct Samples {
    ours: BTreeMap<Name, Vec<f64>>,
    limits: BTreeMap<Name, Vec<f64>>,
    peers: BTreeMap<Name, Vec<f64>>,
}

impl Samples {
    pub(crate) fn ours(&mut self, name: Name, value: f64) {
        eprintln!("  ours {}", told(value));
        self.ours.entry(name).or_default().push(value);
    }

    pub(crate) fn limit(&mut self, name: Name, value: f64) {
        eprintln!("  limit {}", told(value));
        self.limits.entry(name).or_default().push(value);
    }

    pub(crate) fn peer(&mut self, name: Name, value: f64) {
        eprintln!("  peer {}", told(value));
        self.peers.entry(name).or_default().push(value);
    }

    pub(crate) fn ours_latency(&mut self, taken: Latencies) {
        self.ours(Name::PickupP50, taken.percentile(50));
        self.ours(Name::PickupP99, taken.percentile(99));
    }

    pub(crate) fn limit_latency(&mut self, taken: Latencies) {
        self.limit(Name::PickupP50, taken.percentile(50));
        self.limit(Name::PickupP99, taken.percentile(99));
    }

    pub(crate) fn figures(&self, database: Database) -> Vec<Figure> {
        let clean = self.ours.get(&Name::Drain20k).map(|values| median(values));
        let each = self.ours.iter().map(|(name, values)| {
            let (value, limit) = (median(values), median(&self.limits[name]));
            let ratio = value / limit;
            let mut verdict = name.target(database).judge(value, limit, clean);
            if let Some(peers) = self.peers.get(name) {
                let times = value / median(peers);
                verdict += &format!(
                    "; {times:.2} of graphile-worker's {} (>= 1.3): {}",
                    told(median(peers)),
                    met(times >= 1.3)
                );
            }
            let (name, unit, database) = (name.as_str(), name.unit(), database.name());
            Figure {
                name,
                database,
                value: rounded(value),
                unit,
                limit: rounded(limit),
                ratio: rounded(ratio),
                verdict,
            }
        });
        each.collect()
    }
}

impl Target {
    fn judge(&self, value: f64, limit: f64, clean: Option<f64>) -> String {
        match *self {
            Self::OfLimit(least) => format!("ratio >= {least:.2}: {}", met(value / limit >= least)),
            Self::TimesLimit(most) => format!("ratio <= {most:.2}: {}", met(value / limit <= most)),
            Self::AtMostMs(most) => format!("<= max({most} ms, limit): {}", met(value <= limit.max(most))),
            Self::OfClean(least) => match clean {
                Some(clean) => {
                    let part = value / clean;
                    format!("{part:.2} of drain_20k (>= {least:.2}): {}", met(part >= least))
                }
                None => "not held against drain_20k, which was not run".into(),
            },
        }
    }
}

fn met(holds: bool) -> &'static str {
    if holds { "met" } else { "MISSED" }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

/// Four digits tell all that such a measurement knows.
fn rounded(value: f64) -> f64 {
    let places = if value >= 1_000.0 { 1.0 } else { 1_000.0 };
    (value * places).round() / places
}

fn told(value: f64) -> String {
    if value < 1_000.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let (head, tail) = digits.split_at(digits.len() - 3);
    format!("{head},{tail}")
}

pub(crate) fn print_table(figures: &[Figure]) {
    println!(
        "{:<9} {:<13} {:>9} {:>9} {:>6} {:<12} target",
        "database", "name", "value", "limit", "ratio", "unit"
    );
    for figure in figures {
        println!(
            "{:<9} {:<13} {:>9} {:>9} {:>6.2} {:<12} {}",
            figure.database,
            figure.name,
            told(figure.value),
            told(figure.limit),
            figure.ratio,
            figure.unit,
            figure.verdict
        );
    }
}

/// Replaces the figures of the same names and databases and leaves those of others.
pub(crate) fn write_json(figures: &[Figure]) {
    let path = repository().join("bench/results.json");
    let earlier = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let mut all: Vec<serde_json::Value> = earlier.unwrap_or_default();
    let is_new = |other: &serde_json::Value| {
        figures.iter().any(|figure| other["name"] == figure.name && other["database"] == figure.database)
    };
    all.retain(|other| !is_new(other));
    all.extend(figures.iter().map(|figure| serde_json::to_value(figure).expect("plain data")));
    let text = serde_json::to_string_pretty(&all).expect("plain data") + "\n";
    std::fs::write(&path, text).expect("the repository can be written");
    eprintln!("written to {}", path.display());
}

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/queue is two deep").to_path_buf()
}
