//! Variants of a picture, all from one decode.

use serde::{Deserialize, Serialize};

use super::{Fit, require};
use crate::error::Result;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageSpec {
    pub variants: Vec<ImageVariant>,
    /// Keep camera, place and the like; the orientation is applied and dropped in any case.
    pub keep_metadata: bool,
    pub animation: Animation,
    /// Some 25 bytes that stand for the picture while it loads.
    pub thumbhash: bool,
}

/// One size in any number of formats. A picture is never enlarged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageVariant {
    /// `None` follows from the height, or is the source's.
    #[serde(default)]
    pub width: Option<u32>,
    #[serde(default)]
    pub height: Option<u32>,
    #[serde(default)]
    pub fit: Fit,
    pub formats: Vec<ImageFormat>,
    /// 1 to 100; `None` is the format's usual.
    #[serde(default)]
    pub quality: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageFormat {
    Jpeg,
    Png,
    Webp,
    Avif,
    Gif,
}

impl ImageFormat {
    pub fn can_move(self) -> bool {
        match self {
            Self::Webp | Self::Gif => true,
            Self::Jpeg | Self::Png | Self::Avif => false,
        }
    }

    pub fn extension(self) -> &'static str {
        match self {
            Self::Jpeg => "jpg",
            Self::Png => "png",
            Self::Webp => "webp",
            Self::Avif => "avif",
            Self::Gif => "gif",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Animation {
    /// In formats that can move.
    Keep,
    #[default]
    FirstFrame,
}

impl Default for ImageSpec {
    fn default() -> Self {
        Self {
            variants: [320, 640, 1280, 1920].map(ImageVariant::of_width).into(),
            keep_metadata: false,
            animation: Animation::FirstFrame,
            thumbhash: true,
        }
    }
}

impl ImageSpec {
    pub(super) fn check(&self) -> Result<()> {
        require((1..=50).contains(&self.variants.len()), "images.variants", "1 to 50")?;
        self.variants.iter().try_for_each(ImageVariant::check)
    }
}

impl ImageVariant {
    /// The whole picture as JPEG and WebP, of the formats' usual quality.
    pub fn of_width(width: u32) -> Self {
        Self {
            width: Some(width),
            height: None,
            fit: Fit::Contain,
            formats: vec![ImageFormat::Jpeg, ImageFormat::Webp],
            quality: None,
        }
    }

    fn check(&self) -> Result<()> {
        let side_fits = |side: Option<u32>| side.is_none_or(|side| (1..=16_384).contains(&side));
        require(side_fits(self.width) && side_fits(self.height), "images.variants", "sides of 1 to 16384")?;
        let is_repeated = |(n, format): (usize, &ImageFormat)| self.formats[..n].contains(format);
        let has_repeats = self.formats.iter().enumerate().any(is_repeated);
        require(
            !self.formats.is_empty() && !has_repeats,
            "images.variants.formats",
            "one or more, each once",
        )?;
        require(
            self.quality.is_none_or(|quality| (1..=100).contains(&quality)),
            "images.variants.quality",
            "1 to 100",
        )?;
        let needs_box = self.fit != Fit::Contain;
        let has_box = self.width.is_some() && self.height.is_some();
        require(!needs_box || has_box, "images.variants.fit", "`cover` and `pad` need a width and a height")
    }
}
