//! The kinds of jobs. A new kind is one file and one line in [`all`].
//!
//! Every kind has the same shape: a unit struct that does [`Work`]. What all of them share is here: a scratch folder for
//! the attempt, the token that stops it, and one way to tell how it failed.

mod audio;
mod conclude;
mod encode_audio;
mod encode_range;
mod exec;
mod image;
mod ingest;
mod mp4;
mod package;
mod pictures;
mod plan;
mod playable;
mod publish;
mod remux;
mod scan;
mod settle_publication;
pub(crate) mod sweep;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use telecine_media::{ToolHistory, Toolbox};
use telecine_queue::{Failure, Job, JobContext, Kind, Kinds, RunId};
use tokio_util::sync::CancellationToken;

use crate::blobs::hash_file;
use crate::failure::{Attempted, Failed, scratch_failed};
use crate::keys;
use crate::log::ToolRuns;
use crate::records::{
    INPUT, InputRecord, OUTPUT_READY, OutputRecord, RunRecord, SourceAt, StoredFile, pages_of, read,
};
use crate::scratch::JobFolder;
use crate::source::Source;
use crate::submission::RunMeta;
use crate::workshop::Workshop;

pub(crate) use encode_range::RangePayload;
pub use exec::NoProgram;
pub(crate) use exec::find_program;
pub(crate) use image::variant_of;
pub(crate) use settle_publication::watch_over;
pub use sweep::schedule_sweeps;
pub(crate) use sweep::sign_in;

pub const INGEST: &str = "ingest";
pub(crate) const SCAN: &str = "scan";
pub(crate) const PLAN: &str = "plan";
/// The part of `ingest` that waits for a scan.
pub(crate) const PLAN_STEP: &str = "ingest.plan";
pub(crate) const ENCODE_RANGE: &str = "encode_range";
pub(crate) const ENCODE_AUDIO: &str = "encode_audio";
pub(crate) const REMUX: &str = "remux";
pub(crate) const PLAYABLE: &str = "playable";
pub(crate) const PACKAGE: &str = "package";
pub(crate) const MP4: &str = "mp4";
pub(crate) const PICTURES: &str = "pictures";
pub(crate) const IMAGE: &str = "image";
pub(crate) const AUDIO: &str = "audio";
pub(crate) const EXEC: &str = "exec";
pub(crate) const PUBLISH: &str = "publish";
pub(crate) const SETTLE_PUBLICATION: &str = "settle_publication";
pub(crate) const CONCLUDE: &str = "conclude";
pub(crate) const SWEEP: &str = "sweep";

/// Every kind, with the lane its jobs belong in.
pub const LANES: [(&str, &str); 17] = [
    (INGEST, "io"),
    // A scanner that hangs holds up scans, and not what is published or told to others.
    (SCAN, "scan"),
    (PLAN, "io"),
    (ENCODE_RANGE, "cpu"),
    (ENCODE_AUDIO, "cpu"),
    (REMUX, "io"),
    (PLAYABLE, "io"),
    (PACKAGE, "io"),
    (MP4, "io"),
    (PICTURES, "cpu"),
    (IMAGE, "cpu"),
    (AUDIO, "cpu"),
    (EXEC, "cpu"),
    // Stopped before its worker's lease ends: no fence guards the keys of others.
    (PUBLISH, "net"),
    (SETTLE_PUBLICATION, "net"),
    (CONCLUDE, "io"),
    (SWEEP, "io"),
];

