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
//! - [`make_soundtrack`] makes the sound of a film, [`remux_to_segments`] copies what already fits.
//! - [`verify()`] proves what was made, and a [`Presentation`] of it writes the manifests.
//!
//! This crate will never know a database, the network, or what a job is. It has no global state: a [`Toolbox`] is a value.

#![warn(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on has failed"))]

mod audio;
mod capability;
mod damage;
mod digest;
mod ending;
mod error;
mod fresh;
mod image;
mod isobmff;
mod limits;
mod loudness;
mod pictures;
mod plan;
mod playlist;
mod probe;
mod progressive;
mod rational;
mod recipe;
mod remux;
pub mod sandbox;
mod sniff;
mod soundtrack;
mod tool;
mod verify;
mod video;

pub use audio::{AudioFile, AudioSet, make_audio};
pub use capability::{Capabilities, Piece};
pub use ending::require_whole;
pub use error::{At, InputProblem, Interruption, MediaError, Result};
pub use image::{ImageOutput, ImageSet, Placement, Refusal, VipsAnswer, VipsJob, make_images};
pub use isobmff::{
    InitSegment, IsobmffError, KeyFrame, MediaSegment, Mp4Summary, Sample, Track, TrackKind, mp4_key_frames,
    mp4_summary, read_init, read_segment,
};
pub use limits::Limits;
pub use loudness::LoudnessMeasure;
pub use pictures::{Pictures, Poster, Preview, SampledFrame, SceneCut, Storyboard, Tile, make_pictures};
pub use plan::{
    Colour, ColourPath, Crop, Decision, DecodeInputs, DecodeSpan, Delivery, EncoderPlan, Grid,
    HARDWARE_ENCODERS, Mark, Matrix, Picture, Plan, Primaries, Rung, Scaler, SegmentRange, SoundPlan,
    SourceFrame, Timeline, Transfer, VideoPlan, copy_obstacle, plan,
};
pub use playlist::{
    AudioGroup, AudioRendition, Bandwidth, GrowingPlaylist, MediaFacts, Presentation, SegmentFact, Variant,
    VideoRendition, hls_planned_master,
};
pub use probe::{
    AudioStream, Chapter, ColourRange, HdrKind, Probe, Rotation, Size, VideoStream, input_args, probe,
    probe_as,
};
pub use progressive::{Progressive, ProgressiveSpec, progressive_from_segments, progressive_from_source};
pub use rational::Rational;
pub use recipe::{
    Animation, AudioCodec, AudioFormat, AudioSpec, Fit, FramesSpec, Hardware, ImageFormat, ImageSpec,
    ImageVariant, Ladder, Loudness, Packaging, PicturesSpec, PosterSpec, Preset, PreviewSpec, Recipe,
    StoryboardSpec, Trim, VideoCodec, VideoSpec, Watermark, WatermarkCorner,
};
pub use remux::{Remux, RemuxSpec, Remuxed, remux_to_mp4, remux_to_segments};
pub use sniff::{Class, Format, SNIFF_BYTES, sniff, sniff_file};
pub use soundtrack::{Channels, Soundtrack, SoundtrackSpec, make_soundtrack};
pub use tool::{
    Activity, Confinement, Finished, Input, Output, Program, Progress, Rules, Running, TOOL_MEMORY_BYTES,
    Tool, ToolEnded, ToolHistory, ToolLimits, ToolStarted, Toolbox, UserProgram,
};
pub use verify::{
    MadeRendition, Promise, PromisedRung, PromisedSound, SegmentHashes, Verified, VerifiedFile,
    VerifiedRendition, verify,
};
pub use video::{
    InitFile, RangeDone, RangeEvent, RangeJob, RangeProgress, SegmentDone, SegmentFile, encode_range,
    with_measured_length,
};
