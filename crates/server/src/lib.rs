//! The HTTP API: runs, uploads, files, live events, and what operators need.
//!
//! ```text
//!   connection ── listen: timeouts, limits ── caller: key, tenant, scopes ── api/*: one file per resource
//!                                                                              │
//!                         problem+json, one stable code each ◄─────────────────┤
//!                                                                              ▼
//!                                                             queue · blobs · recipes (the `App`)
//! ```
//! - Every answer that is no success is a [`Problem`]: RFC 9457 with a stable `code`.
//! - Every request has a [`Caller`]; whatever belongs to another tenant does not exist for it.
//! - `openapi.json` is generated from the handlers, by the same macros that route to them.
//!
//! This crate will never know SQL, a message broker, or how media is made.

#![warn(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on has failed"))]

mod api;
mod app;
mod caller;
mod cors;
mod docs;
mod extract;
mod hub;
pub mod keys;
mod listen;
mod meter;
mod observe;
mod origin;
mod pace;
mod problem;
mod readiness;
mod remote;
mod secret;
mod sessions;
mod share;
mod token;
mod traces;
mod trust;
mod turns;

pub use api::scan::ScanOptions;
pub use api::transcode::TranscodeOptions;
pub use api::uploads::UploadOptions;
pub use api::{openapi, router};
pub use app::{App, ServerOptions};
pub use caller::{Caller, Scope};
pub use listen::{ServeError, Server};
pub use meter::Meter;
pub use problem::{Code, Problem};
pub use traces::{NoTraces, RunTraces, Traces};
