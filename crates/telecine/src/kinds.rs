//! The kinds this binary runs: those of the pipeline, the one that delivers webhooks, and one to try a deployment with.

mod pause;

use std::sync::Arc;

use telecine_connect::webhooks as deliveries;
use telecine_pipeline::Workshop;
use telecine_queue::{Kind, Kinds};

use crate::webhooks;

/// Every kind, to be run by a worker.
pub(crate) fn all(shop: &Arc<Workshop>) -> Kinds {
    telecine_pipeline::kinds::all(shop).with(webhooks::of(shop).kind()).with(pause::Pause)
}

/// The lane that a kind's jobs belong to; `None` when this program does not know the kind.
pub(crate) fn lane_of(name: &str) -> Option<&'static str> {
    match name {
        deliveries::KIND => Some(deliveries::LANE),
        name if name == pause::Pause.name() => Some(pause::Pause.lane()),
        name => telecine_pipeline::kinds::lane_of(name),
    }
}

/// What all of them are called.
pub(crate) fn names() -> Vec<&'static str> {
    let of_pipeline = telecine_pipeline::kinds::LANES.iter().map(|(name, _)| *name);
    of_pipeline.chain([deliveries::KIND, pause::Pause.name()]).collect()
}
