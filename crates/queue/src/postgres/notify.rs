//! Wake-ups: the bell of this process, and LISTEN/NOTIFY for the others.
//!
//! Behind a pooler in transaction mode nobody can LISTEN. There, whoever waits looks four times a second whether there is
//! anything to do, and NOTIFY still goes out for those who can hear it.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::postgres::PgListener;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::connect::{Database, ms};
use super::failure::Tried;
use super::read::value;
use super::session::statement;
use super::sql;
use crate::bell::{Bell, Ring};
use crate::queue::Wakes;

const CHANNEL: &str = "telecine";
/// At most one NOTIFY in this time: inside every push it would cost 2.6 times the throughput.
const PAUSE: Duration = Duration::from_millis(5);
const FIRST_RECONNECT: Duration = Duration::from_millis(100);
const LAST_RECONNECT: Duration = Duration::from_secs(5);
/// How often a process that cannot LISTEN looks for something to do.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A look cannot tell whether a claim was taken away, only a beat can; and a beat writes, so it is not asked for as often.
const BEAT_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Notifier {
    bell: Arc<Bell>,
    outbox: Arc<Outbox>,
    database: Database,
    runtime: Handle,
    stop: CancellationToken,
    /// Ends the tasks of a handle that was dropped without being closed.
    _stop_on_drop: DropGuard,
    tasks: Mutex<Tasks>,
    /// Whether jobs were claimed here since the last look.
    claimed: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Tasks {
    sender: Option<JoinHandle<()>>,
    listener: Option<JoinHandle<()>>,
}

/// Rings that other processes have not been told of yet.
#[derive(Debug)]
struct Outbox {
    rings: AtomicU8,
    filled: Notify,
    /// Before this, the next NOTIFY would be too soon.
    next_at: Mutex<Instant>,
}

impl Outbox {
    fn new() -> Self {
        Self { rings: AtomicU8::new(0), filled: Notify::new(), next_at: Mutex::new(Instant::now()) }
    }

    fn next_at(&self) -> MutexGuard<'_, Instant> {
        self.next_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notifier {
    pub(super) fn start(database: &Database) -> Self {
        let (stop, outbox, runtime) = (CancellationToken::new(), Arc::new(Outbox::new()), Handle::current());
        let sender = runtime.spawn(send(database.clone(), outbox.clone(), stop.clone()));
        Self {
            bell: Arc::new(Bell::new()),
            outbox,
            database: database.clone(),
            runtime,
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
            tasks: Mutex::new(Tasks { sender: Some(sender), listener: None }),
            claimed: Arc::default(),
        }
    }

    /// After a commit: tells this process at once, and the others within a few milliseconds.
    pub(super) fn ring(&self, ring: Ring) {
        self.ring_after(ring, false);
    }

    /// Whoever claims may have something to lose, which a look at the database need not show.
    pub(super) fn note_claims(&self) {
        self.claimed.store(true, Ordering::Release);
    }

    /// Whether the next NOTIFY may go out now, with a statement that is about to be sent: one round trip less for
    /// whoever waits. If so, the statement must send it.
    pub(super) fn takes_the_lead(&self) -> bool {
        let mut next_at = self.outbox.next_at();
        let now = Instant::now();
        let leads = now >= *next_at;
        if leads {
            *next_at = now + PAUSE;
        }
        leads
    }

    /// As `ring`; the others need not be `told` again.
    pub(super) fn ring_after(&self, ring: Ring, told: bool) {
        if ring.is_silent() {
            return;
        }
        self.bell.ring(ring);
        if told {
            return;
        }
        self.outbox.rings.fetch_or(ring.to_byte(), Ordering::AcqRel);
        self.outbox.filled.notify_one();
    }

    /// The first listener starts LISTEN: a process that only pushes needs no connection for it.
    pub(super) fn listen(&self) -> watch::Receiver<Wakes> {
        let wakes = self.bell.listen();
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if tasks.listener.is_none() && !self.stop.is_cancelled() {
            let (database, bell, stop) = (self.database.clone(), self.bell.clone(), self.stop.clone());
            let claimed = self.claimed.clone();
            tasks.listener = Some(self.runtime.spawn(async move {
                match database.server().is_pooled() {
                    true => stop.run_until_cancelled(Box::pin(look_out(database, bell, claimed))).await,
                    false => stop.run_until_cancelled(Box::pin(listen(database, bell))).await,
                };
            }));
        }
        wakes
    }

    /// Sends what is left to send, and stops listening.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in [tasks.sender, tasks.listener].into_iter().flatten() {
            // A task that panicked has been told of by its panic.
            let _ = task.await;
        }
    }
}

