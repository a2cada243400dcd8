//! One line of the table and of `bench/results.json`.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

/// `ratio` is `value` over `limit`; less is better in all of them.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
    limit: f64,
    ratio: f64,
    #[serde(skip)]
    target: f64,
}

impl Figure {
    pub(crate) fn new(name: &'static str, unit: &'static str, value: f64, limit: f64, target: f64) -> Self {
        Self { name, value, unit, limit, ratio: value / limit, target }
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(crate) fn print_table(figures: &[Figure]) {
    println!("{:<32} {:>9} {:>9} {:>6} {:<5} target", "name", "value", "limit", "ratio", "unit");
    for Figure { name, value, unit, limit, ratio, target } in figures {
        let verdict = if ratio <= target { "met" } else { "missed" };
        println!("{name:<32} {value:>9.3} {limit:>9.3} {ratio:>6.3} {unit:<5} <= {target:.3}: {verdict}");
    }
}

pub(crate) fn write_json(figures: &[Figure]) {
    let path = repository().join("bench/results.json");
    let earlier = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let mut all: Vec<Value> = earlier.unwrap_or_default();
    all.retain(|entry| figures.iter().all(|figure| entry["name"] != figure.name));
    all.extend(figures.iter().map(|figure| serde_json::to_value(figure).unwrap()));
    std::fs::write(&path, serde_json::to_string_pretty(&all).unwrap() + "\n").unwrap();
    eprintln!("written to {}", path.display());
}

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}
