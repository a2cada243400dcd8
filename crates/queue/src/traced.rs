//! Every span and figure of the queue, in one place.

use std::sync::Arc;
use std::time::Instant;

use tracing::Instrument;

use crate::decorated::{Around, Call, Decorated};
use crate::error::Result;
use crate::queue::Queue;

/// A queue whose every verb is a span (`queue.push`, `queue.pull`, …, at level debug) that ends with one event of target
/// `telecine_queue::verb`: `verb`, `items`, `elapsed_us`, and `error` if it failed. A subscriber makes counters and
/// histograms of these fields; while nobody listens, a call costs two atomic loads more.
///
/// [`open`](crate::open()) gives such a queue already.
pub fn traced(queue: Arc<dyn Queue>) -> Arc<dyn Queue> {
    Decorated::around(queue, Traced)
}

#[derive(Clone, Copy)]
struct Traced;

impl Around for Traced {
    async fn around<T: Send>(&self, call: Call, inner: impl Future<Output = Result<T>> + Send) -> Result<T> {
        const TARGET: &str = "telecine_queue::verb";
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return inner.await;
        }
        let span = (call.span)();
        let started = Instant::now();
        let answer = inner.instrument(span.clone()).await;
        let elapsed_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let (verb, items) = (call.verb, call.items);
        span.in_scope(|| match &answer {
            Ok(_) => tracing::debug!(target: TARGET, verb, items, elapsed_us, "done"),
            Err(error) => tracing::debug!(target: TARGET, verb, items, elapsed_us, %error, "refused"),
        });
        answer
    }
}
