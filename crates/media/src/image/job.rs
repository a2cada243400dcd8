//! What the program `telecine-vips` is told, and what it answers: one JSON document each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::recipe::{ImageFormat, ImageSpec};
use crate::sniff::Format;

/// One picture and all that is wanted of it. Output files are written to the working directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VipsJob {
    pub input: PathBuf,
    /// As its content decided: the one loader that may read it.
    pub format: Format,
    pub spec: ImageSpec,
    pub limits: Limits,
    /// Encoders that may run side by side.
    pub threads: usize,
}

/// Either all outputs are there, or the input is to blame. Anything else is an exit code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VipsAnswer {
    Made(ImageSet),
    Refused { why: Refusal, detail: String },
}

/// Why a picture can never be processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    TooLarge,
    Truncated,
    Corrupt,
    Unsupported,
}

/// Everything that came out of one picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImageSet {
    /// Of the source as it is seen: turned upright.
    pub source_width: u32,
    pub source_height: u32,
    pub source_frames: u32,
    pub has_alpha: bool,
    /// In the order of the recipe.
    pub outputs: Vec<ImageOutput>,
    /// In base64.
    pub thumbhash: Option<String>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageOutput {
    /// Its place among the variants of the recipe.
    pub variant: usize,
    pub format: ImageFormat,
    pub path: PathBuf,
    pub bytes: u64,
    pub width: u32,
    pub height: u32,
    /// More than one when it moves.
    pub frames: u32,
    /// In lower-case hex.
    pub sha256: String,
}
