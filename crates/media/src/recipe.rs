//! What a caller asks for.
//!
//! A recipe is data: nothing of it reaches a command line as text. Every choice is an enum, a number with bounds, or a
//! path that the caller owns. Unknown fields are errors.

mod audio;
mod images;
mod pictures;
mod video;

use serde::{Deserialize, Serialize};

use crate::error::{MediaError, Result};

pub use audio::{AudioCodec, AudioFormat, AudioSpec};
pub use images::{Animation, ImageFormat, ImageSpec, ImageVariant};
pub use pictures::{FramesSpec, PicturesSpec, PosterSpec, PreviewSpec, StoryboardSpec};
pub use video::{
    Hardware, Ladder, Loudness, Packaging, Preset, Trim, VideoCodec, VideoSpec, Watermark, WatermarkCorner,
};

/// The outputs wanted of one input. What is left out is not made.
///
/// ```
/// let recipe: telecine_media::Recipe = serde_json::from_str(r#"{"video": {}, "pictures": {"poster": {}}}"#).unwrap();
/// assert_eq!(recipe.video.unwrap().segment_seconds, 4);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Recipe {
    pub video: Option<VideoSpec>,
    pub pictures: Option<PicturesSpec>,
    pub audio: Option<AudioSpec>,
    pub images: Option<ImageSpec>,
}

/// How a picture is brought into a box.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// Wholly inside, in its own shape; the box may stay unfilled.
    #[default]
    Contain,
    /// Fills the box; what reaches over is cut off, equally on both sides.
    Cover,
    /// Wholly inside, and bars fill the rest of the box.
    Pad,
}

impl Recipe {
    /// Refuses what no input could satisfy.
    pub fn check(&self) -> Result<()> {
        if let Some(video) = &self.video {
            video.check()?;
        }
        if let Some(pictures) = &self.pictures {
            pictures.check()?;
        }
        if let Some(audio) = &self.audio {
            audio.check()?;
        }
        if let Some(images) = &self.images {
            images.check()?;
        }
        Ok(())
    }
}

/// A refusal unless `holds`.
fn require(holds: bool, field: &'static str, reason: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(MediaError::BadRecipe { field: field.into(), reason: reason.to_owned() }) }
}
