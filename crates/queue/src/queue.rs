//! The port: what every database behind the queue can do.

use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::claim::{Attempt, Finish, Settled};
use crate::entry::{Entry, NewEntry};
use crate::error::Result;
use crate::event::{Delivered, Event, OutboxDepth, Parcel, Undelivered};
use crate::feed::{Fed, FeedCursor};
use crate::graph::{NewRecord, Record};
use crate::job::{Job, JobId, JobState};
use crate::limit::{Limit, LimitState, Pausable, Paused, TenantPolicy, TenantState};
use crate::push::{Push, Pushed};
use crate::run::{ListedRuns, Run, RunFilter, RunId, RunPage, StepCount};
use crate::schedule::{NewSchedule, Schedule, Ticked};
use crate::timestamp::Timestamp;
use crate::worker::{Beat, BeatReply, Claimed, NewWorker, Pull, Worker, WorkerId};

/// Durable jobs. Every verb is one transaction: when it returns `Ok`, its effects survive loss of power; when it
/// returns an error, it had none (a lost connection excepted, where repeating the call settles the question).
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// Stores all of the pushes or none.
    async fn push(&self, pushes: Vec<Push>) -> Result<Vec<Pushed>>;

    /// What a push with this key and [`Push::keyed_by`] has made before. `None`: the key is free. Refused
    /// ([`QueueError::KeyReused`]) where it stands for something else.
    ///
    /// [`QueueError::KeyReused`]: crate::QueueError::KeyReused
    async fn known_push(&self, tenant: &str, key: &str, keyed_by: &Value) -> Result<Option<Pushed>>;

    /// Claims ready jobs, best first, at most as many per lane as asked for. Raises each one's fence.
    async fn pull(&self, pull: Pull) -> Result<Vec<Claimed>>;

    /// Settles claims, each guarded by its fence. Answers in the order given. Repeating the call is harmless.
    async fn finish(&self, batch: &[Finish]) -> Result<Vec<Settled>>;

    /// Ends a job now, in state `cancelled`. The claim of a running one is refused from here on.
    async fn cancel(&self, id: JobId) -> Result<()>;

    /// Starts a terminal job over as a new generation, with fresh attempts and its last checkpoint.
    async fn retry(&self, id: JobId) -> Result<()>;

    /// Forgets a job that is not running.
    async fn delete(&self, id: JobId) -> Result<()>;

    /// Forgets every job that matches and is not running; says how many.
    async fn clear(&self, filter: &JobFilter) -> Result<u64>;

    /// Cancels every live job that matches, running ones too, in bounded batches; says how many.
    async fn cancel_all(&self, filter: &JobFilter) -> Result<u64>;

    /// Starts every ended job that matches over, in bounded batches; says how many. One whose unique key a live job
    /// holds stays as it is.
    async fn retry_all(&self, filter: &JobFilter) -> Result<u64>;

    /// Bounds the jobs with one `limit_key` over all workers, or frees them when the limit has no bound. Running ones
    /// are never stopped.
    async fn limit(&self, limit: Limit) -> Result<()>;

    /// Every limit, by key, and how its jobs stand.
    async fn limits(&self) -> Result<Vec<LimitState>>;

    /// Halves the pace of a limit, down to a sixteenth: for when a provider asks for it (429). It recovers by itself
    /// within minutes. Says the pace; `None`: the key has no limit.
    async fn slow_down(&self, key: &str) -> Result<Option<f64>>;

    /// Lets nobody claim from a lane or of a kind. What runs goes on. `false`: it was paused before.
    async fn pause(&self, what: &Pausable) -> Result<bool>;

    /// Takes back a pause. `false`: there was none.
    async fn resume(&self, what: &Pausable) -> Result<bool>;

    async fn paused(&self) -> Result<Vec<Paused>>;

    /// Sets a tenant's share, for the jobs it pushes from now on, and its cap, for all that it has: running ones go on.
    async fn tenant(&self, policy: TenantPolicy) -> Result<()>;

    /// The tenants whose share or cap was set, by name, and how their jobs stand; all others have weight 1 and no cap.
    async fn tenants(&self) -> Result<Vec<TenantState>>;

    /// Makes scheduled jobs that are due ready, and lets in what limits allow by now; says when to look again.
    async fn promote(&self) -> Result<Promoted>;

    /// Declares silent workers dead and frees what they held; fails what ran past its deadline.
    async fn reap(&self) -> Result<Reaped>;

    /// Forgets history, dead workers and idempotency keys that are old enough; says how many jobs. A run goes with the last
    /// of its jobs, unless it has records: they tell of something that somebody has to clear away, who then calls
    /// [`Queue::delete_run`].
    async fn prune(&self, keep: Duration) -> Result<u64>;

    async fn get(&self, id: JobId) -> Result<Option<Job>>;

    /// What became of each attempt of a job, oldest first. A claim that still runs is not among them.
    async fn attempts(&self, id: JobId) -> Result<Vec<Attempt>>;

    /// Live jobs and history in one list, newest first. Of a run, the cost goes by what the run has; otherwise what does
    /// not match is passed over one by one.
    async fn list(&self, filter: &JobFilter, page: Page) -> Result<Listed>;

    /// How many jobs there are by lane, kind and state, at a cost that does not grow with their number.
    async fn counts(&self) -> Result<Vec<Count>>;

    /// How many jobs of a tenant wait for a worker, pending or parked, those of one kind apart. Counted are `at_most` so many,
    /// and the cost goes by them. The tenant has to have a name: what is nobody's is not told apart by an index.
    async fn waiting(&self, tenant: &str, except: &str, at_most: u64) -> Result<u64>;

    /// Since when the oldest pending job of each lane and kind could have been claimed, by lane and kind. Of the jobs of
    /// one lane and priority the first and the last [`Age::REACH`] in line are looked at, so that the cost does not grow
    /// with their number; a kind that has jobs only in between is missing.
    async fn waiting_ages(&self) -> Result<Vec<Age>>;

    async fn get_run(&self, id: &RunId) -> Result<Option<Run>>;

    /// Runs, newest first. The cost goes by the page, however many runs there are in whatever states; only where a name
    /// is asked for, those of other names that are newer are passed over one by one.
    async fn list_runs(&self, filter: &RunFilter, page: RunPage) -> Result<ListedRuns>;

    /// How many jobs of a run are in which state, by step. The cost goes by the jobs of the run.
    async fn run_steps(&self, id: &RunId) -> Result<Vec<StepCount>>;

    /// Cancels every live job of a run at once, running and waiting ones too, so that the run is `cancelled` and none of
    /// its jobs can add another; says how many. Refused ([`QueueError::WrongRunState`]) when it has ended.
    ///
    /// [`QueueError::WrongRunState`]: crate::QueueError::WrongRunState
    async fn cancel_run(&self, id: &RunId) -> Result<u64>;

    /// Gives all live jobs of a run a priority, and those that it spawns or starts over from now on, whatever they ask
    /// for; says how many it moved. Running ones go on. Refused when the run has ended.
    async fn prioritise_run(&self, id: &RunId, priority: u8) -> Result<u64>;

    /// Forgets a run that has ended, with its jobs, attempts, records, events and the idempotency keys it was pushed
    /// with. Refused ([`QueueError::WrongRunState`]) while it has live jobs, and while a sink was not sent all its events.
    ///
    /// [`QueueError::WrongRunState`]: crate::QueueError::WrongRunState
    async fn delete_run(&self, id: &RunId) -> Result<()>;

    /// Starts jobs of a run over, with all that needs them: those of the named steps, or without a name those that did
    /// not complete. Says how many it started over by name.
    async fn retry_run(&self, id: &RunId, steps: &[String]) -> Result<u64>;

    /// Writes a record. With an expected version (0: it is new) only if that is what is there; says the new version.
    async fn put_record(&self, run: &RunId, record: NewRecord, expected: Option<u64>) -> Result<u64>;

    /// The records of a run, of one type or of all.
    async fn records(&self, run: &RunId, kind: Option<&str>) -> Result<Vec<Record>>;

    /// Writes an entry. With an expected version (0: it is new) only if that is what is there
    /// ([`QueueError::Stale`] otherwise); says the new version.
    ///
    /// [`QueueError::Stale`]: crate::QueueError::Stale
    async fn put_entry(&self, entry: NewEntry, expected: Option<u64>) -> Result<u64>;

    async fn entry(&self, kind: &str, key: &str) -> Result<Option<Entry>>;

    /// The entries of one kind in the order of their keys' bytes: up to `limit` (at most [`Entry::MAX_LIMIT`]) of those
    /// after a key.
    async fn entries(&self, kind: &str, after: Option<&str>, limit: u32) -> Result<Vec<Entry>>;

    /// `false`: there is none.
    async fn delete_entry(&self, kind: &str, key: &str) -> Result<bool>;

    /// The records of a run of one type under these keys, by key; those that nobody wrote are left out. The cost goes by
    /// the keys, whatever else the run has.
    async fn records_named(&self, run: &RunId, kind: &str, keys: &[String]) -> Result<Vec<Record>>;

    /// What happened to a run after event number `after_seq` (0: from the start), in order.
    async fn events(&self, run: &RunId, after_seq: u64, limit: u32) -> Result<Vec<Event>>;

    /// The events of all runs after a place in the feed (`None`: from the start): each once, those of a run in order, and
    /// nothing that was committed late is skipped. At most [`Fed::MAX_LIMIT`]. On Postgres an event may be fed somewhat
    /// later than [`events`](Self::events) tells it: when the transactions that began before it have ended. Events of
    /// runs that were forgotten are not there any more.
    async fn feed(&self, after: Option<FeedCursor>, limit: u32) -> Result<Fed>;

    /// Where the feed ends by now: whoever goes on from here is told of what happens from now on. On Postgres some of what
    /// has just happened may be told, too.
    async fn feed_end(&self) -> Result<FeedCursor>;

    /// Adds an event of the caller's own to a run and gives its number. `None`: there is no such run.
    async fn tell(&self, run: &RunId, name: &str, body: Value) -> Result<Option<u64>>;

    /// From now on the sink is to be sent every event. `false`: so it was before.
    async fn add_sink(&self, name: &str) -> Result<bool>;

    /// The sink is sent nothing any more, not even what waits for it. `false`: there is none of that name.
    async fn remove_sink(&self, name: &str) -> Result<bool>;

    /// What waits for each sink, by name. Counted are the events of up to [`OutboxDepth::MAX_RUNS`] runs of each.
    async fn outbox_depths(&self) -> Result<Vec<OutboxDepth>>;

    /// Claims what a sink was not sent of up to so many runs, each for the caller alone until the lease ends.
    async fn outbox_take(&self, sink: &str, runs: u32, lease: Duration) -> Result<Vec<Parcel>>;

    /// Whether a sink still waits for an event of one of these types that another run with the same tenant and external id
    /// told before this one: for sinks that keep an order beyond that of a run.
    async fn outbox_ahead(&self, sink: &str, event: &Event, types: &[&str]) -> Result<bool>;

    /// The sink has these. Says of how many runs the claim still held; the others are sent again.
    async fn outbox_done(&self, sink: &str, delivered: &[Delivered]) -> Result<u64>;

    /// The sink did not take these; they are due again after their delays. Says of how many the claim still held.
    async fn outbox_retry(&self, sink: &str, undelivered: &[Undelivered]) -> Result<u64>;

    /// Stores a schedule, or replaces the one of the same name.
    async fn schedule(&self, schedule: NewSchedule) -> Result<()>;

    /// `false`: there is none of that name.
    async fn unschedule(&self, name: &str) -> Result<bool>;

    /// By name.
    async fn schedules(&self) -> Result<Vec<Schedule>>;

    /// Pushes what schedules are due, each tick once over all processes; says when the next one will be.
    async fn tick(&self) -> Result<Ticked>;

    async fn register(&self, worker: NewWorker) -> Result<WorkerId>;

    /// A worker that holds nothing leaves.
    async fn deregister(&self, id: WorkerId) -> Result<()>;

    /// Asks a worker to finish what it has, take nothing new and leave.
    async fn drain(&self, id: WorkerId) -> Result<bool>;

    async fn workers(&self) -> Result<Vec<Worker>>;

    /// A connection of its own for the beat, to be made and used on the beat's own thread.
    async fn pulse(&self) -> Result<Box<dyn Pulse>>;

    /// Changes whenever a worker may find something new. Only a hint: polling is the backstop.
    fn wakes(&self) -> watch::Receiver<Wakes>;

    /// Waits until nothing of this handle is under way any more.
    async fn close(&self);
}

