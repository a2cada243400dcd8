//! A queue around a queue: one place through which every verb passes.
//!
//! A decorator says what happens around any call ([`Around`]); the list of verbs is written once, here.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::watch;
use tracing::Span;

use crate::claim::{Attempt, Finish, Settled};
use crate::entry::{Entry, NewEntry};
use crate::error::Result;
use crate::event::{Delivered, Event, OutboxDepth, Parcel, Undelivered};
use crate::feed::{Fed, FeedCursor};
use crate::graph::{NewRecord, Record};
use crate::job::{Job, JobId};
use crate::limit::{Limit, LimitState, Pausable, Paused, TenantPolicy, TenantState};
use crate::push::{Push, Pushed};
use crate::queue::{Age, Count, JobFilter, Listed, Page, Promoted, Pulse, Queue, Reaped, Wakes};
use crate::run::{ListedRuns, Run, RunFilter, RunId, RunPage, StepCount};
use crate::schedule::{NewSchedule, Schedule, Ticked};
use crate::worker::{Beat, BeatReply, Claimed, NewWorker, Pull, Worker, WorkerId};

/// What a decorator does around every call.
pub(crate) trait Around: Clone + Send + Sync + 'static {
    fn around<T: Send>(
        &self,
        call: Call,
        inner: impl Future<Output = Result<T>> + Send,
    ) -> impl Future<Output = Result<T>> + Send;

    /// What came of a verb that did what it was asked.
    fn note(&self, _: Done<'_>) {}
}

