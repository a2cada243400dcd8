//! A database, a store, scratch and a worker for one request at a time, all in a folder of this process's scratch.

use std::sync::Arc;
use std::time::Duration;

use telecine_pipeline::records::{FailureRecord, read_all};
use telecine_pipeline::{
    Blobs, Failed, Input, JobFolder, RunDocument, Scratch, Submission, Workshop, delete, describe, kinds,
    submit,
};
use telecine_queue::{Queue, RunFilter, RunId, RunPage, Runtime, Slots, WorkerOptions};
use tempfile::TempPath;
use tokio::fs::File;

use super::{Order, failed, mistake, timed_out};
use crate::api::uploads::receive::{on_disk, unwritable};
use crate::problem::{Code, Problem};

/// The queue wakes whoever waits; this is for what it does not tell of.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long programs that were told to stop may take.
const TIDY_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Studio {
    shop: Arc<Workshop>,
    worker: Runtime,
    /// Removed with all that is in it, and by the next process where this one is killed.
    folder: JobFolder,
}

/// The file that was asked for, opened.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) file: File,
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

impl Studio {
    /// With the programs and limits of this process, and nothing else of it.
    pub(super) async fn open(shared: &Workshop) -> Result<Self, Problem> {
        let folder = shared.scratch.job().map_err(|error| unwritable(&error))?;
        let path = folder.path().canonicalize().map_err(|error| unwritable(&error))?;
        let inputs = folder.subfolder("in").map_err(|error| unwritable(&error))?;
        let queue = telecine_queue::open(&format!("sqlite:{}", path.join("queue.db").display())).await?;
        let blobs = Blobs::in_folder(&path.join("store")).map_err(|error| {
            tracing::error!(%error, "no store for synchronous work");
            Problem::new(Code::Unavailable, "the scratch folder cannot be used; see the server's log")
        })?;
        let scratch = Scratch::open(&path.join("scratch")).map_err(|error| unwritable(&error))?;
        let mut shop = shared.apart(Arc::clone(&queue), blobs, scratch);
        shop.input_folders = vec![inputs];
        let shop = Arc::new(shop);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let options = WorkerOptions {
            name: "transcode".into(),
            slots: Slots::Each(u32::try_from(cores).unwrap_or(1)),
            stop_within: TIDY_WITHIN / 2,
            ..WorkerOptions::default()
        };
        let worker = Runtime::start(queue, kinds::all(&shop), options).await?;
        Ok(Self { shop, worker, folder })
    }

    /// Takes the input in, makes a run of it, and opens the file that was asked for.
    pub(super) async fn make(&self, order: Order) -> Result<Made, Problem> {
        let gone = order.gone.clone();
        tokio::select! {
            made = self.make_in_time(order) => made,
            // Nobody hears it.
            () = gone.cancelled() => Err(Problem::new(Code::RequestTimeout, "the client went away")),
        }
    }

    async fn make_in_time(&self, order: Order) -> Result<Made, Problem> {
        let until = order.until;
        let made = tokio::time::timeout_at(until, Box::pin(self.make_of(order))).await;
        made.unwrap_or_else(|_| Err(timed_out()))
    }

    async fn make_of(&self, order: Order) -> Result<Made, Problem> {
        let (from, input) = (order.arrived.path(), self.folder.path().join("in/source"));
        let input = on_disk(move || {
            std::fs::rename(from, &input)?;
            TempPath::try_from_path(input)
        });
        let input = input.await?;
        let (came, wanted) = (order.arrived.came, order.wanted);
        let submission = Submission {
            tenant: order.tenant,
            fresh: true,
            ..Submission::new(wanted.recipe.clone(), Input::Path(input.to_path_buf()))
        };
        let run = submit(self.queue(), submission).await?.run;
        let (document, failure) = self.ended(&run).await?;
        if let Some(told) =
            came.sha256.filter(|told| document.input.sha256.as_ref().is_some_and(|is| is != told))
        {
            let detail = format!("the file does not have the SHA-256 {told}; send it again");
            return Err(Problem::new(Code::ChecksumMismatch, detail));
        }
        if let Some(failure) = failure {
            return Err(failed(&failure));
        }
        let found = wanted.among(&document.outputs)?.ok_or_else(|| {
            let told =
                |warning: &telecine_pipeline::WarningShown| mistake("body", &warning.code, &warning.message);
            let mut told: Vec<_> = document.warnings.iter().map(told).collect();
            if told.is_empty() {
                told.push(mistake("output", "not_made", "the recipe makes no such thing of this input"));
            }
            Problem::impossible(told)
        })?;
        let path = self.shop.blobs.local_path(found.key).ok_or_else(|| Problem::not_found("file"))?;
        let file = File::open(path).await.map_err(|error| unwritable(&error))?;
        Ok(Made { file, path: found.path.to_owned(), bytes: found.bytes, sha256: found.sha256.to_owned() })
    }

    /// Waits for the run. What could be tried again later is not waited for.
    async fn ended(&self, run: &RunId) -> Result<(RunDocument, Option<Failed>), Problem> {
        let mut wakes = self.queue().wakes();
        loop {
            let now = self.queue().get_run(run).await?;
            let is_over = now.is_none_or(|now| now.finished_at.is_some());
            if is_over || !read_all::<FailureRecord>(self.queue(), run).await?.is_empty() {
                break;
            }
            let _ = tokio::time::timeout(LOOK_EVERY, wakes.changed()).await;
        }
        let document = describe(self.queue(), run).await?;
        let mut document = document.ok_or_else(|| Problem::new(Code::Internal, "the run is gone"))?;
        let failure = match document.error.take() {
            Some(error) => Some(Failed::for_good(&error.code, error.message, error.hint)),
            None => {
                let failures = read_all::<FailureRecord>(self.queue(), run).await?;
                let of =
                    |failure: FailureRecord| Failed::for_good(&failure.code, failure.message, failure.hint);
                failures.into_iter().next().map(|(_, failure)| of(failure))
            }
        };
        Ok((document, failure))
    }

    /// Stops what still runs and forgets what was made. `Err`: it could not be put in order in time.
    pub(super) async fn tidied(self) -> Result<Self, Self> {
        match tokio::time::timeout(TIDY_WITHIN, self.tidy()).await {
            Ok(Ok(())) => Ok(self),
            Ok(Err(problem)) => {
                tracing::warn!(?problem, "a place for synchronous work could not be put in order");
                Err(self)
            }
            Err(_) => {
                tracing::warn!("synchronous work did not stop in time");
                Err(self)
            }
        }
    }

    async fn tidy(&self) -> Result<(), Problem> {
        let runs = self.queue().list_runs(&RunFilter::default(), RunPage::first(100)).await?.data;
        for run in runs.iter().filter(|run| run.finished_at.is_none()) {
            self.queue().cancel_run(&run.id).await?;
        }
        // A slot is free when its program has ended.
        while self.worker.running() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for run in &runs {
            delete(self.queue(), &self.shop.blobs, &run.id).await.map_err(|failed| {
                tracing::warn!(?failed, "a run of synchronous work could not be deleted");
                Problem::new(Code::Unavailable, failed.message)
            })?;
        }
        Ok(())
    }

    pub(super) async fn close(self) {
        self.worker.stop_now();
        self.worker.finished().await;
        self.queue().close().await;
    }

    fn queue(&self) -> &dyn Queue {
        self.shop.queue.as_ref()
    }
}
