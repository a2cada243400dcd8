//! Kafka of this process: whoever serves also takes requests in and tells results, where that is configured.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use telecine_connect::kafka::{Intake, KafkaError};
use telecine_connect::{Kafka, KafkaOptions};
use telecine_pipeline::Workshop;
use telecine_queue::{Relay, RelayOptions};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, KAFKA_PASSWORD, Key, Origin};
use crate::recipes;

/// How long brokers have to answer the first question.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);
pub(crate) const MEND_PASSWORD_FILE: &str = "put the password into that file, and let this user read it";
/// Results on their way at the same time, of as many runs.
const IN_FLIGHT: u32 = 64;

/// Whether brokers have to be there from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Brokers {
    Required,
    /// An API must not be down because brokers are: results wait in the outbox, requests in their topic.
    Awaited,
}

/// Both directions at work. To be stopped when the process leaves.
pub(crate) struct Running {
    stop: CancellationToken,
    intake: JoinHandle<Option<Intake>>,
    relay: Relay,
}

/// As the configuration says; `None` where it says nothing.
pub(crate) fn of(config: &Config, shop: &Arc<Workshop>) -> Result<Option<Kafka>> {
    let options = options(config).map_err(|error| anyhow!("{error:#}\nnext: {MEND_PASSWORD_FILE}"))?;
    let Some(options) = options else { return Ok(None) };
    let kafka = Kafka::new(Arc::clone(shop), recipes::all(config)?, options);
    Ok(Some(kafka.map_err(|error| refusal(&error, config))?))
}

/// The same without speaking to anybody; with the password, where that is in a file. Only who needs it reads it: others
/// may not be allowed to.
pub(crate) fn options(config: &Config) -> Result<Option<KafkaOptions>> {
    let Some(mut options) = config.kafka.clone() else { return Ok(None) };
    if let Some(file) = &config.kafka_password_file {
        let shown = config.shown(Key::KafkaPasswordFile);
        let text = std::fs::read_to_string(file).with_context(|| {
            format!("the password of Kafka cannot be read; kafka_password_file is {shown}")
        })?;
        let password = text.trim_end_matches(['\r', '\n']);
        ensure!(!password.is_empty(), "there is no password in kafka_password_file {shown}");
        options.properties.insert(KAFKA_PASSWORD.into(), password.to_owned());
    }
    Ok(Some(options))
}

pub(crate) async fn start(kafka: &Kafka, config: &Config, brokers: Brokers) -> Result<Running> {
    let patience = match brokers {
        Brokers::Required => ANSWER_WITHIN,
        Brokers::Awaited => ANSWER_WITHIN / 4,
    };
    let ready = match kafka.broker().require_topics(patience).await {
        Err(error) if error.may_pass() && brokers == Brokers::Awaited => {
            tracing::warn!(%error, "requests are taken in when it is over");
            false
        }
        asked => asked.map(|()| true).map_err(|error| refusal(&error, config))?,
    };
    // At once, so that nothing that happens from here on is not told.
    let options =
        RelayOptions { poll_every: config.poll_every, in_flight: IN_FLIGHT, ..RelayOptions::default() };
    let relay = kafka.start_relay(options).await?;
    let stop = CancellationToken::new();
    let first =
        if ready { Some(kafka.start_intake().map_err(|error| refusal(&error, config))?) } else { None };
    let intake = tokio::spawn(intake_when_ready(first, kafka.clone(), stop.clone()));
    Ok(Running { stop, intake, relay })
}

async fn intake_when_ready(first: Option<Intake>, kafka: Kafka, stop: CancellationToken) -> Option<Intake> {
    if first.is_some() {
        return first;
    }
    let asking = async {
        loop {
            match kafka.broker().require_topics(ANSWER_WITHIN).await.and_then(|()| kafka.start_intake()) {
                Ok(intake) => return intake,
                Err(error) => tracing::warn!(%error, "requests are not taken in; trying again"),
            }
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        }
    };
    stop.run_until_cancelled(asking).await
}

impl Running {
    /// Takes nothing in any more: what is being stored is finished and its offsets are committed, if brokers answer soon.
    pub(crate) async fn stop_intake(&mut self) {
        self.stop.cancel();
        if let Ok(Some(intake)) = (&mut self.intake).await {
            intake.stop().await;
        }
    }

    /// Tells nothing any more, but waits for what is on its way.
    pub(crate) async fn stop_relay(self) {
        self.relay.stop().await;
    }
}

fn refusal(error: &KafkaError, config: &Config) -> anyhow::Error {
    let origin = config.typed(Key::KafkaBrokers).map_or(&Origin::Default, |typed| &typed.origin);
    anyhow!("{error}; brokers is set by {origin}\nnext: {}", next_step(error))
}

/// What to do about it.
pub(crate) fn next_step(error: &KafkaError) -> String {
    match error {
        KafkaError::Unreachable { .. } => {
            "check the address, and security.protocol in [kafka.properties]: it must be that of the brokers' listener".into()
        }
        KafkaError::NotLetIn { .. } => format!(
            "check sasl.username and sasl.mechanism in [kafka.properties], and the password in {}, {} or [kafka]",
            Key::KafkaPassword.variable(),
            Key::KafkaPasswordFile.variable()
        ),
        KafkaError::NoTls { .. } => "set ssl.ca.location in [kafka.properties] to the certificate of the authority that signed \
             the brokers' (a file in PEM), and name the brokers as their certificates do"
            .into(),
        KafkaError::Forbidden { .. } => "let this user DESCRIBE and READ the request topic, READ the group, DESCRIBE and WRITE \
             the response and the dead-letter topic: kafka-acls.sh --bootstrap-server BROKER --add --allow-principal User:…"
            .into(),
        KafkaError::NoTopic { topics } => {
            let commands = topics.iter().map(|topic| {
                format!("kafka-topics.sh --bootstrap-server BROKER --create --topic {topic} --partitions 6")
            });
            format!(
                "set create_topics = true in [kafka], or make what is missing:\n  {}",
                commands.collect::<Vec<_>>().join("\n  ")
            )
        }
        KafkaError::Property { .. } | KafkaError::Properties { .. } => {
            format!("correct it in [kafka.properties] or {}", Key::KafkaProperties.variable())
        }
        KafkaError::NotMade { .. } => "make it by other means, and leave create_topics off".into(),
        KafkaError::Topic { topic, .. } => format!("see what the brokers allow this user with {topic}"),
        KafkaError::Recipe(_) => {
            "choose another recipe in [kafka]: one that `telecine recipes ls` shows".into()
        }
        KafkaError::IntakeBroken => "look into the log of whoever takes requests in".into(),
        KafkaError::Thread(_) => "end other processes, or raise the limit of threads".into(),
    }
}
