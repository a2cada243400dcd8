//! Where bytes are to lie: scratch and store.

use std::path::Path;

use rustix::fs::{Access, access, statvfs};

use telecine_pipeline::{Blobs, StoreError};

use super::Check;
use super::machine::{GIB, gib};
use crate::config::{Config, Key};

const SCRATCH_WANTED: u64 = 10 * GIB;

pub(super) fn scratch(config: &Config) -> Check {
    let shown = config.shown(Key::Scratch);
    let Folder { free, total } = match Folder::look_at(&config.scratch) {
        Ok(folder) => folder,
        Err(why) => {
            let next = "set `scratch` (TELECINE_SCRATCH) to a folder that this user may write to";
            return Check::fail("scratch", format!("{shown}: {why}"), next);
        }
    };
    let detail = format!("{} free of {} in {shown}", gib(free), gib(total));
    // A tenth is kept free: file systems that are full to the brim are slow, and others write there too.
    if free < SCRATCH_WANTED || free < total / 10 {
        let next = "free some space, or set `scratch` (TELECINE_SCRATCH) to a folder on a larger disk";
        return Check::warn("scratch", detail, next);
    }
    Check::ok("scratch", detail)
}

pub(super) async fn store(config: &Config) -> Check {
    let shown = config.shown(Key::Store);
    if config.store.contains("://") {
        return match bucket(&config.store).await {
            Ok(()) => Check::ok("store", format!("{shown}: it answers")),
            Err(error) => Check::fail("store", format!("{shown}: {error}"), error.hint()),
        };
    }
    let Folder { free, total } = match Folder::look_at(Path::new(&config.store)) {
        Ok(folder) => folder,
        Err(why) => {
            let next = "set `store` (TELECINE_STORE) to a folder that this user may write to";
            return Check::fail("store", format!("{shown}: {why}"), next);
        }
    };
    let detail = format!("{} free of {} in {shown}", gib(free), gib(total));
    if config.database.starts_with("postgres") {
        let next =
            "if workers run on several machines, put the folder where all of them see it, or use s3://BUCKET";
        return Check::warn("store", format!("{detail}, a folder of this machine"), next);
    }
    Check::ok("store", detail)
}

async fn bucket(store: &str) -> Result<(), StoreError> {
    Blobs::open(store)?.check().await
}

/// The space of a folder that can be written to, or could be made. Nothing is made by looking.
struct Folder {
    free: u64,
    total: u64,
}

impl Folder {
    fn look_at(folder: &Path) -> Result<Self, String> {
        let absolute = std::path::absolute(folder).map_err(|error| error.to_string())?;
        let there = absolute.ancestors().find(|part| part.exists()).unwrap_or(Path::new("/"));
        if !there.is_dir() {
            return Err(format!("{} is no folder", there.display()));
        }
        access(there, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| format!("{} cannot be written to: {error}", there.display()))?;
        let disk = statvfs(there).map_err(|error| error.to_string())?;
        Ok(Self { free: disk.f_bavail * disk.f_frsize, total: disk.f_blocks * disk.f_frsize })
    }
}
