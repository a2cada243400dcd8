//! A place to process things in: a database, a store, scratch, and a worker.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use telecine_media::{Confinement, Toolbox};
use telecine_pipeline::records::{FailureRecord, OutputRecord, read_all};
use telecine_pipeline::{Blobs, Input, Recipe, Scratch, Submission, Workshop, kinds, submit};
use telecine_queue::{Queue, Run, RunId, Runtime, Slots, WorkerOptions};

const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Studio {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) shop: Arc<Workshop>,
    pub(crate) folder: tempfile::TempDir,
    worker: Runtime,
}

impl Studio {
    /// On SQLite and a folder.
    pub(crate) async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = format!("sqlite:{}", folder.path().join("queue.db").display());
        let queue = telecine_queue::open(&database).await.unwrap();
        Self::on(queue, Blobs::in_folder(&folder.path().join("store")).unwrap(), folder).await
    }

    pub(crate) async fn on(queue: Arc<dyn Queue>, blobs: Blobs, folder: tempfile::TempDir) -> Self {
        let scratch = folder.path().join("scratch");
        Self::arranged(queue, blobs, folder, &scratch, |_| ()).await
    }

    /// On SQLite and some store, with what the test wants otherwise in the workshop.
    pub(crate) async fn with(blobs: Blobs, arrange: impl FnOnce(&mut Workshop)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = format!("sqlite:{}", folder.path().join("queue.db").display());
        let queue = telecine_queue::open(&database).await.unwrap();
        let scratch = folder.path().join("scratch");
        Self::arranged(queue, blobs, folder, &scratch, arrange).await
    }

    pub(crate) async fn arranged(
        queue: Arc<dyn Queue>,
        blobs: Blobs,
        folder: tempfile::TempDir,
        scratch: &Path,
        arrange: impl FnOnce(&mut Workshop),
    ) -> Self {
        let scratch = Scratch::open(scratch).unwrap();
        let toolbox = Toolbox::from_path(Confinement::launcher());
        let mut shop = Workshop::new(Arc::clone(&queue), toolbox, blobs, scratch);
        shop.input_folders.push(folder.path().canonicalize().unwrap());
        arrange(&mut shop);
        let shop = Arc::new(shop);
        let options = WorkerOptions { slots: Slots::Each(2), ..WorkerOptions::default() };
        let worker = Runtime::start(Arc::clone(&queue), kinds::all(&shop), options).await.unwrap();
        Self { queue, shop, folder, worker }
    }

    /// Where a file of that name may be put as an input.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) async fn submit(&self, recipe: &Recipe, file: &Path) -> RunId {
        self.submit_input(recipe, Input::Path(file.to_owned())).await
    }

    pub(crate) async fn submit_input(&self, recipe: &Recipe, input: Input) -> RunId {
        let submission = Submission::new(recipe.clone(), input);
        submit(&*self.queue, submission).await.unwrap().run
    }

    /// Waits until some attempt has failed.
    pub(crate) async fn failed(&self, run: &RunId) -> FailureRecord {
        let until = Instant::now() + PATIENCE;
        loop {
            // First the run, then its failures: one that has ended has left them.
            let now = self.queue.get_run(run).await.unwrap().unwrap();
            if let Some(failure) = self.failures(run).await.into_iter().next() {
                return failure;
            }
            assert!(now.finished_at.is_none(), "it ended without a failure: {now:?}");
            assert!(Instant::now() < until, "{now:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the run has ended.
    pub(crate) async fn ended(&self, run: &RunId) -> Run {
        let until = Instant::now() + PATIENCE;
        let mut wakes = self.queue.wakes();
        loop {
            let now = self.queue.get_run(run).await.unwrap().unwrap();
            if now.finished_at.is_some() {
                return now;
            }
            assert!(Instant::now() < until, "{now:?}");
            // A wake-up or a moment: another process may have ended it.
            let _ = tokio::time::timeout(Duration::from_millis(50), wakes.changed()).await;
        }
    }

    pub(crate) async fn outputs(&self, run: &RunId) -> Vec<OutputRecord> {
        let outputs = read_all(&*self.queue, run).await.unwrap();
        outputs.into_iter().map(|(_, output)| output).collect()
    }

    pub(crate) async fn failures(&self, run: &RunId) -> Vec<FailureRecord> {
        let failures = read_all(&*self.queue, run).await.unwrap();
        failures.into_iter().map(|(_, failure)| failure).collect()
    }

    pub(crate) async fn close(self) {
        self.worker.drain();
        self.worker.finished().await;
        self.queue.close().await;
    }
}
