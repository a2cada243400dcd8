//! The queue in one SQLite file that several processes on one host share.
//!
//! All writes of a process go through one thread ([`writer`]) that commits whatever queued up while the last commit
//! was under way: many callers, one fsync. Reads have connections of their own. Who is alive, and who wants to be
//! woken, is told by files beside the database ([`live`]); leases count in the host's boot time, which no one can set.

mod backup;
mod claim;
mod clock;
mod connect;
mod edit;
mod entries;
mod events;
mod feed;
mod finish;
mod graph;
mod limits;
mod live;
mod policy;
mod pulse;
mod push;
mod read;
mod row;
mod runs;
mod schedules;
mod sweep;
mod workers;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::bell::Bell;
use crate::claim::{Attempt, Finish, Settled};
use crate::entry::{Entry, NewEntry};
use crate::error::Result;
use crate::event::{Delivered, Event, OutboxDepth, Parcel, Undelivered, check_told};
use crate::feed::{Fed, FeedCursor};
use crate::graph::{NewRecord, Record};
use crate::job::{Job, JobId, check_name, check_priority};
use crate::limit::{Bound, Limit, LimitState, Pausable, Paused, TenantPolicy, TenantState};
use crate::open::OpenOptions;
use crate::push::{Push, Pushed, hash_of_keyed_by};
use crate::queue::{Age, Count, JobFilter, Listed, Page, Promoted, Pulse, Queue, Reaped, Wakes};
use crate::run::{ListedRuns, Run, RunFilter, RunId, RunPage, StepCount};
use crate::schedule::{NewSchedule, Schedule, Ticked};
use crate::timestamp::Timestamp;
use crate::worker::{Claimed, NewWorker, Pull, Worker, WorkerId};

/// The text of a statement, by the name of its file.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/sqlite/", $name, ".sql"))
    };
}
pub(crate) use sql;

/// A queue in a SQLite file.
#[derive(Debug)]
pub struct SqliteQueue {
    path: PathBuf,
    line: clock::LineClock,
    patience: Duration,
    writer: writer::Writer,
    readers: Arc<connect::Readers>,
    live: Arc<live::Live>,
}

impl SqliteQueue {
    /// Opens the file, making it if it is missing.
    pub async fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let options = options.clone();
        connect::off_the_runtime(move || Self::open_blocking(&path, &options)).await
    }

    fn open_blocking(path: &Path, options: &OpenOptions) -> Result<Self> {
        let (connection, line) = connect::open_migrated(path, options)?;
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let live = Arc::new(live::Live::new(&path, Arc::new(Bell::new()))?);
        let readers = Arc::new(connect::Readers::new(&path, options.patience));
        let writer = writer::Writer::start(connection, line, options.patience, Arc::clone(&live))?;
        Ok(Self { path, line, patience: options.patience, writer, readers, live })
    }

    /// Batch after batch, so that others get their turn.
    async fn steer_all(
        &self,
        filter: &JobFilter,
        steer: fn(&writer::Tx<'_>, &JobFilter, JobId) -> Result<policy::Steered>,
    ) -> Result<u64> {
        let (mut jobs, mut after) = (0, Some(JobId(0)));
        while let Some(last) = after {
            let filter = filter.clone();
            let batch = self.writer.write(move |tx| steer(tx, &filter, last)).await?;
            jobs += batch.jobs;
            after = batch.last;
        }
        Ok(jobs)
    }

    /// Batch after batch, so that others get their turn.
    async fn balance_the_rest(&self, bound: Bound, mut more: bool) -> Result<()> {
        while more {
            let bound = bound.clone();
            more = self.writer.write(move |tx| limits::rebalance(tx, &bound)).await?;
        }
        Ok(())
    }

    /// Copies the file, as it is at one instant, into a new one.
    pub async fn backup(path: impl AsRef<Path>, into: &Path) -> Result<()> {
        let (path, into) = (path.as_ref().to_path_buf(), into.to_path_buf());
        connect::off_the_runtime(move || backup::backup(&path, &into)).await
    }

    /// The names of the migrations that the file still needs.
    pub async fn pending_migrations(path: impl AsRef<Path>) -> Result<Vec<String>> {
        let path = path.as_ref().to_path_buf();
        connect::off_the_runtime(move || connect::pending_names(&path)).await
    }
}

#[async_trait]
impl Queue for SqliteQueue {
    async fn push(&self, pushes: Vec<Push>) -> Result<Vec<Pushed>> {
        pushes.iter().try_for_each(Push::check)?;
        self.writer.write(move |tx| push::push(tx, pushes)).await
    }

