//! `telecine config show`.

use anyhow::Result;
use serde::Serialize;

use crate::cli::ConfigCommand;
use crate::config::{Config, Key, mask_password, without_secrets, without_values};
use crate::output::{Answer, List, Output};
use crate::table::Table;

#[derive(Debug, Serialize)]
struct Setting {
    key: &'static str,
    /// As it was typed, passwords masked; `None` when nothing was and there is no default.
    value: Option<String>,
    origin: Option<String>,
    variable: String,
}

pub(super) fn run(command: ConfigCommand, config: &Config, output: &Output) -> Result<Answer> {
    match command {
        ConfigCommand::Show => show(config, output),
    }
}

fn show(config: &Config, output: &Output) -> Result<Answer> {
    let settings = Key::ALL.map(|key| setting(config, key));
    if output.json {
        output.print_json(&List::whole(settings.into()))?;
        return Ok(Answer::Yes);
    }
    let mut table = Table::new(["KEY", "VALUE", "ORIGIN", "VARIABLE"]);
    for setting in settings {
        table.row([
            setting.key.into(),
            setting.value.unwrap_or_else(|| "-".into()).into(),
            setting.origin.unwrap_or_else(|| "not set".into()).into(),
            setting.variable.into(),
        ]);
    }
    output.print(&table.draw(output.colour))?;
    Ok(Answer::Yes)
}

fn setting(config: &Config, key: Key) -> Setting {
    let typed = config.typed(key);
    Setting {
        key: key.name(),
        value: typed.map(|typed| match key {
            Key::Database => mask_password(&typed.text),
            Key::Webhooks => without_secrets(&typed.text),
            Key::KafkaPassword => "***".into(),
            Key::KafkaProperties => without_values(&typed.text),
            _ => typed.text.clone(),
        }),
        origin: typed.map(|typed| typed.origin.to_string()),
        variable: key.variable(),
    }
}
