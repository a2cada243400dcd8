//! Recipes become runs, runs become jobs, and jobs turn blobs into blobs.
//!
//! ```text
//!   Submission ──► push: the run and its first job, `ingest`, in one transaction
//!                          │ fetch, hash, (scan, by a job of its own,) sniff, probe, limits, plan; then the rest is spawned
//!       ┌──────────────────┼────────────────┬───────────┬──────────┐
//!  encode_range × N   encode_audio       pictures     image      audio        each: source → scratch → blobs, records
//!       └────────┬─────────┘                │
//!             package ── mp4              exec …
//!          verify all, playlists,
//!          the master playlist last
//! ```
//! - A [`Recipe`] is a named graph of steps. What is invalid in one is said with its line and column.
//! - [`Blobs`] are a folder or a bucket. Keys are made here ([`keys`]), never by a caller.
//! - [`records`] are what jobs of a run tell each other, and what a run document is drawn from.
//! - [`Workshop`] is what all [`kinds`] share: programs, blobs, scratch, limits.
//!
//! This crate will never know HTTP, a message broker or SQL.

#![warn(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on has failed"))]

mod blobs;
mod cache;
mod document;
mod failure;
mod figures;
mod film;
mod graph;
mod input;
pub mod keys;
pub mod kinds;
mod lifetime;
mod live;
mod log;
mod media_type;
mod nearest;
mod outlook;
pub mod outside;
mod planned;
mod published;
mod recipe;
mod reconcile;
pub mod records;
mod request;
mod retry;
mod scan;
mod scratch;
mod shelf;
mod source;
mod submission;
mod workshop;

pub use blobs::{BlobMeta, BlobReader, Blobs, FetchError, Fetched, StoreError, StoreOptions};
pub use document::{
    ErrorShown, FileShown, InputShown, OutputShown, OutputStatus, ProbeShown, RecipeNamed, RunDocument,
    RunSummary, StepShown, StepStatus, SummarisedRuns, WarningShown, describe, describe_run, jobs_of_run,
    progress_of, run_of_tenant, shown_run, summarise,
};
pub use failure::Failed;
pub use input::{CompletedUpload, Input};
pub use kinds::NoProgram;
pub use lifetime::{Deleted, delete, delete_everywhere, forget, is_deleted};
pub use live::{LiveFilm, live_film};
pub use log::{AttemptLog, JobLog, RunLog, run_log};
pub use media_type::MediaType;
pub use nearest::did_you_mean;
pub use outlook::{
    CommandOutlook, Estimate, JobsOutlook, Outlook, StepOutlook, look_ahead, prefers_hardware,
};
pub use planned::{CannotPlan, Obstacle, Planned, examine};
pub use published::{Published, prefix_fault};
pub use recipe::{
    Does, ExecSpec, Listed, NoRecipe, Param, ParamError, ParamErrors, ParamType, Recipe, RecipeError,
    RecipeErrors, RecipeOrigin, Recipes, STEP_KINDS, Step, parse_params,
};
pub use reconcile::{Finding, News, Outcome, ReconcileOptions, Tally, Trouble, reconcile};
pub use request::{METADATA_BYTES, NoSubmission, RequestFault, RunRequest, priority, whole};
pub use retry::retry;
pub use scan::{
    Clamd, ClamdAddress, NoVerdict, ScanPolicy, ScanRules, Scanned, Scanning, Sending, UnscannedPolicy,
    Verdict,
};
pub use scratch::{JobFolder, Scratch};
pub use shelf::{Shelf, live_name};
pub use source::{CacheRoom, PullPatience, is_below};
pub use submission::{RunMeta, RunWebhook, Submission, Submitted, submit, submit_all};
pub use workshop::Workshop;
