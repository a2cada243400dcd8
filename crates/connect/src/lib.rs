//! The outside: requests come in from a broker, and what happens to runs leaves through the outbox for whoever wants to
//! hear of it.
//!
//! ```text
//!   outbox ── relay ─┬► sink `webhooks` ──► jobs `deliver_webhook`, one for each event and endpoint ──► HTTP, signed
//!                    └► sink `kafka` ──► records of a response topic
//!   records of a request topic ──► runs
//! ```
//!
//! This crate will never know SQL or how media is made.

#![warn(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on has failed"))]

pub mod kafka;
mod told;
mod traceparent;
pub mod webhooks;

pub use kafka::{Kafka, KafkaOptions};
pub use webhooks::{WebhookOptions, Webhooks};
