//! Pictures of a video. Each may fail alone.

use serde::{Deserialize, Serialize};

use super::require;
use crate::error::Result;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PicturesSpec {
    pub poster: Option<PosterSpec>,
    pub storyboard: Option<StoryboardSpec>,
    pub preview: Option<PreviewSpec>,
    /// The times at which the scene changes.
    pub scenes: bool,
    pub frames: Option<FramesSpec>,
}

/// One telling frame, not a black one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PosterSpec {
    /// `None` lets the engine choose.
    pub at_ms: Option<u64>,
    pub long_side: u32,
}

/// Sprites and a WebVTT file that says what is where, for the bar of a player.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoryboardSpec {
    /// `None` is the larger of 2 s and a 200th of the duration.
    pub every_ms: Option<u64>,
    pub tile_width: u32,
    pub columns: u32,
    pub rows: u32,
}

/// A short animation without sound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreviewSpec {
    pub seconds: u32,
    pub fps: u32,
    pub width: u32,
}

/// Frames at an even pace, for whoever reads or recognises them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FramesSpec {
    /// Frames in 1000 s: 500 is one in two seconds.
    pub per_1000_s: u32,
    pub long_side: u32,
}

impl Default for PosterSpec {
    fn default() -> Self {
        Self { at_ms: None, long_side: 1280 }
    }
}

impl Default for StoryboardSpec {
    fn default() -> Self {
        Self { every_ms: None, tile_width: 160, columns: 10, rows: 10 }
    }
}

impl Default for PreviewSpec {
    fn default() -> Self {
        Self { seconds: 3, fps: 10, width: 320 }
    }
}

impl Default for FramesSpec {
    fn default() -> Self {
        Self { per_1000_s: 500, long_side: 768 }
    }
}

impl PicturesSpec {
    pub(super) fn check(&self) -> Result<()> {
        let side_fits = |side: u32| (16..=4096).contains(&side);
        if let Some(poster) = &self.poster {
            require(side_fits(poster.long_side), "pictures.poster.long_side", "16 to 4096")?;
        }
        if let Some(storyboard) = &self.storyboard {
            require(side_fits(storyboard.tile_width), "pictures.storyboard.tile_width", "16 to 4096")?;
            let grid_fits = (1..=20).contains(&storyboard.columns) && (1..=20).contains(&storyboard.rows);
            require(grid_fits, "pictures.storyboard", "1 to 20 columns and rows")?;
            require(
                storyboard.every_ms.is_none_or(|ms| ms >= 100),
                "pictures.storyboard.every_ms",
                "100 or more",
            )?;
        }
        if let Some(preview) = &self.preview {
            require((1..=30).contains(&preview.seconds), "pictures.preview.seconds", "1 to 30")?;
            require((1..=30).contains(&preview.fps), "pictures.preview.fps", "1 to 30")?;
            require(side_fits(preview.width), "pictures.preview.width", "16 to 4096")?;
        }
        if let Some(frames) = &self.frames {
            require((1..=30_000).contains(&frames.per_1000_s), "pictures.frames.per_1000_s", "1 to 30000")?;
            require(side_fits(frames.long_side), "pictures.frames.long_side", "16 to 4096")?;
        }
        Ok(())
    }
}
