//! A document drawn from what is stored of its run.

use std::collections::BTreeMap;

use serde_json::json;
use telecine_media::Probe;
use telecine_queue::{Job, JobState, QueueError, Record, Run, RunState, Timestamp};

use super::{
    ErrorShown, FileShown, InputShown, OutputShown, OutputStatus, ProbeShown, RecipeNamed, RunDocument,
    StepShown, StepStatus, WarningShown,
};
use crate::recipe::Step;
use crate::records::{
    FailureRecord, InputRecord, OutputRecord, PublishedRecord, RunRecord, ScanRecord, StoredFile,
    WarningRecord, parse_as,
};
use crate::submission::RunMeta;

/// What is stored of one run.
pub(super) struct Facts {
    pub(super) run: Run,
    /// Oldest first.
    pub(super) jobs: Vec<Job>,
    pub(super) records: Vec<Record>,
}

impl Facts {
    pub(super) fn document(self) -> Result<RunDocument, QueueError> {
        let meta = RunMeta::of(&self.run).map_err(|error| QueueError::Unexpected {
            reason: format!("the run is not one of a recipe: {error}"),
        })?;
        let input = self.all::<InputRecord>()?.pop();
        let outputs = self.outputs(&meta, input.as_ref())?;
        let (steps, progress) = (self.steps(&meta, input.as_ref()), self.progress());
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
            input: InputShown {
                scan: self.all::<ScanRecord>()?.pop().map(|scan| scan.status),
                ..shown(&meta, input.as_ref())
            },
            publish_to: meta.publish_to,
            metadata: meta.metadata,
            id: self.run.id.clone(),
        })
    }

    fn all<T: RunRecord>(&self) -> Result<Vec<T>, QueueError> {
        let of_type = self.records.iter().filter(|record| record.kind == T::TYPE);
        of_type.map(|record| parse_as(record.clone())).collect()
    }

    /// In the order in which their first jobs were made. Steps that are for other inputs have none.
    fn steps(&self, meta: &RunMeta, input: Option<&InputRecord>) -> Vec<StepShown> {
        let mut order: Vec<&str> = Vec::new();
        let mut by_step: BTreeMap<&str, Vec<&Job>> = BTreeMap::new();
        for job in &self.jobs {
            let step = job.step.as_deref().unwrap_or(&job.kind);
            if !by_step.contains_key(step) {
                order.push(step);
            }
            by_step.entry(step).or_default().push(job);
        }
        let others =
            meta.recipe.enabled_steps().filter(|step| input.is_some_and(|input| !step.fits_input(input)));
        let done = order.into_iter().map(|step| StepShown::of(step, &by_step[step]));
        done.chain(others.map(|step| StepShown::skipped(&step.name))).collect()
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
    fn outputs(&self, meta: &RunMeta, input: Option<&InputRecord>) -> Result<Vec<OutputShown>, QueueError> {
        // What a cancelled run had made by then is swept.
        let is_kept = self.run.state != RunState::Cancelled;
        let published = if is_kept { self.all::<OutputRecord>()? } else { Vec::new() };
        let places = self.all::<PublishedRecord>()?.pop().filter(|_| is_kept);
        let mut shown = Vec::new();
        // Before its input is known, all that a run may make is still to come.
        let fits = |step: &&Step| input.is_none_or(|input| step.fits_input(input));
        for step in meta.recipe.enabled_steps().filter(fits) {
            let of_step: Vec<_> = published.iter().filter(|output| output.step == step.name).collect();
            let place = places.as_ref().filter(|place| place.steps.contains(&step.name));
            shown.extend(of_step.iter().map(|output| OutputShown::ready(output, step, place)));
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
                published: None,
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
    fn ready(output: &OutputRecord, step: &Step, place: Option<&PublishedRecord>) -> Self {
        let main = output.files.iter().find(|file| file.path == output.main);
        let key_of = |file: &StoredFile| place.map(|place| place.key_of(step, file));
        let shown = |file: &StoredFile| FileShown {
            path: file.path.clone(),
            key: file.key.clone(),
            bytes: file.bytes,
            sha256: file.sha256.clone(),
            published: key_of(file),
        };
        Self {
            name: output.name.clone(),
            step: output.step.clone(),
            kind: output.kind.clone(),
            status: OutputStatus::Ready,
            required: step.required,
            uri: main.map(|file| file.key.clone()),
            published: main.and_then(|file| Some(place?.address_of(step, file))),
            files: output.files.iter().map(shown).collect(),
            facts: output.facts.clone(),
        }
    }
}

impl StepShown {
    fn skipped(name: &str) -> Self {
        let status = StepStatus::Skipped;
        Self { name: name.to_owned(), status, jobs_done: 0, jobs_total: 0, progress: 0.0 }
    }

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

pub(super) fn percent(share: f64) -> f64 {
    (share * 1_000.0).round() / 10.0
}

fn shown(meta: &RunMeta, input: Option<&InputRecord>) -> InputShown {
    InputShown {
        uri: meta.input.to_string(),
        sha256: input.map(|input| input.sha256.clone()),
        bytes: input.map(|input| input.bytes),
        scan: None,
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
