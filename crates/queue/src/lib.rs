//! Durable jobs on SQLite or Postgres: a job that was pushed is run, whatever dies in between.
//!
//! The database is the queue. One row is one job; a claim is one atomic statement that raises the job's *fence*, and
//! every write of a worker carries the fence it was given, so a worker that was taken for dead changes nothing when it
//! wakes up. SQLite needs nothing installed and serves any number of processes on one host; Postgres serves many hosts.
//! Both keep the same promises, by the same tests.
//!
#![doc = concat!("```no_run\n", include_str!("../examples/thumbnails.rs"), "```")]
//!
//! # The life of a job
//! ```text
//!            push                    pull                     finish
//!   caller ────────► scheduled ──► pending ──────► running ───────────► completed
//!                      ▲   promote    ▲              │ │  fail for good  failed
//!                      │              │   release,   │ │  cancel         cancelled
//!                      └──────────────┴── fail, snooze ┘                  (history)
//!                                     └── reap: the worker fell silent
//! ```
//! - [`Queue::push`] answers after the commit. An idempotency key makes repeats harmless.
//! - [`Queue::pull`] claims jobs for free slots, by lane, priority and age. [`Runtime`] does it for you.
//! - [`Queue::finish`] settles claims. Repeating it is harmless, so a lost answer costs nothing.
//! - [`Queue::reap`] frees what silent workers held. A job that kills its workers is given up as poison.
//!
//! Jobs run **at least once**: a worker that dies after its work but before its outcome is stored leaves the work to be
//! done again. What is *stored* of a job is stored once, by the claim that still owned it.
//!
//! This crate will never know what a job is about: no media, no HTTP, no message broker.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod backoff;
mod bell;
mod claim;
mod decorated;
mod entry;
mod error;
mod event;
mod feed;
mod figures;
mod graph;
mod job;
mod limit;
mod migration;
mod open;
#[cfg(all(test, feature = "openapi"))]
mod openapi;
mod postgres;
mod push;
mod queue;
mod relay;
mod run;
mod runtime;
mod schedule;
mod settle;
mod sqlite;
pub mod testing;
mod timestamp;
mod traced;
mod worker;

/// For `impl Kind`.
pub use async_trait::async_trait;

pub use backoff::Backoff;
pub use claim::{Attempt, AttemptOutcome, Claim, Finish, Outcome, Settled};
pub use entry::{Entry, NewEntry};
pub use error::{QueueError, Result};
pub use event::{Delivered, Event, NewEvent, OutboxDepth, Parcel, Undelivered};
pub use feed::{Fed, FedEvent, FeedCursor};
pub use graph::{Edge, Need, Needed, NewRecord, OnFailed, Record, Spawn};
pub use job::{Fence, Job, JobError, JobId, JobState, MAX_JSON_BYTES, NewJob};
pub use limit::{Limit, LimitState, Pausable, Paused, TenantPolicy, TenantState};
pub use open::{OpenOptions, backup, open, open_with, pending_migrations};
pub use postgres::PostgresQueue;
pub use push::{Push, Pushed};
pub use queue::{Age, Count, JobFilter, Listed, Page, Promoted, Pulse, Queue, Reaped, Wakes, total};
pub use relay::{Relay, RelayOptions, Sink, SinkError};
pub use run::{ListedRuns, NewRun, Run, RunFilter, RunId, RunPage, RunState, StepCount};
pub use runtime::{
    Failure, JobContext, Kind, Kinds, Lineage, NotRecorded, Report, Runtime, Slots, WorkerOptions, keep_up,
};
pub use schedule::{Missed, NewSchedule, Schedule, Ticked};
pub use sqlite::SqliteQueue;
pub use timestamp::Timestamp;
pub use traced::traced;
pub use worker::{Beat, BeatReply, ClaimBeat, Claimed, NewWorker, Pull, Worker, WorkerId};
