//! A database, a store, scratch space and a worker in this process: all that `run` and `watch` need, without a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use telecine_pipeline::Workshop;
use telecine_pipeline::kinds::schedule_sweeps;
use telecine_queue::{Queue, Runtime, WorkerOptions};

use crate::commands::{Schema, open, worker_options};
use crate::config::{Config, Key};
use crate::{kinds, workshop};

/// In the folder of results.
const FOLDER: &str = ".telecine";
/// Somebody looks at the progress.
const BEAT_EVERY: Duration = Duration::from_millis(500);
/// What a killed process left is taken up while its user still looks.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

pub(crate) struct Studio {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) shop: Arc<Workshop>,
    /// Where it keeps what is neither results nor anybody else's.
    pub(crate) folder: PathBuf,
    /// Whether the database is one among the results.
    pub(crate) is_own: bool,
    worker: Runtime,
}

impl Studio {
    /// Everything lies in a folder among the results, but for the database, the store and the scratch folder that were
    /// chosen for this command. Files in `inputs` may be read, for whoever started this named them.
    pub(crate) async fn open(config: &Config, results: &Path, inputs: Vec<PathBuf>) -> Result<Self> {
        let folder = results.join(FOLDER);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let is_own = !config.is_chosen(Key::Database);
        let config = config.embedded_in(&folder)?;
        let queue = open(&config, Schema::Migrate).await?;
        let mut shop = workshop::open(&config, &queue)?;
        shop.input_folders.extend(inputs);
        let shop = Arc::new(shop);
        schedule_sweeps(&shop).await?;
        let options = worker_options(&config, &shop);
        let options = WorkerOptions {
            beat_every: options.beat_every.min(BEAT_EVERY),
            sweep_every: options.sweep_every.min(SWEEP_EVERY),
            ..options
        };
        let worker = Runtime::start(Arc::clone(&queue), kinds::all(&shop), options).await?;
        Ok(Self { queue, shop, folder, is_own, worker })
    }

    /// Stops what runs. It goes back into the queue, with what it has stored so far.
    pub(crate) async fn stop(&self) {
        self.worker.stop_now();
        self.worker.finished().await;
    }
}
