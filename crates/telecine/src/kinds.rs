//! The kinds this binary runs: those of the pipeline, and one to try a deployment with.

mod pause;

use std::sync::Arc;

use telecine_pipeline::Workshop;
use telecine_queue::{Kind, Kinds};

/// Every kind, to be run by a worker.
pub(crate) fn all(shop: &Arc<Workshop>) -> Kinds {
    telecine_pipeline::kinds::all(shop).with(pause::Pause)
}

/// The lane that a kind's jobs belong to; `None` when this program does not know the kind.
pub(crate) fn lane_of(name: &str) -> Option<&'static str> {
    if name == pause::Pause.name() {
        return Some(pause::Pause.lane());
    }
    telecine_pipeline::kinds::lane_of(name)
}

/// What all of them are called.
pub(crate) fn names() -> Vec<&'static str> {
    let of_pipeline = telecine_pipeline::kinds::LANES.iter().map(|(name, _)| *name);
    of_pipeline.chain([pause::Pause.name()]).collect()
}
