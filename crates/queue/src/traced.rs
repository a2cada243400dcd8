//! Every span and figure of the queue, in one place.

use std::sync::Arc;
use std::time::Instant;

use tracing::Instrument;

use crate::decorated::{Around, Call, Decorated, Done};
use crate::error::Result;
use crate::figures;
use crate::queue::Queue;

/// A queue whose every verb is a span (`queue.push`, `queue.pull`, …, at level debug) that ends with one event of target
/// `telecine_queue::verb`: `verb`, `items`, `elapsed_us`, and `error` if it failed; and which counts what it did (see
/// `figures.rs`) for the recorder of the process. While nobody listens, a call costs a few atomic loads more.
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
        let started = Instant::now();
        if !tracing::enabled!(tracing::Level::DEBUG) {
            let answer = inner.await;
            figures::called(call.verb, started.elapsed(), answer.is_ok());
            return answer;
        }
        let span = (call.span)();
        let answer = inner.instrument(span.clone()).await;
        figures::called(call.verb, started.elapsed(), answer.is_ok());
        let elapsed_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let (verb, items) = (call.verb, call.items);
        span.in_scope(|| match &answer {
            Ok(_) => tracing::debug!(target: TARGET, verb, items, elapsed_us, "done"),
            Err(error) => tracing::debug!(target: TARGET, verb, items, elapsed_us, %error, "refused"),
        });
        answer
    }

    fn note(&self, done: Done<'_>) {
        match done {
            Done::Pulled(claimed) => figures::pulled(claimed),
            Done::Finished(batch, settled) => figures::finished(batch, settled),
            Done::Reaped(reaped) => figures::reaped(reaped),
            Done::Beaten(reply) => figures::beaten(reply),
        }
    }
}
