//! What the media crate promises, on the real programs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod audio;
mod canary;
mod capability;
mod clips;
mod ending;
mod film;
mod hostile;
mod images;
mod isobmff;
mod pictures;
mod plan;
mod playlist;
mod probe;
mod progressive;
mod recipe;
mod remux;
mod requires;
mod samples;
mod sandbox;
mod sniff;
mod soundtrack;
mod tool;
mod verdicts;
mod verify;
mod video;
mod vips_helper;
mod whole;
