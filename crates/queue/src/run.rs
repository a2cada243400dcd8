//! Runs: one input processed by one recipe, as a group of jobs with a name of its own.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use ulid::Ulid;

use crate::timestamp::Timestamp;

/// The name of a run, such as `run_01J9Z…`: unguessable, sorted by time, made before it is stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
pub struct Run {
    pub id: RunId,
    pub tenant: String,
    pub name: String,
    pub external_id: Option<String>,
    pub state: RunState,
    pub generation: u32,
    /// What [`prioritise_run`](crate::Queue::prioritise_run) gave to all of its jobs.
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
