//! Jobs as values: what is pushed, what is stored, what a worker holds while it runs one.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backoff::Backoff;
use crate::error::{QueueError, Result};
use crate::graph::{Need, Needed, OnFailed};
use crate::run::RunId;
use crate::timestamp::Timestamp;
use crate::worker::WorkerId;

/// A payload, result or checkpoint larger than this belongs in a blob, with its key in the JSON.
pub const MAX_JSON_BYTES: usize = 256 * 1024;
/// What is nested deeper could be stored, but not read back: the parser stops at 128.
const MAX_JSON_DEPTH: usize = 100;
/// How long after a job's timeout its worker has to stop it, before `reap` takes it back.
pub(crate) const DEADLINE_GRACE: Duration = Duration::from_secs(30);
const MAX_NAME_BYTES: usize = 200;
pub(crate) const MAX_PRIORITY: u8 = 100;

/// The number of a job. Rises with each push, is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct JobId(pub i64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for JobId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// Rises on every claim of a job and never falls; every write a worker makes carries the one it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Fence(pub i64);

/// Where a job stands. `Waiting` to `Running` are live; the rest are terminal and never change by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Needs other jobs to finish first.
    Waiting,
    /// For later, or backing off after a failure.
    Scheduled,
    /// Over a limit.
    Parked,
    /// Ready to be claimed.
    Pending,
    /// Claimed by a worker.
    Running,
    Completed,
    Failed,
    Cancelled,
    Skipped,
}

impl JobState {
    pub const ALL: [Self; 9] = [
        Self::Waiting,
        Self::Scheduled,
        Self::Parked,
        Self::Pending,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Skipped,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Scheduled => "scheduled",
            Self::Parked => "parked",
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
        }
    }

    pub fn is_terminal(self) -> bool {
        match self {
            Self::Waiting | Self::Scheduled | Self::Parked | Self::Pending | Self::Running => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Skipped => true,
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for JobState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|state| state.as_str()).collect();
            format!("`{text}` is not a state; known states are {}", known.join(", "))
        })
    }
}

/// A job to be pushed. Only the kind is required; everything else has the defaults of [`NewJob::new`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewJob {
    pub kind: String,
    pub lane: String,
    pub payload: Value,
    /// 0 to 100, higher first.
    #[cfg_attr(feature = "openapi", schema(maximum = 100))]
    pub priority: u8,
    /// Not before this instant.
    pub run_at: Option<Timestamp>,
    /// Failures after which the job is `failed`.
    pub max_attempts: u16,
    /// Workers that may die under this job before it is `failed: poison`.
    pub max_lost: u16,
    pub backoff: Backoff,
    /// How long one attempt may take. The worker stops it then; `reap` takes it back if the worker does not.
    pub timeout_ms: Option<u64>,
    /// While a job of the same tenant and kind with this key is live or completed, a push returns that job. A run does
    /// not wait for a job that another one brought.
    pub unique_key: Option<String>,
    /// The [`Limit`](crate::Limit) that this job counts against. One that does not exist bounds nothing.
    pub limit_key: Option<String>,
    /// The step of the run that this job belongs to.
    pub step: Option<String>,
    /// Estimated run time: later jobs of the same run stand that much further back in the line.
    pub cost_ms: u32,
    /// Scratch space this job needs; workers with less free do not claim it.
    pub scratch_bytes: u64,
    /// Jobs of the same run that must end first.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Whether its failure fails the run; that of an optional job only makes it `partial`.
    #[serde(default = "yes")]
    pub required: bool,
}

fn yes() -> bool {
    true
}

impl NewJob {
    pub fn new(kind: impl Into<String>, payload: Value) -> Self {
        Self {
            kind: kind.into(),
            lane: "cpu".into(),
            payload,
            priority: 50,
            run_at: None,
            max_attempts: 5,
            max_lost: 3,
            backoff: Backoff::default(),
            timeout_ms: None,
            unique_key: None,
            limit_key: None,
            step: None,
            cost_ms: 0,
            scratch_bytes: 0,
            needs: Vec::new(),
            required: true,
        }
    }

    #[must_use]
    pub fn lane(mut self, lane: impl Into<String>) -> Self {
        self.lane = lane.into();
        self
    }

    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    #[must_use]
    pub fn run_at(mut self, at: Timestamp) -> Self {
        self.run_at = Some(at);
        self
    }

    #[must_use]
    pub fn max_attempts(mut self, attempts: u16) -> Self {
        self.max_attempts = attempts;
        self
    }

    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    #[must_use]
    pub fn unique_key(mut self, key: impl Into<String>) -> Self {
        self.unique_key = Some(key.into());
        self
    }

    #[must_use]
    pub fn step(mut self, step: impl Into<String>) -> Self {
        self.step = Some(step.into());
        self
    }

    /// Waits for the n-th job of the same push; is skipped if that does not complete.
    #[must_use]
    pub fn after(self, nth: usize) -> Self {
        self.needing(Need { on: Needed::Nth(nth), on_failed: OnFailed::Skip })
    }

    #[must_use]
    pub fn needing(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    /// Its failure does not fail the run.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.required = false;
        self
    }

