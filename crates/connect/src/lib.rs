//! The outside: what happens to runs leaves through the outbox for whoever wants to hear of it.
//!
//! This crate will never know SQL or how media is made.
