//! Who writes to which upload in this process, so that it can be waited for, or told to stop.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// All of them, by the upload's id.
#[derive(Clone, Debug, Default)]
pub(super) struct UnderWay(Arc<Mutex<HashMap<String, Arc<Writing>>>>);

/// One who writes.
#[derive(Debug)]
pub(super) struct Writing {
    /// Cancelled by whoever wants it to stop.
    pub(super) stop: CancellationToken,
    ended: CancellationToken,
    heard_at: Mutex<Instant>,
    is_storing: AtomicBool,
}

/// Says that the writing has ended when it is dropped, which has to be after the upload was let go.
#[derive(Debug)]
pub(super) struct Entered {
    under_way: UnderWay,
    id: String,
    pub(super) writing: Arc<Writing>,
}

impl UnderWay {
    /// Only who holds the upload may enter.
    pub(super) fn enter(&self, id: &str, stopping: &CancellationToken) -> Entered {
        let writing = Arc::new(Writing {
            stop: stopping.child_token(),
            ended: CancellationToken::new(),
            heard_at: Mutex::new(Instant::now()),
            is_storing: AtomicBool::new(false),
        });
        self.lock().insert(id.to_owned(), Arc::clone(&writing));
        Entered { under_way: self.clone(), id: id.to_owned(), writing }
    }

    pub(super) fn of(&self, id: &str) -> Option<Arc<Writing>> {
        self.lock().get(id).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Writing>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writing {
    /// Something came.
    pub(super) fn heard(&self) {
        *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(super) fn silent_for(&self) -> Duration {
        self.heard_at.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// All bytes are there.
    pub(super) fn storing(&self) {
        self.is_storing.store(true, Ordering::Release);
    }

    pub(super) fn is_storing(&self) -> bool {
        self.is_storing.load(Ordering::Acquire)
    }

    /// Returns when the upload is let go.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut all = self.under_way.lock();
        // Somebody may have entered since the upload was let go.
        if all.get(&self.id).is_some_and(|writing| Arc::ptr_eq(writing, &self.writing)) {
            all.remove(&self.id);
        }
        drop(all);
        self.writing.ended.cancel();
    }
}
