//! Whose a prefix is: an entry of the database, changed only from the version that was read.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use telecine_queue::{Fence, JobId, JobState, NewEntry, Queue, QueueError, Run, RunId, RunState, Timestamp};

use super::Place;
use crate::failure::{Attempted, Failed};

const KIND: &str = "publication";
/// A job that goes on for longer without a look may have slept, and another may own the prefix by now.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Whoever removes a publication does so within this time, or was killed.
const REMOVED_WITHIN: Duration = Duration::from_mins(10);
/// A worker hears within this time that its job was cancelled, and may write until then.
const HEARD_WITHIN: Duration = Duration::from_secs(10);

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
    /// Not all that it publishes has been there yet.
    #[serde(default)]
    is_unfinished: bool,
    /// Whose files were there, and come back if it comes to nothing.
    #[serde(default)]
    before: Option<Publisher>,
}

/// A run that has published all there is of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Publisher {
    run: RunId,
    submitted_at: Timestamp,
}

/// A job that wants to publish what a run has made.
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

/// What should be below a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing that the database knows of.
    Free,
    /// Somebody writes or removes there, or is about to.
    Busy,
    /// What this run has published. History, or somebody, may have forgotten it.
    Of(RunId),
    /// Nothing: whoever put something there came to nothing.
    Nobodys,
}

impl Place {
    pub(crate) async fn take<'a>(
        &'a self,
        queue: &'a dyn Queue,
        claimant: &Claimant<'_>,
    ) -> Attempted<Taken<'a>> {
        loop {
            let (version, now) = read(queue, self).await?;
            let mut owner = Owner::of(claimant);
            if let Some(now) = now {
                if now.is_being_removed() {
                    return Ok(Taken::Busy);
                }
                let whole = now.whole(queue).await?;
                if now.is_later_than(&owner) && now.counts(queue, whole.as_ref()).await? {
                    return Ok(Taken::Superseded(now.run));
                }
                if now.job != owner.job && now.is_written_to(queue).await? {
                    return Ok(Taken::Busy);
                }
                match now.run == owner.run {
                    true => (owner.is_unfinished, owner.before) = (now.is_unfinished, now.before),
                    false => owner.before = whole,
                }
            }
            if put(queue, self, &owner, version).await? {
                let looked_at = Mutex::new(Instant::now());
                return Ok(Taken::Held(Holding { queue, place: self, owner, looked_at }));
            }
        }
    }

    pub(crate) async fn standing(&self, queue: &dyn Queue) -> Result<Standing, QueueError> {
        match read(queue, self).await? {
            (_, Some(now)) => now.standing(queue).await,
            (_, None) => Ok(Standing::Free),
        }
    }
}

impl Owner {
    fn of(claimant: &Claimant<'_>) -> Self {
        Self {
            run: claimant.run.id.clone(),
            submitted_at: claimant.run.created_at,
            job: claimant.job,
            fence: claimant.fence,
            removed_since: None,
            is_unfinished: true,
            before: None,
        }
    }

    fn is_later_than(&self, other: &Self) -> bool {
        (self.submitted_at, &self.run) > (other.submitted_at, &other.run)
    }

    fn is_being_removed(&self) -> bool {
        self.removed_since.is_some_and(|since| Timestamp::now().since(since) < REMOVED_WITHIN)
    }

    /// Also by a worker that has yet to hear that it should stop.
    async fn is_written_to(&self, queue: &dyn Queue) -> Result<bool, QueueError> {
        let job = queue.get(self.job).await?;
        Ok(job.is_some_and(|job| match job.state {
            JobState::Running => job.fence == self.fence,
            JobState::Cancelled => {
                job.finished_at.is_some_and(|at| Timestamp::now().since(at) < HEARD_WITHIN)
            }
            _ => false,
        }))
    }

