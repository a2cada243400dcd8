//! One reader of the feed for everybody who watches.
//!
//! ```text
//!   feed ── reader, woken by the queue ──► broadcast ──► a stream for each client
//!                                             │
//!                     whoever falls behind reads what it missed for itself, and joins again
//! ```
//! A client is told where the reader stands in the moment it joins. It reads what is older for itself, up to there; all
//! that is later reaches it by the broadcast. So nothing is lost or told twice where the one goes over into the other.
//! The reader runs only while somebody watches.

mod documents;
mod news;
mod progress;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use telecine_queue::{Fed, FeedCursor, Queue, QueueError, RunId};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use documents::Documents;
pub(crate) use documents::{Glance, RunText};
pub(crate) use news::{EventShown, News, PROGRESS, Told};
use progress::Progressing;

/// Events that a client may be behind before it has to read for itself.
const BACKLOG: usize = 1_024;
/// Events of one look.
const BATCH: u32 = 500;
/// Other processes may wake nobody here.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// On Postgres the feed tells an event when what began before it has ended: a moment after the wake-up.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// What happens within this is read together.
const GATHER_FOR: Duration = Duration::from_millis(5);
/// For how long after a wake-up that is worth while.
const ALERT_FOR: Duration = Duration::from_secs(2);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Tells many of what happens.
#[derive(Clone)]
pub(crate) struct Hub(Arc<Inner>);

struct Inner {
    queue: Arc<dyn Queue>,
    stopping: CancellationToken,
    news: broadcast::Sender<Arc<News>>,
    documents: Documents,
    /// Held while something is told, so that whoever joins knows what was told before.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Where the reader stands; `None` while there is none.
    position: Option<FeedCursor>,
    /// Which reader that is: one that ends must not be taken for the one that was started since.
    reader: u64,
    /// Runs that are watched by themselves, with their tenants and by how many.
    watched: BTreeMap<RunId, (String, usize)>,
    /// Who watches all runs.
    watching_all: usize,
}

/// What a client hears, from a place in the feed on.
pub(crate) struct Joined {
    pub(crate) news: broadcast::Receiver<Arc<News>>,
    /// All that is later will be heard.
    pub(crate) position: FeedCursor,
    /// While it is kept, progress is told too.
    pub(crate) _watching: Watching,
}

/// Ends the telling of progress that nobody watches.
pub(crate) struct Watching {
    hub: Hub,
    run: Option<RunId>,
}

impl Hub {
    pub(crate) fn new(queue: Arc<dyn Queue>, stopping: CancellationToken) -> Self {
        let (news, _) = broadcast::channel(BACKLOG);
        let documents = Documents::new();
        Self(Arc::new(Inner { queue, stopping, news, documents, state: Mutex::default() }))
    }

    /// Whoever looks at runs together sees each of them once.
    pub(crate) fn glance(&self) -> Glance {
        self.0.documents.glance()
    }

    /// The document of a run as it was seen at a glance.
    pub(crate) async fn document(&self, run: &RunId, glance: Glance) -> Result<RunText, QueueError> {
        self.0.documents.get(&*self.0.queue, run, glance).await
    }

    /// Joins those who hear of every run.
    pub(crate) async fn join_all(&self) -> Result<Joined, QueueError> {
        self.join(None).await
    }

    /// Joins for one run. What is heard is of all runs even so.
    pub(crate) async fn join_run(&self, run: &RunId, tenant: &str) -> Result<Joined, QueueError> {
        self.join(Some((run, tenant))).await
    }

    async fn join(&self, run: Option<(&RunId, &str)>) -> Result<Joined, QueueError> {
        let begun = self.state().position.clone();
        let end = match begun {
            Some(position) => position,
            None => self.0.queue.feed_end().await?,
        };
        let mut state = self.state();
        let news = self.0.news.subscribe();
        let position = match &state.position {
            Some(position) => position.clone(),
            None => {
                state.position = Some(end.clone());
                state.reader += 1;
                self.start_reader(state.reader);
                end
            }
        };
        match run {
            Some((run, tenant)) => {
                state.watched.entry(run.clone()).or_insert_with(|| (tenant.to_owned(), 0)).1 += 1;
            }
            None => state.watching_all += 1,
        }
        let _watching = Watching { hub: self.clone(), run: run.map(|(run, _)| run.clone()) };
        Ok(Joined { news, position, _watching })
    }

