//! What the media crate promises, on the real programs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod audio;
mod capability;
mod clips;
mod images;
mod pictures;
mod probe;
mod recipe;
mod samples;
mod sniff;
mod tool;
