//! Files in, verified files out, through FFmpeg and libvips.
//!
//! Every program is a child in a process group of its own, started in one place ([`Tool`]) under limits, killed as a
//! group when it is cancelled, dropped, stalled or late, and judged by one classifier: [`MediaError`] says whether the
//! input is bad for good, the attempt may be repeated, or a piece of the installation is missing.
//!
//! ```text
//!   bytes ──► sniff ──► probe ──► Limits::check ──► the work a Recipe asks for ──► files in a scratch folder
//!            content    one        before any          │
//!            decides    ffprobe    decode              └─ Tool ─► Running ─► Finished | MediaError
//!            the type                                     │         ├─ Progress (typed, watched)
//!                                              Confinement│         └─ stderr tail (bounded)
//!                                                         └─ ffmpeg, ffprobe, vips
//! ```
//! - [`sniff`] decides the type from content alone and so which demuxer FFmpeg may use; names are never looked at.
//! - [`probe`] describes a file; [`Limits`] refuses what would cost too much, before anything is decoded.
//! - [`sandbox`] is what a started program may do: its own files and computing, nothing else.
//! - [`Capabilities`] says what the installed programs can do; what is missing is named before work begins.
//! - [`Recipe`] is what a caller asks for.
//!
//! This crate will never know a database, the network, or what a job is. It has no global state: a [`Toolbox`] is a value.

#![warn(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on has failed"))]

mod capability;
mod error;
mod limits;
mod probe;
mod rational;
mod recipe;
pub mod sandbox;
mod sniff;
mod tool;

pub use capability::{Capabilities, Piece};
pub use error::{At, InputProblem, Interruption, MediaError, Result};
pub use limits::Limits;
pub use probe::{
    AudioStream, Chapter, ColourRange, HdrKind, Probe, Rotation, Size, VideoStream, input_args, probe,
    probe_as,
};
pub use rational::Rational;
pub use recipe::{
    Animation, AudioCodec, AudioFormat, AudioSpec, Fit, FramesSpec, Hardware, ImageFormat, ImageSpec,
    ImageVariant, Ladder, Loudness, Packaging, PicturesSpec, PosterSpec, Preset, PreviewSpec, Recipe,
    StoryboardSpec, Trim, VideoCodec, VideoSpec, Watermark, WatermarkCorner,
};
pub use sniff::{Class, Format, SNIFF_BYTES, sniff, sniff_file};
pub use tool::{
    Activity, Confinement, Finished, Input, Output, Program, Progress, Rules, Running, Tool, ToolLimits,
    Toolbox,
};
