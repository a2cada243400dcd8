//! The brokers of Kafka, where some are configured.

use std::time::Duration;

use telecine_connect::KafkaOptions;
use telecine_connect::kafka::{Broker, KafkaError};

use super::Check;
use crate::config::{Config, Key};
use crate::kafka::{MEND_PASSWORD_FILE, next_step, options};

const NAME: &str = "kafka";
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

pub(super) async fn check(config: &Config) -> Option<Check> {
    let options = match options(config) {
        Ok(options) => options?,
        Err(error) => return Some(Check::fail(NAME, format!("{error:#}"), MEND_PASSWORD_FILE)),
    };
    let (shown, create_topics) = (config.shown(Key::KafkaBrokers), options.create_topics);
    Some(match missing_topics(options).await {
        Ok(missing) if missing.is_empty() => Check::ok(NAME, format!("{shown} has the three topics")),
        Ok(missing) if create_topics => {
            Check::ok(NAME, format!("{shown} answers; {} will be made", missing.join(", ")))
        }
        Ok(topics) => {
            let error = KafkaError::NoTopic { topics };
            Check::fail(NAME, format!("{shown}: {error}"), next_step(&error))
        }
        Err(error) => Check::fail(NAME, error.to_string(), next_step(&error)),
    })
}

async fn missing_topics(options: KafkaOptions) -> Result<Vec<String>, KafkaError> {
    Broker::new(options)?.missing_topics(ANSWER_WITHIN).await
}
