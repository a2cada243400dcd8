//! The queue in a Postgres database that any number of hosts share.
//!
//! Every decision about time is the database's (`now()`), so the clocks of workers do not matter. A verb is
//! one statement where it can be, else one transaction; jobs are locked in order of id and runs after them,
//! so verbs do not deadlock, and where two still do, the verb is tried again. After a commit the [`notify`]
//! half wakes whoever waits, here and in other processes.

mod admin;
mod beat;
mod claim;
mod connect;
mod entries;
mod events;
mod failure;
mod feed;
mod finish;
mod graph;
mod group;
mod insert;
mod limits;
mod migrate;
mod notify;
mod policy;
mod push;
mod read;
mod runs;
mod schedules;
mod session;
mod sweep;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use sqlx::PgConnection;
use tokio::sync::watch;

use crate::claim::{Attempt, Finish, Settled};
use crate::entry::{Entry, NewEntry};
use crate::error::Result;
use crate::event::{Delivered, Event, OutboxDepth, Parcel, Undelivered, check_told};
use crate::feed::{Fed, FeedCursor};
use crate::graph::{NewRecord, Record};
use crate::job::{Job, JobId, check_name, check_priority};
use crate::limit::{Limit, LimitState, Pausable, Paused, TenantPolicy, TenantState};
use crate::open::OpenOptions;
use crate::push::{Push, Pushed, hash_of_keyed_by};
use crate::queue::{Age, Count, JobFilter, Listed, Page, Promoted, Pulse, Queue, Reaped, Wakes};
use crate::run::{ListedRuns, Run, RunFilter, RunId, RunPage, StepCount};
use crate::schedule::{NewSchedule, Schedule, Ticked};
use crate::worker::{Claimed, NewWorker, Pull, Worker, WorkerId};
use connect::Database;
use group::PushGroup;
use notify::Notifier;
use session::Session;

/// The SQL of a verb, or of a part of one, by the name of its file.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!("../../sql/postgres/", $name, ".sql"))
    };
}
pub(crate) use sql;

/// Durable jobs in Postgres.
#[derive(Debug)]
pub struct PostgresQueue {
    database: Database,
    notifier: Arc<Notifier>,
    group: Arc<PushGroup>,
}

impl PostgresQueue {
    /// Connects to `postgres://…`, refuses a server that cannot keep the queue's promises, and brings the
    /// schema up to date.
    pub async fn open(url: &str, options: &OpenOptions) -> Result<Self> {
        let database = Database::open(url, options).await?;
        let notifier = Arc::new(Notifier::start(&database));
        let group = PushGroup::new(&database, &notifier);
        Ok(Self { database, notifier, group })
    }

    /// The names of the migrations that the database still needs. Changes nothing.
    pub async fn pending_migrations(url: &str) -> Result<Vec<String>> {
        migrate::pending_names(url).await
    }

    /// Stores all of the pushes or none, inside the caller's own transaction: they exist when it commits,
    /// which is also when waiting workers are woken.
    ///
    /// Refused outside of a transaction. A conflict with another transaction is the caller's to repeat. If the
    /// connection goes through PgBouncer, the queue's own URL must say so (`?pgbouncer=true`).
    pub async fn push_in(&self, connection: &mut PgConnection, pushes: Vec<Push>) -> Result<Vec<Pushed>> {
        let mut session = Session::lent(connection, self.database.server().is_pooled());
        Ok(push::push_in(&mut session, &pushes).await?)
    }
}

#[async_trait]
impl Queue for PostgresQueue {
    async fn push(&self, pushes: Vec<Push>) -> Result<Vec<Pushed>> {
        pushes.iter().try_for_each(Push::check)?;
        if group::may_share(&pushes) {
            return self.group.push(pushes).await;
        }
        let (pushed, ring) = self.database.retrying(|| push::push(&self.database, &pushes)).await?;
        self.notifier.ring(ring);
        Ok(pushed)
    }

