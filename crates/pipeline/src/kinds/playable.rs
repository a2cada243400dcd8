//! `playable`: tells that the beginning of a film can be played, once its first range and its sound are stored.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{Attempt, Work};
use crate::failure::Attempted;

pub(super) struct Playable;

#[async_trait]
impl Work for Playable {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        attempt.context.playable();
        Ok(json!({}))
    }
}
