//! How many connections there are, and who gives way when there are too many.
//!
//! A connection waits while no request of it is being answered: it was just opened, sends its headers byte by byte, or is
//! kept for a next request. When the house is full, the one that waits longest is sent off, so whoever holds thousands of
//! connections open holds up nobody: a client that sends its request at once waits for a moment only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub(super) struct Crowd {
    most: usize,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    /// Those that were sent off and have not left yet do not count.
    taken: usize,
    next_turn: u64,
    /// By the turn in which they began to wait.
    waiting: BTreeMap<u64, CancellationToken>,
}

impl Places {
    fn wait(&mut self, sent_off: CancellationToken) -> u64 {
        let turn = self.next_turn;
        self.next_turn += 1;
        self.waiting.insert(turn, sent_off);
        turn
    }

    /// `false`: nobody waits.
    fn send_off_first(&mut self) -> bool {
        let Some((_, sent_off)) = self.waiting.pop_first() else { return false };
        sent_off.cancel();
        self.taken -= 1;
        true
    }
}

impl Crowd {
    pub(super) fn of(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), places: Mutex::default() })
    }

    pub(super) fn here(&self) -> usize {
        self.places().taken
    }

    /// `None`: all are at a request.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Arc<Seat>> {
        let mut places = self.places();
        if places.taken >= self.most && !places.send_off_first() {
            return None;
        }
        places.taken += 1;
        let sent_off = CancellationToken::new();
        let turn = places.wait(sent_off.clone());
        drop(places);
        Some(Arc::new(Seat { crowd: Arc::clone(self), sent_off, waits_since: Mutex::new(Some(turn)) }))
    }

    /// Everybody who is at no request.
    pub(super) fn send_off_waiting(&self) {
        let mut places = self.places();
        while places.send_off_first() {}
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection.
#[derive(Debug)]
pub(super) struct Seat {
    crowd: Arc<Crowd>,
    sent_off: CancellationToken,
    /// `None` while it is at a request.
    waits_since: Mutex<Option<u64>>,
}

impl Seat {
    pub(super) async fn sent_off(&self) {
        self.sent_off.cancelled().await;
    }

    /// A request came. `None`: too late, it was sent off.
    pub(super) fn busy(seat: &Arc<Self>) -> Option<Busy> {
        let mut waits_since = seat.waits_since();
        let mut places = seat.crowd.places();
        let turn = waits_since.take()?;
        places.waiting.remove(&turn)?;
        Some(Busy(Arc::clone(seat)))
    }

    fn waits_since(&self) -> MutexGuard<'_, Option<u64>> {
        self.waits_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let turn = *self.waits_since();
        let mut places = self.crowd.places();
        if let Some(turn) = turn {
            places.waiting.remove(&turn);
        }
        if !self.sent_off.is_cancelled() {
            places.taken -= 1;
        }
    }
}

/// While it lives, its connection is at a request.
#[derive(Debug)]
pub(super) struct Busy(Arc<Seat>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut waits_since = self.0.waits_since();
        *waits_since = Some(self.0.crowd.places().wait(self.0.sent_off.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_longest_gives_way_and_who_is_at_a_request_stays() {
        let crowd = Crowd::of(3);
        let first = crowd.enter().unwrap();
        let second = crowd.enter().unwrap();
        let third = crowd.enter().unwrap();
        let at_request = Seat::busy(&first).unwrap();

        let fourth = crowd.enter().unwrap();

        assert!(second.sent_off.is_cancelled());
        assert!(!first.sent_off.is_cancelled() && !third.sent_off.is_cancelled());
        assert!(Seat::busy(&second).is_none(), "it was sent off before its request came");
        assert_eq!(crowd.here(), 3);
        drop(at_request);
        let _fifth = crowd.enter().unwrap();
        let _sixth = crowd.enter().unwrap();
        assert!(third.sent_off.is_cancelled() && fourth.sent_off.is_cancelled());
        assert!(!first.sent_off.is_cancelled(), "it waits again, but not for as long");
    }

    #[test]
    fn nobody_enters_while_all_are_at_a_request() {
        let crowd = Crowd::of(1);
        let only = crowd.enter().unwrap();
        let at_request = Seat::busy(&only).unwrap();

        assert!(crowd.enter().is_none());

        drop(at_request);
        assert!(crowd.enter().is_some());
    }

    #[test]
    fn places_are_given_back_by_all_who_leave() {
        let crowd = Crowd::of(2);
        for _ in 0..5 {
            let first = crowd.enter().unwrap();
            let second = crowd.enter().unwrap();
            let third = crowd.enter().unwrap();
            assert!(first.sent_off.is_cancelled() && Seat::busy(&first).is_none());
            drop(Seat::busy(&second).unwrap());
            assert_eq!(crowd.here(), 2);
            drop((first, second, third));
            assert_eq!(crowd.here(), 0);
        }
    }
}