    async fn known_push(&self, tenant: &str, key: &str, keyed_by: &Value) -> Result<Option<Pushed>> {
        let (tenant, wanted) = (tenant.to_owned(), key.to_owned());
        let found = self.readers.read(move |connection| push::used_key(connection, &tenant, &wanted)).await?;
        found.map(|used| used.pushed(key, &hash_of_keyed_by(keyed_by))).transpose()
    }

    async fn pull(&self, pull: Pull) -> Result<Vec<Claimed>> {
        let claimed = self.writer.write(move |tx| claim::pull(tx, &pull)).await?;
        claimed.into_iter().map(claim::Unread::read).collect()
    }

    async fn finish(&self, batch: &[Finish]) -> Result<Vec<Settled>> {
        let settlements: Vec<_> = batch.iter().map(finish::Settlement::of).collect();
        self.writer.write(move |tx| finish::finish(tx, &settlements)).await
    }

    async fn cancel(&self, id: JobId) -> Result<()> {
        self.writer.write(move |tx| edit::cancel(tx, id)).await
    }

    async fn retry(&self, id: JobId) -> Result<()> {
        self.writer.write(move |tx| edit::retry(tx, id)).await
    }

    async fn delete(&self, id: JobId) -> Result<()> {
        self.writer.write(move |tx| edit::delete(tx, id)).await
    }

    async fn clear(&self, filter: &JobFilter) -> Result<u64> {
        let mut cleared = 0;
        loop {
            let filter = filter.clone();
            let batch = self.writer.write(move |tx| edit::clear(tx, &filter)).await?;
            cleared += batch;
            if batch == 0 {
                return Ok(cleared);
            }
        }
    }

    async fn cancel_all(&self, filter: &JobFilter) -> Result<u64> {
        self.steer_all(filter, policy::cancel_all).await
    }

    async fn retry_all(&self, filter: &JobFilter) -> Result<u64> {
        self.steer_all(filter, policy::retry_all).await
    }

    async fn limit(&self, limit: Limit) -> Result<()> {
        limit.check()?;
        let bound = Bound::Key(limit.key.clone());
        let more = self.writer.write(move |tx| limits::limit(tx, &limit)).await?;
        self.balance_the_rest(bound, more).await
    }

    async fn limits(&self) -> Result<Vec<LimitState>> {
        self.readers.read(limits::limits).await
    }

    async fn slow_down(&self, key: &str) -> Result<Option<f64>> {
        let key = key.to_owned();
        self.writer.write(move |tx| limits::slow_down(tx, &key)).await
    }

    async fn pause(&self, what: &Pausable) -> Result<bool> {
        what.check()?;
        let what = what.clone();
        self.writer.write(move |tx| policy::pause(tx, &what)).await
    }

    async fn resume(&self, what: &Pausable) -> Result<bool> {
        let what = what.clone();
        self.writer.write(move |tx| policy::resume(tx, &what)).await
    }

    async fn paused(&self) -> Result<Vec<Paused>> {
        self.readers.read(policy::paused).await
    }

    async fn tenant(&self, policy: TenantPolicy) -> Result<()> {
        policy.check()?;
        let bound = Bound::Tenant(policy.name.clone());
        let more = self.writer.write(move |tx| policy::tenant(tx, &policy)).await?;
        self.balance_the_rest(bound, more).await
    }

    async fn tenants(&self) -> Result<Vec<TenantState>> {
        self.readers.read(policy::tenants).await
    }

    async fn promote(&self) -> Result<Promoted> {
        let mut promoted = Promoted::default();
        loop {
            let batch = self.writer.write(sweep::promote).await?;
            promoted.jobs += batch.jobs;
            promoted.next_in = batch.next_in;
            if batch.next_in != Some(Duration::ZERO) {
                return Ok(promoted);
            }
        }
    }

    async fn reap(&self) -> Result<Reaped> {
        let live = Arc::clone(&self.live);
        self.writer.write(move |tx| sweep::reap(tx, &live)).await
    }

    async fn prune(&self, keep: Duration) -> Result<u64> {
        let mut pruned = 0;
        loop {
            let batch = self.writer.write(move |tx| sweep::prune(tx, keep)).await?;
            pruned += batch;
            if batch == 0 {
                return Ok(pruned);
            }
        }
    }

    async fn get(&self, id: JobId) -> Result<Option<Job>> {
        self.readers.read(move |connection| read::get(connection, id)).await
    }

