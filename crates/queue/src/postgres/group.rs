//! Small pushes together: what is pushed while others are being stored goes into one statement after them.
//!
//! Nobody waits for company: a push that finds no statement under way goes at once. Whoever comes meanwhile waits for
//! it to end, and all that wait go together. A commit costs the same for one job as for fifty.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::connect::Database;
use super::failure::Tried;
use super::notify::Notifier;
use super::push::{is_plain, store_plain};
use crate::bell::Ring;
use crate::error::{QueueError, Result};
use crate::limit::Bounds;
use crate::push::{Push, Pushed};

/// Jobs of one statement. More only make the first wait longer.
const MAX_JOBS: usize = 500;
/// A push of more jobs than this gains nothing by company.
const MAX_OWN_JOBS: usize = 50;

/// What one caller wants stored.
#[derive(Debug)]
struct Waiting {
    pushes: Vec<Push>,
    reply: oneshot::Sender<Result<Vec<Pushed>>>,
}

#[derive(Debug)]
pub(super) struct PushGroup {
    database: Database,
    notifier: Arc<Notifier>,
    runtime: Handle,
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    /// A statement is under way, after which its task looks at the line again. Only one: with 8 producers, groups are of
    /// 8 then; with two statements they fall apart (3,900 jobs a second instead of 7,200, in one run on a busy machine).
    served: bool,
}

/// Whether a push is one that may share its statement with others. Not those of named tenants: each of them takes its
/// place in the line behind the one before, which must have been stored.
pub(super) fn may_share(pushes: &[Push]) -> bool {
    let jobs: usize = pushes.iter().map(|push| push.jobs.len()).sum();
    !pushes.is_empty()
        && jobs <= MAX_OWN_JOBS
        && pushes.iter().all(|push| is_plain(push) && push.tenant.is_empty())
}

impl PushGroup {
    pub(super) fn new(database: &Database, notifier: &Arc<Notifier>) -> Arc<Self> {
        Arc::new(Self {
            database: database.clone(),
            notifier: Arc::clone(notifier),
            runtime: Handle::current(),
            line: Mutex::default(),
        })
    }

    /// Answers after the commit. What was asked for is done even if the caller goes away.
    pub(super) async fn push(self: &Arc<Self>, pushes: Vec<Push>) -> Result<Vec<Pushed>> {
        let (reply, answer) = oneshot::channel();
        if self.join(Waiting { pushes, reply }) {
            self.runtime.spawn(Arc::clone(self).store_all_that_wait(Turn(Some(Arc::clone(self)))));
        }
        let lost = || QueueError::Unavailable { reason: "the push was given up half-way".into() };
        answer.await.map_err(|_| lost())?
    }

    /// Says whether the newcomer found nobody who serves the line, which is then for it to see to.
    fn join(&self, newcomer: Waiting) -> bool {
        let mut line = self.line();
        line.waiting.push_back(newcomer);
        !std::mem::replace(&mut line.served, true)
    }

    async fn store_all_that_wait(self: Arc<Self>, turn: Turn) {
        loop {
            // Callers that were just answered, or are about to push, get to the line first.
            tokio::task::yield_now().await;
            let group = self.next_group();
            if group.is_empty() {
                return turn.end();
            }
            self.store_group(group).await;
        }
    }

    fn next_group(&self) -> Vec<Waiting> {
        let mut line = self.line();
        let (mut group, mut jobs) = (Vec::new(), 0);
        while jobs < MAX_JOBS
            && let Some(next) = line.waiting.pop_front()
        {
            jobs += next.pushes.iter().map(|push| push.jobs.len()).sum::<usize>();
            group.push(next);
        }
        if group.is_empty() {
            // Under the lock that shows the empty line: whoever joins next finds it unserved.
            line.served = false;
        }
        group
    }

    async fn store_group(&self, mut group: Vec<Waiting>) {
        let sizes: Vec<usize> = group.iter().map(|waiting| waiting.pushes.len()).collect();
        let together: Vec<Push> =
            group.iter_mut().flat_map(|waiting| std::mem::take(&mut waiting.pushes)).collect();
        match self.store_together(&together).await {
            Ok(Some(pushed)) => {
                let mut pushed = pushed.into_iter();
                for (waiting, size) in group.into_iter().zip(sizes) {
                    let _ = waiting.reply.send(Ok(pushed.by_ref().take(size).collect()));
                }
            }
            // The server refused the statement: one of them may be to blame, so each is tried by itself.
            Ok(None) => {
                let mut together = together.into_iter();
                for (waiting, size) in group.into_iter().zip(sizes) {
                    let own: Vec<Push> = together.by_ref().take(size).collect();
                    let _ = waiting.reply.send(self.store_alone(&own).await);
                }
            }
            Err(error) => {
                for waiting in group {
                    let _ = waiting.reply.send(Err(error.same_fate()));
                }
            }
        }
    }

    /// `None`: the server refused, so nothing was stored.
    async fn store_together(&self, pushes: &[Push]) -> Result<Option<Vec<Pushed>>> {
        let tell = self.notifier.takes_the_lead();
        let stored = self.database.retrying(|| async {
            match self.store(pushes, tell).await {
                Err(failure) if failure.is_refusal() => Ok(None),
                other => other.map(Some),
            }
        });
        Ok(stored.await?.map(|(pushed, ring)| {
            self.notifier.ring_after(ring, tell);
            pushed
        }))
    }

    async fn store_alone(&self, pushes: &[Push]) -> Result<Vec<Pushed>> {
        let stored = self.database.retrying(|| self.store(pushes, false));
        let (pushed, ring) = stored.await?;
        self.notifier.ring(ring);
        Ok(pushed)
    }

    /// No tenant of these has a name, so none has a cap to be balanced.
    async fn store(&self, pushes: &[Push], tell: bool) -> Tried<(Vec<Pushed>, Ring)> {
        store_plain(&mut *self.database.connection().await?, pushes, tell, &mut Bounds::new()).await
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves no line behind that nobody serves, should its task be dropped half-way.
struct Turn(Option<Arc<PushGroup>>);

impl Turn {
    /// The line is empty and was left.
    fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(group) = self.0.take() else { return };
        let mut line = group.line();
        line.served = false;
        // Nobody is left to store them; they hear of it and can try again.
        line.waiting.clear();
    }
}
