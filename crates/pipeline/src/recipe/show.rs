//! A recipe written out, with every value that its text leaves to the defaults.

use serde_json::Value;
use toml::{Table, Value as Toml};

use super::with::misplaced;
use super::{Recipe, Step};

impl Recipe {
    /// As TOML that reads as the same recipe.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        if !self.description.is_empty() {
            text = format!("description = {}\n", Toml::from(self.description.as_str()));
        }
        if let Some(scan) = self.scan {
            text += &format!("scan = {}\n", Toml::from(scan.name()));
        }
        if let Some(unscanned) = self.unscanned {
            text += &format!("unscanned = {}\n", Toml::from(unscanned.name()));
        }
        for step in &self.steps {
            text += &format!("\n[steps.{}]\n", step.name);
            for (key, value) in entries(step) {
                text += &format!("{key} = {value}\n");
            }
            // What joins the segments of another step has nothing of its own to set.
            let with = if self.segments_for(step).is_none() { with(step) } else { Table::new() };
            if !with.is_empty() {
                text += &format!("\n[steps.{}.with]\n", step.name);
            }
            for (key, value) in with {
                text += &format!("{key} = {value}\n");
            }
        }
        text
    }
}

fn entries(step: &Step) -> Vec<(&'static str, Toml)> {
    let mut entries = vec![("kind", Toml::from(step.does.kind()))];
    if !step.takes.is_empty() {
        let takes: Vec<&str> = step.takes.iter().map(|media| media.as_str()).collect();
        entries.push(("for", takes.into()));
    }
    if !step.needs.is_empty() {
        entries.push(("needs", step.needs.clone().into()));
    }
    entries.push(("required", step.required.into()));
    entries.push(("enabled", step.enabled.into()));
    entries.extend(step.lane.clone().map(|lane| ("lane", lane.into())));
    entries.extend(step.priority.map(|priority| ("priority", i64::from(priority).into())));
    entries.extend(step.attempts.map(|attempts| ("attempts", i64::from(attempts).into())));
    entries
}

fn with(step: &Step) -> Table {
    let mut document = serde_json::to_value(&step.does).expect("a step is plain data");
    let mut with = match toml_of(document["with"].take()) {
        Some(Toml::Table(table)) => table,
        _ => Table::new(),
    };
    for (key, _) in misplaced(step.does.kind()) {
        with.remove(*key);
    }
    with
}

/// TOML has no null: what is not set is left out.
fn toml_of(value: Value) -> Option<Toml> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(value) => value.into(),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => number.as_f64()?.into(),
        },
        Value::String(text) => text.into(),
        Value::Array(elements) => Toml::Array(elements.into_iter().filter_map(toml_of).collect()),
        Value::Object(entries) => {
            let entries = entries.into_iter().filter_map(|(key, value)| Some((key, toml_of(value)?)));
            Toml::Table(entries.collect())
        }
    })
}
