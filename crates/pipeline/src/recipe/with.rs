//! What a step is done with: a table whose keys depend on its kind.

use std::ops::Range;

use serde::de::DeserializeOwned;
use telecine_media::MediaError;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, ValueDeserializer};

use super::Does;
use super::error::Complaints;
use crate::nearest::in_plain_words;

/// Keys that the media engine knows and that mean nothing in a step of this kind, and what to do instead.
pub(super) fn misplaced(kind: &str) -> &'static [(&'static str, &'static str)] {
    match kind {
        "hls" => &[("mp4", "an MP4 is a step of its own: kind = \"mp4\", needs = [this step]")],
        "mp4" => &[
            ("mp4", "this step makes nothing else"),
            ("packaging", "this step makes one file; manifests are made by a step of kind `hls`"),
        ],
        _ => &[],
    }
}

/// What is wrong with a document that was read: the keys on the way to it and the reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) path: Vec<String>,
    pub(super) reason: String,
}

impl Does {
    /// Refuses what no input could satisfy.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let fault = |field: &str, reason: &str| {
            let path = field.split('.').map(str::to_owned).collect();
            Err(Fault { path, reason: reason.to_owned() })
        };
        match self {
            // The engine would accept an MP4 in place of manifests, which is another step here.
            Self::Hls(spec) if spec.packaging.is_empty() => {
                return fault("packaging", "name `hls`, `dash` or both");
            }
            Self::Exec(spec) => {
                if let Some((field, reason)) = spec.fault() {
                    return fault(field, reason);
                }
            }
            _ => {}
        }
        match self.media().map(|recipe| recipe.check()) {
            // The engine names the output first, which is the step itself here.
            Some(Err(MediaError::BadRecipe { field, reason })) => {
                fault(field.split_once('.').map_or("", |(_, rest)| rest), &reason)
            }
            Some(Err(error)) => fault("", &error.to_string()),
            Some(Ok(())) | None => Ok(()),
        }
    }
}

/// Reads the table of a step; `None` after complaints. A key that is wrong is taken out and the rest is read again, so
/// that every wrong key is told of.
pub(super) fn read(kind: &str, with: &Spanned<DeValue<'_>>, complaints: &mut Complaints<'_>) -> Option<Does> {
    let Some(table) = with.get_ref().as_table() else {
        complaints.add(with.span(), format!("`with` is a table of what the kind `{kind}` takes"));
        return None;
    };
    let mut table = table.clone();
    let mut was_wrong = false;
    for (key, why) in misplaced(kind) {
        if let Some((key, _)) = table.remove_entry(*key) {
            complaints.add(key.span(), format!("`{}` does not belong here: {why}", key.get_ref()));
            was_wrong = true;
        }
    }
    loop {
        let (span, message) = match typed(kind, table.clone(), with.span()) {
            Err(error) => {
                let is_missing = error.message().starts_with("missing field");
                (error.span().filter(|_| !is_missing || !was_wrong), in_plain_words(error.message()))
            }
            Ok(does) => match does.check() {
                Ok(()) => return (!was_wrong).then_some(does),
                Err(fault) => {
                    let message = format!("`{}`: {}", fault.path.join("."), fault.reason);
                    (Some(place_of(&fault, kind, &table, with.span())), message)
                }
            },
        };
        // What is missing only because it was taken out was told already.
        let span = span?;
        complaints.add(span.clone(), message);
        was_wrong = true;
        let holder = table.iter().find(|(key, value)| contains(&key.span(), &span) || holds(value, &span));
        let key = holder.map(|(key, _)| key.clone())?;
        table.remove(&key);
    }
}

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// The span of a table under a header of its own is that of the header, so its entries are looked at one by one.
fn holds(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    contains(&value.span(), span)
        || match value.get_ref() {
            DeValue::Table(table) => {
                table.iter().any(|(key, value)| contains(&key.span(), span) || holds(value, span))
            }
            DeValue::Array(elements) => elements.iter().any(|element| holds(element, span)),
            _ => false,
        }
}

fn typed(kind: &str, table: DeTable<'_>, span: Range<usize>) -> Result<Does, toml::de::Error> {
    let value = Spanned::new(span, DeValue::Table(table));
    Ok(match kind {
        "hls" => Does::Hls(as_type(value)?),
        "mp4" => Does::Mp4(as_type(value)?),
        "pictures" => Does::Pictures(as_type(value)?),
        "image" => Does::Image(as_type(value)?),
        "audio" => Does::Audio(as_type(value)?),
        _ => Does::Exec(as_type(value)?),
    })
}

fn as_type<T: DeserializeOwned>(value: Spanned<DeValue<'_>>) -> Result<T, toml::de::Error> {
    T::deserialize(ValueDeserializer::from(value))
}

/// Follows the keys as far as the text has them. Of a list, the first element that is wrong by itself is meant.
fn place_of(fault: &Fault, kind: &str, table: &DeTable<'_>, otherwise: Range<usize>) -> Range<usize> {
    let mut keys = fault.path.iter();
    let Some((key, value)) = keys.next().and_then(|key| table.get_key_value(key.as_str())) else {
        return otherwise;
    };
    let mut value = value;
    if let DeValue::Array(elements) = value.get_ref() {
        let is_wrong_alone = |element: &&Spanned<DeValue<'_>>| {
            let mut alone = table.clone();
            let mut only = DeArray::new();
            only.push((*element).clone());
            alone.insert(key.clone(), Spanned::new(value.span(), DeValue::Array(only)));
            let read = typed(kind, alone, otherwise.clone());
            read.is_ok_and(|does| does.check().is_err_and(|other| other == *fault))
        };
        value = elements.iter().find(is_wrong_alone).unwrap_or(value);
    }
    for key in keys {
        match value.get_ref().as_table().and_then(|table| table.get(key.as_str())) {
            Some(inner) => value = inner,
            None => break,
        }
    }
    value.span()
}
