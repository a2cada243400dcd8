//! Whose a prefix is: an entry of the database, changed only from the version that was read.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use telecine_queue::{Fence, JobId, JobState, NewEntry, Queue, QueueError, Run, RunId, Timestamp};

use super::Place;
use crate::failure::{Attempted, Failed};

const KIND: &str = "publication";
/// A job that goes on for longer without a look may have slept, and another may own the prefix by now.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Whoever removes a publication does so within this time, or was killed.
const REMOVED_WITHIN: Duration = Duration::from_mins(10);

/// Who a prefix belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    run: RunId,
    submitted_at: Timestamp,
    /// The claim that writes there, or did.
    job: JobId,
    fence: Fence,
    /// Since when somebody removes what is there.
    #[serde(default)]
    removed_since: Option<Timestamp>,
}

/// A job that wants to publish.
pub(crate) struct Claimant<'a> {
    pub(crate) run: &'a Run,
    pub(crate) job: JobId,
    pub(crate) fence: Fence,
}

pub(crate) enum Taken<'a> {
    Held(Holding<'a>),
    /// A run that was submitted later has published there, or is about to.
    Superseded(RunId),
    /// Somebody still writes or removes there.
    Busy,
}

/// The right of one claim to write below a prefix.
pub(crate) struct Holding<'a> {
    queue: &'a dyn Queue,
    place: &'a Place,
    owner: Owner,
    looked_at: Mutex<Instant>,
}

impl Place {
    pub(crate) async fn take<'a>(
        &'a self,
        queue: &'a dyn Queue,
        claimant: &Claimant<'_>,
    ) -> Attempted<Taken<'a>> {
        let Claimant { run, job, fence } = *claimant;
        let owner =
            Owner { run: run.id.clone(), submitted_at: run.created_at, job, fence, removed_since: None };
        loop {
            let (version, now) = read(queue, self).await?;
            if let Some(now) = now.filter(|now| now.job != job) {
                if (now.submitted_at, &now.run) > (owner.submitted_at, &owner.run) {
                    return Ok(Taken::Superseded(now.run));
                }
                if now.is_busy(queue).await? {
                    return Ok(Taken::Busy);
                }
            }
            if put(queue, self, &owner, version).await? {
                let looked_at = Mutex::new(Instant::now());
                return Ok(Taken::Held(Holding { queue, place: self, owner, looked_at }));
            }
        }
    }
}

impl Place {
    /// Whether what lies there is a run's, and stays.
    pub(crate) async fn is_of(&self, queue: &dyn Queue, run: &RunId) -> Result<bool, QueueError> {
        let (_, now) = read(queue, self).await?;
        Ok(now.is_some_and(|now| now.run == *run && now.removed_since.is_none()))
    }
}

impl Owner {
    async fn is_busy(&self, queue: &dyn Queue) -> Result<bool, QueueError> {
        if let Some(since) = self.removed_since {
            return Ok(Timestamp::now().since(since) < REMOVED_WITHIN);
        }
        let job = queue.get(self.job).await?;
        Ok(job.is_some_and(|job| job.state == JobState::Running && job.fence == self.fence))
    }
}

impl Holding<'_> {
    /// Before each write. Whoever lost the prefix goes back, and finds out to whom.
    pub(crate) async fn require(&self) -> Attempted<()> {
        let since = *self.looked_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if since.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        let began = Instant::now();
        let (_, now) = read(self.queue, self.place).await?;
        if now.as_ref() != Some(&self.owner) {
            return Err(Failed::not_yet(Duration::ZERO));
        }
        *self.looked_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = began;
        Ok(())
    }
}

/// The right to remove what a run has published, if the prefix is still its own.
pub(super) async fn take_for_removal(queue: &dyn Queue, place: &Place, run: &RunId) -> Attempted<bool> {
    loop {
        let (version, now) = read(queue, place).await?;
        let Some(now) = now.filter(|now| now.run == *run) else { return Ok(false) };
        let owner = Owner { removed_since: Some(Timestamp::now()), ..now };
        if put(queue, place, &owner, version).await? {
            return Ok(true);
        }
    }
}

/// The prefix is nobody's any more.
pub(super) async fn give_up(queue: &dyn Queue, place: &Place) -> Attempted<()> {
    queue.delete_entry(KIND, &place.name).await?;
    Ok(())
}

async fn read(queue: &dyn Queue, place: &Place) -> Result<(u64, Option<Owner>), QueueError> {
    let Some(entry) = queue.entry(KIND, &place.name).await? else { return Ok((0, None)) };
    let owner = serde_json::from_value(entry.body).map_err(|error| QueueError::Unexpected {
        reason: format!("the owner of {} is not as known: {error}", place.address),
    })?;
    Ok((entry.version, Some(owner)))
}

/// `false`: somebody was faster.
async fn put(queue: &dyn Queue, place: &Place, owner: &Owner, version: u64) -> Result<bool, QueueError> {
    let body = serde_json::to_value(owner).expect("an owner is plain data");
    match queue.put_entry(NewEntry::new(KIND, &place.name, body), Some(version)).await {
        Ok(_) => Ok(true),
        Err(QueueError::Stale { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
