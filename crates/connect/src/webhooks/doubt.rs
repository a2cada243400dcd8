//! Endpoints that gave no answer lately. Each of them would hold a slot for as long as an answer may take; so all of
//! them together have few places, and whoever answers never waits behind them.
//!
//! It is what this process has seen: others find out for themselves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Of all endpoints in doubt together.
const PLACES: usize = 2;
/// An endpoint that nobody tried for so long is as good as a new one.
const DOUBTED_FOR: Duration = Duration::from_mins(15);

#[derive(Debug)]
pub(super) struct Doubts {
    /// By what bounds its deliveries, and since when.
    silent: Mutex<HashMap<String, Instant>>,
    places: Arc<Semaphore>,
}

/// Whether a delivery may be sent now.
#[derive(Debug)]
pub(super) enum Admission {
    Trusted,
    /// For as long as this is held.
    InDoubt(#[expect(dead_code, reason = "it is held, not looked at")] OwnedSemaphorePermit),
    NotNow,
}

impl Doubts {
    pub(super) fn new() -> Self {
        Self { silent: Mutex::new(HashMap::new()), places: Arc::new(Semaphore::new(PLACES)) }
    }

    pub(super) fn admit(&self, key: &str) -> Admission {
        let is_silent = self.silent().get(key).is_some_and(|since| since.elapsed() < DOUBTED_FOR);
        match is_silent.then(|| Arc::clone(&self.places).try_acquire_owned()) {
            None => Admission::Trusted,
            Some(Ok(place)) => Admission::InDoubt(place),
            Some(Err(_)) => Admission::NotNow,
        }
    }

    /// Whatever it answered.
    pub(super) fn answered(&self, key: &str) {
        self.silent().remove(key);
    }

    pub(super) fn gave_no_answer(&self, key: &str) {
        let mut silent = self.silent();
        silent.retain(|_, since| since.elapsed() < DOUBTED_FOR);
        silent.insert(key.to_owned(), Instant::now());
    }

    fn silent(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_silent_share_few_places_and_leave_them_when_they_answer() {
        let doubts = Doubts::new();
        for key in ["a", "b", "c"] {
            assert!(matches!(doubts.admit(key), Admission::Trusted));
            doubts.gave_no_answer(key);
        }

        let (first, second) = (doubts.admit("a"), doubts.admit("b"));

        assert!(matches!((&first, &second), (Admission::InDoubt(_), Admission::InDoubt(_))));
        assert!(matches!(doubts.admit("c"), Admission::NotNow));
        assert!(matches!(doubts.admit("d"), Admission::Trusted), "who answers is not held up");
        drop(first);
        assert!(matches!(doubts.admit("c"), Admission::InDoubt(_)));
        doubts.answered("c");
        assert!(matches!(doubts.admit("c"), Admission::Trusted));
    }
}
