//! What the sweeps of one database note in the store: that the database uses it, and how far they came.
//!
//! A copy of a database has its name, too, so each sweep leaves a mark of its own in the note and in the database. Where the
//! note has a mark that the database does not know, a copy was here: one of them was restored, or both are at work. Neither
//! can tell then whose the runs are that it does not know, until somebody says that there is but one.

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};
use telecine_queue::{NewEntry, Queue, QueueError, RunId, Timestamp};

use crate::blobs::{Blobs, StoreError, hex};
use crate::failure::Attempted;
use crate::kinds::SWEEP;
use crate::workshop::Workshop;

/// No tenant's folder can have this name.
const NOTES: &str = "_store/databases";
/// In the payload of the scheduled job: the name by which the store knows the database.
pub(super) const DATABASE: &str = "database";
/// Entries of the database that say which marks are its own.
const MARKS: &str = "store_marks";
/// More than sweeps that overlap can leave.
const MARKS_KEPT: usize = 8;
/// So many unknown things are kept in mind.
const MOST_UNKNOWN: usize = 1_000;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Note {
    /// Runs older than this one are next; `None`: the newest.
    pub(super) runs_before: Option<RunId>,
    /// Folders of runs behind this one are next: a tenant's folder and a run's.
    pub(super) orphans_after: Option<(String, String)>,
    /// Prefixes of runs that the database does not know, and since when.
    pub(super) orphans: BTreeMap<String, Timestamp>,
    /// Of the last sweep that wrote this.
    mark: Option<String>,
    /// Since when two copies of the database are known.
    contested_since: Option<Timestamp>,
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
async fn is_shared(blobs: &Blobs, database: &str) -> Result<bool, StoreError> {
    let own = key(database);
    let notes: Vec<String> = blobs.entries(NOTES).map_ok(|note| note.key).try_collect().await?;
    Ok(notes.iter().any(|note| *note != own))
}

/// Why nobody can tell whose the unknown blobs of the store are; `None`: all are this database's.
pub(crate) async fn why_not_sole(
    shop: &Workshop,
    database: &str,
    note: &Note,
) -> Attempted<Option<&'static str>> {
    if is_shared(&shop.blobs, database).await? {
        return Ok(Some("several databases use the store, and only one of them is asked"));
    }
    if note.contested_since.is_some() || !note.is_of(&*shop.queue, database).await? {
        return Ok(Some(
            "another copy of this database has used the store; if this is the only one that is left, say so by \
             `telecine reconcile --claim-store`",
        ));
    }
    Ok(None)
}

/// This is the only copy of the database from now on. What it does not know is seen for the first time.
pub(crate) async fn claim_store(shop: &Workshop, database: &str) -> Attempted<()> {
    let mut note = Note::read(&shop.blobs, database).await?;
    note.mark = Some(new_mark(&*shop.queue, database).await?);
    note.contested_since = None;
    note.orphans.clear();
    Ok(note.write(&shop.blobs, database).await?)
}

impl Note {
    /// For a sweep, which leaves a new mark if it may.
    pub(super) async fn take_turn(shop: &Workshop, database: &str) -> Attempted<Self> {
        let mut note = Self::read(&shop.blobs, database).await?;
        if note.is_of(&*shop.queue, database).await? {
            note.mark = Some(new_mark(&*shop.queue, database).await?);
        } else {
            // The other copy finds this, if there is one.
            note.contested_since.get_or_insert_with(Timestamp::now);
        }
        Ok(note)
    }

    /// Whether this database wrote it last.
    async fn is_of(&self, queue: &dyn Queue, database: &str) -> Result<bool, QueueError> {
        let (_, marks) = marks(queue, database).await?;
        Ok(marks.is_empty() || self.mark.as_ref().is_none_or(|mark| marks.contains(mark)))
    }

    /// Since when something has not been known.
    pub(crate) fn unknown_since(&self, what: &str) -> Option<Timestamp> {
        self.orphans.get(what).copied()
    }

    /// Keeps in mind that it is not known, if there is room.
    pub(crate) fn remember_unknown(&mut self, what: String) {
        if self.orphans.len() < MOST_UNKNOWN {
            self.orphans.entry(what).or_insert_with(Timestamp::now);
        }
    }

    pub(crate) fn forget_unknown(&mut self, what: &str) {
        self.orphans.remove(what);
    }

    pub(crate) async fn read(blobs: &Blobs, database: &str) -> Result<Self, StoreError> {
        match blobs.get_bytes(&key(database)).await {
            // What cannot be read was written by another version: the sweeps begin at the beginning.
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
            Err(StoreError::NotFound { .. }) => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Writes what is unknown, and leaves the rest as sweeps left it meanwhile.
    pub(crate) async fn write_unknown(self, blobs: &Blobs, database: &str) -> Result<(), StoreError> {
        let now = Self::read(blobs, database).await?;
        Self { orphans: self.orphans, ..now }.write(blobs, database).await
    }

    pub(super) async fn write(&self, blobs: &Blobs, database: &str) -> Result<(), StoreError> {
        let text = serde_json::to_vec(self).expect("a note is plain data");
        blobs.put_bytes(&key(database), text.into()).await
    }
}

async fn marks(queue: &dyn Queue, database: &str) -> Result<(u64, Vec<String>), QueueError> {
    let Some(entry) = queue.entry(MARKS, database).await? else { return Ok((0, Vec::new())) };
    Ok((entry.version, serde_json::from_value(entry.body).unwrap_or_default()))
}

/// The database knows it before the store does.
async fn new_mark(queue: &dyn Queue, database: &str) -> Result<String, QueueError> {
    let mark = hex(&fastrand::u64(..).to_be_bytes());
    loop {
        let (version, mut known) = marks(queue, database).await?;
        known.push(mark.clone());
        known.drain(..known.len().saturating_sub(MARKS_KEPT));
        match queue.put_entry(NewEntry::new(MARKS, database, known.into()), Some(version)).await {
            Ok(_) => return Ok(mark),
            Err(QueueError::Stale { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

fn key(database: &str) -> String {
    format!("{NOTES}/{database}.json")
}
