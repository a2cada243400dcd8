//! The layer of `telecine.toml`.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use toml::de::{DeTable, DeValue};

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
        let typed =
            as_text(key, value).ok_or_else(|| anyhow!("{origin}: {} is {}", key.name(), expected(key)))?;
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
fn as_text(key: Key, value: &DeValue<'_>) -> Option<String> {
    match (key, value) {
        (
            Key::Database
            | Key::Store
            | Key::Publish
            | Key::Scratch
            | Key::Uploads
            | Key::InputFolders
            | Key::InputBuckets
            | Key::AllowPrivateUrls
            | Key::MaxVideoSize
            | Key::Name
            | Key::Log
            | Key::Kinds
            | Key::Slots
            | Key::Sandbox
            | Key::Recipes
            | Key::Listen
            | Key::TrustLoopback
            | Key::PublicUrl
            | Key::CorsOrigins
            | Key::MetricsListen
            | Key::MetricsPublic
            | Key::OtlpEndpoint
            | Key::Clamd
            | Key::Scan
            | Key::Unscanned
            | Key::Webhooks
            | Key::KafkaBrokers
            | Key::KafkaGroup
            | Key::KafkaRequestTopic
            | Key::KafkaResponseTopic
            | Key::KafkaDeadLetterTopic
            | Key::KafkaFormat
            | Key::KafkaRecipe
            | Key::KafkaTenant
            | Key::KafkaResults
            | Key::KafkaCreateTopics
            | Key::KafkaPassword
            | Key::KafkaProperties,
            DeValue::String(text),
        ) => Some(text.to_string()),
        (Key::InputFolders, DeValue::Array(folders)) => {
            let folders: Option<Vec<&str>> = folders.iter().map(|folder| folder.get_ref().as_str()).collect();
            let folders = folders.filter(|folders| folders.iter().all(|folder| !folder.contains(':')))?;
            Some(folders.join(":"))
        }
        (
            Key::Sandbox
            | Key::AllowPrivateUrls
            | Key::TrustLoopback
            | Key::MetricsPublic
            | Key::KafkaCreateTopics,
            DeValue::Boolean(on),
        ) => Some(if *on { "on" } else { "off" }.into()),
        (Key::Kinds | Key::InputBuckets | Key::CorsOrigins | Key::KafkaBrokers, DeValue::Array(names)) => {
            let names: Option<Vec<&str>> = names.iter().map(|name| name.get_ref().as_str()).collect();
            Some(names.filter(|names| names.iter().all(|name| !name.contains(',')))?.join(","))
        }
        (Key::KafkaProperties, DeValue::Table(_)) => super::kafka::as_json(value),
        (Key::Webhooks, DeValue::Array(_)) => Some(super::webhooks::as_json(value)?.to_string()),
        (Key::Slots, DeValue::Table(lanes)) => {
            let lanes: Option<Vec<String>> = lanes
                .iter()
                .map(|(lane, slots)| Some(format!("{}={}", lane.get_ref(), integer(slots.get_ref())?)))
                .collect();
            Some(lanes?.join(","))
        }
        (
            Key::Concurrency
            | Key::LeaseMs
            | Key::BeatMs
            | Key::SweepMs
            | Key::PollMs
            | Key::DrainMs
            | Key::KeepHistoryDays
            | Key::KeepRunsDays
            | Key::PullIdleMs
            | Key::PullTotalMs
            | Key::MaxInputMb
            | Key::MaxDurationS
            | Key::MaxVideoFps
            | Key::MaxImagePixels
            | Key::RequestsPerSecond
            | Key::MaxConnections
            | Key::MaxJsonKb
            | Key::HeaderTimeoutMs
            | Key::BodyTimeoutMs
            | Key::MaxUploadMb
            | Key::KeepUnfinishedUploadsHours
            | Key::TranscodeSlots
            | Key::MaxTranscodeMb
            | Key::TranscodeTimeoutMs
            | Key::KafkaMaxBacklog
            | Key::KafkaBatch
            | Key::ClamdMaxMb
            | Key::ClamdTimeoutMs
            | Key::KeepQuarantineDays
            | Key::ScanSlots
            | Key::MaxScanMb
            | Key::ToolMemoryMb,
            value,
        ) => integer(value),
        (Key::Database | Key::Store | Key::Publish | Key::Scratch | Key::Uploads | Key::InputFolders, _) => {
            None
        }
        (Key::InputBuckets | Key::AllowPrivateUrls | Key::MaxVideoSize, _) => None,
        (Key::Listen | Key::TrustLoopback | Key::PublicUrl | Key::CorsOrigins, _) => None,
        (Key::Name | Key::Log | Key::Kinds | Key::Slots | Key::Sandbox | Key::Recipes, _) => None,
        (Key::MetricsListen | Key::MetricsPublic | Key::OtlpEndpoint | Key::Webhooks, _) => None,
        (Key::KafkaBrokers | Key::KafkaGroup | Key::KafkaFormat | Key::KafkaRecipe | Key::KafkaTenant, _) => {
            None
        }
        (Key::KafkaRequestTopic | Key::KafkaResponseTopic | Key::KafkaDeadLetterTopic, _) => None,
        (Key::KafkaResults | Key::KafkaCreateTopics | Key::KafkaPassword | Key::KafkaProperties, _) => None,
        (Key::Clamd | Key::Scan | Key::Unscanned, _) => None,
    }
}

