//! A run in a list: what its row alone tells, so that a page costs what a page of rows costs.

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use serde_json::Value;
use telecine_queue::{ListedRuns, Queue, QueueError, Run, RunId, RunState, Timestamp};

use super::facts::percent;
use super::{RecipeNamed, is_forgotten};
use crate::submission::RunMeta;

/// Runs whose deletion is looked up side by side.
const LOOKS: usize = 8;

/// The short form of a run document: without steps, outputs, warnings, error and what is known of the input's bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunSummary {
    pub id: RunId,
    #[cfg_attr(feature = "openapi", schema(value_type = String, pattern = "^run$", examples("run")))]
    pub object: &'static str,
    pub external_id: Option<String>,
    pub recipe: RecipeNamed,
    pub status: RunState,
    pub input: InputNamed,
    pub priority: u8,
    /// 0 to 100, by how many of the jobs that are known by now have ended.
    pub progress: f64,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub playable_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub metadata: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InputNamed {
    pub uri: String,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SummarisedRuns {
    /// Newest first. A page may have fewer than were asked for, and still not be the last.
    pub data: Vec<RunSummary>,
    /// The `cursor` of the next page; null on the last one.
    pub next_cursor: Option<RunId>,
}

/// A page of runs as callers see it: those that were deleted, or belong to another program, are left out.
pub async fn summarise(queue: &dyn Queue, listed: ListedRuns) -> Result<SummarisedRuns, QueueError> {
    let looks = listed.data.into_iter().map(|run| async move {
        let is_forgotten = is_forgotten(queue, &run).await?;
        Ok::<_, QueueError>((!is_forgotten).then(|| RunSummary::of(run)).flatten())
    });
    let data: Vec<Option<RunSummary>> = stream::iter(looks).buffered(LOOKS).try_collect().await?;
    Ok(SummarisedRuns { data: data.into_iter().flatten().collect(), next_cursor: listed.next_cursor })
}

impl RunSummary {
    fn of(run: Run) -> Option<Self> {
        let meta = RunMeta::of(&run).ok()?;
        let ended = f64::from(run.jobs_total.saturating_sub(run.jobs_left));
        let progress = match run.state {
            RunState::Succeeded | RunState::Partial => 1.0,
            _ => ended / f64::from(run.jobs_total.max(1)),
        };
        Some(Self {
            object: "run",
            external_id: run.external_id,
            recipe: RecipeNamed { name: run.name, sha256: meta.recipe.sha256() },
            status: run.state,
            input: InputNamed { uri: meta.input.to_string() },
            priority: run.priority.unwrap_or(meta.priority),
            progress: percent(progress),
            created_at: run.created_at,
            started_at: run.started_at,
            playable_at: run.playable_at,
            finished_at: run.finished_at,
            metadata: meta.metadata,
            id: run.id,
        })
    }
}
