//! Events: what happened to a run, and the outbox through which sinks hear of it.
//!
//! An event is written in the transaction that makes it true, under the run's next number, and so is a row of the outbox
//! for every sink. Of each run a sink has one row at most that is due: the first unsent one. A relay claims that row for
//! a short lease and with it whatever waits behind it, so two relays never send events of one run at the same time, and
//! what was committed late cannot be skipped: nobody remembers a last number seen.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::error::Result;
use crate::job::{check_json, check_name};
use crate::run::RunId;
use crate::timestamp::Timestamp;

/// Events of one run that a relay gets in one go.
pub(crate) const PARCEL_EVENTS: u32 = 100;

/// No event is put off for longer.
pub(crate) const LONGEST_DELAY: Duration = Duration::from_hours(1);

/// One fact about a run. `(run, seq)` names it for good: receivers drop what they have seen by it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    pub run: RunId,
    /// 1, 2, 3, … of each run, without gaps.
    pub seq: u64,
    /// Such as `run.created`, `run.started`, `run.succeeded`, `run.retried`.
    #[serde(rename = "type")]
    pub name: String,
    pub at: Timestamp,
    pub body: Value,
}

/// An event on its way to its run.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    pub name: String,
    pub body: Value,
}

/// What a sink has not been sent of one run, in order, claimed for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parcel {
    pub run: RunId,
    /// How often its first event was claimed, this time included. Only the last claim may settle.
    pub attempt: u32,
    /// At least one.
    pub events: Vec<Event>,
}

impl Parcel {
    /// All of it reached the sink.
    pub fn delivered(&self) -> Delivered {
        let through_seq = self.events.last().map_or(0, |event| event.seq);
        Delivered { run: self.run.clone(), attempt: self.attempt, through_seq }
    }

    /// Nothing of it reached the sink for certain.
    pub fn undelivered(&self, delay: Duration) -> Undelivered {
        Undelivered { run: self.run.clone(), attempt: self.attempt, delay }
    }

    /// Puts rows of events, sorted by run and number, together.
    pub(crate) fn gather(rows: impl IntoIterator<Item = (u32, Event)>) -> Vec<Self> {
        let mut parcels: Vec<Self> = Vec::new();
        for (attempt, event) in rows {
            match parcels.last_mut() {
                Some(parcel) if parcel.run == event.run => parcel.events.push(event),
                _ => parcels.push(Self { run: event.run.clone(), attempt, events: vec![event] }),
            }
        }
        parcels
    }
}

/// A sink has a run's events up to a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    pub run: RunId,
    pub attempt: u32,
    pub through_seq: u64,
}

/// A run's events are to be tried again after a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    pub run: RunId,
    pub attempt: u32,
    pub delay: Duration,
}

/// What waits for one sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutboxDepth {
    pub sink: String,
    /// Events that it was not sent, or did not say that it has.
    pub waiting: u64,
    /// When the oldest of them happened. `None`: nothing waits.
    pub oldest_at: Option<Timestamp>,
}

impl OutboxDepth {
    /// Of how many runs the events are counted.
    pub const MAX_RUNS: u32 = 10_000;
}

/// Refuses what can never be stored.
pub(crate) fn check_told(name: &str, body: &Value) -> Result<()> {
    check_name("type of an event", name)?;
    check_json("the body of an event", body)
}
