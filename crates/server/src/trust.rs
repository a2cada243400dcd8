//! Whether callers from this machine need no key.
//!
//! A proxy on this machine that says nothing of itself cannot be told from a program on it. Whoever makes a key means that
//! callers show one: unless the operator says otherwise, the first key ends the trust.

use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;
use telecine_queue::{Queue, QueueError};

use crate::app::ServerOptions;
use crate::keys;

/// How long it is believed that there is no key: as long as a key that was revoked.
const BELIEVED: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Trust {
    is_given: bool,
    ends_with_first_key: bool,
    has_keys: Cache<(), bool>,
}

impl Trust {
    pub(crate) fn of(options: &ServerOptions) -> Self {
        Self {
            is_given: options.trust_loopback,
            ends_with_first_key: options.trust_until_first_key,
            has_keys: Cache::builder().max_capacity(1).time_to_live(BELIEVED).build(),
        }
    }

    /// Whether a caller from this machine gets in without a key just now.
    pub(crate) async fn holds(&self, queue: &dyn Queue) -> Result<bool, Arc<QueueError>> {
        if !self.is_given || !self.ends_with_first_key {
            return Ok(self.is_given);
        }
        Ok(!self.has_keys.try_get_with((), keys::was_any_made(queue)).await?)
    }
}
