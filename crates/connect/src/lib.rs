//! The outside: what happens to runs leaves through the outbox for whoever wants to hear of it.
//!
//! ```text
//!   outbox ── relay ──► sink `webhooks` ──► jobs `deliver_webhook`, one for each event and endpoint ──► HTTP, signed
//! ```
//!
//! This crate will never know SQL or how media is made.

#![warn(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on has failed"))]

pub mod webhooks;

pub use webhooks::{WebhookOptions, Webhooks};