    async fn known_push(&self, tenant: &str, key: &str, keyed_by: &Value) -> Result<Option<Pushed>> {
        let hash = hash_of_keyed_by(keyed_by);
        self.database.retrying(|| push::known_push(&self.database, tenant, key, &hash)).await
    }

    async fn pull(&self, pull: Pull) -> Result<Vec<Claimed>> {
        let claimed = self.database.retrying(|| claim::pull(&self.database, &pull)).await?;
        if !claimed.is_empty() {
            self.notifier.note_claims();
        }
        if claimed.iter().any(|claimed| claimed.claim.in_run()) {
            self.notifier.ring(events::ring());
        }
        Ok(claimed)
    }

    async fn finish(&self, batch: &[Finish]) -> Result<Vec<Settled>> {
        let (settled, ring) = self.database.insisting(|| finish::finish(&self.database, batch)).await?;
        self.notifier.ring(ring);
        Ok(settled)
    }

    async fn cancel(&self, id: JobId) -> Result<()> {
        let ring = self.database.retrying(|| admin::cancel(&self.database, id)).await?;
        self.notifier.ring(ring);
        Ok(())
    }

    async fn retry(&self, id: JobId) -> Result<()> {
        let ring = self.database.retrying(|| admin::retry(&self.database, id)).await?;
        self.notifier.ring(ring);
        Ok(())
    }

    async fn delete(&self, id: JobId) -> Result<()> {
        let ring = self.database.retrying(|| admin::delete(&self.database, id)).await?;
        self.notifier.ring(ring);
        Ok(())
    }

    async fn clear(&self, filter: &JobFilter) -> Result<u64> {
        let (jobs, ring) = admin::clear(&self.database, filter).await?;
        self.notifier.ring(ring);
        Ok(jobs)
    }

    async fn cancel_all(&self, filter: &JobFilter) -> Result<u64> {
        let (jobs, ring) = policy::steer_all(&self.database, policy::Steer::Cancel, filter).await?;
        self.notifier.ring(ring);
        Ok(jobs)
    }

    async fn retry_all(&self, filter: &JobFilter) -> Result<u64> {
        let (jobs, ring) = policy::steer_all(&self.database, policy::Steer::Retry, filter).await?;
        self.notifier.ring(ring);
        Ok(jobs)
    }

    async fn limit(&self, limit: Limit) -> Result<()> {
        limit.check()?;
        let ring = limits::limit(&self.database, &limit).await?;
        self.notifier.ring(ring);
        Ok(())
    }

    async fn limits(&self) -> Result<Vec<LimitState>> {
        self.database.retrying(|| limits::limits(&self.database)).await
    }

    async fn slow_down(&self, key: &str) -> Result<Option<f64>> {
        let (pace, ring) = self.database.retrying(|| limits::slow_down(&self.database, key)).await?;
        self.notifier.ring(ring);
        Ok(pace)
    }

    async fn pause(&self, what: &Pausable) -> Result<bool> {
        what.check()?;
        self.database.retrying(|| policy::pause(&self.database, what)).await
    }

    async fn resume(&self, what: &Pausable) -> Result<bool> {
        let (resumed, ring) = self.database.retrying(|| policy::resume(&self.database, what)).await?;
        self.notifier.ring(ring);
        Ok(resumed)
    }

    async fn paused(&self) -> Result<Vec<Paused>> {
        self.database.retrying(|| policy::paused(&self.database)).await
    }

    async fn tenant(&self, policy: TenantPolicy) -> Result<()> {
        policy.check()?;
        let ring = policy::tenant(&self.database, &policy).await?;
        self.notifier.ring(ring);
        Ok(())
    }

    async fn tenants(&self) -> Result<Vec<TenantState>> {
        self.database.retrying(|| policy::tenants(&self.database)).await
    }

    async fn promote(&self) -> Result<Promoted> {
        let promoted = sweep::promote(&self.database).await?;
        self.notifier.ring(sweep::ring_of(&promoted));
        Ok(promoted)
    }

    async fn reap(&self) -> Result<Reaped> {
        let (reaped, ring) = self.database.retrying(|| sweep::reap(&self.database)).await?;
        self.notifier.ring(ring);
        self.database.retrying(|| sweep::fold_if_due(&self.database)).await?;
        Ok(reaped)
    }