/// Every kind, to be run by a worker. One without a scanner leaves scans to others.
pub fn all(shop: &Arc<Workshop>) -> Kinds {
    let kinds = Kinds::new()
        .with(shop.kind(INGEST, ingest::Ingest))
        .with(shop.kind(PLAN, plan::PlanOfInput))
        .with(shop.kind(ENCODE_RANGE, encode_range::EncodeRange))
        .with(shop.kind(ENCODE_AUDIO, encode_audio::EncodeAudio))
        .with(shop.kind(REMUX, remux::Remuxing))
        .with(shop.kind(PLAYABLE, playable::Playable))
        .with(shop.kind(PACKAGE, package::Package))
        .with(shop.kind(MP4, mp4::Mp4))
        .with(shop.kind(PICTURES, pictures::PicturesOfVideo))
        .with(shop.kind(IMAGE, image::Image))
        .with(shop.kind(AUDIO, audio::Audio))
        .with(shop.kind(EXEC, exec::Exec))
        .with(shop.kind(PUBLISH, publish::Publish))
        .with(settle_publication::SettlePublication(Arc::clone(shop)))
        .with(shop.kind(CONCLUDE, conclude::Conclude))
        .with(sweep::Sweep(Arc::clone(shop)));
    match shop.scanning.clamd {
        Some(_) => kinds.with(shop.kind(SCAN, scan::Scan)),
        None => kinds,
    }
}

/// The lane of a kind; `None` for one that is not ours.
pub fn lane_of(kind: &str) -> Option<&'static str> {
    LANES.iter().find(|(name, _)| *name == kind).map(|(_, lane)| *lane)
}

/// What is peculiar to one kind.
#[async_trait]
pub(crate) trait Work: Send + Sync + 'static {
    /// How long one attempt may take.
    fn timeout(&self) -> Duration {
        Duration::from_hours(6)
    }

    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value>;
}

/// One attempt of one job of a run.
pub(crate) struct Attempt<'a> {
    pub(crate) shop: &'a Workshop,
    /// The workshop's, with a history of what this attempt starts.
    pub(crate) toolbox: Toolbox,
    pub(crate) job: &'a Job,
    pub(crate) context: &'a JobContext,
    pub(crate) run: &'a RunId,
    /// Stops the attempt.
    pub(crate) cancel: CancellationToken,
    /// Its private folder, removed however it ends.
    pub(crate) folder: JobFolder,
}

/// What most payloads say: the step of the recipe that the job works for.
#[derive(Debug, Deserialize)]
pub(crate) struct StepPayload {
    pub(crate) step: String,
}

