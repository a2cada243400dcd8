//! `sweep`: removes what nobody will ask for, a bounded part of it at a time. It belongs to no run; every worker sees to it
//! that it is scheduled.
//!
//! - Runs whose time is over, and runs that came to nothing and that history has forgotten ([`runs`]).
//! - Blobs of ended runs that no output names ([`runs`]), and blobs of runs that the database does not know ([`orphans`]).
//! - Uploads that expired and that no run waits for ([`uploads`]), infected inputs that were kept for long enough, and
//!   puts that never ended.
//!
//! How far it came is noted in the store, one [`note`] for each database that uses it; the next sweep goes on from there.

pub(crate) mod note;
pub(crate) mod orphans;
pub(crate) mod runs;
mod uploads;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use telecine_queue::{Failure, Job, JobContext, Kind, Missed, NewJob, NewSchedule, QueueError, Timestamp};

use super::{SWEEP, lane_of};
use crate::failure::Attempted;
use crate::scan::sweep_quarantine;
use crate::workshop::Workshop;

use note::{Note, database_of};

/// At half past every hour, in UTC.
const WHEN: &str = "30 * * * *";

pub(super) struct Sweep(pub(super) Arc<Workshop>);

/// What a sweep removed.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    runs: usize,
    pub(crate) blobs: usize,
    /// Runs that the database does not know.
    orphans: usize,
    uploads: usize,
    /// Infected inputs whose time is over.
    quarantined: usize,
    /// Puts that never ended.
    unfinished: usize,
}

/// Sees to it that somebody sweeps.
pub async fn schedule_sweeps(shop: &Workshop) -> Result<(), QueueError> {
    // By this name the store knows the database. It is drawn once and then kept.
    let database = database_of(&*shop.queue).await?.unwrap_or_else(note::new_database);
    let payload = json!({ note::DATABASE: database });
    let job = NewJob::new(SWEEP, payload).lane(lane_of(SWEEP).unwrap_or("io")).priority(10);
    let schedule = NewSchedule::new(SWEEP, WHEN, job).missed(Missed::Once);
    shop.queue.schedule(schedule).await
}

/// Notes in the store that this database uses it, before anything is put there.
pub(crate) async fn sign_in(shop: &Workshop) -> Attempted<()> {
    if shop.is_signed_in.initialized() {
        return Ok(());
    }
    if let Some(database) = database_of(&*shop.queue).await? {
        note::sign_in(&shop.blobs, &database).await?;
        // Another job of this process may have been faster.
        let _ = shop.is_signed_in.set(());
    }
    Ok(())
}

#[async_trait]
impl Kind for Sweep {
    fn name(&self) -> &'static str {
        SWEEP
    }

    fn lane(&self) -> &'static str {
        lane_of(SWEEP).unwrap_or("io")
    }

    async fn run(&self, job: &Job, context: &JobContext) -> Result<Value, Failure> {
        let swept = sweep(&self.0, context).await.map_err(|failed| failed.settle(job, context))?;
        Ok(json!({
            "runs": swept.runs, "blobs": swept.blobs, "orphans": swept.orphans, "uploads": swept.uploads,
            "unfinished": swept.unfinished, "quarantined": swept.quarantined,
        }))
    }
}

async fn sweep(shop: &Workshop, context: &JobContext) -> Attempted<Swept> {
    let mut swept = Swept::default();
    let stopping = context.stopping();
    let database = database_of(&*shop.queue).await?;
    let mut note = match &database {
        Some(database) => Note::take_turn(shop, database).await?,
        // Nobody scheduled this one; it begins at the beginning.
        None => Note::default(),
    };
    runs::sweep(shop, &stopping, &mut note, &mut swept).await?;
    sweep_unfinished(shop, &mut swept).await;
    uploads::sweep(shop, &mut swept).await?;
    swept.quarantined = sweep_quarantine(shop).await?;
    if let Some(database) = &database {
        match note::why_not_sole(shop, database, &note).await? {
            None => orphans::sweep(shop, &stopping, &mut note, &mut swept).await?,
            Some(why) => {
                tracing::warn!(why, "blobs of runs that this database does not know are left alone");
                note.orphans.clear();
            }
        }
        note.write(&shop.blobs, database).await?;
    }
    Ok(swept)
}

async fn sweep_unfinished(shop: &Workshop, swept: &mut Swept) {
    match shop.blobs.sweep_unfinished(shop.keep_unpublished).await {
        Ok(removed) => swept.unfinished = removed,
        // Not every store tells of unfinished uploads.
        Err(error) => tracing::warn!(%error, "puts that never ended cannot be swept"),
    }
}

pub(crate) fn is_older(at: Timestamp, than: Duration) -> bool {
    let age_ms = Timestamp::now().as_ms() - at.as_ms();
    age_ms > i64::try_from(than.as_millis()).unwrap_or(i64::MAX)
}