    async fn standing(&self, queue: &dyn Queue) -> Result<Standing, QueueError> {
        if self.is_being_removed()
            || self.is_written_to(queue).await?
            || is_under_way(queue, &self.run).await?
        {
            return Ok(Standing::Busy);
        }
        let Some(Publisher { run, .. }) = self.whole(queue).await? else { return Ok(Standing::Nobodys) };
        Ok(match queue.get_run(&run).await? {
            Some(found) if found.finished_at.is_none() => Standing::Busy,
            Some(found) if found.state == RunState::Cancelled => Standing::Nobodys,
            _ => Standing::Of(run),
        })
    }

    /// Whose files should be there if nobody publishes any more.
    async fn whole(&self, queue: &dyn Queue) -> Result<Option<Publisher>, QueueError> {
        let is_cancelled =
            queue.get_run(&self.run).await?.is_some_and(|run| run.state == RunState::Cancelled);
        if self.is_unfinished || is_cancelled {
            return Ok(self.before.clone());
        }
        Ok(Some(Publisher { run: self.run.clone(), submitted_at: self.submitted_at }))
    }

    /// Whether it has published, or may still do so.
    async fn counts(&self, queue: &dyn Queue, whole: Option<&Publisher>) -> Result<bool, QueueError> {
        Ok(whole.is_some_and(|whole| whole.run == self.run) || is_under_way(queue, &self.run).await?)
    }
}

async fn is_under_way(queue: &dyn Queue, run: &RunId) -> Result<bool, QueueError> {
    Ok(queue.get_run(run).await?.is_some_and(|run| run.finished_at.is_none()))
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

    /// All that the run publishes is there, and nothing else of ours.
    pub(crate) async fn complete(self) -> Attempted<()> {
        let (version, now) = read(self.queue, self.place).await?;
        let whole = Owner { is_unfinished: false, ..self.owner.clone() };
        if now.as_ref() != Some(&self.owner) || !put(self.queue, self.place, &whole, version).await? {
            return Err(Failed::not_yet(Duration::ZERO));
        }
        Ok(())
    }
}

/// The right to remove what is below a prefix.
pub(super) struct Removal<'a> {
    queue: &'a dyn Queue,
    place: &'a Place,
    owner: Owner,
}

impl Place {
    /// `may` is asked whose the prefix is and what should be there. `None`: it is not to be removed, or not now.
    pub(super) async fn take_for_removal<'a>(
        &'a self,
        queue: &'a dyn Queue,
        may: impl Fn(&RunId, &Standing) -> bool,
    ) -> Attempted<Option<Removal<'a>>> {
        loop {
            let (version, Some(now)) = read(queue, self).await? else { return Ok(None) };
            let standing = now.standing(queue).await?;
            if standing == Standing::Busy || !may(&now.run, &standing) {
                return Ok(None);
            }
            let owner = Owner { removed_since: Some(Timestamp::now()), ..now };
            if put(queue, self, &owner, version).await? {
                return Ok(Some(Removal { queue, place: self, owner }));
            }
        }
    }

    /// What a run has published there counts no more; `false`: nothing did.
    pub(super) async fn disown(&self, queue: &dyn Queue, run: &RunId) -> Attempted<bool> {
        loop {
            let (version, Some(now)) = read(queue, self).await? else { return Ok(false) };
            if now.run != *run {
                return Ok(false);
            }
            let before = now.before.clone().filter(|before| before.run != *run);
            if put(queue, self, &Owner { is_unfinished: true, before, ..now }, version).await? {
                return Ok(true);
            }
        }
    }
}

impl Removal<'_> {
    /// From here on the prefix belongs to whose files are still there, or to nobody.
    pub(super) async fn end(self, stays: Option<&RunId>) -> Attempted<()> {
        let (version, now) = read(self.queue, self.place).await?;
        if now.as_ref() != Some(&self.owner) {
            return Ok(());
        }
        match self.owner.whole(self.queue).await?.filter(|whole| Some(&whole.run) == stays) {
            None => drop(self.queue.delete_entry(KIND, &self.place.name).await?),
            Some(Publisher { run, submitted_at }) => {
                let (removed_since, is_unfinished, before) = (None, false, None);
                let owner = Owner { run, submitted_at, removed_since, is_unfinished, before, ..self.owner };
                // Who was faster has it.
                put(self.queue, self.place, &owner, version).await?;
            }
        }
        Ok(())
    }
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
