//! `telecine kafka`: requests in and results out, without an API and without a worker.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use telecine_connect::kafka::{is_sink, sink_of};

use super::worker::watched;
use super::{Schema, open};
use crate::cli::KafkaFlags;
use crate::config::{Config, Key};
use crate::kafka::{self, Brokers};
use crate::output::{Answer, say};
use crate::signals::Signals;
use crate::workshop;

pub(super) async fn run(flags: &KafkaFlags, config: &Config) -> Result<Answer> {
    if flags.leave {
        return leave(config).await;
    }
    let mut signals = Signals::listen()?;
    let queue = open(config, Schema::Migrate).await?;
    let shop = Arc::new(workshop::open(config, &queue)?);
    let Some(kafka) = kafka::of(config, &shop)? else {
        bail!(
            "no Kafka is configured\nnext: add [kafka] with brokers = \"host:9092\" to telecine.toml, or set {}",
            Key::KafkaBrokers.variable()
        );
    };
    let watched = watched(config, &shop, Some(&kafka)).await?;
    let mut running = kafka::start(&kafka, config, Brokers::Required).await?;
    let options = kafka.options();
    say(format_args!(
        "requests come from topic {} as group {}, results go to {}, on {} with {}; Ctrl-C stops it",
        options.request_topic,
        options.group,
        options.response_topic,
        options.brokers,
        config.database_shown()
    ));
    signals.next().await;

    let stopped = async {
        running.stop_intake().await;
        running.stop_relay().await;
    };
    let answer = tokio::select! {
        () = stopped => Answer::Yes,
        // Asked again: brokers may hang.
        () = signals.next() => Answer::No,
    };
    if let Some(watched) = watched {
        watched.stop(Duration::ZERO).await;
    }
    say("stopped");
    Ok(answer)
}

/// What nobody sends any more must not wait for ever, and keep runs from being forgotten. Where [kafka] is configured, of
/// its tenant alone: others may go on.
async fn leave(config: &Config) -> Result<Answer> {
    let queue = open(config, Schema::AsItIs).await?;
    let own = config.kafka.as_ref().map(|options| sink_of(&options.tenant));
    let is_left = |sink: &str| own.as_deref().map_or_else(|| is_sink(sink), |own| sink == own);
    let mut was_kept = false;
    for depth in queue.outbox_depths().await? {
        was_kept |= is_left(&depth.sink) && queue.remove_sink(&depth.sink).await?;
    }
    if was_kept {
        say(
            "no results are kept for Kafka any more; whoever still serves with [kafka] tells none until it is started again",
        );
        return Ok(Answer::Yes);
    }
    say("no results were kept for Kafka");
    Ok(Answer::No)
}
