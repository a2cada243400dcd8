//! What `push` takes and gives.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::{QueueError, Result};
use crate::graph::check_needs;
use crate::job::{JobId, NewJob, check_json, check_name};
use crate::run::{NewRun, RunId};

/// How long an idempotency key is remembered.
pub(crate) const KEEP_KEYS: Duration = Duration::from_hours(30 * 24);

/// What one call of `push` stores, all or nothing: a run with its jobs, or jobs that stand alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Push {
    pub tenant: String,
    /// Pushing again with the same key and the same content returns what the first push made.
    pub idempotency_key: Option<String>,
    /// What the key stands for; the run and its jobs where nothing is said. For whoever makes a run out of a request:
    /// what the same request comes to may have changed when it is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyed_by: Option<Value>,
    pub run: Option<NewRun>,
    pub jobs: Vec<NewJob>,
}

impl Push {
    pub fn jobs(jobs: impl IntoIterator<Item = NewJob>) -> Self {
        Self {
            tenant: String::new(),
            idempotency_key: None,
            keyed_by: None,
            run: None,
            jobs: jobs.into_iter().collect(),
        }
    }

    pub fn run(run: NewRun, jobs: impl IntoIterator<Item = NewJob>) -> Self {
        Self { run: Some(run), ..Self::jobs(jobs) }
    }

    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = tenant.into();
        self
    }

    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }
}

impl From<NewJob> for Push {
    fn from(job: NewJob) -> Self {
        Self::jobs([job])
    }
}

impl Push {
    /// Refuses what can never be stored, before any database is asked.
    pub(crate) fn check(&self) -> Result<()> {
        if self.jobs.is_empty() {
            return Err(QueueError::invalid("a push needs at least one job"));
        }
        if !self.tenant.is_empty() {
            check_name("tenant", &self.tenant)?;
        }
        if let Some(key) = &self.idempotency_key {
            check_name("idempotency key", key)?;
        }
        if let Some(run) = &self.run {
            check_name("run name", &run.name)?;
            run.external_id.as_deref().map_or(Ok(()), |id| check_name("external id", id))?;
            check_json("the meta of a run", &run.meta)?;
        }
        self.jobs.iter().try_for_each(NewJob::check)?;
        if self.run.is_none() && self.jobs.iter().any(|job| !job.needs.is_empty()) {
            return Err(QueueError::invalid("only jobs of a run can need each other: push them with a run"));
        }
        check_needs(&self.jobs, false)
    }

    /// The same content has the same hash: JSON objects are kept with sorted keys.
    pub(crate) fn body_hash(&self) -> Vec<u8> {
        match &self.keyed_by {
            Some(keyed_by) => hash_of_keyed_by(keyed_by),
            None => hash(&(&self.run, &self.jobs)),
        }
    }
}

pub(crate) fn hash_of_keyed_by(keyed_by: &Value) -> Vec<u8> {
    hash(&("keyed_by", keyed_by))
}

fn hash(body: &impl Serialize) -> Vec<u8> {
    Sha256::digest(serde_json::to_vec(body).expect("a push is plain data")).to_vec()
}

/// What a push made, or had made before under the same idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pushed {
    pub run: Option<RunId>,
    /// In the order of [`Push::jobs`].
    pub jobs: Vec<JobId>,
    /// The key was known: nothing new was stored.
    pub replayed: bool,
}
