//! `playable`: tells that the beginning of a film can be played, once its first range and its sound are stored.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{Attempt, StepPayload, Work};
use crate::failure::Attempted;

pub(super) struct Playable;

const EVENT: &str = "run.playable";

#[async_trait]
impl Work for Playable {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        let StepPayload { step } = attempt.payload()?;
        attempt.shop.queue.tell(attempt.run, EVENT, json!({ "step": step })).await?;
        Ok(json!({}))
    }
}