    async fn prune(&self, keep: Duration) -> Result<u64> {
        sweep::prune(&self.database, keep).await
    }

    async fn get(&self, id: JobId) -> Result<Option<Job>> {
        self.database.retrying(|| read::get(&self.database, id)).await
    }

    async fn attempts(&self, id: JobId) -> Result<Vec<Attempt>> {
        self.database.retrying(|| read::attempts(&self.database, id)).await
    }

    async fn list(&self, filter: &JobFilter, page: Page) -> Result<Listed> {
        self.database.retrying(|| read::list(&self.database, filter, page)).await
    }

    async fn counts(&self) -> Result<Vec<Count>> {
        self.database.retrying(|| read::counts(&self.database)).await
    }

    async fn waiting(&self, tenant: &str, except: &str, at_most: u64) -> Result<u64> {
        check_name("tenant", tenant)?;
        self.database.retrying(|| read::waiting(&self.database, tenant, except, at_most)).await
    }

    async fn waiting_ages(&self) -> Result<Vec<Age>> {
        self.database.retrying(|| read::waiting_ages(&self.database)).await
    }

    async fn get_run(&self, id: &RunId) -> Result<Option<Run>> {
        self.database.retrying(|| read::get_run(&self.database, id)).await
    }

    async fn list_runs(&self, filter: &RunFilter, page: RunPage) -> Result<ListedRuns> {
        self.database.retrying(|| runs::list(&self.database, filter, &page)).await
    }

    async fn run_steps(&self, id: &RunId) -> Result<Vec<StepCount>> {
        self.database.retrying(|| runs::steps(&self.database, id)).await
    }

    async fn cancel_run(&self, id: &RunId) -> Result<u64> {
        let (jobs, ring) = self.database.retrying(|| runs::cancel(&self.database, id)).await?;
        self.notifier.ring(ring);
        Ok(jobs)
    }

    async fn prioritise_run(&self, id: &RunId, priority: u8) -> Result<u64> {
        check_priority(priority)?;
        self.database.retrying(|| runs::prioritise(&self.database, id, priority)).await
    }

    async fn delete_run(&self, id: &RunId) -> Result<()> {
        self.database.retrying(|| runs::delete(&self.database, id)).await
    }

    async fn retry_run(&self, id: &RunId, steps: &[String]) -> Result<u64> {
        let (restarted, ring) =
            self.database.retrying(|| admin::retry_run(&self.database, id, steps)).await?;
        self.notifier.ring(ring);
        Ok(restarted)
    }

    async fn put_record(&self, run: &RunId, record: NewRecord, expected: Option<u64>) -> Result<u64> {
        record.check()?;
        self.database.retrying(|| graph::put_record(&self.database, run, &record, expected)).await
    }

    async fn records(&self, run: &RunId, kind: Option<&str>) -> Result<Vec<Record>> {
        self.database.retrying(|| read::records(&self.database, run, kind)).await
    }

    async fn put_entry(&self, entry: NewEntry, expected: Option<u64>) -> Result<u64> {
        entry.check()?;
        self.database.retrying(|| entries::put(&self.database, &entry, expected)).await
    }

    async fn entry(&self, kind: &str, key: &str) -> Result<Option<Entry>> {
        self.database.retrying(|| entries::get(&self.database, kind, key)).await
    }

    async fn entries(&self, kind: &str, after: Option<&str>, limit: u32) -> Result<Vec<Entry>> {
        self.database.retrying(|| entries::list(&self.database, kind, after, limit)).await
    }

    async fn delete_entry(&self, kind: &str, key: &str) -> Result<bool> {
        self.database.retrying(|| entries::delete(&self.database, kind, key)).await
    }

    async fn records_named(&self, run: &RunId, kind: &str, keys: &[String]) -> Result<Vec<Record>> {
        self.database.retrying(|| read::records_named(&self.database, run, kind, keys)).await
    }

