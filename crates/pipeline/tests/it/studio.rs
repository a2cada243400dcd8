//! A place to process things in: a database, a store, scratch, and a worker.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use telecine_media::{Confinement, ImageSpec, ImageVariant, Ladder, PicturesSpec, Toolbox, VideoSpec};
use telecine_pipeline::records::{FailureRecord, OutputRecord, WarningRecord, read_all};
use telecine_pipeline::{Blobs, Does, Input, Recipe, Scratch, Step, Submission, Workshop, kinds, submit};
use telecine_queue::{JobFilter, Page, Queue, Run, RunId, Runtime, Slots, WorkerOptions};

use crate::clips;

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
        Self::tuned(|_| {}).await
    }

    /// With programs of the test's own.
    pub(crate) async fn with_programs(toolbox: Toolbox) -> Self {
        Self::tuned(|shop| shop.toolbox = toolbox).await
    }

    /// On SQLite and a folder, with what the test wants otherwise in the workshop.
    pub(crate) async fn tuned(arrange: impl FnOnce(&mut Workshop)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = format!("sqlite:{}", folder.path().join("queue.db").display());
        let queue = telecine_queue::open(&database).await.unwrap();
        let blobs = Blobs::in_folder(&folder.path().join("store")).unwrap();
        let scratch = folder.path().join("scratch");
        Self::arranged(queue, blobs, folder, &scratch, arrange).await
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
        let now = async || self.queue.get_run(run).await.unwrap().unwrap();
        self.until(async || now().await.finished_at.is_some()).await;
        now().await
    }

    /// Waits until something holds.
    pub(crate) async fn until(&self, mut holds: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut wakes = self.queue.wakes();
        while !holds().await {
            assert!(Instant::now() < deadline, "it never came");
            // A wake-up or a moment: another process may have done it.
            let _ = tokio::time::timeout(Duration::from_millis(50), wakes.changed()).await;
        }
    }

    pub(crate) async fn outputs(&self, run: &RunId) -> Vec<OutputRecord> {
        let outputs = read_all(&*self.queue, run).await.unwrap();
        outputs.into_iter().map(|(_, output)| output).collect()
    }

    pub(crate) async fn kinds_of(&self, run: &RunId) -> Vec<String> {
        let filter = JobFilter { run: Some(run.clone()), ..JobFilter::default() };
        let listed = self.queue.list(&filter, Page::first(1000)).await.unwrap();
        listed.data.into_iter().map(|job| job.kind).collect()
    }

    /// Where the main file of an output lies.
    pub(crate) async fn main_file(&self, run: &RunId, name: &str) -> PathBuf {
        let outputs = self.outputs(run).await;
        let output = outputs.iter().find(|output| output.name == name).expect(name);
        let main = output.files.iter().find(|file| file.path == output.main).unwrap();
        self.shop.blobs.local_path(&main.key).unwrap()
    }

    pub(crate) async fn warnings(&self, run: &RunId) -> Vec<WarningRecord> {
        let warnings = read_all(&*self.queue, run).await.unwrap();
        warnings.into_iter().map(|(_, warning)| warning).collect()
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

/// A promise as a trial, on a runtime of its own.
pub(crate) fn trial<F: Future<Output = ()>>(
    name: String,
    promise: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(promise());
        Ok(())
    })
}

/// A step with everything as usual.
pub(crate) fn step(name: &str, does: Does) -> Step {
    Step { required: true, ..Step::new(name, does) }
}

/// A film in two small rungs, in segments of a second.
pub(crate) fn hls() -> Step {
    let ladder = Ladder::Heights(vec![180, 120]);
    step(
        "hls",
        Does::Hls(VideoSpec { ladder, segment_seconds: 1, allow_copy: false, ..VideoSpec::default() }),
    )
}

/// All pictures there are; a run can do without.
pub(crate) fn pictures() -> Step {
    let wanted = r#"{"poster": {}, "storyboard": {}, "preview": {}, "scenes": true, "frames": {}}"#;
    let spec: PicturesSpec = serde_json::from_str(wanted).unwrap();
    Step { required: false, ..step("pictures", Does::Pictures(spec)) }
}

/// A picture in one width.
pub(crate) fn images(width: u32) -> Recipe {
    let spec = ImageSpec { variants: vec![ImageVariant::of_width(width)], ..ImageSpec::default() };
    recipe(vec![step("image", Does::Image(spec))])
}

/// A picture for them, the same one each time.
pub(crate) fn photo(studio: &Studio) -> PathBuf {
    let file = studio.file("photo.jpg");
    if !file.exists() {
        clips::ffmpeg(&["-f", "lavfi", "-i", "testsrc2=size=640x480", "-frames:v", "1"], &file);
    }
    file
}

pub(crate) fn recipe(steps: Vec<Step>) -> Recipe {
    Recipe::new("test", steps)
}