/// The leading edge goes out at once; what rings in the pause after it goes out together.
async fn send(database: Database, outbox: Arc<Outbox>, stop: CancellationToken) {
    while stop.run_until_cancelled(outbox.filled.notified()).await.is_some() {
        let next_at = *outbox.next_at();
        if stop.run_until_cancelled(tokio::time::sleep_until(next_at)).await.is_none() {
            break;
        }
        *outbox.next_at() = Instant::now() + PAUSE;
        flush(&database, &outbox).await;
    }
    flush(&database, &outbox).await;
}

async fn flush(database: &Database, outbox: &Outbox) {
    let rings = outbox.rings.swap(0, Ordering::AcqRel);
    if rings == 0 {
        return;
    }
    // Only a hint: who misses it polls.
    if let Err(error) = notify(database, rings).await {
        tracing::debug!(?error, "other processes could not be woken");
    }
}

async fn notify(database: &Database, rings: u8) -> Tried<()> {
    let mut connection = database.connection().await?;
    statement(sql!("notify")).bind(rings.to_string()).execute(&mut connection).await?;
    connection.commit().await
}

/// Rings the bell for what other processes did, for as long as it is polled.
async fn listen(database: Database, bell: Arc<Bell>) {
    let pool = database.pool_of_one();
    let mut pause = FIRST_RECONNECT;
    loop {
        match PgListener::connect_with(&pool).await {
            Ok(listener) => {
                if let Err(error) = follow(listener, &bell, &mut pause).await {
                    tracing::debug!(%error, "lost the connection that listens for wake-ups");
                }
            }
            Err(error) => tracing::debug!(%error, "cannot listen for wake-ups"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_RECONNECT);
    }
}

async fn follow(mut listener: PgListener, bell: &Bell, pause: &mut Duration) -> Result<(), sqlx::Error> {
    listener.listen(CHANNEL).await?;
    *pause = FIRST_RECONNECT;
    // Whatever was rung before LISTEN began, or while the connection was down, was missed.
    bell.ring(Ring::ALL);
    loop {
        match listener.try_recv().await? {
            Some(notification) => {
                bell.ring(notification.payload().parse().map_or(Ring::ALL, Ring::from_byte))
            }
            None => bell.ring(Ring::ALL),
        }
    }
}

/// Rings the bell when there is something to do, for as long as it is polled.
async fn look_out(database: Database, bell: Arc<Bell>, claimed: Arc<AtomicBool>) {
    let mut revocations = Revocations::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if !bell.is_heard() {
            continue;
        }
        match database.retrying(|| look(&database)).await {
            Ok(seen) => {
                let busy = seen.revoked || claimed.swap(false, Ordering::AcqRel);
                bell.ring(Ring { revoked: revocations.may_be_news(busy, Instant::now()), ..seen });
            }
            Err(error) => tracing::debug!(%error, "cannot look for something to do"),
        }
    }
}

/// When to ask for a beat, which hears of claims that were taken away.
struct Revocations {
    was_busy: bool,
    owed: bool,
    next_at: Instant,
}

impl Revocations {
    fn new() -> Self {
        Self { was_busy: false, owed: false, next_at: Instant::now() }
    }

    /// A job that ran at the last look and does not now may have been taken away since, so one more beat is owed.
    fn may_be_news(&mut self, busy: bool, now: Instant) -> bool {
        self.owed |= busy || self.was_busy;
        self.was_busy = busy;
        let ask = self.owed && now >= self.next_at;
        if ask {
            self.owed = false;
            self.next_at = now + BEAT_EVERY;
        }
        ask
    }
}

async fn look(database: &Database) -> Tried<Ring> {
    let mut connection = database.connection().await?;
    let row = statement(sql!("wakes")).bind(ms(LOOK_EVERY)).fetch_one(&mut connection).await?;
    Ok(Ring {
        ready: value(&row, "ready")?,
        scheduled: value(&row, "scheduled")?,
        revoked: value(&row, "revoked")?,
        told: value(&row, "told")?,
        ..Ring::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_job_that_vanished_between_two_looks_still_gets_its_beat() {
        let (mut revocations, start) = (Revocations::new(), Instant::now());
        let at = |looks: u32| start + LOOK_EVERY * looks;

        assert!(revocations.may_be_news(true, at(1)), "it runs");
        assert!(!revocations.may_be_news(false, at(2)), "it is gone, and the last beat was just now");
        assert!(revocations.may_be_news(false, at(6)), "the beat that it is owed");
        assert!(!revocations.may_be_news(false, at(20)), "and no more");
    }
}
