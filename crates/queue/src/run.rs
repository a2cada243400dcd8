//! Runs: one input processed by one recipe, as a group of jobs with a name of its own.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use ulid::Ulid;

use crate::job::JobState;
use crate::timestamp::Timestamp;

/// The name of a run, such as `run_01J9Z…`: unguessable, sorted by time, made before it is stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(value_type = String, pattern = "^run_[0-9A-HJKMNP-TV-Z]{26}$", examples("run_01J9ZC8E4QWX5T0N1V2B3M4K6P"))
)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

impl RunId {
    #[expect(
        clippy::new_without_default,
        reason = "each call makes another id; a default would suggest otherwise"
    )]
    pub fn new() -> Self {
        Self(format!("run_{}", Ulid::generate()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The lowest that an id made at this instant could be.
    pub(crate) fn made_at(at: Timestamp) -> String {
        format!("run_{}", Ulid::from_parts(u64::try_from(at.as_ms()).unwrap_or(0), 0))
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl std::str::FromStr for RunId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_run = text.strip_prefix("run_").is_some_and(|ulid| Ulid::from_string(ulid).is_ok());
        if is_run {
            Ok(Self(text.into()))
        } else {
            Err(format!("`{text}` is not a run id such as run_{}", Ulid::nil()))
        }
    }
}

impl TryFrom<String> for RunId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.0
    }
}

/// A run to be pushed with all its jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewRun {
    /// What kind of run this is: the recipe's name.
    pub name: String,
    /// The caller's own id for it.
    pub external_id: Option<String>,
    /// Whatever the caller wants to find again.
    pub meta: Value,
}

impl NewRun {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), external_id: None, meta: Value::Null }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    Queued,
    Running,
    Succeeded,
    Partial,
    Failed,
    Cancelled,
}

impl RunState {
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Running, Self::Succeeded, Self::Partial, Self::Failed, Self::Cancelled];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl RunState {
    /// Whether only a retry by a person changes it.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Queued | Self::Running => false,
            Self::Succeeded | Self::Partial | Self::Failed | Self::Cancelled => true,
        }
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for RunState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| format!("`{text}` is not a run state"))
    }
}

/// A run as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Run {
    pub id: RunId,
    pub tenant: String,
    pub name: String,
    pub external_id: Option<String>,
    pub state: RunState,
    pub generation: u32,
    /// What [`prioritise_run`](crate::Queue::prioritise_run) gave to all of its jobs.
    #[cfg_attr(feature = "openapi", schema(maximum = 100))]
    pub priority: Option<u8>,
    pub meta: Value,
    pub jobs_total: u32,
    pub jobs_left: u32,
    pub jobs_failed: u32,
    pub jobs_cancelled: u32,
    /// Optional jobs that did not complete.
    pub jobs_degraded: u32,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    /// When a job of it first said that what it makes can be played. A new generation keeps it.
    pub playable_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}

/// Which runs. Empty means all.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    pub states: Vec<RunState>,
    pub name: Option<String>,
    pub external_id: Option<String>,
    pub tenant: Option<String>,
}

impl RunFilter {
    /// Each wanted state once.
    pub(crate) fn states(&self) -> Vec<RunState> {
        RunState::ALL
            .into_iter()
            .filter(|state| self.states.is_empty() || self.states.contains(state))
            .collect()
    }
}

/// Which part of a list of runs: `limit` runs that are older than `before`.
#[derive(Clone, Debug)]
pub struct RunPage {
    pub before: Option<RunId>,
    pub limit: u32,
}

impl RunPage {
    pub const MAX_LIMIT: u32 = 1_000;

    pub fn first(limit: u32) -> Self {
        Self { before: None, limit }
    }

    pub(crate) fn rows(&self) -> u32 {
        self.limit.clamp(1, Self::MAX_LIMIT)
    }

    /// What the ids of the page's runs are below.
    pub(crate) fn upper_bound(&self) -> &str {
        // Every id begins with `run_`.
        self.before.as_ref().map_or("s", RunId::as_str)
    }
}

/// One page of a list of runs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListedRuns {
    pub data: Vec<Run>,
    /// Pass as [`RunPage::before`] for the next page; `None` on the last one.
    pub next_cursor: Option<RunId>,
}

impl ListedRuns {
    /// From more runs than the page holds, if there are more.
    pub(crate) fn of(mut data: Vec<Run>, page: &RunPage) -> Self {
        let rows = page.rows() as usize;
        let more = data.len() > rows;
        data.truncate(rows);
        let next_cursor = data.last().filter(|_| more).map(|run| run.id.clone());
        Self { data, next_cursor }
    }
}

/// How many jobs of one step of a run are in one state.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepCount {
    /// `None`: jobs that belong to no step.
    pub step: Option<String>,
    pub state: JobState,
    pub jobs: u64,
    /// How far those are that run, each 0.0 to 1.0, added up. 0 of other states.
    pub progress: f64,
}

impl StepCount {
    /// By step, then by state, whatever the database takes for order.
    pub(crate) fn sorted(mut counts: Vec<Self>) -> Vec<Self> {
        counts.sort_by(|one, other| (&one.step, one.state).cmp(&(&other.step, other.state)));
        counts
    }
}
