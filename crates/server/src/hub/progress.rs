//! How far watched runs are: looked up by counting jobs, told when it has changed.

use std::collections::HashMap;

use futures_util::{StreamExt, TryStreamExt, stream};
use telecine_pipeline::progress_of;
use telecine_queue::{Queue, QueueError, RunFilter, RunId, RunPage, RunState};

/// Of those that run, when all runs are watched: the newest.
const MOST_RUNS: u32 = 100;
/// Runs whose jobs are counted side by side.
const COUNTS: usize = 4;

/// What was told last, in tenths of a percent.
#[derive(Debug, Default)]
pub(super) struct Progressing(HashMap<RunId, u32>);

impl Progressing {
    pub(super) async fn changed(
        &mut self,
        queue: &dyn Queue,
        mut watched: Vec<(RunId, String)>,
        watches_all: bool,
    ) -> Result<Vec<(RunId, String)>, QueueError> {
        if watches_all {
            let filter = RunFilter { states: vec![RunState::Running], ..RunFilter::default() };
            let running = queue.list_runs(&filter, RunPage::first(MOST_RUNS)).await?.data;
            watched.extend(running.into_iter().map(|run| (run.id, run.tenant)));
            watched.sort();
            watched.dedup();
        }
        let (mut told, mut changed) = (HashMap::new(), Vec::new());
        let counting = watched.into_iter().map(|(run, tenant)| async move {
            let progress = progress_of(queue, &run).await?;
            Ok::<_, QueueError>((run, tenant, (progress * 1_000.0).round() as u32))
        });
        let counted: Vec<_> = stream::iter(counting).buffered(COUNTS).try_collect().await?;
        for (run, tenant, permille) in counted {
            // Who has not begun has made no progress, and how it ended is told by an event.
            if permille > 0 && permille < 1_000 && self.0.get(&run) != Some(&permille) {
                changed.push((run.clone(), tenant));
            }
            told.insert(run, permille);
        }
        self.0 = told;
        Ok(changed)
    }
}
