//! The runs that a command follows, from their submission to the files of their results.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use telecine_pipeline::records::{InputRecord, PlanRecord, read_all};
use telecine_pipeline::{Input, Recipe, Submission, Submitted, is_deleted, jobs_of_run, retry, submit};
use telecine_queue::{Queue, QueueError, RunFilter, RunId, RunPage, RunState};

use super::ended::Ended;
use super::export::Results;
use super::input::InputFile;
use super::pace::Pace;
use super::screen::Screen;
use super::sight::{Known, StepSight, StepState, steps};
use crate::human;
use crate::output::{harmless, say};
use crate::studio::Studio;

/// The priority of runs that nobody waits for at the moment, and of others.
const SET_ASIDE: u8 = 10;
const USUAL: u8 = 50;
/// Less is not enough for a range of segments.
const LEAST_SCRATCH_BYTES: u64 = 64 << 20;

pub(crate) struct Batch {
    studio: Arc<Studio>,
    results: Results,
    recipe: Recipe,
    publish_to: Option<String>,
    followed: Vec<Followed>,
    screen: Screen,
    is_disk_full: bool,
}

/// A run that has not ended yet, and what was seen of it.
pub(crate) struct Followed {
    pub(crate) file: InputFile,
    pub(crate) run: RunId,
    pub(crate) taken: Taken,
    pub(crate) steps: Vec<StepSight>,
    pub(crate) paces: Vec<Pace>,
    known: Option<Known>,
}

/// What becomes of a file that was processed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// What did not succeed is tried again: somebody asks for it.
    Retry,
    /// What ended stays as it is.
    Keep,
    /// As if there had been nothing.
    Forget,
}

/// How a file was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    New,
    /// It goes on where it stopped.
    Resumed,
    /// It had ended; what did not succeed runs again.
    Retried,
    /// It had ended.
    Known,
}

impl Batch {
    pub(crate) fn new(studio: Arc<Studio>, results: Results, recipe: Recipe, screen: Screen) -> Self {
        let (publish_to, followed) = (None, Vec::new());
        Self { studio, results, recipe, publish_to, followed, screen, is_disk_full: false }
    }

    /// The same, whose runs publish under a prefix.
    pub(crate) fn publishing_to(self, prefix: Option<String>) -> Self {
        Self { publish_to: prefix, ..self }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.followed.is_empty()
    }

    pub(crate) fn followed(&self) -> &[Followed] {
        &self.followed
    }

    pub(crate) fn screen(&self) -> &Screen {
        &self.screen
    }

    /// Stores a run for the file, or finds the one that an earlier command stored; from then on it is followed.
    pub(crate) async fn take(&mut self, file: InputFile, before: Before) -> Result<Taken> {
        let queue = &*self.studio.queue;
        let anew = self.anew(&file);
        let submitted = submit_once(queue, &file, &anew, before)
            .await
            .with_context(|| format!("cannot submit {}", file.shown))?;
        let (run, taken) = match submitted.replayed {
            false => (submitted.run, Taken::New),
            true => match take_up(queue, &submitted.run, before).await? {
                Some(taken) => (submitted.run, taken),
                None => (submit(queue, anew).await?.run, Taken::New),
            },
        };
        self.followed.push(Followed { file, run, taken, steps: Vec::new(), paces: Vec::new(), known: None });
        Ok(taken)
    }

    fn anew(&self, file: &InputFile) -> Submission {
        Submission {
            external_id: Some(file.key(&self.recipe, self.publish_to.as_deref())),
            publish_to: self.publish_to.clone(),
            ..Submission::new(self.recipe.clone(), Input::Path(file.path.clone()))
        }
    }

    /// Runs that earlier commands left here stand back: only what slots are left over is for them. Where another process
    /// works here too, they may be its own.
    pub(crate) async fn set_others_aside(&self) -> Result<()> {
        let queue = &self.studio.queue;
        let others = queue.workers().await?.into_iter().filter(|worker| worker.alive);
        if !self.studio.is_own || others.count() > 1 {
            return Ok(());
        }
        let filter = RunFilter { states: vec![RunState::Queued, RunState::Running], ..RunFilter::default() };
        let live = queue.list_runs(&filter, RunPage::first(RunPage::MAX_LIMIT)).await?;
        for run in live.data.iter().filter(|run| self.followed.iter().all(|ours| ours.run != run.id)) {
            give_priority(&**queue, &run.id, SET_ASIDE).await?;
        }
        Ok(())
    }

