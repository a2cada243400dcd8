//! What the kinds of this process work with, opened as the configuration says: programs, store, scratch.
//!
//! The one place where a store is opened, for `worker`, `run` and `watch` alike.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use telecine_pipeline::{Blobs, Published, Scratch, Workshop};
use telecine_queue::Queue;

use crate::config::{Config, Key};
use crate::programs;

/// Opens all of it. Folders that are missing are made.
pub(crate) fn open(config: &Config, queue: &Arc<dyn Queue>) -> Result<Workshop> {
    let blobs = open_store(config)?;
    let scratch = Scratch::open(&config.scratch).with_context(|| {
        format!(
            "cannot use the scratch folder {}; set another with TELECINE_SCRATCH",
            config.shown(Key::Scratch)
        )
    })?;
    let published = open_published(config, &blobs)?;
    let mut shop = Workshop::new(Arc::clone(queue), programs::toolbox(config), blobs, scratch);
    shop.published = published;
    shop.input_folders = input_folders(config)?;
    shop.uploads = config.serving.options.uploads.folder.clone();
    shop.input_buckets = config.intake.buckets.clone();
    shop.limits = config.intake.limits.clone();
    shop.allow_private_urls = config.intake.allow_private_urls;
    shop.pull_patience = config.intake.patience;
    shop.keep_runs = config.keep_runs;
    shop.scanning = config.scanning.clone();
    shop.keep_quarantine = config.keep_quarantine;
    Ok(shop)
}

/// A folder or a bucket.
pub(crate) fn open_store(config: &Config) -> Result<Blobs> {
    Blobs::open(&config.store).with_context(|| format!("cannot open the store {}", config.shown(Key::Store)))
}

/// Where outputs go whose callers chose their keys.
pub(crate) fn open_published(config: &Config, store: &Blobs) -> Result<Published> {
    let Some(url) = &config.publish else { return Ok(Published::within(store)) };
    Published::in_place(url, store)
        .with_context(|| format!("cannot publish in {}", config.shown(Key::Publish)))
}

/// As the paths of inputs are compared with them: absolute and without links.
fn input_folders(config: &Config) -> Result<Vec<PathBuf>> {
    let real = |folder: &PathBuf| {
        folder.canonicalize().with_context(|| {
            format!("the folder {} of {} cannot be used", folder.display(), config.shown(Key::InputFolders))
        })
    };
    config.input_folders.iter().map(real).collect()
}
