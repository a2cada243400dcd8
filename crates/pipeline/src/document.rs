//! A run as everybody sees it: the same document in an answer, an event, a webhook and on the command line.
//!
//! It is drawn from rows alone, so whoever can read the database can draw it.

mod summary;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};
use telecine_media::Probe;
use telecine_queue::{
    Job, JobFilter, JobState, Page, Queue, QueueError, Record, Run, RunId, RunState, Timestamp,
};

use crate::lifetime::is_deleted;
use crate::records::{
    FailureRecord, InputRecord, OutputRecord, RunRecord, StoredFile, WarningRecord, parse_as, with_pages,
};
use crate::submission::RunMeta;

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
    pub files: Vec<StoredFile>,
    pub facts: Value,
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
    for kind in [InputRecord::TYPE, OutputRecord::TYPE, WarningRecord::TYPE, FailureRecord::TYPE] {
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

/// What is stored of one run.
struct Facts {
    run: Run,
    /// Oldest first.
    jobs: Vec<Job>,
    records: Vec<Record>,
}

impl Facts {
    fn document(self) -> Result<RunDocument, QueueError> {
        let meta = RunMeta::of(&self.run).map_err(|error| QueueError::Unexpected {
            reason: format!("the run is not one of a recipe: {error}"),
        })?;
        let input = self.all::<InputRecord>()?.pop();
        let outputs = self.outputs(&meta)?;
        let (steps, progress) = (self.steps(), self.progress());
        let media_us = input.as_ref().and_then(|input| input.probe.as_ref()?.duration_us);
        Ok(RunDocument {
            object: "run",
            external_id: self.run.external_id.clone(),
            recipe: RecipeNamed { name: self.run.name.clone(), sha256: meta.recipe.sha256() },
            status: self.run.state,
            priority: self.run.priority.unwrap_or(meta.priority),
            progress: percent(progress),
            eta_ms: self.eta_ms(progress),
            speed: self.speed(progress, media_us),
            created_at: self.run.created_at,
            started_at: self.run.started_at,
            playable_at: self.run.playable_at,
            finished_at: self.run.finished_at,
            steps,
            warnings: self.warnings(&outputs)?,
            outputs,
            error: self.error()?,
            input: shown(&meta, input.as_ref()),
            metadata: meta.metadata,
            id: self.run.id.clone(),
        })
    }

    fn all<T: RunRecord>(&self) -> Result<Vec<T>, QueueError> {
        let of_type = self.records.iter().filter(|record| record.kind == T::TYPE);
        of_type.map(|record| parse_as(record.clone())).collect()
    }

    /// In the order in which their first jobs were made.
    fn steps(&self) -> Vec<StepShown> {
        let mut order: Vec<&str> = Vec::new();
        let mut by_step: BTreeMap<&str, Vec<&Job>> = BTreeMap::new();
        for job in &self.jobs {
            let step = job.step.as_deref().unwrap_or(&job.kind);
            if !by_step.contains_key(step) {
                order.push(step);
            }
            by_step.entry(step).or_default().push(job);
        }
        order.into_iter().map(|step| StepShown::of(step, &by_step[step])).collect()
    }

    /// Of all work that is known by now, weighed by how many jobs there are.
    fn progress(&self) -> f64 {
        match self.run.state {
            RunState::Succeeded | RunState::Partial => 1.0,
            _ => share_done(&self.jobs.iter().collect::<Vec<_>>()),
        }
    }

    fn elapsed_ms(&self) -> Option<u64> {
        let until = self.run.finished_at.unwrap_or_else(Timestamp::now);
        u64::try_from(until.as_ms() - self.run.started_at?.as_ms()).ok().filter(|ms| *ms > 0)
    }

    fn eta_ms(&self, progress: f64) -> Option<u64> {
        if self.run.state != RunState::Running || progress <= 0.01 {
            return None;
        }
        let elapsed = self.elapsed_ms()? as f64;
        Some((elapsed / progress - elapsed).max(0.0) as u64)
    }

    fn speed(&self, progress: f64, media_us: Option<u64>) -> Option<f64> {
        let seconds = media_us? as f64 / 1_000_000.0 * progress;
        let speed = seconds / (self.elapsed_ms()? as f64 / 1_000.0);
        (speed > 0.0).then(|| (speed * 100.0).round() / 100.0)
    }

    /// What was published, and of the rest whether it is still to come.
    fn outputs(&self, meta: &RunMeta) -> Result<Vec<OutputShown>, QueueError> {
        // What a cancelled run had made by then is swept.
        let is_kept = self.run.state != RunState::Cancelled;
        let published = if is_kept { self.all::<OutputRecord>()? } else { Vec::new() };
        let mut shown = Vec::new();
        for step in meta.recipe.enabled_steps() {
            let of_step: Vec<_> = published.iter().filter(|output| output.step == step.name).collect();
            shown.extend(of_step.iter().map(|output| OutputShown::ready(output, step.required)));
            let missing = step.does.promised().into_iter().map(|name| name.unwrap_or(&step.name).to_owned());
            let missing = missing.filter(|name| of_step.iter().all(|output| output.name != *name));
            let status = if self.is_over() { OutputStatus::Failed } else { OutputStatus::Pending };
            shown.extend(missing.map(|name| OutputShown {
                kind: step.does.kind().to_owned(),
                step: step.name.clone(),
                name,
                status,
                required: step.required,
                uri: None,
                files: Vec::new(),
                facts: json!({}),
            }));
        }
        Ok(shown)
    }

    fn is_over(&self) -> bool {
        self.run.finished_at.is_some()
    }

    /// A later attempt may have made what an earlier one could not.
    fn warnings(&self, outputs: &[OutputShown]) -> Result<Vec<WarningShown>, QueueError> {
        let is_made = |code: &str| {
            let name = code.strip_suffix("_failed");
            name.is_some_and(|name| {
                outputs.iter().any(|output| output.name == name && output.status == OutputStatus::Ready)
            })
        };
        let warnings = self.all::<WarningRecord>()?.into_iter().filter(|warning| !is_made(&warning.code));
        let shown =
            warnings.map(|WarningRecord { step, code, message }| WarningShown { step, code, message });
        Ok(shown.collect())
    }

    fn error(&self) -> Result<Option<ErrorShown>, QueueError> {
        if self.run.state != RunState::Failed {
            return Ok(None);
        }
        let failed = self.jobs.iter().filter(|job| job.required && job.state == JobState::Failed);
        if let Some(first) = failed.min_by_key(|job| (job.finished_at, job.id)) {
            return self.why(first).map(Some);
        }
        // Its jobs are history; what they left of their failures is not.
        Ok(self.all::<FailureRecord>()?.into_iter().next().map(ErrorShown::from))
    }

    /// Why a job failed, with what its last attempt left of it.
    fn why(&self, job: &Job) -> Result<ErrorShown, QueueError> {
        let details =
            self.records.iter().find(|it| it.kind == FailureRecord::TYPE && it.key == job.id.to_string());
        let details: Option<FailureRecord> = details.cloned().map(parse_as).transpose()?;
        let told = job.error.clone();
        Ok(match (details, told) {
            // What the queue says is newer: the worker died, or ran out of time, after the failure that it told of.
            (Some(failure), Some(told)) if told.code == failure.code => failure.into(),
            (_, told) => ErrorShown::of_queue(job, told),
        })
    }
}

impl From<FailureRecord> for ErrorShown {
    fn from(failure: FailureRecord) -> Self {
        Self {
            code: failure.code,
            message: failure.message,
            step: failure.step,
            retryable: failure.retryable,
            attempt: failure.attempt,
            exit_code: failure.exit_code,
            signal: failure.signal,
            stderr_tail: failure.stderr_tail,
            hint: failure.hint,
        }
    }
}

impl ErrorShown {
    fn of_queue(job: &Job, told: Option<telecine_queue::JobError>) -> Self {
        let (code, message) =
            told.map_or(("unexpected".into(), String::new()), |told| (told.code, told.message));
        let hint = match code.as_str() {
            "poison" => "its workers died again and again; see their logs, then retry the run",
            "timeout" => "the machine may be overloaded; use fewer slots, then retry the run",
            _ => "see the worker's log, then retry the run",
        };
        Self {
            code,
            message,
            step: job.step.clone().unwrap_or_else(|| job.kind.clone()),
            retryable: true,
            attempt: job.attempt,
            exit_code: None,
            signal: None,
            stderr_tail: String::new(),
            hint: hint.into(),
        }
    }
}

impl OutputShown {
    fn ready(output: &OutputRecord, required: bool) -> Self {
        let main = output.files.iter().find(|file| file.path == output.main);
        Self {
            name: output.name.clone(),
            step: output.step.clone(),
            kind: output.kind.clone(),
            status: OutputStatus::Ready,
            required,
            uri: main.map(|file| file.key.clone()),
            files: output.files.clone(),
            facts: output.facts.clone(),
        }
    }
}

impl StepShown {
    fn of(name: &str, jobs: &[&Job]) -> Self {
        let done = jobs.iter().filter(|job| job.state.is_terminal()).count();
        Self {
            name: name.to_owned(),
            status: StepStatus::of(jobs),
            jobs_done: u32::try_from(done).unwrap_or(u32::MAX),
            jobs_total: u32::try_from(jobs.len()).unwrap_or(u32::MAX),
            progress: percent(share_done(jobs)),
        }
    }
}

impl StepStatus {
    fn of(jobs: &[&Job]) -> Self {
        let any = |state: JobState| jobs.iter().any(|job| job.state == state);
        let all_over = jobs.iter().all(|job| job.state.is_terminal());
        if all_over {
            return match () {
                () if any(JobState::Failed) => Self::Failed,
                () if any(JobState::Cancelled) => Self::Cancelled,
                () if any(JobState::Skipped) => Self::Skipped,
                () => Self::Succeeded,
            };
        }
        match () {
            () if any(JobState::Running) || any(JobState::Completed) => Self::Running,
            () if any(JobState::Pending) || any(JobState::Scheduled) || any(JobState::Parked) => Self::Queued,
            () => Self::Waiting,
        }
    }
}

fn share_done(jobs: &[&Job]) -> f64 {
    let done = jobs.iter().map(|job| match job.state {
        JobState::Completed => 1.0,
        // What will not be done any more does not count as done.
        JobState::Failed | JobState::Cancelled | JobState::Skipped => 0.0,
        _ => job.progress.unwrap_or(0.0),
    });
    if jobs.is_empty() { 0.0 } else { done.sum::<f64>() / jobs.len() as f64 }
}

fn percent(share: f64) -> f64 {
    (share * 1_000.0).round() / 10.0
}

fn shown(meta: &RunMeta, input: Option<&InputRecord>) -> InputShown {
    InputShown {
        uri: meta.input.to_string(),
        sha256: input.map(|input| input.sha256.clone()),
        bytes: input.map(|input| input.bytes),
        probe: input.map(|input| probe_shown(input, input.probe.as_ref())),
    }
}

fn probe_shown(input: &InputRecord, probe: Option<&Probe>) -> ProbeShown {
    let video = probe.and_then(Probe::video);
    let fps = video.and_then(|video| video.avg_fps.or(video.base_fps)).map(|fps| fps.as_f64());
    ProbeShown {
        format: input.format.mime(),
        duration_ms: probe.and_then(|probe| probe.duration_us).map(|us| us / 1_000),
        width: video.map(|video| video.width),
        height: video.map(|video| video.height),
        rotation: video.map(|video| video.rotation.clockwise_degrees()),
        fps: fps.map(|fps| (fps * 1_000.0).round() / 1_000.0),
        has_audio: probe.is_some_and(|probe| probe.audio().is_some()),
    }
}
