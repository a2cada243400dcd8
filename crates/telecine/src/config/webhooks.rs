//! Who is told of runs, as tables of the file or as JSON of the variable.

use anyhow::{Result, anyhow};
use serde_json::Value;
use telecine_connect::webhooks::ConfiguredEndpoint;
use toml::de::DeValue;

/// What the variable would carry. `None` where there is anything but tables, lists and texts.
pub(super) fn as_json(value: &DeValue<'_>) -> Option<Value> {
    match value {
        DeValue::String(text) => Some(Value::String(text.to_string())),
        DeValue::Array(items) => items.iter().map(|item| as_json(item.get_ref())).collect(),
        DeValue::Table(table) => {
            let field = |(name, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
                let name: &std::borrow::Cow<'_, str> = name.get_ref();
                Some((name.to_string(), as_json(value.get_ref())?))
            };
            table.iter().map(field).collect::<Option<serde_json::Map<_, _>>>().map(Value::Object)
        }
        _ => None,
    }
}

pub(super) fn endpoints(text: &str) -> Result<Vec<ConfiguredEndpoint>> {
    // The message names fields, never what is in them.
    serde_json::from_str(text)
        .map_err(|error| anyhow!("must be a list of endpoints: {}", without_place(&error)))
}

/// The place is one in JSON that nobody wrote.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

/// As `config show` prints it: who is told, without the secrets and without paths, which may be some too.
pub(crate) fn without_secrets(text: &str) -> String {
    let origin = |url: &str| {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        format!("{scheme}://{}", rest.split(['/', '?', '#']).next().unwrap_or_default())
    };
    let endpoints = endpoints(text).unwrap_or_default();
    let shown: Vec<String> = endpoints.iter().map(|endpoint| origin(&endpoint.url)).collect();
    shown.join(", ")
}
