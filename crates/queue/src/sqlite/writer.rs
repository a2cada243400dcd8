//! The one thread of this process that writes: group commit without a timer.
//!
//! While a commit waits for the disk, callers queue up; the next transaction takes them all, and whoever else comes
//! while their statements run, each under a savepoint of its own, so one that fails takes nothing with it. Nobody is
//! answered before COMMIT has returned.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Params, Row};
use tokio::sync::oneshot;

use super::clock::LineClock;
use super::connect::{db, retry_while_busy};
use super::limits::balance_touched;
use super::live::Live;
use super::sql;
use crate::bell::Ring;
use crate::error::{QueueError, Result};
use crate::job::JobState;
use crate::limit::{Bound, Bounds};
use crate::timestamp::Timestamp;

/// More than this in one transaction only makes the first callers wait longer.
const MAX_GROUP: usize = 512;

/// After so long without a write the log is checkpointed, when it delays nobody.
const IDLE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Writer {
    queue: Sender<Message>,
}

enum Message {
    Write(Box<dyn Operation>),
    Stop(oneshot::Sender<()>),
}

/// One caller's part of a group.
trait Operation: Send {
    /// Whether its writes are to be kept.
    fn run(&mut self, tx: &Tx<'_>) -> bool;

    /// Tells the caller, once the fate of the whole group is known.
    fn answer(self: Box<Self>, fate: &Result<()>);
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        line: LineClock,
        patience: Duration,
        live: Arc<Live>,
    ) -> Result<Self> {
        let (queue, messages) = channel();
        std::thread::Builder::new()
            .name("queue-writer".into())
            .spawn(move || {
                let writing = Writing { connection, line, patience, live };
                writing.write_groups(&messages);
            })
            .map_err(QueueError::unexpected)?;
        Ok(Self { queue })
    }

    /// Runs `operation` in the next transaction; answers after its COMMIT.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting { operation: Some(operation), result: None, reply };
        let closed = || QueueError::Unavailable { reason: "the queue was closed".into() };
        self.queue.send(Message::Write(Box::new(waiting))).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Commits what was asked for before this, then ends the thread.
    pub(super) async fn stop(&self) {
        let (done, ended) = oneshot::channel();
        if self.queue.send(Message::Stop(done)).is_ok() {
            let _ = ended.await;
        }
    }
}

struct Waiting<F, T> {
    operation: Option<F>,
    result: Option<Result<T>>,
    reply: oneshot::Sender<Result<T>>,
}

impl<F, T> Operation for Waiting<F, T>
where
    F: FnOnce(&Tx<'_>) -> Result<T> + Send,
    T: Send,
{
    fn run(&mut self, tx: &Tx<'_>) -> bool {
        self.result = self.operation.take().map(|operation| operation(tx));
        matches!(self.result, Some(Ok(_)))
    }

    fn answer(self: Box<Self>, fate: &Result<()>) {
        let result = match (fate, self.result) {
            (_, Some(Err(own))) => Err(own),
            (Err(shared), _) => Err(shared.same_fate()),
            (Ok(()), Some(Ok(value))) => Ok(value),
            (Ok(()), None) => Err(QueueError::unexpected("an operation was committed without having run")),
        };
        // A caller that has gone away does not want the answer; what it asked for is done all the same.
        let _ = self.reply.send(result);
    }
}

/// The writer's thread.
struct Writing {
    connection: Connection,
    line: LineClock,
    patience: Duration,
    live: Arc<Live>,
}

impl Writing {
    fn write_groups(&self, messages: &Receiver<Message>) {
        let mut written = false;
        loop {
            let first = match messages.recv_timeout(IDLE) {
                Ok(Message::Write(operation)) => operation,
                Ok(Message::Stop(done)) => return self.stop(done),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    if std::mem::take(&mut written) {
                        self.checkpoint("PASSIVE");
                    }
                    continue;
                }
            };
            let mut callers = Callers { first: Some(first), messages, stop: None };
            self.write_group(&mut callers);
            written = true;
            if let Some(done) = callers.stop {
                return self.stop(done);
            }
        }
    }

    fn write_group(&self, callers: &mut Callers<'_>) {
        let mut tx = Tx::new(&self.connection, self.line);
        let mut group = Vec::new();
        let fate = tx.write(callers, &mut group, self.patience);
        if let Err(error) = &fate {
            // SQLite ends a transaction by itself on some errors; then this fails for want of one, which is fine.
            let _ = self.connection.execute_batch("ROLLBACK");
            if matches!(error, QueueError::Full { .. }) {
                // The log may be what fills the disk: what it holds can go into the database.
                self.checkpoint("TRUNCATE");
            }
            // It never began: whoever queued up has waited as long. Others get a turn of their own.
            if group.is_empty() {
                group.extend(callers.take(MAX_GROUP));
            }
        }
        for operation in group {
            operation.answer(&fate);
        }
        if fate.is_ok() {
            self.live.ring(tx.ring.get());
        }
    }

    fn stop(&self, done: oneshot::Sender<()>) {
        self.checkpoint("TRUNCATE");
        let _ = done.send(());
    }

    /// Moves the write-ahead log into the database. Whoever still reads from it only makes it move less.
    fn checkpoint(&self, mode: &str) {
        let _ = self.connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()));
    }
}

/// Whoever has queued up, taken without waiting for more.
struct Callers<'m> {
    first: Option<Box<dyn Operation>>,
    messages: &'m Receiver<Message>,
    stop: Option<oneshot::Sender<()>>,
}

impl Iterator for Callers<'_> {
    type Item = Box<dyn Operation>;

    fn next(&mut self) -> Option<Box<dyn Operation>> {
        if self.first.is_some() || self.stop.is_some() {
            return self.first.take();
        }
        match self.messages.try_recv().ok()? {
            Message::Write(operation) => Some(operation),
            Message::Stop(done) => {
                self.stop = Some(done);
                None
            }
        }
    }
}

