//! Kinds: the code that runs jobs, in one list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use super::JobContext;
use crate::error::{QueueError, Result};
use crate::job::{Job, JobError};

/// The code of one kind of job.
#[async_trait]
pub trait Kind: Send + Sync + 'static {
    /// What jobs call it.
    fn name(&self) -> &'static str;

    /// The lane its jobs belong in.
    fn lane(&self) -> &'static str {
        "cpu"
    }

    /// How long one attempt may take; a job's own `timeout_ms` can only shorten it.
    fn timeout(&self) -> Duration {
        Duration::from_hours(1)
    }

    /// Whether an attempt changes things that no fence guards (sends a mail, say). Such a kind is stopped before the
    /// worker's lease ends; others run on, and count if nobody took the job meanwhile.
    fn acts_outside(&self) -> bool {
        self.lane() == "net"
    }

    /// Does the work. Stop soon after [`JobContext::stopping`] is cancelled. A panic counts as a failure.
    ///
    /// It shares its runtime with the worker: work that blocks its thread (computing, blocking I/O) belongs in
    /// `tokio::task::spawn_blocking` or a process of its own. Timeout, cancel and drain reach it when it first waits.
    async fn run(&self, job: &Job, context: &JobContext) -> Result<Value, Failure>;
}

/// How a kind says that it did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Try again after the job's backoff, until its attempts are spent.
    Retry(JobError),
    /// No attempt can mend this.
    ForGood(JobError),
    /// Not now: try again after this long, at no cost.
    Snooze(Duration),
}

impl Failure {
    pub fn retry(code: &str, message: impl std::fmt::Display) -> Self {
        Self::Retry(JobError::new(code, message.to_string()))
    }

    pub fn for_good(code: &str, message: impl std::fmt::Display) -> Self {
        Self::ForGood(JobError::new(code, message.to_string()))
    }
}

/// The kinds a worker can run.
#[derive(Clone, Default)]
pub struct Kinds {
    kinds: BTreeMap<&'static str, Arc<dyn Kind>>,
}

impl Kinds {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn with(mut self, kind: impl Kind) -> Self {
        self.kinds.insert(kind.name(), Arc::new(kind));
        self
    }

    /// Only the named ones.
    pub fn only(mut self, names: &[String]) -> Result<Self> {
        for name in names {
            if !self.kinds.contains_key(name.as_str()) {
                return Err(QueueError::invalid(format!(
                    "there is no kind `{name}`; known kinds are {}",
                    self.names().join(", ")
                )));
            }
        }
        self.kinds.retain(|known, _| names.iter().any(|name| name == known));
        Ok(self)
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.kinds.keys().copied().collect()
    }

    pub(super) fn lanes(&self) -> impl Iterator<Item = &'static str> {
        self.kinds.values().map(|kind| kind.lane())
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<dyn Kind>> {
        self.kinds.get(name).cloned()
    }
}

impl std::fmt::Debug for Kinds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.kinds.keys()).finish()
    }
}