/// The beat of one worker.
#[async_trait]
pub trait Pulse: Send {
    /// Renews the lease and saves progress and checkpoints, each guarded by its fence.
    async fn beat(&mut self, beat: &Beat) -> Result<BeatReply>;
}

/// Counters that rise when something may have changed. Compare with the last ones seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wakes {
    /// A job became ready.
    pub ready: u64,
    /// A job was scheduled, perhaps before all others.
    pub scheduled: u64,
    /// A running job's claim was taken away, or a worker was asked to drain.
    pub revoked: u64,
    /// A worker was seen to die before its lease ran out.
    pub died: u64,
    /// A run has something to tell its sinks.
    pub told: u64,
}

/// Which jobs. Empty means all.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    pub states: Vec<JobState>,
    pub kind: Option<String>,
    pub lane: Option<String>,
    pub tenant: Option<String>,
    pub run: Option<RunId>,
}

/// Which part of a list: `limit` jobs with ids below `before`.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    pub before: Option<JobId>,
    pub limit: u32,
    /// Without payloads, checkpoints and results, which may be large: those are null and none.
    pub brief: bool,
}

impl Page {
    pub const MAX_LIMIT: u32 = 1_000;

    pub fn first(limit: u32) -> Self {
        Self { before: None, limit, brief: false }
    }
}

