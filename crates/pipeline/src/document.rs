//! A run as everybody sees it: the same document in an answer, an event, a webhook and on the command line.
//!
//! It is drawn from rows alone, so whoever can read the database can draw it.

mod facts;
mod summary;

use serde::Serialize;
use serde_json::Value;
use telecine_queue::{Job, JobFilter, JobState, Page, Queue, QueueError, Run, RunId, RunState, Timestamp};

use crate::lifetime::is_deleted;
use crate::records::{
    FailureRecord, InputRecord, OutputRecord, PublishedRecord, RunRecord, ScanRecord, WarningRecord,
    with_pages,
};
use facts::Facts;

pub use summary::{RunSummary, SummarisedRuns, summarise};

/// A run with its steps, its outputs, and what went wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunDocument {
    pub id: RunId,
    #[cfg_attr(feature = "openapi", schema(value_type = String, pattern = "^run$", examples("run")))]
    pub object: &'static str,
    pub external_id: Option<String>,
    pub recipe: RecipeNamed,
    pub status: RunState,
    pub input: InputShown,
    pub priority: u8,
    /// 0 to 100.
    pub progress: f64,
    /// How long it will still take, as far as can be told from how long it took so far.
    pub eta_ms: Option<u64>,
    /// Seconds of media in a second.
    pub speed: Option<f64>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub playable_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub steps: Vec<StepShown>,
    pub outputs: Vec<OutputShown>,
    pub warnings: Vec<WarningShown>,
    pub error: Option<ErrorShown>,
    /// Where it publishes its outputs, as it was asked for.
    pub publish_to: Option<String>,
    /// As it was submitted.
    pub metadata: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecipeNamed {
    pub name: String,
    /// Of the recipe as it was when the run was submitted, parameters included.
    pub sha256: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InputShown {
    pub uri: String,
    pub sha256: Option<String>,
    pub bytes: Option<u64>,
    /// What a virus scanner said of it: `clean`, `infected` or `unscanned`; `null` where it was not asked, or not yet.
    pub scan: Option<String>,
    pub probe: Option<ProbeShown>,
}

/// What most people want to know of an input.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProbeShown {
    pub format: &'static str,
    pub duration_ms: Option<u64>,
    /// As displayed, before it is turned.
    pub width: Option<u32>,
    pub height: Option<u32>,
    pub rotation: Option<u16>,
    pub fps: Option<f64>,
    pub has_audio: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepShown {
    pub name: String,
    pub status: StepStatus,
    pub jobs_done: u32,
    pub jobs_total: u32,
    /// 0 to 100.
    pub progress: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    Waiting,
    Queued,
    Running,
    Succeeded,
    Skipped,
    Failed,
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutputShown {
    pub name: String,
    /// The step that makes it: files lie at `/v1/runs/{id}/files/{step}/{path}`.
    pub step: String,
    pub kind: String,
    pub status: OutputStatus,
    pub required: bool,
    /// The file to begin with: its key in the store.
    pub uri: Option<String>,
    /// The same where the run published it: `s3://bucket/key`, or a key below the folder. A later run for the same prefix
    /// may have replaced it.
    pub published: Option<String>,
    pub files: Vec<FileShown>,
    pub facts: Value,
}

/// A file of an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileShown {
    /// From the step's folder: `720p/00007-3f9a1c2b.m4s`.
    pub path: String,
    /// In the store.
    pub key: String,
    pub bytes: u64,
    pub sha256: String,
    /// Its key where the run published it, from the root of the bucket or folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OutputStatus {
    Pending,
    Ready,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WarningShown {
    pub step: String,
    pub code: String,
    pub message: String,
}

/// Why the run failed: the first failure that it could not do without.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorShown {
    pub code: String,
    pub message: String,
    pub step: String,
    pub retryable: bool,
    pub attempt: u32,
    /// Of the program that failed, if one did and ended by itself.
    pub exit_code: Option<i32>,
    /// That ended the program.
    pub signal: Option<i32>,
    pub stderr_tail: String,
    pub hint: String,
}

/// The document of a run; `None` where there is no such run, or it was deleted and only its outputs live on with others.
pub async fn describe(queue: &dyn Queue, id: &RunId) -> Result<Option<RunDocument>, QueueError> {
    let Some(run) = queue.get_run(id).await? else { return Ok(None) };
    if is_forgotten(queue, &run).await? {
        return Ok(None);
    }
    describe_run(queue, run).await.map(Some)
}

/// The run of a tenant by that id; `None` where there is none, it is another tenant's, or it was deleted.
pub async fn run_of_tenant(queue: &dyn Queue, tenant: &str, id: &RunId) -> Result<Option<Run>, QueueError> {
    Ok(shown_run(queue, id).await?.filter(|run| run.tenant == tenant))
}

/// The run by that id, whoever's it is; `None` where there is none, or it was deleted.
pub async fn shown_run(queue: &dyn Queue, id: &RunId) -> Result<Option<Run>, QueueError> {
    match queue.get_run(id).await? {
        Some(run) if !is_forgotten(queue, &run).await? => Ok(Some(run)),
        _ => Ok(None),
    }
}

/// Whether the run was deleted, and only its outputs live on with others. None is before it has ended.
pub(crate) async fn is_forgotten(queue: &dyn Queue, run: &Run) -> Result<bool, QueueError> {
    if run.finished_at.is_none() {
        return Ok(false);
    }
    is_deleted(queue, &run.id).await
}

/// The document of a run that was read just now. What its jobs say of segments and programs is not read: of a long film
/// that is much, and shows nowhere in it.
pub async fn describe_run(queue: &dyn Queue, run: Run) -> Result<RunDocument, QueueError> {
    let mut jobs = jobs_of_run(queue, &run.id, &[]).await?;
    jobs.reverse();
    let mut records = Vec::new();
    let kinds = [
        InputRecord::TYPE,
        ScanRecord::TYPE,
        OutputRecord::TYPE,
        PublishedRecord::TYPE,
        WarningRecord::TYPE,
        FailureRecord::TYPE,
    ];
    for kind in kinds {
        records.extend(queue.records(&run.id, Some(kind)).await?);
    }
    let records = with_pages(queue, &run.id, records).await?;
    Facts { run, jobs, records }.document()
}

/// The jobs of a run in these states, or in any where none is named; newest first.
pub async fn jobs_of_run(
    queue: &dyn Queue,
    run: &RunId,
    states: &[JobState],
) -> Result<Vec<Job>, QueueError> {
    let filter = JobFilter { states: states.into(), run: Some(run.clone()), ..JobFilter::default() };
    let (mut jobs, mut page) = (Vec::new(), Page::first(Page::MAX_LIMIT));
    loop {
        let listed = queue.list(&filter, page).await?;
        jobs.extend(listed.data);
        match listed.next_cursor {
            Some(before) => page.before = Some(before),
            None => return Ok(jobs),
        }
    }
}

/// How far a run is, 0 to 1, as its document says it: at the cost of counting its jobs.
pub async fn progress_of(queue: &dyn Queue, id: &RunId) -> Result<f64, QueueError> {
    let counts = queue.run_steps(id).await?;
    let jobs: u64 = counts.iter().map(|count| count.jobs).sum();
    let done: f64 = counts
        .iter()
        .map(|count| match count.state {
            JobState::Completed => count.jobs as f64,
            _ => count.progress,
        })
        .sum();
    Ok(if jobs == 0 { 0.0 } else { done / jobs as f64 })
}