    /// How many different jobs it waits for.
    pub(crate) fn needs_count(&self) -> u32 {
        let mut needed: Vec<Needed> = self.needs.iter().map(|need| need.on).collect();
        needed.sort_unstable();
        needed.dedup();
        u32::try_from(needed.len()).unwrap_or(u32::MAX)
    }

    /// Counts against the limit of this key, if there is one.
    #[must_use]
    pub fn limit_key(mut self, key: impl Into<String>) -> Self {
        self.limit_key = Some(key.into());
        self
    }

    /// Refuses what no database should ever see.
    pub(crate) fn check(&self) -> Result<()> {
        check_name("kind", &self.kind)?;
        check_name("lane", &self.lane)?;
        for (what, name) in
            [("unique key", &self.unique_key), ("limit key", &self.limit_key), ("step", &self.step)]
        {
            name.as_deref().map_or(Ok(()), |name| check_name(what, name))?;
        }
        if self.priority > MAX_PRIORITY {
            return Err(QueueError::invalid(format!(
                "priority {} of job `{}` is above {MAX_PRIORITY}",
                self.priority, self.kind
            )));
        }
        if self.max_attempts == 0 || self.max_lost == 0 {
            return Err(QueueError::invalid(format!(
                "job `{}` needs max_attempts and max_lost of at least 1",
                self.kind
            )));
        }
        if self.timeout_ms.is_some_and(|ms| ms == 0 || ms > i64::MAX as u64 / 2)
            || self.scratch_bytes > i64::MAX as u64
        {
            return Err(QueueError::invalid(format!(
                "timeout_ms or scratch_bytes of job `{}` is out of range",
                self.kind
            )));
        }
        check_json(&format!("the payload of job `{}`", self.kind), &self.payload)
    }
}

pub(crate) fn check_priority(priority: u8) -> Result<()> {
    match priority > MAX_PRIORITY {
        true => Err(QueueError::invalid(format!("priority {priority} is above {MAX_PRIORITY}"))),
        false => Ok(()),
    }
}

/// Names become columns, file names and metric labels: short, and without control characters.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(QueueError::invalid(format!(
            "the {what} must have 1 to {MAX_NAME_BYTES} bytes and no control characters; {:?}… has {}",
            name.chars().take(40).collect::<String>(),
            name.len()
        )));
    }
    Ok(())
}

/// Refuses JSON that is too large or too deep, and U+0000, which Postgres cannot store.
pub(crate) fn check_json(what: &str, value: &Value) -> Result<()> {
    let text_len = value.to_string().len();
    if text_len > MAX_JSON_BYTES {
        return Err(QueueError::invalid(format!(
            "{what} has {text_len} bytes, over the limit of {MAX_JSON_BYTES}: store it as a blob and pass its key"
        )));
    }
    check_values(what, value, MAX_JSON_DEPTH)
}

fn check_values(what: &str, value: &Value, depth: usize) -> Result<()> {
    if depth == 0 {
        return Err(QueueError::invalid(format!("{what} is nested deeper than {MAX_JSON_DEPTH}")));
    }
    let without_nul = |text: &str| match text.contains('\0') {
        true => Err(QueueError::invalid(format!("{what} contains a NUL character"))),
        false => Ok(()),
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        Value::String(text) => without_nul(text),
        Value::Array(items) => items.iter().try_for_each(|item| check_values(what, item, depth - 1)),
        Value::Object(fields) => fields.iter().try_for_each(|(name, field)| {
            without_nul(name)?;
            check_values(what, field, depth - 1)
        }),
    }
}

/// A job as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Job {
    pub id: JobId,
    pub tenant: String,
    pub run: Option<RunId>,
    pub step: Option<String>,
    pub kind: String,
    pub lane: String,
    #[cfg_attr(feature = "openapi", schema(maximum = 100))]
    pub priority: u8,
    pub state: JobState,
    pub payload: Value,
    pub run_at: Option<Timestamp>,
    pub generation: u32,
    pub attempt: u32,
    pub max_attempts: u32,
    pub lost: u32,
    pub max_lost: u32,
    pub backoff: Backoff,
    pub timeout_ms: Option<u64>,
    pub unique_key: Option<String>,
    pub limit_key: Option<String>,
    pub fence: Fence,
    pub worker: Option<WorkerId>,
    pub slot: Option<u32>,
    /// 0.0 to 1.0, as last told by a beat.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1))]
    pub progress: Option<f64>,
    /// What the last claim saved for the next one.
    pub checkpoint: Option<Value>,
    pub result: Option<Value>,
    pub error: Option<JobError>,
    pub required: bool,
    /// Jobs it still waits for.
    pub needs_left: u32,
    pub created_at: Timestamp,
    pub claimed_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}

/// Why an attempt failed, for people and for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobError {
    /// Stable and documented, such as `timeout` or `encoder_failed`.
    pub code: String,
    pub message: String,
}

impl JobError {
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        // Messages carry whatever a tool printed: Postgres cannot store NUL, and nobody reads megabytes.
        let message: String = message.into().chars().filter(|c| *c != '\0').take(8_192).collect();
        Self { code: code.into(), message }
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}