    async fn events(&self, run: &RunId, after_seq: u64, limit: u32) -> Result<Vec<Event>> {
        self.database.retrying(|| events::events(&self.database, run, after_seq, limit)).await
    }

    async fn feed(&self, after: Option<FeedCursor>, limit: u32) -> Result<Fed> {
        self.database.retrying(|| feed::feed(&self.database, after.as_ref(), limit)).await
    }

    async fn feed_end(&self) -> Result<FeedCursor> {
        self.database.retrying(|| feed::end(&self.database)).await
    }

    async fn tell(&self, run: &RunId, name: &str, body: Value) -> Result<Option<u64>> {
        check_told(name, &body)?;
        let told = events::Told { run: run.as_str(), name, body: body.to_string() };
        let seq = self.database.retrying(|| events::tell(&self.database, &told)).await?;
        self.notifier.ring(events::ring());
        Ok(seq)
    }

    async fn add_sink(&self, name: &str) -> Result<bool> {
        check_name("name of a sink", name)?;
        self.database.retrying(|| events::add_sink(&self.database, name)).await
    }

    async fn remove_sink(&self, name: &str) -> Result<bool> {
        self.database.retrying(|| events::remove_sink(&self.database, name)).await
    }

    async fn outbox_depths(&self) -> Result<Vec<OutboxDepth>> {
        self.database.retrying(|| events::depths(&self.database)).await
    }

    async fn outbox_take(&self, sink: &str, runs: u32, lease: Duration) -> Result<Vec<Parcel>> {
        self.database.retrying(|| events::take(&self.database, sink, runs, lease)).await
    }

    async fn outbox_ahead(&self, sink: &str, event: &Event, types: &[&str]) -> Result<bool> {
        self.database.retrying(|| events::is_ahead(&self.database, sink, event, types)).await
    }

    async fn outbox_done(&self, sink: &str, delivered: &[Delivered]) -> Result<u64> {
        self.database.retrying(|| events::done(&self.database, sink, delivered)).await
    }

    async fn outbox_retry(&self, sink: &str, undelivered: &[Undelivered]) -> Result<u64> {
        self.database.retrying(|| events::retry(&self.database, sink, undelivered)).await
    }

    async fn schedule(&self, schedule: NewSchedule) -> Result<()> {
        let cron = schedule.check()?;
        let ring = self.database.retrying(|| schedules::schedule(&self.database, &schedule, &cron)).await?;
        self.notifier.ring(ring);
        Ok(())
    }

    async fn unschedule(&self, name: &str) -> Result<bool> {
        self.database.retrying(|| schedules::unschedule(&self.database, name)).await
    }

    async fn schedules(&self) -> Result<Vec<Schedule>> {
        self.database.retrying(|| schedules::schedules(&self.database)).await
    }

    async fn tick(&self) -> Result<Ticked> {
        let (ticked, ring) = self.database.retrying(|| schedules::tick(&self.database)).await?;
        self.notifier.ring(ring);
        Ok(ticked)
    }

    async fn register(&self, worker: NewWorker) -> Result<WorkerId> {
        self.database.retrying(|| claim::register(&self.database, &worker)).await
    }

    async fn deregister(&self, id: WorkerId) -> Result<()> {
        self.database.retrying(|| claim::deregister(&self.database, id)).await
    }

    async fn drain(&self, id: WorkerId) -> Result<bool> {
        let (known, ring) = self.database.retrying(|| claim::drain(&self.database, id)).await?;
        self.notifier.ring(ring);
        Ok(known)
    }

    async fn workers(&self) -> Result<Vec<Worker>> {
        self.database.retrying(|| read::workers(&self.database)).await
    }

    async fn pulse(&self) -> Result<Box<dyn Pulse>> {
        Ok(Box::new(beat::PostgresPulse::open(&self.database, Arc::clone(&self.notifier)).await?))
    }

    fn wakes(&self) -> watch::Receiver<Wakes> {
        self.notifier.listen()
    }

    async fn close(&self) {
        self.notifier.stop().await;
        self.database.close().await;
    }
}
