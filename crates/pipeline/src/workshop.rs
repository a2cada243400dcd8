//! What all kinds share.

use std::path::PathBuf;
use std::sync::Arc;

use telecine_media::{Capabilities, Limits, MediaError, Toolbox};
use telecine_queue::Queue;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::blobs::Blobs;
use crate::records::{InputRecord, SourceAt};
use crate::scratch::Scratch;

/// Programs, blobs, scratch and limits of one worker.
pub struct Workshop {
    pub queue: Arc<dyn Queue>,
    pub toolbox: Toolbox,
    pub blobs: Blobs,
    pub scratch: Scratch,
    pub limits: Limits,
    /// Folders whose files may be named as inputs.
    pub input_folders: Vec<PathBuf>,
    capabilities: OnceCell<Capabilities>,
}

impl Workshop {
    pub fn new(queue: Arc<dyn Queue>, toolbox: Toolbox, blobs: Blobs, scratch: Scratch) -> Self {
        Self {
            queue,
            toolbox,
            blobs,
            scratch,
            limits: Limits::default(),
            input_folders: Vec::new(),
            capabilities: OnceCell::new(),
        }
    }

    /// What the installed programs can do, asked once.
    pub(crate) async fn capabilities(&self, cancel: &CancellationToken) -> Result<&Capabilities, MediaError> {
        self.capabilities.get_or_try_init(|| self.detect(cancel)).await
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
