//! Documents of runs for all who watch, each drawn once for what was read together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moka::future::Cache;
use serde_json::value::RawValue;
use telecine_pipeline::describe;
use telecine_queue::{Queue, QueueError, RunId};

/// Of all documents that are kept. That of a film of hours has megabytes.
const MOST_BYTES: u64 = 64 << 20;
/// Whoever comes later draws it anew.
const KEPT_FOR: Duration = Duration::from_secs(5);

/// The text of a run's document. `None`: the run was deleted.
pub(crate) type RunText = Option<Arc<RawValue>>;

/// One look at the database, in which each run is as it was once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Glance(u64);

#[derive(Debug)]
pub(super) struct Documents {
    glances: AtomicU64,
    drawn: Cache<(RunId, Glance), RunText>,
}

impl Documents {
    pub(super) fn new() -> Self {
        let weigher = |_: &(RunId, Glance), text: &RunText| {
            u32::try_from(text.as_ref().map_or(64, |text| text.get().len() + 64)).unwrap_or(u32::MAX)
        };
        let drawn = Cache::builder().max_capacity(MOST_BYTES).weigher(weigher).time_to_live(KEPT_FOR).build();
        Self { glances: AtomicU64::new(0), drawn }
    }

    pub(super) fn glance(&self) -> Glance {
        Glance(self.glances.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) async fn get(
        &self,
        queue: &dyn Queue,
        run: &RunId,
        glance: Glance,
    ) -> Result<RunText, QueueError> {
        let drawn = self.drawn.try_get_with((run.clone(), glance), draw(queue, run)).await;
        // All who waited for it have the same error.
        drawn.map_err(|error: Arc<QueueError>| QueueError::Unavailable { reason: error.to_string() })
    }
}

async fn draw(queue: &dyn Queue, run: &RunId) -> Result<RunText, QueueError> {
    let document = describe(queue, run).await?;
    let text = document.map(|document| serde_json::value::to_raw_value(&document)).transpose();
    let text = text.map_err(|error| QueueError::Unexpected { reason: error.to_string() })?;
    Ok(text.map(Arc::from))
}
