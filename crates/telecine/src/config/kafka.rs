//! Where requests come from and results go: the table `[kafka]` of the file, or variables such as `TELECINE_KAFKA_BROKERS`.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow, bail, ensure};
use serde_json::Value;
use telecine_connect::KafkaOptions;
use telecine_connect::kafka::RESERVED;
use toml::de::DeValue;

use super::Key;
use super::meaning::{Reader, name, on_or_off, within};

const MAX_BACKLOG: u32 = 100_000_000;
const MAX_BATCH: u32 = 10_000;
/// Kafka's own bound.
const LONGEST_TOPIC: usize = 249;
/// Of librdkafka.
pub(crate) const PASSWORD: &str = "sasl.password";

pub(super) fn of(reader: &Reader<'_>) -> Result<Option<KafkaOptions>> {
    let Some(brokers) = reader.optional(Key::KafkaBrokers, brokers)? else {
        // What was said about Kafka without saying where it is helps nobody.
        let mut others = Key::ALL.into_iter().filter(|key| key.name().starts_with("kafka_"));
        if let Some(key) = others.find(|key| reader.is_set(*key)) {
            bail!(
                "{}: {} is set, but kafka_brokers is not\n\
                 next: add brokers = \"host:9092\" to [kafka], or set {}",
                reader.origin(key),
                key.name(),
                Key::KafkaBrokers.variable()
            );
        }
        return Ok(None);
    };
    let mut properties = reader.optional(Key::KafkaProperties, properties)?.unwrap_or_default();
    if let Some(password) = reader.optional(Key::KafkaPassword, |text| Ok(text.to_owned()))? {
        properties.insert(PASSWORD.into(), password);
    }
    let options = KafkaOptions {
        group: reader.required(Key::KafkaGroup, name)?,
        request_topic: reader.required(Key::KafkaRequestTopic, topic)?,
        response_topic: reader.required(Key::KafkaResponseTopic, topic)?,
        dead_letter_topic: reader.required(Key::KafkaDeadLetterTopic, topic)?,
        format: reader.required(Key::KafkaFormat, |text| text.parse().map_err(|why: String| anyhow!(why)))?,
        recipe: reader.required(Key::KafkaRecipe, name)?,
        tenant: reader.optional(Key::KafkaTenant, tenant)?.unwrap_or_default(),
        results: reader
            .required(Key::KafkaResults, |text| text.parse().map_err(|why: String| anyhow!(why)))?,
        max_backlog: reader.required(Key::KafkaMaxBacklog, |text| within(text, 1, MAX_BACKLOG))?.into(),
        batch: reader.required(Key::KafkaBatch, |text| within(text, 1, MAX_BATCH))? as usize,
        create_topics: reader.required(Key::KafkaCreateTopics, on_or_off)?,
        properties,
        ..KafkaOptions::new(brokers)
    };
    require_other_topics(reader, &options)?;
    Ok(Some(options))
}

/// What is read from where it is written to goes round for ever.
fn require_other_topics(reader: &Reader<'_>, options: &KafkaOptions) -> Result<()> {
    let topics = [
        (Key::KafkaRequestTopic, &options.request_topic),
        (Key::KafkaResponseTopic, &options.response_topic),
        (Key::KafkaDeadLetterTopic, &options.dead_letter_topic),
    ];
    for (nth, (key, topic)) in topics.iter().enumerate() {
        if let Some((other, _)) = topics[..nth].iter().find(|(_, other)| other == topic) {
            bail!(
                "{} ({}) and {} ({}) are the same topic `{topic}`; they must be three",
                other.name(),
                reader.origin(*other),
                key.name(),
                reader.origin(*key)
            );
        }
    }
    Ok(())
}

/// The nameless one is a tenant, too.
fn tenant(text: &str) -> Result<String> {
    if text.is_empty() { Ok(String::new()) } else { name(text) }
}

/// `broker-1:9092,broker-2:9092`
fn brokers(text: &str) -> Result<String> {
    let brokers: Vec<&str> = text.split(',').map(str::trim).collect();
    let is_proper = |broker: &&str| {
        let host = broker.rsplit_once(':').map_or(*broker, |(host, _)| host);
        !host.is_empty() && !broker.contains([' ', '/', '@'])
    };
    let wrong = brokers.iter().find(|broker| !is_proper(broker));
    ensure!(wrong.is_none(), "must be addresses such as broker-1:9092,broker-2:9092, not `{text}`");
    Ok(brokers.join(","))
}

fn topic(text: &str) -> Result<String> {
    let is_proper = (1..=LONGEST_TOPIC).contains(&text.len())
        && !matches!(text, "." | "..")
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    ensure!(is_proper, "must be the name of a topic: up to 249 letters, digits, dots, - and _, not `{text}`");
    Ok(text.to_owned())
}

/// As JSON. What is wrong is told without the values, which may be passwords.
fn properties(text: &str) -> Result<BTreeMap<String, String>> {
    let parsed: Result<BTreeMap<String, String>, _> = serde_json::from_str(text);
    let properties = parsed
        .map_err(|_| anyhow!("must be a JSON object of texts such as {{\"security.protocol\": \"SSL\"}}"))?;
    if let Some(reserved) = properties.keys().find(|name| RESERVED.contains(&name.as_str())) {
        bail!("sets {reserved}, which is not to be changed: promises stand on it, or another key says it");
    }
    Ok(properties)
}

/// What the variable would carry. `None` where there is anything but texts, numbers, and yes or no.
pub(super) fn as_json(value: &DeValue<'_>) -> Option<String> {
    let DeValue::Table(table) = value else { return None };
    let mut properties = BTreeMap::new();
    for (name, value) in table {
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.as_str().to_owned(),
            DeValue::Boolean(is_so) => is_so.to_string(),
            _ => return None,
        };
        properties.insert(name.get_ref().to_string(), text);
    }
    Some(serde_json::json!(properties).to_string())
}

/// As `config show` prints it: which properties are set, and nothing that may be a secret.
pub(crate) fn without_values(text: &str) -> String {
    const PLAIN: [&str; 8] = [
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "client.id",
    ];
    let properties: BTreeMap<String, Value> = serde_json::from_str(text).unwrap_or_default();
    let shown = properties.iter().map(|(name, value)| match value.as_str() {
        Some(value) if PLAIN.contains(&name.as_str()) => format!("{name}={value}"),
        _ => format!("{name}=***"),
    });
    shown.collect::<Vec<_>>().join(", ")
}
