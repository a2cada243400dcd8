//! Figures of media benches, and how they are told.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

/// One line of `bench/results.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
    limit: f64,
    ratio: f64,
    #[serde(skip)]
    verdict: String,
}

impl Figure {
    /// Good when it is at most so many times the limit.
    pub(crate) fn at_most(
        name: &'static str,
        value: f64,
        unit: &'static str,
        limit: f64,
        times: f64,
    ) -> Self {
        Self::new(name, value, unit, limit, format!("ratio <= {times:.2}: {}", met(value / limit <= times)))
    }

    /// Good when it is at least so many times the limit.
    pub(crate) fn at_least(
        name: &'static str,
        value: f64,
        unit: &'static str,
        limit: f64,
        times: f64,
    ) -> Self {
        Self::new(name, value, unit, limit, format!("ratio >= {times:.2}: {}", met(value / limit >= times)))
    }

    /// Told beside a limit that it is not held against.
    pub(crate) fn beside(name: &'static str, value: f64, unit: &'static str, limit: f64) -> Self {
        Self::new(name, value, unit, limit, "no target".into())
    }

    fn new(name: &'static str, value: f64, unit: &'static str, limit: f64, verdict: String) -> Self {
        let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
        Self {
            name,
            value: rounded(value),
            unit,
            limit: rounded(limit),
            ratio: rounded(value / limit),
            verdict,
        }
    }
}

fn met(holds: bool) -> &'static str {
    if holds { "met" } else { "MISSED" }
}

pub(crate) fn print_table(figures: &[Figure]) {
    println!("{:<32} {:>9} {:>9} {:>6} {:<6} target", "name", "value", "limit", "ratio", "unit");
    for Figure { name, value, unit, limit, ratio, verdict } in figures {
        println!("{name:<32} {value:>9.2} {limit:>9.2} {ratio:>6.2} {unit:<6} {verdict}");
    }
}

/// Replaces the figures of the same names and leaves those of others.
pub(crate) fn write_json(figures: &[Figure]) {
    let path = repository().join("bench/results.json");
    let earlier = std::fs::read(&path).unwrap_or_else(|_| b"[]".to_vec());
    let mut all: Vec<Value> = serde_json::from_slice(&earlier).expect("a list of figures");
    all.retain(|other| figures.iter().all(|figure| other["name"] != figure.name));
    all.extend(figures.iter().map(|figure| serde_json::to_value(figure).expect("plain data")));
    let text = serde_json::to_string_pretty(&all).expect("plain data") + "\n";
    std::fs::write(&path, text).expect("the repository can be written");
    eprintln!("written to {}", path.display());
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/media is two deep").to_path_buf()
}