/// A transaction under way, as an operation sees it.
pub(super) struct Tx<'c> {
    connection: &'c Connection,
    /// The wall clock of this operation.
    pub(super) now: Timestamp,
    /// Where new jobs stand in line.
    pub(super) line: LineClock,
    /// What the operation under way moved, and what those before it did.
    counts: RefCell<Counts>,
    kept_counts: RefCell<Counts>,
    ring: Cell<Ring>,
    /// Bounds whose jobs were moved.
    touched: RefCell<Bounds>,
}

#[derive(Default)]
struct Counts(Vec<CountChange>);

struct CountChange {
    lane: String,
    kind: String,
    state: JobState,
    by: i64,
}

impl Counts {
    fn add(&mut self, lane: &str, kind: &str, state: JobState, by: i64) {
        let known = self.0.iter_mut().find(|it| it.state == state && it.kind == kind && it.lane == lane);
        match known {
            Some(count) => count.by += by,
            None => self.0.push(CountChange { lane: lane.into(), kind: kind.into(), state, by }),
        }
    }
}

impl<'c> Tx<'c> {
    fn new(connection: &'c Connection, line: LineClock) -> Self {
        Self {
            connection,
            now: Timestamp::now(),
            line,
            counts: RefCell::default(),
            kept_counts: RefCell::default(),
            ring: Cell::default(),
            touched: RefCell::default(),
        }
    }

    /// Runs every caller's operation, also of those who come meanwhile, and commits them together.
    fn write(
        &mut self,
        callers: &mut Callers<'_>,
        group: &mut Vec<Box<dyn Operation>>,
        patience: Duration,
    ) -> Result<()> {
        retry_while_busy(patience, || self.batch("BEGIN IMMEDIATE"))?;
        for operation in callers.take(MAX_GROUP) {
            group.push(operation);
            // Nobody finds himself in a transaction of before he came.
            self.now = Timestamp::now();
            self.run_operation(group.last_mut().expect("it was just added"))?;
        }
        self.commit()
    }

    fn run_operation(&self, operation: &mut Box<dyn Operation>) -> Result<()> {
        self.batch("SAVEPOINT operation")?;
        let kept = operation.run(self);
        if self.connection.is_autocommit() {
            // A full disk or a broken one: SQLite has rolled everything back. Nothing may run outside.
            return Err(QueueError::Full { reason: "the transaction was rolled back by SQLite".into() });
        }
        if kept {
            self.keep_counts();
        } else {
            self.counts.take();
            self.batch("ROLLBACK TO operation")?;
        }
        self.batch("RELEASE operation")
    }

    fn commit(&self) -> Result<()> {
        balance_touched(self)?;
        self.keep_counts();
        self.store_counts()?;
        self.batch("COMMIT")
    }

    /// Runs `work` in a transaction of its own, outside the writer's thread; says whom to wake.
    pub(super) fn alone<T>(
        connection: &Connection,
        line: LineClock,
        patience: Duration,
        work: impl FnOnce(&Tx<'_>) -> Result<T>,
    ) -> Result<(T, Ring)> {
        let tx = Tx::new(connection, line);
        retry_while_busy(patience, || tx.batch("BEGIN IMMEDIATE"))?;
        let outcome = work(&tx).and_then(|value| {
            tx.commit()?;
            Ok((value, tx.ring.get()))
        });
        if outcome.is_err() {
            let _ = connection.execute_batch("ROLLBACK");
        }
        outcome
    }

    /// Notes that `by` more (or fewer) jobs are in a state.
    pub(super) fn count(&self, lane: &str, kind: &str, state: JobState, by: i64) {
        self.counts.borrow_mut().add(lane, kind, state, by);
    }

    /// Notes what bounds a job that was moved: before COMMIT, they let in or park what they must.
    pub(super) fn touch(&self, bounds: impl IntoIterator<Item = Bound>) {
        self.touched.borrow_mut().extend(bounds);
    }

    pub(super) fn take_touched(&self) -> Bounds {
        self.touched.take()
    }

    /// Notes whom to wake once this is committed.
    pub(super) fn ring(&self, ring: Ring) {
        self.ring.set(self.ring.get().and(ring));
    }

    /// Runs a statement; says how many rows it changed.
    pub(super) fn run(&self, sql: &str, params: impl Params) -> Result<usize> {
        self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(params)).map_err(db)
    }

    pub(super) fn first<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        let mut statement = self.connection.prepare_cached(sql).map_err(db)?;
        statement.query_row(params, read).optional().map_err(db)
    }

    pub(super) fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let mut statement = self.connection.prepare_cached(sql).map_err(db)?;
        let rows = statement.query_map(params, read).map_err(db)?;
        rows.collect::<rusqlite::Result<_>>().map_err(db)
    }

    /// The id of the row inserted last.
    pub(super) fn inserted(&self) -> i64 {
        self.connection.last_insert_rowid()
    }

    fn keep_counts(&self) {
        let mut kept = self.kept_counts.borrow_mut();
        for count in self.counts.take().0 {
            kept.add(&count.lane, &count.kind, count.state, count.by);
        }
    }

    /// Once for all operations: few lanes and kinds, many jobs.
    fn store_counts(&self) -> Result<()> {
        for count in self.kept_counts.take().0.into_iter().filter(|count| count.by != 0) {
            self.run(sql!("count"), (count.lane, count.kind, count.state.as_str(), count.by))?;
        }
        Ok(())
    }

    fn batch(&self, sql: &str) -> Result<()> {
        self.run(sql, ()).map(drop)
    }
}