/// One page of a list.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Listed {
    pub data: Vec<Job>,
    /// Pass as [`Page::before`] for the next page; `None` on the last one.
    pub next_cursor: Option<JobId>,
}

impl Listed {
    /// From up to one more job than the page holds.
    pub(crate) fn of(mut data: Vec<Job>, limit: u32) -> Self {
        let more = data.len() > limit as usize;
        data.truncate(limit as usize);
        let next_cursor = data.last().filter(|_| more).map(|job| job.id);
        Self { data, next_cursor }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Count {
    pub lane: String,
    pub kind: String,
    pub state: JobState,
    pub jobs: u64,
}

/// How long jobs of one kind have been waiting in a lane for somebody to claim them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Age {
    pub lane: String,
    pub kind: String,
    /// When the job that has been pending for longest became so.
    pub oldest_ready_at: Timestamp,
}

impl Age {
    /// How many jobs from either end of a line are looked at.
    pub const REACH: u32 = 500;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promoted {
    pub jobs: u64,
    /// How long until the next scheduled job is due or a limit may let another one in.
    pub next_in: Option<Duration>,
}

/// What a sweep found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    pub workers: u64,
    /// Jobs freed to run again.
    pub freed: u64,
    /// Jobs that had taken too many workers with them.
    pub poisoned: u64,
    /// Attempts that ran past their deadline.
    pub overdue: u64,
}

/// Sums the counts of one state over lanes and kinds.
pub fn total(counts: &[Count], state: JobState) -> u64 {
    counts.iter().filter(|count| count.state == state).map(|count| count.jobs).sum()
}
