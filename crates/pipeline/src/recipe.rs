//! Recipes: a named graph of steps.
//!
//! A recipe is a TOML file ([`Recipe::parse`]); the built-in ones and those of a folder are [`Recipes`]. A run may change
//! the values of its steps ([`Recipe::with_params`]), never the steps themselves.

mod error;
mod order;
mod params;
mod parse;
mod registry;
mod settable;
mod show;
mod with;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use telecine_media::{AudioSpec, ImageSpec, PicturesSpec, VideoSpec};

use crate::scan::{ScanPolicy, UnscannedPolicy};

pub use error::{RecipeError, RecipeErrors};
pub use params::{ParamError, ParamErrors, parse_params};
pub use registry::{Listed, NoRecipe, RecipeOrigin, Recipes};
pub use settable::{Param, ParamType};

use crate::media_type::MediaType;
use crate::records::InputRecord;

/// A recipe whose steps are all known and whose needs can be met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recipe {
    pub name: String,
    pub description: String,
    /// Whether inputs are scanned; `None` is what the deployment says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan: Option<ScanPolicy>,
    /// What becomes of inputs that were not scanned as a whole; `None` is what the deployment says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unscanned: Option<UnscannedPolicy>,
    /// Each after the steps that it needs, otherwise in the order of the file.
    pub steps: Vec<Step>,
}

/// A node of a recipe; becomes one or many jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub name: String,
    #[serde(flatten)]
    pub does: Does,
    /// What an input must be for it, by its content; empty is anything.
    #[serde(default, rename = "for", skip_serializing_if = "Vec::is_empty")]
    pub takes: Vec<MediaType>,
    /// Steps that must end first, by name.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Whether its failure fails the run; that of an optional step only makes it `partial`.
    pub required: bool,
    /// `None` is the kind's own.
    pub lane: Option<String>,
    /// `None` is the run's.
    pub priority: Option<u8>,
    /// `None` is the queue's usual.
    pub attempts: Option<u16>,
    /// Whether it is done at all. A run may ask for what the recipe leaves out.
    #[serde(default = "yes")]
    pub enabled: bool,
}

/// What a step does, and with what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "with", rename_all = "snake_case")]
pub enum Does {
    /// A ladder in segments, its sound, and manifests.
    Hls(VideoSpec),
    /// One file that plays while it loads: of the best rung of the `hls` step that it needs, or encoded for itself.
    Mp4(VideoSpec),
    Pictures(PicturesSpec),
    Image(ImageSpec),
    Audio(AudioSpec),
    /// A program of the user's own.
    Exec(ExecSpec),
}

/// A program that gets a JSON document and a folder, and leaves JSON and files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecSpec {
    /// The program, by its absolute path or looked up in `PATH`, and its arguments. What begins with `./` is beside the
    /// recipe's file.
    pub command: Vec<String>,
    /// Whether it may reach the network.
    #[serde(default)]
    pub network: bool,
    /// Folders and files that it may read, beside the input, the system's libraries and its own scratch folder.
    #[serde(default)]
    pub reads: Vec<PathBuf>,
    #[serde(default = "ten_minutes")]
    pub timeout_ms: u64,
    /// Passed on as they are.
    #[serde(default)]
    pub params: BTreeMap<String, serde_json::Value>,
}

fn ten_minutes() -> u64 {
    600_000
}

fn yes() -> bool {
    true
}

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// The names of everything that a step can do.
pub const STEP_KINDS: [&str; 6] = ["hls", "mp4", "pictures", "image", "audio", "exec"];

impl Recipe {
    /// With everything but its steps as usual.
    pub fn new(name: impl Into<String>, steps: Vec<Step>) -> Self {
        Self { name: name.into(), description: String::new(), scan: None, unscanned: None, steps }
    }