    /// Looks at every run, shows what is seen, and gives those that have ended, with their results in place.
    pub(crate) async fn look(&mut self) -> Result<Vec<Ended>> {
        let (mut ended, mut trouble) = (Vec::new(), None);
        let mut over = Vec::new();
        // Whoever gives up waiting for this, at Ctrl-C, finds all of them still followed.
        for followed in &mut self.followed {
            match look_at(&self.studio, &self.results, &self.recipe, followed).await {
                Ok(Some(run)) => {
                    over.push(followed.run.clone());
                    ended.push(run);
                }
                Ok(None) => {}
                // It stays among the followed: whoever can wait looks again.
                Err(error) => drop(trouble.get_or_insert(error)),
            }
        }
        self.followed.retain(|followed| !over.contains(&followed.run));
        self.screen.show(&self.followed);
        self.warn_of_full_disk();
        match trouble {
            // What has ended is told first; the trouble is met again by the next look.
            Some(error) if ended.is_empty() => Err(error),
            Some(_) | None => Ok(ended),
        }
    }

    /// Jobs for which there is no space are not claimed. Nobody would know why nothing goes on.
    fn warn_of_full_disk(&mut self) {
        let scratch = &self.studio.shop.scratch;
        let is_full = scratch.free_bytes() < LEAST_SCRATCH_BYTES;
        if is_full && !self.is_disk_full && !self.followed.is_empty() {
            say(format_args!(
                "warning: there is hardly any space left for {}; what needs more waits until there is some\n\
                 next: free some space, or set TELECINE_SCRATCH to a folder on another disk",
                scratch.root().display()
            ));
        }
        self.is_disk_full = is_full;
    }

    /// Stops what runs, and the picture of it.
    pub(crate) async fn stop(&mut self) {
        self.studio.stop().await;
    }

    pub(crate) fn clear_screen(&mut self) {
        self.screen.clear();
    }
}

/// What is new of a run; its end, with its results in place, if it has ended.
async fn look_at(
    studio: &Studio,
    results: &Results,
    recipe: &Recipe,
    followed: &mut Followed,
) -> Result<Option<Ended>> {
    let queue = &*studio.queue;
    let run = queue.get_run(&followed.run).await?;
    let run = run.with_context(|| format!("the run of {} is gone", followed.file.shown))?;
    if run.finished_at.is_none() {
        followed.look(queue, recipe).await?;
        return Ok(None);
    }
    let jobs = jobs_of_run(queue, &followed.run, &[]).await?;
    let outputs = read_all(queue, &followed.run).await?;
    let outputs: Vec<_> = outputs.into_iter().map(|(_, output)| output).collect();
    let input: &Path = &followed.file.path;
    let exported = results.export(input, &outputs, &studio.shop.blobs).await?;
    let folder = match exported.is_empty() {
        true => None,
        false => Some(results.folder_of(input)?),
    };
    Ended::of(queue, followed, run, &jobs, folder, exported).await.map(Some)
}

/// The same command finds the same run, or the last that `--fresh` has made: by a name that stands for file and recipe.
async fn submit_once(
    queue: &dyn Queue,
    file: &InputFile,
    anew: &Submission,
    before: Before,
) -> Result<Submitted, QueueError> {
    let (anew, name) = (anew.clone(), anew.external_id.clone().unwrap_or_default());
    if before == Before::Forget {
        return submit(queue, Submission { fresh: true, ..anew }).await;
    }
    if let Some(run) = last_run(queue, &name).await? {
        return Ok(Submitted { run, replayed: true });
    }
    // Of two commands at the same moment one is first.
    let submission = Submission { idempotency_key: Some(name), ..anew.clone() };
    match submit(queue, submission).await {
        // What it remembers may be gone: somebody deleted it.
        Ok(found) if found.replayed && is_gone(queue, &found.run).await? => submit(queue, anew).await,
        // Another version of this program wrote its runs down in another way.
        Err(QueueError::KeyReused { .. }) => {
            say(format_args!(
                "{} was processed by another version before, and is now processed anew",
                file.shown
            ));
            submit(queue, anew).await
        }
        answer => answer,
    }
}