impl Attempt<'_> {
    pub(crate) fn payload<T: DeserializeOwned>(&self) -> Attempted<T> {
        serde_json::from_value(self.job.payload.clone())
            .map_err(|error| Failed::unexpected(format!("the payload is not as known: {error}")))
    }

    /// A record that an earlier job of the run must have left.
    pub(crate) async fn read<T: RunRecord>(&self, key: &str) -> Attempted<T> {
        let found = read(&*self.shop.queue, self.run, key).await?;
        found.ok_or_else(|| Failed::unexpected(format!("the record {} {key} is missing", T::TYPE)))
    }

    /// Leaves a record, at once and under the fence of this job.
    pub(crate) fn leave<T: RunRecord>(&self, key: impl Into<String>, document: &T) {
        pages_of(key, document).into_iter().for_each(|page| self.context.record(page));
    }

    /// Leaves the record of an output, with which the run tells that it is ready.
    pub(crate) fn leave_output(&self, key: impl Into<String>, output: &OutputRecord) {
        let mut pages = pages_of(key, output);
        // The one that names the others: with it the output is there.
        if let Some(head) = pages.pop() {
            pages.push(head.telling(OUTPUT_READY, output.told()));
        }
        pages.into_iter().for_each(|page| self.context.record(page));
    }

    /// What the run was submitted with.
    pub(crate) async fn meta(&self) -> Attempted<RunMeta> {
        let run = self.shop.queue.get_run(self.run).await?;
        let run = run.ok_or_else(|| Failed::unexpected("the run is gone"))?;
        RunMeta::of(&run).map_err(|error| Failed::unexpected(format!("the run is not as known: {error}")))
    }

    pub(crate) async fn input(&self) -> Attempted<(InputRecord, Source)> {
        let input: InputRecord = self.read(INPUT).await?;
        self.tell_of(&input);
        let source = Source::of(self, &input).await?;
        Ok((input, source))
    }

    /// What the attempt works on, for whoever reads its trace.
    pub(crate) fn tell_of(&self, input: &InputRecord) {
        let span = tracing::Span::current();
        span.record("media.type", tracing::field::debug(input.format.class()));
        // Never the address that it came from: that may have a secret in it.
        match &input.at {
            SourceAt::Blob { key } => span.record("input.key", key.as_str()),
            SourceAt::File { path, .. } => span.record("input.key", tracing::field::display(path.display())),
        };
    }

    pub(crate) fn subfolder(&self, name: &str) -> Attempted<std::path::PathBuf> {
        self.folder.subfolder(name).map_err(|error| scratch_failed("no folder can be made", &error))
    }

    /// Stores a file under the name that it has.
    pub(crate) async fn store_named(&self, step: &str, file: &Path) -> Attempted<StoredFile> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        self.store_hashed(step, file, |_| name.clone().into_owned()).await
    }

    /// Stores a file under a path that may have its hash in it.
    pub(crate) async fn store_hashed(
        &self,
        step: &str,
        file: &Path,
        path: impl Fn(&str) -> String,
    ) -> Attempted<StoredFile> {
        let (sha256, bytes) = hash_file(file).await?;
        self.store(step, &path(&sha256), file, bytes, &sha256).await
    }

    /// Stores a file under `path` in the step's folder.
    pub(crate) async fn store(
        &self,
        step: &str,
        path: &str,
        file: &Path,
        bytes: u64,
        sha256: &str,
    ) -> Attempted<StoredFile> {
        let key = keys::output(&self.job.tenant, self.run, step, path);
        self.shop.blobs.put_file(&key, file).await?;
        Ok(StoredFile { path: path.to_owned(), key, bytes, sha256: sha256.to_owned() })
    }
}

/// A kind of ours as the queue sees it.
struct OfShop<W> {
    name: &'static str,
    lane: &'static str,
    work: W,
    shop: Arc<Workshop>,
}

impl Workshop {
    fn kind<W: Work>(self: &Arc<Self>, name: &'static str, work: W) -> OfShop<W> {
        let lane = lane_of(name).expect("every kind has a lane");
        OfShop { name, lane, work, shop: Arc::clone(self) }
    }
}

#[async_trait]
impl<W: Work> Kind for OfShop<W> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lane(&self) -> &'static str {
        self.lane
    }

    fn timeout(&self) -> Duration {
        self.work.timeout()
    }

    async fn run(&self, job: &Job, context: &JobContext) -> Result<Value, Failure> {
        let run = job.run.as_ref().ok_or_else(|| Failed::unexpected("the job belongs to no run"));
        let run = run.map_err(|failed| failed.settle(job, context))?;
        let folder =
            self.shop.scratch.job().map_err(|error| {
                scratch_failed("no scratch folder can be made", &error).settle(job, context)
            })?;
        let tools = Arc::new(self.shop.history_for(&folder));
        let attempted = self.attempt(job, context, run, folder, &tools).await;
        if let Some(started) = tools.record() {
            pages_of(job.id.to_string(), &started).into_iter().for_each(|page| context.record(page));
        }
        attempted.map_err(|failed| failed.settle_after(Some(&tools), job, context))
    }
}

impl<W: Work> OfShop<W> {
    async fn attempt(
        &self,
        job: &Job,
        context: &JobContext,
        run: &RunId,
        folder: JobFolder,
        tools: &Arc<ToolRuns>,
    ) -> Attempted<Value> {
        let toolbox = self.shop.toolbox.clone().remembered_by(Arc::clone(tools) as Arc<dyn ToolHistory>);
        let attempt =
            Attempt { shop: &self.shop, toolbox, job, context, run, cancel: context.stopping(), folder };
        self.work.attempt(&attempt).await
    }
}
