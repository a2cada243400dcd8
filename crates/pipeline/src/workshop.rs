//! What all kinds share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use telecine_media::{Capabilities, Limits, MediaError, Toolbox};
use telecine_queue::Queue;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::blobs::Blobs;
use crate::log::ToolRuns;
use crate::published::Published;
use crate::records::{InputRecord, SourceAt};
use crate::scan::Scanning;
use crate::scratch::{JobFolder, Scratch};
use crate::source::{CacheRoom, PullPatience, SourceCache};

/// Programs, blobs, scratch and limits of one worker.
pub struct Workshop {
    pub queue: Arc<dyn Queue>,
    pub toolbox: Toolbox,
    pub blobs: Blobs,
    /// Where outputs go whose callers chose their keys.
    pub published: Published,
    pub scratch: Scratch,
    pub limits: Limits,
    /// Folders whose files may be named as inputs.
    pub input_folders: Vec<PathBuf>,
    /// Where uploads arrive. As in the folders of the store, of what is published and of scratch, nothing there is an input.
    pub uploads: Option<PathBuf>,
    /// How long after its end a run and its outputs are kept; `None` is until somebody deletes them.
    pub keep_runs: Option<Duration>,
    /// How long what a failed or cancelled run has stored is kept for a retry.
    pub keep_unpublished: Duration,
    /// Pages of runs, and of folders of the store, that one sweep looks at; the next one goes on behind them.
    pub sweep_pages: u32,
    /// How long an upload waits to be used.
    pub keep_uploads: Duration,
    /// How long infected inputs are kept for whoever looks into it.
    pub keep_quarantine: Duration,
    /// What inputs are scanned with, and how strictly.
    pub scanning: Scanning,
    /// Buckets whose objects may be named as inputs: `s3://bucket` or `s3://bucket/prefix`.
    pub input_buckets: Vec<String>,
    /// Whether inputs may be pulled from loopback and private addresses.
    pub allow_private_urls: bool,
    pub pull_patience: PullPatience,
    /// What is kept in scratch of sources from a bucket.
    pub source_cache: CacheRoom,
    pub(crate) sources: SourceCache,
    /// Whether the store knows the database.
    pub(crate) is_signed_in: OnceCell<()>,
    capabilities: Arc<OnceCell<Capabilities>>,
}

impl Workshop {
    pub fn new(queue: Arc<dyn Queue>, toolbox: Toolbox, blobs: Blobs, scratch: Scratch) -> Self {
        let sources = SourceCache::in_scratch(scratch.root());
        Self {
            queue,
            toolbox,
            published: Published::within(&blobs),
            blobs,
            scratch,
            limits: Limits::default(),
            input_folders: Vec::new(),
            uploads: None,
            keep_runs: None,
            keep_unpublished: Duration::from_hours(24),
            sweep_pages: 25,
            keep_uploads: Duration::from_hours(7 * 24),
            keep_quarantine: Duration::from_hours(30 * 24),
            scanning: Scanning::default(),
            input_buckets: Vec::new(),
            allow_private_urls: false,
            pull_patience: PullPatience::default(),
            source_cache: CacheRoom::default(),
            sources,
            is_signed_in: OnceCell::new(),
            capabilities: Arc::default(),
        }
    }

    /// Another one with the same programs, limits and scanner, for work that has nothing else to do with this one's. Who asked
    /// for it waits: a scanner that does not answer is not waited for.
    pub fn apart(&self, queue: Arc<dyn Queue>, blobs: Blobs, scratch: Scratch) -> Self {
        Self {
            limits: self.limits.clone(),
            scanning: Scanning { attempts: Some(1), ..self.scanning.clone() },
            capabilities: Arc::clone(&self.capabilities),
            ..Self::new(queue, self.toolbox.clone(), blobs, scratch)
        }
    }

    /// Folders of this deployment's own, where files of all tenants lie.
    pub(crate) fn own_folders(&self) -> Vec<PathBuf> {
        let stores = [&self.blobs, &self.published.blobs];
        let stores = stores.into_iter().filter_map(|blobs| blobs.folder().map(Path::to_owned));
        stores.chain([self.scratch.root().to_owned()]).chain(self.uploads.clone()).collect()
    }

    /// What the installed programs can do, asked once.
    pub(crate) async fn capabilities(&self, cancel: &CancellationToken) -> Result<&Capabilities, MediaError> {
        self.capabilities.get_or_try_init(|| self.detect(cancel)).await
    }

    /// Of the programs that an attempt with this folder will start.
    pub(crate) fn history_for(&self, folder: &JobFolder) -> ToolRuns {
        ToolRuns::new(folder.path(), self.scratch.root(), self.blobs.folder())
    }

    /// Whether a job has to copy the source to its scratch folder before it can read it.
    pub(crate) fn store_is_remote(&self, input: &InputRecord) -> bool {
        match &input.at {
            SourceAt::Blob { key } => self.blobs.local_path(key).is_none(),
            SourceAt::File { .. } => false,
        }
    }

    async fn detect(&self, cancel: &CancellationToken) -> Result<Capabilities, MediaError> {
        let mut capabilities = Capabilities::detect(&self.toolbox, cancel).await?;
        capabilities.try_hardware(&self.toolbox, cancel).await?;
        Ok(capabilities)
    }
}

impl std::fmt::Debug for Workshop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workshop")
            .field("blobs", &self.blobs)
            .field("scratch", &self.scratch)
            .finish_non_exhaustive()
    }
}