fn integer(value: &DeValue<'_>) -> Option<String> {
    value
        .as_integer()
        .and_then(|integer| i64::from_str_radix(integer.as_str(), integer.radix()).ok())
        .map(|n| n.to_string())
}

fn expected(key: Key) -> &'static str {
    match key {
        Key::Database => "a text such as \"sqlite:telecine.db\"",
        Key::Publish => "a text such as \"/srv/www/media\" or \"s3://bucket/prefix\"",
        Key::Store => "a text such as \"/var/lib/telecine/store\" or \"s3://bucket/prefix\"",
        Key::Scratch => "a text such as \"/var/tmp/telecine\"",
        Key::Uploads => "a text such as \"/var/lib/telecine/uploads\"",
        Key::InputFolders => "a list of texts such as [\"/srv/uploads\"], none of which has a colon in it",
        Key::Name
        | Key::Log
        | Key::KafkaGroup
        | Key::KafkaRequestTopic
        | Key::KafkaResponseTopic
        | Key::KafkaDeadLetterTopic
        | Key::KafkaRecipe
        | Key::KafkaTenant
        | Key::KafkaPassword => "a text",
        Key::KafkaBrokers => "a text such as \"broker-1:9092,broker-2:9092\", or a list of them",
        Key::KafkaFormat => "\"telecine\" or \"optimize\"",
        Key::KafkaResults => "\"all\" or \"kafka\"",
        Key::KafkaProperties => "a table such as { \"security.protocol\" = \"SASL_SSL\" }",
        Key::InputBuckets => {
            "a list of texts such as [\"s3://bucket/prefix\"], none of which has a comma in it"
        }
        Key::MaxVideoSize => "a text such as \"8192x4320\"",
        Key::Listen => "a text such as \"127.0.0.1:8700\"",
        Key::MetricsListen => "a text such as \"127.0.0.1:9700\"",
        Key::OtlpEndpoint => "a text such as \"http://127.0.0.1:4318\"",
        Key::PublicUrl => "a text such as \"https://media.example\"",
        Key::CorsOrigins => "a list of texts such as [\"https://app.example\"]",
        Key::Sandbox
        | Key::AllowPrivateUrls
        | Key::TrustLoopback
        | Key::MetricsPublic
        | Key::KafkaCreateTopics => "true or false",
        Key::Recipes => "a text: the folder of your own recipes",
        Key::Clamd => "a text such as \"unix:/run/clamav/clamd.ctl\" or \"tcp:127.0.0.1:3310\"",
        Key::Scan => "\"required\", \"optional\" or \"off\"",
        Key::Unscanned => "\"refuse\" or \"allow\"",
        Key::Webhooks => "tables such as [[webhooks]] with texts for url and secret",
        Key::Kinds => "a list of texts such as [\"pause\"]",
        Key::Slots => "a table such as { cpu = 2, net = 8 } or a text such as \"cpu=2,net=8\"",
        Key::Concurrency
        | Key::LeaseMs
        | Key::BeatMs
        | Key::SweepMs
        | Key::PollMs
        | Key::DrainMs
        | Key::KeepHistoryDays
        | Key::KeepRunsDays
        | Key::PullIdleMs
        | Key::PullTotalMs
        | Key::MaxInputMb
        | Key::MaxDurationS
        | Key::MaxVideoFps
        | Key::MaxImagePixels
        | Key::RequestsPerSecond
        | Key::MaxConnections
        | Key::MaxJsonKb
        | Key::HeaderTimeoutMs
        | Key::BodyTimeoutMs
        | Key::MaxUploadMb
        | Key::KeepUnfinishedUploadsHours
        | Key::TranscodeSlots
        | Key::MaxTranscodeMb
        | Key::TranscodeTimeoutMs
        | Key::KafkaMaxBacklog
        | Key::KafkaBatch
        | Key::ClamdMaxMb
        | Key::ClamdTimeoutMs
        | Key::KeepQuarantineDays
        | Key::ScanSlots
        | Key::MaxScanMb
        | Key::ToolMemoryMb => "a whole number",
    }
}

/// Both from 1, the column in characters.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
