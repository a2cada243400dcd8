//! One read for all who asked before it began. An answer is never older than its question, so nothing is remembered that
//! another process could know better.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Reads of many things, each by its key.
#[derive(Debug)]
pub(super) struct Rounds<K, T>(Mutex<HashMap<K, Weak<OfOne<T>>>>);

/// Reads of one thing, one after the other.
#[derive(Debug)]
struct OfOne<T> {
    begun: AtomicU64,
    /// What came of the last round that ended well.
    last: tokio::sync::Mutex<Option<(u64, T)>>,
}

impl<K: Eq + Hash, T: Clone> Rounds<K, T> {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    /// Who asks while somebody reads waits for the next round, which is for all who wait.
    pub(super) async fn ask<E>(&self, key: K, read: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let of_one = self.of_one(key);
        let asked = of_one.begun.load(Ordering::Acquire);
        let mut last = of_one.last.lock().await;
        if let Some((_, answer)) = last.as_ref().filter(|(round, _)| *round > asked) {
            return Ok(answer.clone());
        }
        let round = of_one.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let answer = read.await?;
        *last = Some((round, answer.clone()));
        Ok(answer)
    }

    fn of_one(&self, key: K) -> Arc<OfOne<T>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        // What nobody asks for is not kept.
        all.retain(|_, of_one| of_one.strong_count() > 0);
        let made = Arc::new(OfOne { begun: AtomicU64::new(0), last: tokio::sync::Mutex::default() });
        all.insert(key, Arc::downgrade(&made));
        made
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::future::{join, join_all};
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn all_who_ask_during_a_read_share_the_next_one() {
        let (rounds, reads, go_on) = (Rounds::new(), AtomicU64::new(0), Notify::new());
        let read = async |waits: bool| {
            let number = reads.fetch_add(1, Ordering::Relaxed) + 1;
            if waits {
                go_on.notified().await;
            }
            Ok::<_, Infallible>(number)
        };

        let first = rounds.ask("film", read(true));
        let later = async {
            let later = (0..10).map(|_| rounds.ask("film", read(false)));
            let told = async {
                tokio::task::yield_now().await;
                go_on.notify_one();
            };
            join(join_all(later), told).await.0
        };
        let (first, later) = join(first, later).await;

        assert_eq!(first, Ok(1));
        assert!(later.iter().all(|answer| *answer == Ok(2)), "{later:?}");
        assert_eq!(rounds.ask("film", read(false)).await, Ok(3), "a later question has a newer answer");
        assert_eq!(rounds.ask("other", read(false)).await, Ok(4));
    }
}