    pub fn step(&self, name: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.name == name)
    }

    /// With `./…` in commands meaning what lies in the folder of the recipe's file.
    pub(crate) fn beside(mut self, folder: &Path) -> Self {
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        for step in &mut self.steps {
            if let Does::Exec(spec) = &mut step.does {
                for word in &mut spec.command {
                    if let Some(rest) = word.strip_prefix("./") {
                        *word = folder.join(rest).to_string_lossy().into_owned();
                    }
                }
            }
        }
        self
    }

    /// Of the recipe as it is, parameters included: the same hash means the same work.
    pub fn sha256(&self) -> String {
        let text = serde_json::to_vec(self).expect("a recipe is plain data");
        crate::blobs::hash_bytes(&text)
    }

    /// Whether the same input gives the same outputs: what a user's own program does is its own affair.
    pub(crate) fn is_repeatable(&self) -> bool {
        !self.steps.iter().any(|step| matches!(step.does, Does::Exec(_)))
    }

    /// The steps that are done, whatever the input is.
    pub fn enabled_steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.enabled)
    }

    /// The steps that are done with such an input.
    pub fn fitting_steps(&self, media: Option<MediaType>) -> impl Iterator<Item = &Step> {
        self.enabled_steps().filter(move |step| step.fits(media))
    }

    /// The `hls` step whose segments an `mp4` step takes; `None` where it encodes for itself.
    pub fn segments_for(&self, step: &Step) -> Option<&Step> {
        if !matches!(step.does, Does::Mp4(_)) {
            return None;
        }
        let needed = step.needs.iter().filter_map(|name| self.step(name));
        needed.into_iter().find(|needed| matches!(needed.does, Does::Hls(_)))
    }
}

impl Step {
    /// A step that needs no other, as its kind usually is.
    pub fn new(name: impl Into<String>, does: Does) -> Self {
        Self {
            name: name.into(),
            required: is_usually_required(does.kind()),
            does,
            takes: Vec::new(),
            needs: Vec::new(),
            lane: None,
            priority: None,
            attempts: None,
            enabled: true,
        }
    }

    /// Whether it is done with such an input.
    pub fn fits(&self, media: Option<MediaType>) -> bool {
        self.takes.is_empty() || media.is_some_and(|media| self.takes.contains(&media))
    }

    pub(crate) fn fits_input(&self, input: &InputRecord) -> bool {
        self.fits(MediaType::of_input(input))
    }
}

impl Does {
    /// The outputs that such a step publishes; `None` is one under the step's own name.
    pub fn promised(&self) -> Vec<Option<&'static str>> {
        match self {
            Self::Pictures(spec) => {
                let parts = [
                    ("poster", spec.poster.is_some()),
                    ("storyboard", spec.storyboard.is_some()),
                    ("preview", spec.preview.is_some()),
                    ("scenes", spec.scenes),
                    ("frames", spec.frames.is_some()),
                ];
                parts.into_iter().filter(|(_, wanted)| *wanted).map(|(name, _)| Some(name)).collect()
            }
            Self::Hls(_) | Self::Mp4(_) | Self::Image(_) | Self::Audio(_) => vec![None],
            // A program says what it has made when it has.
            Self::Exec(_) => Vec::new(),
        }
    }

    /// What the media engine is asked for; `None` where that is nothing.
    pub fn media(&self) -> Option<telecine_media::Recipe> {
        let none = telecine_media::Recipe::default();
        match self {
            Self::Hls(spec) => Some(telecine_media::Recipe { video: Some(spec.clone()), ..none }),
            Self::Mp4(spec) => {
                let video = VideoSpec { packaging: Vec::new(), mp4: true, ..spec.clone() };
                Some(telecine_media::Recipe { video: Some(video), ..none })
            }
            Self::Pictures(spec) => Some(telecine_media::Recipe { pictures: Some(spec.clone()), ..none }),
            Self::Image(spec) => Some(telecine_media::Recipe { images: Some(spec.clone()), ..none }),
            Self::Audio(spec) => Some(telecine_media::Recipe { audio: Some(spec.clone()), ..none }),
            Self::Exec(_) => None,
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Self::Hls(_) => "hls",
            Self::Mp4(_) => "mp4",
            Self::Pictures(_) => "pictures",
            Self::Image(_) => "image",
            Self::Audio(_) => "audio",
            Self::Exec(_) => "exec",
        }
    }
}

/// A film without its poster is still a film.
fn is_usually_required(kind: &str) -> bool {
    kind != "pictures"
}

impl ExecSpec {
    /// The field that no run could do with, and what it may be.
    fn fault(&self) -> Option<(&'static str, &'static str)> {
        if self.command.first().is_none_or(String::is_empty) {
            return Some(("command", "name the program, then its arguments"));
        }
        if self.command.iter().any(|argument| argument.contains('\0')) {
            return Some(("command", "no argument can contain a NUL character"));
        }
        if self.reads.iter().any(|path| !path.is_absolute()) {
            return Some(("reads", "absolute paths only"));
        }
        (!(1..=DAY_MS).contains(&self.timeout_ms)).then_some(("timeout_ms", "1 to 86400000, a day"))
    }
}