    async fn attempts(&self, id: JobId) -> Result<Vec<Attempt>> {
        self.readers.read(move |connection| read::attempts(connection, id)).await
    }

    async fn list(&self, filter: &JobFilter, page: Page) -> Result<Listed> {
        let filter = filter.clone();
        self.readers.read(move |connection| read::list(connection, &filter, page)).await
    }

    async fn counts(&self) -> Result<Vec<Count>> {
        self.readers.read(read::counts).await
    }

    async fn waiting(&self, tenant: &str, except: &str, at_most: u64) -> Result<u64> {
        check_name("tenant", tenant)?;
        let (tenant, except) = (tenant.to_owned(), except.to_owned());
        self.readers.read(move |connection| read::waiting(connection, &tenant, &except, at_most)).await
    }

    async fn waiting_ages(&self) -> Result<Vec<Age>> {
        self.readers.read(read::waiting_ages).await
    }

    async fn get_run(&self, id: &RunId) -> Result<Option<Run>> {
        let id = id.clone();
        self.readers.read(move |connection| read::get_run(connection, &id)).await
    }

    async fn list_runs(&self, filter: &RunFilter, page: RunPage) -> Result<ListedRuns> {
        let filter = filter.clone();
        self.readers.read(move |connection| runs::list(connection, &filter, &page)).await
    }

    async fn run_steps(&self, id: &RunId) -> Result<Vec<StepCount>> {
        let id = id.clone();
        self.readers.read(move |connection| runs::steps(connection, &id)).await
    }

    async fn cancel_run(&self, id: &RunId) -> Result<u64> {
        let id = id.clone();
        self.writer.write(move |tx| runs::cancel(tx, &id)).await
    }

    async fn prioritise_run(&self, id: &RunId, priority: u8) -> Result<u64> {
        check_priority(priority)?;
        let id = id.clone();
        self.writer.write(move |tx| runs::prioritise(tx, &id, priority)).await
    }

    async fn delete_run(&self, id: &RunId) -> Result<()> {
        let id = id.clone();
        self.writer.write(move |tx| runs::delete(tx, &id)).await
    }

    async fn retry_run(&self, id: &RunId, steps: &[String]) -> Result<u64> {
        let (id, steps) = (id.clone(), steps.to_vec());
        self.writer.write(move |tx| edit::retry_run(tx, &id, &steps)).await
    }

    async fn put_record(&self, run: &RunId, record: NewRecord, expected: Option<u64>) -> Result<u64> {
        record.check()?;
        let run = run.clone();
        self.writer.write(move |tx| edit::put_record(tx, &run, &record, expected)).await
    }

    async fn records(&self, run: &RunId, kind: Option<&str>) -> Result<Vec<Record>> {
        let (run, kind) = (run.clone(), kind.map(str::to_owned));
        self.readers.read(move |connection| read::records(connection, &run, kind.as_deref())).await
    }

    async fn put_entry(&self, entry: NewEntry, expected: Option<u64>) -> Result<u64> {
        entry.check()?;
        self.writer.write(move |tx| entries::put(tx, &entry, expected)).await
    }

    async fn entry(&self, kind: &str, key: &str) -> Result<Option<Entry>> {
        let (kind, key) = (kind.to_owned(), key.to_owned());
        self.readers.read(move |connection| entries::get(connection, &kind, &key)).await
    }

    async fn entries(&self, kind: &str, after: Option<&str>, limit: u32) -> Result<Vec<Entry>> {
        let (kind, after) = (kind.to_owned(), after.map(str::to_owned));
        self.readers.read(move |connection| entries::list(connection, &kind, after.as_deref(), limit)).await
    }

    async fn delete_entry(&self, kind: &str, key: &str) -> Result<bool> {
        let (kind, key) = (kind.to_owned(), key.to_owned());
        self.writer.write(move |tx| entries::delete(tx, &kind, &key)).await
    }

    async fn records_named(&self, run: &RunId, kind: &str, keys: &[String]) -> Result<Vec<Record>> {
        let (run, kind) = (run.clone(), kind.to_owned());
        let keys = serde_json::to_string(keys).expect("a list of texts is JSON");
        self.readers.read(move |connection| read::records_named(connection, &run, &kind, &keys)).await
    }

    async fn events(&self, run: &RunId, after_seq: u64, limit: u32) -> Result<Vec<Event>> {
        let run = run.clone();
        self.readers.read(move |connection| events::events(connection, &run, after_seq, limit)).await
    }