/// What some verbs did, for whoever counts.
pub(crate) enum Done<'a> {
    Pulled(&'a [Claimed]),
    Finished(&'a [Finish], &'a [Settled]),
    Reaped(&'a Reaped),
    Beaten(&'a BeatReply),
}

/// A verb as it is being called.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) verb: &'static str,
    /// How many things it is about.
    pub(crate) items: usize,
    /// The span of the verb, made only if somebody wants it: its name is part of the program.
    pub(crate) span: fn() -> Span,
}

macro_rules! call {
    ($verb:literal) => {
        call!($verb, 1)
    };
    ($verb:literal, $items:expr) => {
        Call { verb: $verb, items: $items, span: || tracing::debug_span!(concat!("queue.", $verb)) }
    };
}

/// A queue with something around every verb.
pub(crate) struct Decorated<D> {
    inner: Arc<dyn Queue>,
    with: D,
}

impl<D: Around> Decorated<D> {
    pub(crate) fn around(inner: Arc<dyn Queue>, with: D) -> Arc<dyn Queue> {
        Arc::new(Self { inner, with })
    }
}

#[async_trait]
impl<D: Around> Queue for Decorated<D> {
    async fn push(&self, pushes: Vec<Push>) -> Result<Vec<Pushed>> {
        self.with.around(call!("push", pushes.len()), self.inner.push(pushes)).await
    }

    async fn known_push(&self, tenant: &str, key: &str, keyed_by: &Value) -> Result<Option<Pushed>> {
        self.with.around(call!("known_push"), self.inner.known_push(tenant, key, keyed_by)).await
    }

    async fn pull(&self, pull: Pull) -> Result<Vec<Claimed>> {
        let claimed = self.with.around(call!("pull"), self.inner.pull(pull)).await?;
        self.with.note(Done::Pulled(&claimed));
        Ok(claimed)
    }

    async fn finish(&self, batch: &[Finish]) -> Result<Vec<Settled>> {
        let settled = self.with.around(call!("finish", batch.len()), self.inner.finish(batch)).await?;
        self.with.note(Done::Finished(batch, &settled));
        Ok(settled)
    }

    async fn cancel(&self, id: JobId) -> Result<()> {
        self.with.around(call!("cancel"), self.inner.cancel(id)).await
    }

    async fn retry(&self, id: JobId) -> Result<()> {
        self.with.around(call!("retry"), self.inner.retry(id)).await
    }

    async fn delete(&self, id: JobId) -> Result<()> {
        self.with.around(call!("delete"), self.inner.delete(id)).await
    }

    async fn clear(&self, filter: &JobFilter) -> Result<u64> {
        self.with.around(call!("clear"), self.inner.clear(filter)).await
    }

    async fn cancel_all(&self, filter: &JobFilter) -> Result<u64> {
        self.with.around(call!("cancel_all"), self.inner.cancel_all(filter)).await
    }

    async fn retry_all(&self, filter: &JobFilter) -> Result<u64> {
        self.with.around(call!("retry_all"), self.inner.retry_all(filter)).await
    }

    async fn limit(&self, limit: Limit) -> Result<()> {
        self.with.around(call!("limit"), self.inner.limit(limit)).await
    }

    async fn limits(&self) -> Result<Vec<LimitState>> {
        self.with.around(call!("limits"), self.inner.limits()).await
    }

    async fn slow_down(&self, key: &str) -> Result<Option<f64>> {
        self.with.around(call!("slow_down"), self.inner.slow_down(key)).await
    }

    async fn pause(&self, what: &Pausable) -> Result<bool> {
        self.with.around(call!("pause"), self.inner.pause(what)).await
    }

    async fn resume(&self, what: &Pausable) -> Result<bool> {
        self.with.around(call!("resume"), self.inner.resume(what)).await
    }

    async fn paused(&self) -> Result<Vec<Paused>> {
        self.with.around(call!("paused"), self.inner.paused()).await
    }

    async fn tenant(&self, policy: TenantPolicy) -> Result<()> {
        self.with.around(call!("tenant"), self.inner.tenant(policy)).await
    }

    async fn tenants(&self) -> Result<Vec<TenantState>> {
        self.with.around(call!("tenants"), self.inner.tenants()).await
    }

    async fn promote(&self) -> Result<Promoted> {
        self.with.around(call!("promote"), self.inner.promote()).await
    }

    async fn reap(&self) -> Result<Reaped> {
        let reaped = self.with.around(call!("reap"), self.inner.reap()).await?;
        self.with.note(Done::Reaped(&reaped));
        Ok(reaped)
    }

    async fn prune(&self, keep: Duration) -> Result<u64> {
        self.with.around(call!("prune"), self.inner.prune(keep)).await
    }

    async fn get(&self, id: JobId) -> Result<Option<Job>> {
        self.with.around(call!("get"), self.inner.get(id)).await
    }

    async fn attempts(&self, id: JobId) -> Result<Vec<Attempt>> {
        self.with.around(call!("attempts"), self.inner.attempts(id)).await
    }

    async fn list(&self, filter: &JobFilter, page: Page) -> Result<Listed> {
        self.with.around(call!("list"), self.inner.list(filter, page)).await
    }

    async fn counts(&self) -> Result<Vec<Count>> {
        self.with.around(call!("counts"), self.inner.counts()).await
    }

    async fn waiting(&self, tenant: &str, except: &str, at_most: u64) -> Result<u64> {
        self.with.around(call!("waiting"), self.inner.waiting(tenant, except, at_most)).await
    }

    async fn waiting_ages(&self) -> Result<Vec<Age>> {
        self.with.around(call!("waiting_ages"), self.inner.waiting_ages()).await
    }

    async fn get_run(&self, id: &RunId) -> Result<Option<Run>> {
        self.with.around(call!("get_run"), self.inner.get_run(id)).await
    }

    async fn list_runs(&self, filter: &RunFilter, page: RunPage) -> Result<ListedRuns> {
        self.with.around(call!("list_runs"), self.inner.list_runs(filter, page)).await
    }

    async fn run_steps(&self, id: &RunId) -> Result<Vec<StepCount>> {
        self.with.around(call!("run_steps"), self.inner.run_steps(id)).await
    }

    async fn cancel_run(&self, id: &RunId) -> Result<u64> {
        self.with.around(call!("cancel_run"), self.inner.cancel_run(id)).await
    }

    async fn prioritise_run(&self, id: &RunId, priority: u8) -> Result<u64> {
        self.with.around(call!("prioritise_run"), self.inner.prioritise_run(id, priority)).await
    }

    async fn delete_run(&self, id: &RunId) -> Result<()> {
        self.with.around(call!("delete_run"), self.inner.delete_run(id)).await
    }

    async fn retry_run(&self, id: &RunId, steps: &[String]) -> Result<u64> {
        self.with.around(call!("retry_run"), self.inner.retry_run(id, steps)).await
    }

    async fn put_record(&self, run: &RunId, record: NewRecord, expected: Option<u64>) -> Result<u64> {
        self.with.around(call!("put_record"), self.inner.put_record(run, record, expected)).await
    }

    async fn records(&self, run: &RunId, kind: Option<&str>) -> Result<Vec<Record>> {
        self.with.around(call!("records"), self.inner.records(run, kind)).await
    }

    async fn put_entry(&self, entry: NewEntry, expected: Option<u64>) -> Result<u64> {
        self.with.around(call!("put_entry"), self.inner.put_entry(entry, expected)).await
    }

    async fn entry(&self, kind: &str, key: &str) -> Result<Option<Entry>> {
        self.with.around(call!("entry"), self.inner.entry(kind, key)).await
    }

    async fn entries(&self, kind: &str, after: Option<&str>, limit: u32) -> Result<Vec<Entry>> {
        self.with.around(call!("entries"), self.inner.entries(kind, after, limit)).await
    }

    async fn delete_entry(&self, kind: &str, key: &str) -> Result<bool> {
        self.with.around(call!("delete_entry"), self.inner.delete_entry(kind, key)).await
    }

    async fn records_named(&self, run: &RunId, kind: &str, keys: &[String]) -> Result<Vec<Record>> {
        self.with.around(call!("records_named"), self.inner.records_named(run, kind, keys)).await
    }

    async fn events(&self, run: &RunId, after_seq: u64, limit: u32) -> Result<Vec<Event>> {
        self.with.around(call!("events"), self.inner.events(run, after_seq, limit)).await
    }

    async fn feed(&self, after: Option<FeedCursor>, limit: u32) -> Result<Fed> {
        self.with.around(call!("feed"), self.inner.feed(after, limit)).await
    }

    async fn feed_end(&self) -> Result<FeedCursor> {
        self.with.around(call!("feed_end"), self.inner.feed_end()).await
    }

    async fn tell(&self, run: &RunId, name: &str, body: Value) -> Result<Option<u64>> {
        self.with.around(call!("tell"), self.inner.tell(run, name, body)).await
    }

    async fn add_sink(&self, name: &str) -> Result<bool> {
        self.with.around(call!("add_sink"), self.inner.add_sink(name)).await
    }

    async fn remove_sink(&self, name: &str) -> Result<bool> {
        self.with.around(call!("remove_sink"), self.inner.remove_sink(name)).await
    }

    async fn outbox_depths(&self) -> Result<Vec<OutboxDepth>> {
        self.with.around(call!("outbox_depths"), self.inner.outbox_depths()).await
    }

    async fn outbox_take(&self, sink: &str, runs: u32, lease: Duration) -> Result<Vec<Parcel>> {
        self.with.around(call!("outbox_take"), self.inner.outbox_take(sink, runs, lease)).await
    }

    async fn outbox_ahead(&self, sink: &str, event: &Event, types: &[&str]) -> Result<bool> {
        self.with.around(call!("outbox_ahead"), self.inner.outbox_ahead(sink, event, types)).await
    }

    async fn outbox_done(&self, sink: &str, delivered: &[Delivered]) -> Result<u64> {
        let call = call!("outbox_done", delivered.len());
        self.with.around(call, self.inner.outbox_done(sink, delivered)).await
    }

    async fn outbox_retry(&self, sink: &str, undelivered: &[Undelivered]) -> Result<u64> {
        let call = call!("outbox_retry", undelivered.len());
        self.with.around(call, self.inner.outbox_retry(sink, undelivered)).await
    }

    async fn schedule(&self, schedule: NewSchedule) -> Result<()> {
        self.with.around(call!("schedule"), self.inner.schedule(schedule)).await
    }

    async fn unschedule(&self, name: &str) -> Result<bool> {
        self.with.around(call!("unschedule"), self.inner.unschedule(name)).await
    }

    async fn schedules(&self) -> Result<Vec<Schedule>> {
        self.with.around(call!("schedules"), self.inner.schedules()).await
    }

    async fn tick(&self) -> Result<Ticked> {
        self.with.around(call!("tick"), self.inner.tick()).await
    }

    async fn register(&self, worker: NewWorker) -> Result<WorkerId> {
        self.with.around(call!("register"), self.inner.register(worker)).await
    }

    async fn deregister(&self, id: WorkerId) -> Result<()> {
        self.with.around(call!("deregister"), self.inner.deregister(id)).await
    }

    async fn drain(&self, id: WorkerId) -> Result<bool> {
        self.with.around(call!("drain"), self.inner.drain(id)).await
    }

    async fn workers(&self) -> Result<Vec<Worker>> {
        self.with.around(call!("workers"), self.inner.workers()).await
    }

    async fn pulse(&self) -> Result<Box<dyn Pulse>> {
        let inner = self.with.around(call!("pulse"), self.inner.pulse()).await?;
        Ok(Box::new(DecoratedPulse { inner, with: self.with.clone() }))
    }

    fn wakes(&self) -> watch::Receiver<Wakes> {
        self.inner.wakes()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

struct DecoratedPulse<D> {
    inner: Box<dyn Pulse>,
    with: D,
}

#[async_trait]
impl<D: Around> Pulse for DecoratedPulse<D> {
    async fn beat(&mut self, beat: &Beat) -> Result<BeatReply> {
        let reply = self.with.around(call!("beat", beat.claims.len()), self.inner.beat(beat)).await?;
        self.with.note(Done::Beaten(&reply));
        Ok(reply)
    }
}
