//! The log of a run: what was tried for each job, with which programs, and what they said.
//!
//! Every attempt keeps a history of the programs that it starts ([`ToolRuns`]), bounded, with paths that are nobody's
//! business shortened; what the last attempt of a job leaves of it is a record of the run.

mod programs;

use std::collections::HashMap;

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use serde_json::Value;
use telecine_queue::{
    AttemptOutcome, Job, JobError, JobId, JobState, Queue, QueueError, Run, RunId, Timestamp, WorkerId,
};

use crate::document::jobs_of_run;
use crate::kinds::{INGEST, PLAN};
use crate::records::{FailureRecord, InputRecord, ToolRun, ToolsRecord, read_all};

pub(crate) use programs::ToolRuns;

/// Jobs whose attempts are read side by side.
const LOOKS: usize = 8;

/// Everything that was tried for a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunLog {
    pub run_id: RunId,
    /// Oldest first.
    pub jobs: Vec<JobLog>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobLog {
    pub id: JobId,
    pub kind: String,
    pub step: Option<String>,
    pub state: JobState,
    /// What it was asked to do.
    pub payload: Value,
    pub created_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    /// Those that are over, oldest first.
    pub attempts: Vec<AttemptLog>,
    /// Programs of its last attempt, in the order in which they were started: where there were many, the first, the last,
    /// and those that failed.
    pub tools: Vec<ToolRun>,
    /// How many it started.
    pub tools_total: u32,
    /// Of what failed last: the end of what the program wrote.
    pub stderr_tail: Option<String>,
    /// What was found in the input, by the job that looked.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub probe: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttemptLog {
    pub worker: Option<WorkerId>,
    pub slot: Option<u32>,
    pub generation: u32,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub outcome: AttemptOutcome,
    pub error: Option<JobError>,
}

/// The log of a run. Arguments of an operator's own programs are for operators: others are told the program alone.
pub async fn run_log(queue: &dyn Queue, run: &Run, for_operator: bool) -> Result<RunLog, QueueError> {
    let mut jobs = jobs_of_run(queue, &run.id, &[]).await?;
    jobs.reverse();
    let mut tools: HashMap<String, ToolsRecord> = read_all(queue, &run.id).await?.into_iter().collect();
    let mut failures: HashMap<String, FailureRecord> = read_all(queue, &run.id).await?.into_iter().collect();
    let input = read_all::<InputRecord>(queue, &run.id).await?.pop().map(|(_, input)| input);
    // With a scan the first look at an input is a job of its own.
    let looks = if jobs.iter().any(|job| job.kind == PLAN) { PLAN } else { INGEST };
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    let attempts = stream::iter(ids.into_iter().map(|id| queue.attempts(id))).buffered(LOOKS);
    let attempts: Vec<_> = attempts.try_collect().await?;
    let logs = jobs.into_iter().zip(attempts).map(|(job, attempts)| {
        let key = job.id.to_string();
        let kept = tools.remove(&key).map(|record| if for_operator { record } else { record.for_others() });
        let failure = failures.remove(&key);
        let probe = input.as_ref().filter(|_| job.kind == looks).and_then(|input| input.probe.as_ref());
        let probe = probe.and_then(|probe| serde_json::to_value(probe).ok());
        JobLog::of(job, attempts, kept.unwrap_or_default(), failure, probe)
    });
    Ok(RunLog { run_id: run.id.clone(), jobs: logs.collect() })
}

impl JobLog {
    fn of(
        job: Job,
        attempts: Vec<telecine_queue::Attempt>,
        tools: ToolsRecord,
        failure: Option<FailureRecord>,
        probe: Option<Value>,
    ) -> Self {
        let of_tools = tools.tools.iter().rev().find(|tool| tool.has_failed()).map(|tool| &tool.stderr_tail);
        let stderr_tail = failure.map(|failure| failure.stderr_tail).or_else(|| of_tools.cloned());
        Self {
            id: job.id,
            kind: job.kind,
            step: job.step,
            state: job.state,
            payload: job.payload,
            created_at: job.created_at,
            finished_at: job.finished_at,
            attempts: attempts.into_iter().map(AttemptLog::of).collect(),
            tools_total: tools.total,
            tools: tools.tools,
            stderr_tail: stderr_tail.filter(|tail| !tail.is_empty()),
            probe,
        }
    }
}

impl AttemptLog {
    fn of(attempt: telecine_queue::Attempt) -> Self {
        Self {
            worker: attempt.worker,
            slot: attempt.slot,
            generation: attempt.generation,
            started_at: attempt.started_at,
            ended_at: attempt.ended_at,
            outcome: attempt.outcome,
            error: attempt.error,
        }
    }
}