    /// How many hear of it.
    pub(crate) fn listeners(&self) -> usize {
        self.0.news.receiver_count()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_reader(&self, number: u64) {
        let (hub, mut wakes) = (self.clone(), self.0.queue.wakes());
        let told = wakes.borrow_and_update().told;
        tokio::spawn(Reader { number, hub, wakes, told, alert_until: Instant::now() }.run());
        // Apart: whoever counts jobs of many runs must not keep events waiting.
        tokio::spawn(tell_progress(self.clone(), number));
    }

    /// Whether that reader is still the one.
    fn is_read_by(&self, number: u64) -> bool {
        let state = self.state();
        state.reader == number && state.position.is_some()
    }

    /// Tells what was fed, and where the feed goes on.
    fn tell(&self, reader: u64, fed: Fed) {
        let mut state = self.state();
        if state.reader != reader {
            return;
        }
        let glance = self.glance();
        for event in fed.events {
            let told = Told { event, glance };
            // Nobody hears it: the reader ends next.
            let _ = self.0.news.send(Arc::new(News::Told(told)));
        }
        state.position = Some(fed.next);
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("listeners", &self.listeners()).finish_non_exhaustive()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        match &self.run {
            None => state.watching_all -= 1,
            Some(run) => {
                if let Some((_, watchers)) = state.watched.get_mut(run) {
                    *watchers -= 1;
                    if *watchers == 0 {
                        state.watched.remove(run);
                    }
                }
            }
        }
    }
}

struct Reader {
    number: u64,
    hub: Hub,
    wakes: watch::Receiver<telecine_queue::Wakes>,
    /// What the wake-ups said last.
    told: u64,
    alert_until: Instant,
}

impl Reader {
    async fn run(mut self) {
        let stopping = self.hub.0.stopping.clone();
        while let Some(position) = self.position() {
            let was_full = self.read(position).await;
            if was_full {
                continue;
            }
            let patience = if Instant::now() < self.alert_until { LOOK_AGAIN_AFTER } else { LOOK_EVERY };
            tokio::select! {
                () = stopping.cancelled() => break,
                () = self.woken() => tokio::time::sleep(GATHER_FOR).await,
                () = tokio::time::sleep(patience) => {}
            }
        }
    }

    /// Returns when a run has something to tell; never, when the queue is closed.
    async fn woken(&mut self) {
        loop {
            if self.wakes.changed().await.is_err() {
                return std::future::pending().await;
            }
            let told = self.wakes.borrow_and_update().told;
            if told != self.told {
                self.told = told;
                self.alert_until = Instant::now() + ALERT_FOR;
                return;
            }
        }
    }

    /// Where to go on; `None` when nobody is there any more, which is decided under the lock under which others join.
    fn position(&self) -> Option<FeedCursor> {
        let mut state = self.hub.state();
        if state.reader != self.number {
            return None;
        }
        if self.hub.listeners() == 0 || self.hub.0.stopping.is_cancelled() {
            state.position = None;
        }
        state.position.clone()
    }

    /// Says whether there is probably more.
    async fn read(&mut self, position: FeedCursor) -> bool {
        match self.hub.0.queue.feed(Some(position), BATCH).await {
            Ok(fed) => {
                let is_full = fed.events.len() >= BATCH as usize;
                if !fed.events.is_empty() {
                    self.hub.tell(self.number, fed);
                }
                is_full
            }
            Err(error) => {
                // Nothing is lost: the next look begins at the same place.
                tracing::warn!(%error, "the feed could not be read");
                false
            }
        }
    }
}

/// Once a second, while that reader reads.
async fn tell_progress(hub: Hub, reader: u64) {
    let mut ticks = tokio::time::interval(PROGRESS_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut progressing = Progressing::default();
    while hub.is_read_by(reader) {
        tokio::select! {
            () = hub.0.stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let (watched, watches_all) = {
            let state = hub.state();
            let watched = state.watched.iter().map(|(run, (tenant, _))| (run.clone(), tenant.clone()));
            (watched.collect::<Vec<_>>(), state.watching_all > 0)
        };
        match progressing.changed(&*hub.0.queue, watched, watches_all).await {
            Ok(changed) => {
                let glance = hub.glance();
                for (run, tenant) in changed {
                    let _ = hub.0.news.send(Arc::new(News::Progressed { run, tenant, glance }));
                }
            }
            Err(error) => tracing::warn!(%error, "progress could not be read"),
        }
    }
}

/// However it ended, the next one who joins starts another.
impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        if state.reader == self.number {
            state.position = None;
        }
    }
}
