//! What the media crate promises, on the real programs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod canary;
mod capability;
mod clips;
mod hostile;
mod probe;
mod recipe;
mod sandbox;
mod sniff;
mod tool;
