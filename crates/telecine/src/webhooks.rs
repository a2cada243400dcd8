//! Webhooks of this process: whoever serves or works also tells of runs.

use std::sync::Arc;

use anyhow::{Context, Result};
use telecine_connect::{WebhookOptions, Webhooks};
use telecine_pipeline::Workshop;
use telecine_queue::{Relay, RelayOptions};

use crate::config::{Config, Key};

pub(crate) fn of(shop: &Workshop) -> Webhooks {
    let options = WebhookOptions { allow_private_urls: shop.allow_private_urls, ..WebhookOptions::default() };
    Webhooks::new(Arc::clone(&shop.queue), options)
}

/// Stores the endpoints of the configuration and starts to tell of runs. To be stopped when the process leaves.
pub(crate) async fn start(config: &Config, shop: &Workshop) -> Result<Relay> {
    let webhooks = of(shop);
    if let Some(configured) = &config.webhooks {
        let origin = config.typed(Key::Webhooks).map(|typed| typed.origin.to_string()).unwrap_or_default();
        webhooks
            .adopt(configured)
            .await
            .with_context(|| format!("the webhooks of the configuration ({origin}) cannot be used"))?;
    }
    let options = RelayOptions { poll_every: config.poll_every, ..RelayOptions::default() };
    Ok(webhooks.start_relay(options).await?)
}
