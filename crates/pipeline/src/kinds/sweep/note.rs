//! What the sweeps of one database note in the store: that the database uses it, and how far they came.

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};
use telecine_queue::{Queue, QueueError, RunId, Timestamp};

use crate::blobs::{Blobs, StoreError};
use crate::kinds::SWEEP;

/// No tenant's folder can have this name.
const NOTES: &str = "_store/databases";
/// In the payload of the scheduled job: the name by which the store knows the database.
pub(super) const DATABASE: &str = "database";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Note {
    /// Runs older than this one are next; `None`: the newest.
    pub(super) runs_before: Option<RunId>,
    /// Folders of runs behind this one are next: a tenant's folder and a run's.
    pub(super) orphans_after: Option<(String, String)>,
    /// Prefixes of runs that the database does not know, and since when.
    pub(super) orphans: BTreeMap<String, Timestamp>,
}

/// The name by which stores know this database; `None`: nobody has scheduled sweeps on it yet.
pub(crate) async fn database_of(queue: &dyn Queue) -> Result<Option<String>, QueueError> {
    let schedules = queue.schedules().await?;
    let schedule = schedules.into_iter().find(|schedule| schedule.name == SWEEP);
    let job = schedule.and_then(|schedule| schedule.push.jobs.into_iter().next());
    Ok(job.and_then(|job| job.payload.get(DATABASE)?.as_str().map(str::to_owned)))
}

/// As unlike all others as the name of a run.
pub(super) fn new_database() -> String {
    RunId::new().as_str().replace("run_", "db_")
}

pub(super) async fn sign_in(blobs: &Blobs, database: &str) -> Result<(), StoreError> {
    let first = serde_json::to_vec(&Note::default()).expect("a note is plain data");
    blobs.put_new(&key(database), first.into()).await.map(drop)
}

/// Whether the database has ever stored anything there.
pub(crate) async fn is_signed_in(blobs: &Blobs, database: &str) -> Result<bool, StoreError> {
    blobs.exists(&key(database)).await
}

/// Whether other databases use the store, too.
pub(crate) async fn is_shared(blobs: &Blobs, database: &str) -> Result<bool, StoreError> {
    let own = key(database);
    let notes: Vec<String> = blobs.entries(NOTES).map_ok(|note| note.key).try_collect().await?;
    Ok(notes.iter().any(|note| *note != own))
}

impl Note {
    pub(super) async fn read(blobs: &Blobs, database: &str) -> Result<Self, StoreError> {
        match blobs.get_bytes(&key(database)).await {
            // What cannot be read was written by another version: the sweeps begin at the beginning.
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
            Err(StoreError::NotFound { .. }) => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn write(&self, blobs: &Blobs, database: &str) -> Result<(), StoreError> {
        let text = serde_json::to_vec(self).expect("a note is plain data");
        blobs.put_bytes(&key(database), text.into()).await
    }
}

fn key(database: &str) -> String {
    format!("{NOTES}/{database}.json")
}
