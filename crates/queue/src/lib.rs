//! Durable jobs on SQLite or Postgres.

mod backoff;
mod bell;
mod error;
mod job;
mod migration;
mod open;
mod postgres;
mod push;
mod queue;
mod run;
mod runtime;
mod settle;
mod sqlite;
mod timestamp;
mod worker;

pub use backoff::Backoff;
pub use error::{QueueError, Result};
pub use job::{
    Attempt, AttemptOutcome, Claim, Fence, Finish, Job, JobError, JobId, JobState, MAX_JSON_BYTES, NewJob, Outcome,
    Settled,
};
pub use open::{OpenOptions, open, open_with, pending_migrations};
pub use postgres::PostgresQueue;
pub use push::{Push, Pushed};
pub use queue::{
    Count, JobFilter, Listed, Page, Promoted, Pulse, Queue, Reaped, Wakes, total, totals,
};
pub use run::{NewRun, Run, RunId, RunState};
pub use runtime::{Failure, JobContext, Kind, Kinds, Report, Runtime, Slots, WorkerOptions};
pub use sqlite::SqliteQueue;
pub use timestamp::Timestamp;
pub use worker::{Beat, BeatReply, ClaimBeat, Claimed, NewWorker, Pull, Worker, WorkerId};
