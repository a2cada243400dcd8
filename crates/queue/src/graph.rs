//! Which jobs wait for which, within one run.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{QueueError, Result};
use crate::event::{NewEvent, check_told};
use crate::job::{JobError, JobId, JobState, NewJob, check_json, check_name};
use crate::run::RunId;

/// A job that must end before another may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Need {
    pub on: Needed,
    pub on_failed: OnFailed,
}

/// Which job is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Needed {
    /// The n-th job of the same push or spawn, counted from 0.
    Nth(usize),
    /// A job that the run already has. Only in a spawn.
    Job(JobId),
}

/// What a job does when one that it needs ends without completing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnFailed {
    /// It is `skipped`.
    #[default]
    Skip,
    /// It is `failed`.
    Fail,
    /// It runs all the same.
    RunAnyway,
}

impl OnFailed {
    pub const ALL: [Self; 3] = [Self::Skip, Self::Fail, Self::RunAnyway];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Fail => "fail",
            Self::RunAnyway => "run_anyway",
        }
    }

    /// Where a job goes whose need ended in `needed`; `None` if it may run as far as that need goes.
    pub(crate) fn verdict(self, needed: JobState) -> Option<JobState> {
        match (needed, self) {
            (JobState::Completed, _) | (_, Self::RunAnyway) => None,
            (_, Self::Skip) => Some(JobState::Skipped),
            (_, Self::Fail) => Some(JobState::Failed),
        }
    }
}

impl fmt::Display for OnFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for OnFailed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.as_str() == text)
            .ok_or_else(|| format!("`{text}` is not a policy"))
    }
}

/// The error of a job that ends because one that it needs did not complete.
pub(crate) fn need_failed(needed: JobId, state: JobState) -> JobError {
    JobError::new("need_failed", format!("it needs job {needed}, which is {state}"))
}

/// Jobs that a finishing job adds to its run, in the transaction that completes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spawn {
    pub jobs: Vec<NewJob>,
    /// Jobs of the run that are still waiting and now also wait for these.
    pub edges: Vec<Edge>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    pub job: JobId,
    pub need: Need,
}

impl Spawn {
    pub fn jobs(jobs: impl IntoIterator<Item = NewJob>) -> Self {
        Self { jobs: jobs.into_iter().collect(), edges: Vec::new() }
    }

    /// Lets a job that already waits also wait for the n-th of these.
    #[must_use]
    pub fn before(mut self, job: JobId, nth: usize, on_failed: OnFailed) -> Self {
        self.edges.push(Edge { job, need: Need { on: Needed::Nth(nth), on_failed } });
        self
    }

    /// Its jobs as a run stores them: if somebody gave the run a priority, that counts.
    pub(crate) fn jobs_at(&self, priority: Option<u8>) -> Cow<'_, [NewJob]> {
        match priority {
            None => Cow::Borrowed(&self.jobs),
            Some(priority) => self.jobs.iter().map(|job| job.clone().priority(priority)).collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.edges.is_empty()
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.jobs.iter().try_for_each(NewJob::check)?;
        check_needs(&self.jobs, true)?;
        let out_of_range = self.edges.iter().any(|edge| match edge.need.on {
            Needed::Nth(nth) => nth >= self.jobs.len(),
            Needed::Job(_) => false,
        });
        if out_of_range {
            return Err(QueueError::invalid("an edge names a job that is not spawned with it"));
        }
        Ok(())
    }
}

/// Refuses needs that can never be met: on oneself, on nobody, in a circle.
pub(crate) fn check_needs(jobs: &[NewJob], may_name_existing: bool) -> Result<()> {
    for (nth, job) in jobs.iter().enumerate() {
        if job.unique_key.is_some() && !job.needs.is_empty() {
            return Err(QueueError::invalid(format!(
                "job {nth} (`{}`) has both needs and a unique key",
                job.kind
            )));
        }
        for need in &job.needs {
            match need.on {
                Needed::Job(_) if may_name_existing => {}
                Needed::Job(id) => {
                    return Err(QueueError::invalid(format!(
                        "job {nth} needs job {id}: only a spawn may name existing jobs"
                    )));
                }
                Needed::Nth(other) => match jobs.get(other) {
                    None => {
                        return Err(QueueError::invalid(format!(
                            "job {nth} needs job {other}, which is not there"
                        )));
                    }
                    Some(needed) if needed.unique_key.is_some() => {
                        return Err(QueueError::invalid(format!(
                            "job {nth} needs job {other}, which has a unique key"
                        )));
                    }
                    Some(_) => {}
                },
            }
        }
    }
    refuse_cycles(jobs)
}

