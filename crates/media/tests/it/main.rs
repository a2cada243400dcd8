//! What the media crate promises, on the real programs.

mod capability;
mod clips;
mod probe;
mod recipe;
mod sniff;
mod tool;
