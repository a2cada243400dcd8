//! Kafka of this process: whoever serves also takes requests in and tells results, where that is configured.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use telecine_connect::Kafka;
use telecine_connect::kafka::{Intake, KafkaError};
use telecine_pipeline::Workshop;
use telecine_queue::{Relay, RelayOptions};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Key};
use crate::recipes;

/// How long brokers have to answer the first question.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);
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
    let Some(options) = config.kafka.clone() else { return Ok(None) };
    let kafka = Kafka::new(Arc::clone(shop), recipes::all(config)?, options);
    Ok(Some(kafka.map_err(|error| refusal(&error, config))?))
}

pub(crate) async fn start(kafka: &Kafka, config: &Config, brokers: Brokers) -> Result<Running> {
    let patience = match brokers {
        Brokers::Required => ANSWER_WITHIN,
        Brokers::Awaited => ANSWER_WITHIN / 4,
    };
    let ready = match kafka.broker().require_topics(patience).await {
        Err(error) if error.is_passing() && brokers == Brokers::Awaited => {
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
    let brokers = config.shown(Key::KafkaBrokers);
    match error {
        KafkaError::Unreachable { reason, .. } => anyhow!(
            "no Kafka broker answers; brokers is {brokers}: {reason}\n\
             next: check the address, and security.protocol in [kafka.properties]"
        ),
        KafkaError::NoTopic { topics } => {
            let commands = topics.iter().map(|topic| {
                format!("kafka-topics.sh --bootstrap-server BROKER --create --topic {topic} --partitions 6")
            });
            anyhow!(
                "{error} on {brokers}\n\
                 next: set create_topics = true in [kafka], or make what is missing:\n  {}",
                commands.collect::<Vec<_>>().join("\n  ")
            )
        }
        KafkaError::Property { .. } => {
            anyhow!("{error}\nnext: correct it in [kafka.properties] or {}", Key::KafkaProperties.variable())
        }
        KafkaError::NotMade { .. } => {
            anyhow!("{error}\nnext: make it by other means, and leave create_topics off")
        }
        KafkaError::Topic { topic, .. } => {
            anyhow!("{error}; brokers is {brokers}\nnext: see what the brokers allow this user with {topic}")
        }
        KafkaError::Recipe(_) => {
            let recipe = Key::KafkaRecipe;
            anyhow!(
                "{error}; {} is {}\nnext: choose one that `telecine recipes ls` shows",
                recipe.name(),
                config.shown(recipe)
            )
        }
        KafkaError::Thread(_) | KafkaError::IntakeBroken => anyhow!("{error}"),
    }
}