async fn last_run(queue: &dyn Queue, name: &str) -> Result<Option<RunId>, QueueError> {
    let filter =
        RunFilter { external_id: Some(name.to_owned()), tenant: Some(String::new()), ..RunFilter::default() };
    for run in queue.list_runs(&filter, RunPage::first(RunPage::MAX_LIMIT)).await?.data {
        if !is_deleted(queue, &run.id).await? {
            return Ok(Some(run.id));
        }
    }
    Ok(None)
}

async fn is_gone(queue: &dyn Queue, run: &RunId) -> Result<bool, QueueError> {
    Ok(queue.get_run(run).await?.is_none() || is_deleted(queue, run).await?)
}

/// One that has just ended needs none.
async fn give_priority(queue: &dyn Queue, run: &RunId, priority: u8) -> Result<(), QueueError> {
    match queue.prioritise_run(run, priority).await {
        Ok(_) | Err(QueueError::WrongRunState { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// `None`: too much of it is gone to go on with it.
async fn take_up(queue: &dyn Queue, run: &RunId, before: Before) -> Result<Option<Taken>> {
    let found = queue.get_run(run).await?;
    let is_live = found.as_ref().is_some_and(|run| run.finished_at.is_none());
    if is_live && found.as_ref().and_then(|run| run.priority) == Some(SET_ASIDE) {
        give_priority(queue, run, USUAL).await?;
    }
    Ok(match found.map(|run| run.state) {
        Some(RunState::Queued | RunState::Running) | None => Some(Taken::Resumed),
        Some(RunState::Partial | RunState::Failed | RunState::Cancelled) if before == Before::Retry => {
            match retry(queue, run, &[]).await {
                Ok(0) => Some(Taken::Known),
                Ok(_) => Some(Taken::Retried),
                Err(QueueError::WrongRunState { .. }) => None,
                Err(error) => return Err(error.into()),
            }
        }
        Some(RunState::Succeeded | RunState::Partial | RunState::Failed | RunState::Cancelled) => {
            Some(Taken::Known)
        }
    })
}

impl Followed {
    async fn look(&mut self, queue: &dyn Queue, recipe: &Recipe) -> Result<()> {
        let jobs = jobs_of_run(queue, &self.run, &[]).await?;
        // What `ingest` found out is written before anything follows it.
        if self.known.is_none() && jobs.len() > 1 {
            self.known = Some(known(queue, &self.run).await?);
        }
        let now = Instant::now();
        self.steps = steps(recipe, self.known.as_ref().unwrap_or(&Known::default()), &jobs);
        self.paces.resize_with(self.steps.len(), Pace::default);
        for (step, pace) in self.steps.iter().zip(&mut self.paces) {
            if step.state == StepState::Running {
                pace.note(now, step.done);
            }
        }
        Ok(())
    }

    /// The file, and what it turned out to be.
    pub(crate) fn title(&self) -> String {
        let known = self.known.as_ref();
        let length = known.filter(|known| known.duration_us > 0);
        let length = length.map(|known| human::clock(Duration::from_micros(known.duration_us)));
        let size = known.and_then(|known| known.size).map(|size| format!("{}x{}", size.width, size.height));
        let facts: Vec<String> = length.into_iter().chain(size).collect();
        harmless(&format!("{}  {}", self.file.shown, facts.join(", ")))
    }

    /// Of all that is to be done, in equal parts.
    pub(crate) fn share(&self) -> f64 {
        let sum: f64 = self.steps.iter().map(|step| step.done.share).sum();
        sum / self.steps.len().max(1) as f64
    }
}

async fn known(queue: &dyn Queue, run: &RunId) -> Result<Known> {
    let plans = read_all::<PlanRecord>(queue, run).await?;
    let inputs = read_all::<InputRecord>(queue, run).await?;
    let probe = inputs.into_iter().next().and_then(|(_, input)| input.probe);
    Ok(Known {
        duration_us: probe.as_ref().and_then(|probe| probe.duration_us).unwrap_or(0),
        size: probe.and_then(|probe| Some(probe.video()?.display)),
        plans: plans.into_iter().map(|(step, record)| (step, record.plan)).collect(),
    })
}
