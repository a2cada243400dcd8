//! Faults on purpose, for tests of whatever stands on a queue.
//!
//! ```
//! # async fn example(queue: std::sync::Arc<dyn telecine_queue::Queue>) {
//! use telecine_queue::testing::{Faults, faulty};
//!
//! // Every third finish is carried out, but its answer is lost; every fifth pull never reaches the database.
//! let faults = Faults::new().lose_answer("finish", 3).refuse("pull", 5);
//! let queue = faulty(queue, &faults);
//! // … run a worker on it …
//! assert!(faults.injected("finish") > 0, "the faults were really there");
//! # }
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::decorated::{Around, Call, Decorated};
use crate::error::{QueueError, Result};
use crate::queue::Queue;

/// A queue whose calls, those of its beat included, fail as the script says, always with
/// [`QueueError::Unavailable`].
pub fn faulty(queue: Arc<dyn Queue>, faults: &Faults) -> Arc<dyn Queue> {
    Decorated::around(queue, faults.clone())
}

/// Which calls fail, by verb and number. Clones share their counters.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    rules: Vec<Rule>,
    injected: Arc<Mutex<BTreeMap<&'static str, u64>>>,
}

#[derive(Clone, Debug)]
struct Rule {
    verb: &'static str,
    every: u64,
    when: When,
    calls: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Before,
    After,
    Panic,
    Late(Duration),
}

impl Faults {
    pub fn new() -> Self {
        Self::default()
    }

    /// Every `every`-th call of the verb fails without having been carried out.
    #[must_use]
    pub fn refuse(self, verb: &'static str, every: u64) -> Self {
        self.rule(verb, every, When::Before)
    }

    /// Every `every`-th call of the verb is carried out, then fails: the answer is lost on the way.
    #[must_use]
    pub fn lose_answer(self, verb: &'static str, every: u64) -> Self {
        self.rule(verb, every, When::After)
    }

    /// Every `every`-th call of the verb panics without having been carried out.
    #[must_use]
    pub fn panic(self, verb: &'static str, every: u64) -> Self {
        self.rule(verb, every, When::Panic)
    }

    /// Every `every`-th call of the verb is carried out only after this long.
    #[must_use]
    pub fn delay(self, verb: &'static str, every: u64, delay: Duration) -> Self {
        self.rule(verb, every, When::Late(delay))
    }

    /// How many calls of the verb were made to fail.
    pub fn injected(&self, verb: &str) -> u64 {
        self.injected.lock().unwrap_or_else(PoisonError::into_inner).get(verb).copied().unwrap_or(0)
    }

    /// How many calls of the verb there were, if there is a rule for it.
    pub fn called(&self, verb: &str) -> u64 {
        let rules = self.rules.iter().filter(|rule| rule.verb == verb);
        rules.map(|rule| rule.calls.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    fn rule(mut self, verb: &'static str, every: u64, when: When) -> Self {
        self.rules.push(Rule { verb, every: every.max(1), when, calls: Arc::default() });
        self
    }

    /// The fault of this call, if it is its turn.
    fn next(&self, verb: &'static str) -> Option<When> {
        let mut turn = None;
        for rule in self.rules.iter().filter(|rule| rule.verb == verb) {
            let call = rule.calls.fetch_add(1, Ordering::Relaxed) + 1;
            if call.is_multiple_of(rule.every) {
                turn = turn.or(Some(rule.when));
            }
        }
        if turn.is_some() {
            *self.injected.lock().unwrap_or_else(PoisonError::into_inner).entry(verb).or_default() += 1;
        }
        turn
    }
}

impl Around for Faults {
    async fn around<T: Send>(&self, call: Call, inner: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let fault = |what: &str| {
            Err(QueueError::Unavailable { reason: format!("injected: {what} of {} was lost", call.verb) })
        };
        match self.next(call.verb) {
            None => inner.await,
            Some(When::Before) => fault("a call"),
            Some(When::After) => {
                inner.await?;
                fault("the answer")
            }
            Some(When::Panic) => panic!("injected: {} panics", call.verb),
            Some(When::Late(delay)) => {
                tokio::time::sleep(delay).await;
                inner.await
            }
        }
    }
}