    async fn feed(&self, after: Option<FeedCursor>, limit: u32) -> Result<Fed> {
        let place = feed::place_of(after.as_ref())?;
        let events = self.readers.read(move |connection| feed::feed(connection, place, limit)).await??;
        Ok(Fed::of(events, after))
    }

    async fn feed_end(&self) -> Result<FeedCursor> {
        self.readers.read(feed::end).await
    }

    async fn tell(&self, run: &RunId, name: &str, body: Value) -> Result<Option<u64>> {
        check_told(name, &body)?;
        let (run, name) = (run.clone(), name.to_owned());
        self.writer.write(move |tx| events::tell(tx, run.as_str(), &name, &body)).await
    }

    async fn add_sink(&self, name: &str) -> Result<bool> {
        check_name("name of a sink", name)?;
        let name = name.to_owned();
        self.writer.write(move |tx| events::add_sink(tx, &name)).await
    }

    async fn remove_sink(&self, name: &str) -> Result<bool> {
        let name = name.to_owned();
        self.writer.write(move |tx| events::remove_sink(tx, &name)).await
    }

    async fn outbox_depths(&self) -> Result<Vec<OutboxDepth>> {
        self.readers.read(events::depths).await
    }

    async fn outbox_take(&self, sink: &str, runs: u32, lease: Duration) -> Result<Vec<Parcel>> {
        let sink = sink.to_owned();
        self.writer.write(move |tx| events::take(tx, &sink, runs, lease)).await
    }

    async fn outbox_ahead(&self, sink: &str, event: &Event, types: &[&str]) -> Result<bool> {
        let (sink, run, seq) = (sink.to_owned(), event.run.clone(), event.seq);
        let types = json!(types).to_string();
        self.readers.read(move |connection| events::is_ahead(connection, &sink, (&run, seq), &types)).await
    }

    async fn outbox_done(&self, sink: &str, delivered: &[Delivered]) -> Result<u64> {
        let (sink, delivered) = (sink.to_owned(), delivered.to_vec());
        self.writer.write(move |tx| events::done(tx, &sink, &delivered)).await
    }

    async fn outbox_retry(&self, sink: &str, undelivered: &[Undelivered]) -> Result<u64> {
        let (sink, undelivered) = (sink.to_owned(), undelivered.to_vec());
        self.writer.write(move |tx| events::retry(tx, &sink, &undelivered)).await
    }

    async fn schedule(&self, schedule: NewSchedule) -> Result<()> {
        let cron = schedule.check()?;
        self.writer.write(move |tx| schedules::schedule(tx, &schedule, &cron)).await
    }

    async fn unschedule(&self, name: &str) -> Result<bool> {
        let name = name.to_owned();
        self.writer.write(move |tx| schedules::unschedule(tx, &name)).await
    }

    async fn schedules(&self) -> Result<Vec<Schedule>> {
        self.readers.read(schedules::schedules).await
    }

    /// Looks before it writes: most of the time nothing is due.
    async fn tick(&self) -> Result<Ticked> {
        let mut pushed = 0;
        loop {
            let next_at = self.readers.read(schedules::next_at).await?;
            let next_in = next_at.map(|at| at.since(Timestamp::now()));
            if next_in != Some(Duration::ZERO) {
                return Ok(Ticked { pushed, next_in });
            }
            pushed += self.writer.write(schedules::tick).await?;
        }
    }

    async fn register(&self, worker: NewWorker) -> Result<WorkerId> {
        let live = Arc::clone(&self.live);
        self.writer.write(move |tx| workers::register(tx, &live, &worker)).await
    }

    async fn deregister(&self, id: WorkerId) -> Result<()> {
        self.writer.write(move |tx| workers::deregister(tx, id)).await?;
        self.live.leave(id);
        Ok(())
    }

    async fn drain(&self, id: WorkerId) -> Result<bool> {
        self.writer.write(move |tx| workers::drain(tx, id)).await
    }

    async fn workers(&self) -> Result<Vec<Worker>> {
        self.readers.read(workers::list).await
    }

    async fn pulse(&self) -> Result<Box<dyn Pulse>> {
        Ok(Box::new(pulse::SqlitePulse::open(&self.path, self.line, self.patience, Arc::clone(&self.live))?))
    }

    fn wakes(&self) -> watch::Receiver<Wakes> {
        self.live.listen()
    }

    async fn close(&self) {
        self.writer.stop().await;
    }
}
