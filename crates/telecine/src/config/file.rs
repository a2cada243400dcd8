//! The layer of `telecine.toml`.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use toml::de::{DeTable, DeValue};

use super::key::Form;
use super::{FILE, Key, Layer, Origin, unknown_key};

/// Reads the named file, or `telecine.toml` in the current folder if there is one.
pub(super) fn read(named: Option<&Path>) -> Result<Option<Layer>> {
    let path = named.unwrap_or(Path::new(FILE));
    match std::fs::read_to_string(path) {
        Ok(text) => parse(path, &text).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound && named.is_none() => Ok(None),
        Err(error) => {
            Err(error).with_context(|| format!("cannot read the configuration file {}", path.display()))
        }
    }
}

pub(super) fn parse(path: &Path, text: &str) -> Result<Layer> {
    let place = |span: Range<usize>| {
        let (line, column) = line_and_column(text, span.start);
        Origin::File { path: path.to_owned(), line, column }
    };
    let table = DeTable::parse(text)
        .map_err(|error| anyhow!("{}: {}", place(error.span().unwrap_or_default()), error.message()))?;

    let mut layer = Layer::default();
    for (name, span, value) in fields(table.get_ref()) {
        let origin = place(span);
        let key = Key::named(&name).ok_or_else(|| anyhow!("{origin}: {}", unknown_key(&name)))?;
        let form = key.form();
        let typed =
            as_text(form, value).ok_or_else(|| anyhow!("{origin}: {} is {}", key.name(), form.expected()))?;
        layer.set(key, typed, origin);
    }
    Ok(layer)
}

/// Each key, where it is, and its value. Those of `[kafka]` are named after the table.
fn fields<'a>(table: &'a DeTable<'a>) -> Vec<(String, Range<usize>, &'a DeValue<'a>)> {
    let mut fields = Vec::new();
    for (name, value) in table {
        match (name.get_ref().as_ref(), value.get_ref()) {
            ("kafka", DeValue::Table(inner)) => fields.extend(
                inner
                    .iter()
                    .map(|(name, value)| (format!("kafka_{}", name.get_ref()), name.span(), value.get_ref())),
            ),
            (plain, value) => fields.push((plain.to_owned(), name.span(), value)),
        }
    }
    fields
}

/// The same text that the variable or the flag of this key would carry. `None` when the TOML type does not fit.
fn as_text(form: Form, value: &DeValue<'_>) -> Option<String> {
    match (form, value) {
        (Form::Number, value) => integer(value),
        (_, DeValue::String(text)) => Some(text.to_string()),
        (Form::Switch, DeValue::Boolean(on)) => Some(if *on { "on" } else { "off" }.into()),
        (Form::List(separator, _), DeValue::Array(names)) => {
            let names: Option<Vec<&str>> = names.iter().map(|name| name.get_ref().as_str()).collect();
            let names = names.filter(|names| names.iter().all(|name| !name.contains(separator)))?;
            Some(names.join(&separator.to_string()))
        }
        (Form::Lanes, DeValue::Table(lanes)) => {
            let lanes: Option<Vec<String>> = lanes
                .iter()
                .map(|(lane, slots)| Some(format!("{}={}", lane.get_ref(), integer(slots.get_ref())?)))
                .collect();
            Some(lanes?.join(","))
        }
        (Form::Properties, DeValue::Table(_)) => super::kafka::as_json(value),
        (Form::Endpoints, DeValue::Array(_)) => Some(super::webhooks::as_json(value)?.to_string()),
        _ => None,
    }
}

fn integer(value: &DeValue<'_>) -> Option<String> {
    value
        .as_integer()
        .and_then(|integer| i64::from_str_radix(integer.as_str(), integer.radix()).ok())
        .map(|n| n.to_string())
}

/// Both from 1, the column in characters.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
