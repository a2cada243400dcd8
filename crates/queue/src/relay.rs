//! The relay: events leave the database for sinks, at least once and in order per run.
//!
//! ```text
//!              wakes, poll              one per run             batched
//! outbox ── outbox_take ──► parcel ── Sink::deliver ──► outbox_done | outbox_retry (backoff of that run)
//! ```
//! Each sink has a task of its own, so one that is down delays no other; each run has a backoff of its own, so one that a
//! sink chokes on delays no other run. Any number of processes may relay to the same sinks: a run's events are claimed by
//! one of them for a lease, and a delivery that takes longer than the lease is dropped before it ends.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::error::Result;
use crate::event::{Delivered, Event, LONGEST_DELAY, Parcel, Undelivered};
use crate::figures;
use crate::queue::Queue;

/// Where events go: a broker, a webhook, a file.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// What the outbox knows it by. Stays the same for good.
    fn name(&self) -> &str;

    /// Takes events of one run, in order, all or nothing. The same ones may come again, with the same `(run, seq)`:
    /// after an error, after a crash, after an answer that took longer than [`RelayOptions::deliver_within`].
    async fn deliver(&self, events: &[Event]) -> Result<(), SinkError>;
}

/// A sink did not take what it was given. It is given it again, for as long as it takes.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct SinkError {
    pub reason: String,
    /// Not before this long; `None`: after the backoff.
    pub retry_after: Option<Duration>,
}

impl SinkError {
    pub fn new(reason: impl ToString) -> Self {
        Self { reason: reason.to_string(), retry_after: None }
    }
}

/// How a relay behaves.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// For how long a run's events are one relay's to send.
    pub lease: Duration,
    /// How long one delivery may take. Less than the lease.
    pub deliver_within: Duration,
    /// How often it looks for events that no wake-up told it of.
    pub poll_every: Duration,
    /// Runs of one sink whose events are on their way at the same time.
    pub in_flight: u32,
    /// How long a run's events wait after a failure.
    pub backoff: Backoff,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            deliver_within: Duration::from_secs(20),
            poll_every: Duration::from_secs(1),
            in_flight: 16,
            backoff: Backoff { base_ms: 1_000, factor: 2, cap_ms: 5 * 60 * 1_000 },
        }
    }
}

/// A relay at work. Dropping it stops it without waiting for what is on its way.
#[derive(Debug)]
pub struct Relay {
    stop: CancellationToken,
    feeds: JoinSet<()>,
}

impl Relay {
    /// Makes the sinks known, if they are not yet, and feeds them.
    pub async fn start(
        queue: Arc<dyn Queue>,
        sinks: Vec<Arc<dyn Sink>>,
        options: RelayOptions,
    ) -> Result<Self> {
        let (stop, mut feeds) = (CancellationToken::new(), JoinSet::new());
        for sink in sinks {
            queue.add_sink(sink.name()).await?;
            let feed = Feed { queue: Arc::clone(&queue), sink, options: options.clone(), stop: stop.clone() };
            feeds.spawn(feed.run());
        }
        Ok(Self { stop, feeds })
    }

    /// Takes nothing new, and waits for what is on its way.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.feeds.join_next().await.is_some() {}
    }
}

/// One sink's share of a relay.
struct Feed {
    queue: Arc<dyn Queue>,
    sink: Arc<dyn Sink>,
    options: RelayOptions,
    stop: CancellationToken,
}

/// How a parcel fared.
enum Fate {
    Delivered(Delivered),
    Undelivered(Undelivered),
}

impl Feed {
    async fn run(self) {
        let mut wakes = self.queue.wakes();
        let mut sending = JoinSet::new();
        while !self.stop.is_cancelled() {
            let seen = wakes.borrow_and_update().told;
            self.take(&mut sending).await;
            let ended = tokio::select! {
                Some(ended) = sending.join_next() => Some(ended),
                Ok(_) = wakes.wait_for(|now| now.told != seen) => None,
                () = tokio::time::sleep(self.options.poll_every) => None,
                () = self.stop.cancelled() => None,
            };
            if let Some(ended) = ended {
                self.settle(ended.ok(), &mut sending).await;
            }
        }
        while let Some(ended) = sending.join_next().await {
            self.settle(ended.ok(), &mut sending).await;
        }
    }

    async fn take(&self, sending: &mut JoinSet<Fate>) {
        let room = self.options.in_flight.saturating_sub(sending.len() as u32);
        if room == 0 {
            return;
        }
        match self.queue.outbox_take(self.sink.name(), room, self.options.lease).await {
            Ok(parcels) => {
                for parcel in parcels {
                    sending.spawn(send(Arc::clone(&self.sink), parcel, self.options.clone()));
                }
            }
            Err(error) => {
                tracing::warn!(%error, sink = self.sink.name(), "could not look into the outbox; trying again");
            }
        }
    }

    /// Settles what has ended. What cannot be settled is sent again when its lease ends.
    async fn settle(&self, first: Option<Fate>, sending: &mut JoinSet<Fate>) {
        let (mut delivered, mut undelivered) = (Vec::new(), Vec::new());
        let mut next = first;
        loop {
            match next {
                Some(Fate::Delivered(fate)) => delivered.push(fate),
                Some(Fate::Undelivered(fate)) => undelivered.push(fate),
                // A sink that panicked has been told of by its panic; its lease ends by itself.
                None => {}
            }
            next = match sending.try_join_next() {
                Some(ended) => ended.ok(),
                None => break,
            };
        }
        let name = self.sink.name();
        if !delivered.is_empty()
            && let Err(error) = self.queue.outbox_done(name, &delivered).await
        {
            tracing::warn!(%error, sink = name, "could not note what was sent; it will be sent again");
        }
        if !undelivered.is_empty()
            && let Err(error) = self.queue.outbox_retry(name, &undelivered).await
        {
            tracing::warn!(%error, sink = name, "could not put events off; they are tried when the lease ends");
        }
    }
}

async fn send(sink: Arc<dyn Sink>, parcel: Parcel, options: RelayOptions) -> Fate {
    let answer = tokio::time::timeout(options.deliver_within, sink.deliver(&parcel.events)).await;
    let error = match answer {
        Ok(Ok(())) => {
            figures::published(sink.name(), parcel.events.len());
            return Fate::Delivered(parcel.delivered());
        }
        Ok(Err(error)) => error,
        Err(_) => SinkError::new(format!("no answer within {:?}", options.deliver_within)),
    };
    figures::not_published(sink.name());
    let delay = error.retry_after.unwrap_or_else(|| options.backoff.delay(parcel.attempt)).min(LONGEST_DELAY);
    tracing::warn!(
        sink = sink.name(), run.id = %parcel.run, attempt = parcel.attempt, %error, ?delay,
        "events were not taken; trying again"
    );
    Fate::Undelivered(parcel.undelivered(delay))
}