/// Takes away jobs whose needs are all taken away, until none is left; what remains needs itself.
fn refuse_cycles(jobs: &[NewJob]) -> Result<()> {
    let mut left: Vec<usize> = vec![0; jobs.len()];
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); jobs.len()];
    for (nth, job) in jobs.iter().enumerate() {
        for needed in siblings(job) {
            left[nth] += 1;
            dependents[needed].push(nth);
        }
    }
    let mut free: Vec<usize> = (0..jobs.len()).filter(|nth| left[*nth] == 0).collect();
    let mut taken = 0;
    while let Some(nth) = free.pop() {
        taken += 1;
        for dependent in &dependents[nth] {
            left[*dependent] -= 1;
            if left[*dependent] == 0 {
                free.push(*dependent);
            }
        }
    }
    if taken == jobs.len() {
        return Ok(());
    }
    let circle: Vec<String> = (0..jobs.len())
        .filter(|nth| left[*nth] > 0)
        .take(10)
        .map(|nth| format!("{nth} (`{}`)", jobs[nth].kind))
        .collect();
    Err(QueueError::invalid(format!("jobs need each other in a circle: {}", circle.join(", "))))
}

fn siblings(job: &NewJob) -> impl Iterator<Item = usize> {
    job.needs.iter().filter_map(|need| match need.on {
        Needed::Nth(nth) => Some(nth),
        Needed::Job(_) => None,
    })
}

/// A small document that belongs to a run, such as a segment that was stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewRecord {
    #[serde(rename = "type")]
    pub kind: String,
    pub key: String,
    pub json: Value,
    /// What the run tells when a claim writes this, and it is new or other than what was there.
    #[serde(skip)]
    pub tells: Option<NewEvent>,
}

impl NewRecord {
    pub fn new(kind: impl Into<String>, key: impl Into<String>, json: Value) -> Self {
        Self { kind: kind.into(), key: key.into(), json, tells: None }
    }

    /// Lets the run tell an event with it, in the same transaction. The same record again, by another attempt or after a
    /// lost answer, tells nothing.
    #[must_use]
    pub fn telling(self, name: impl Into<String>, body: Value) -> Self {
        Self { tells: Some(NewEvent { name: name.into(), body }), ..self }
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_name("record type", &self.kind)?;
        check_name("record key", &self.key)?;
        check_json("a record", &self.json)?;
        self.tells.as_ref().map_or(Ok(()), |event| check_told(&event.name, &event.body))
    }
}

/// A record as it is stored. Each write is a new version.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Record {
    pub run: RunId,
    #[serde(rename = "type")]
    pub kind: String,
    pub key: String,
    pub version: u64,
    pub json: Value,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn needing(needs: &[usize]) -> NewJob {
        needs.iter().fold(NewJob::new("k", json!(null)), |job, nth| job.after(*nth))
    }

    #[test]
    fn graphs_in_any_order_pass_and_circles_do_not() {
        let diamond = [needing(&[1, 2]), needing(&[3]), needing(&[3]), needing(&[])];
        let circle = [needing(&[]), needing(&[2]), needing(&[1])];

        assert!(check_needs(&diamond, false).is_ok());
        let error = check_needs(&circle, false).expect_err("a circle").to_string();
        assert!(error.contains("1 (`k`), 2 (`k`)"), "{error}");
        assert!(check_needs(&[needing(&[0])], false).is_err(), "a job cannot need itself");
        assert!(check_needs(&[needing(&[7])], false).is_err(), "nor one that is not there");
    }
}
