//! The layer of `TELECINE_*` variables.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, bail};
use telecine_pipeline::did_you_mean;

use super::{Key, Layer, Origin};

pub(super) const PREFIX: &str = "TELECINE_";
const FILE_VARIABLE: &str = "TELECINE_CONFIG";

#[derive(Debug, Default)]
pub(super) struct Variables {
    pub(super) file: Option<PathBuf>,
    pub(super) layer: Layer,
}

/// An empty variable counts as not set: that is how compose files and shells pass on what nobody chose.
pub(super) fn read(all: impl Iterator<Item = (OsString, OsString)>) -> Result<Variables> {
    let mut variables = Variables::default();
    for (name, value) in all {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        if value.is_empty() {
            continue;
        }
        if name == FILE_VARIABLE {
            variables.file = Some(value.into());
            continue;
        }
        let Some(key) = Key::ALL.into_iter().find(|key| key.variable() == name) else {
            bail!("{}", unknown_variable(name));
        };
        let Ok(text) = value.into_string() else { bail!("the value of {name} is not valid UTF-8") };
        variables.layer.set(key, text, Origin::Variable(name.to_owned()));
    }
    Ok(variables)
}

fn unknown_variable(name: &str) -> String {
    let variables: Vec<String> = Key::ALL.into_iter().map(Key::variable).collect();
    let known: Vec<&str> = variables.iter().map(String::as_str).chain([FILE_VARIABLE]).collect();
    format!("unknown environment variable {name}{}\nnext: unset {name}", did_you_mean(name, &known))
}
