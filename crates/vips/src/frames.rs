//! Pixels in memory: one frame, or all of an animation, and how they are brought to a size.

use rs_vips::enums::{BandFormat, Extend, Intent, Interpretation};
use rs_vips::voption::{Setter, VOption};
use rs_vips::{Result, VipsImage};
use telecine_media::{Placement, Size};

use crate::load::size_of;

const WHITE: f64 = 255.0;

/// All of one size.
#[derive(Clone)]
pub(crate) struct Frames {
    frames: Vec<VipsImage>,
    stage: Stage,
    keeps_metadata: bool,
    /// How long each stands, and how often all are repeated; empty and 0 where nobody says.
    delays_ms: Vec<i32>,
    repeats: i32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// With the colours and the metadata of the source.
    Decoded,
    /// In sRGB or grey, 8 bits each.
    Finished,
}

impl Frames {
    pub(crate) fn decoded(frames: Vec<VipsImage>, keeps_metadata: bool) -> Self {
        let delays_ms = frames[0].get_array_int("delay").unwrap_or_default();
        let repeats = frames[0].get_int("loop").unwrap_or(0);
        Self { frames, stage: Stage::Decoded, keeps_metadata, delays_ms, repeats }
    }

    pub(crate) fn first(&self) -> &VipsImage {
        &self.frames[0]
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(crate) fn size(&self) -> Size {
        size_of(self.first())
    }

    /// Scaled and in the colours of the web, in memory of its own. From a large picture to a small one this is where
    /// pixels are converted: after scaling, when few are left.
    pub(crate) fn scaled_to(&self, size: Size) -> Result<Self> {
        if self.stage == Stage::Finished && self.size() == size {
            return Ok(self.clone());
        }
        let finish = |frame: &VipsImage| {
            let frame = scaled(frame, size)?;
            match self.stage {
                Stage::Finished => frame.copy_memory(),
                Stage::Decoded if self.keeps_metadata => to_web_colours(&frame)?.copy_memory(),
                Stage::Decoded => bare(&to_web_colours(&frame)?),
            }
        };
        let frames = self.frames.iter().map(finish).collect::<Result<_>>()?;
        Ok(Self { frames, stage: Stage::Finished, ..self.clone() })
    }

    /// The canvas of a variant: cut, or with bars.
    pub(crate) fn placed(&self, placement: Placement) -> Result<Self> {
        if placement.scaled == placement.canvas {
            return Ok(self.clone());
        }
        let frames = self.frames.iter().map(|frame| on_canvas(frame, placement.canvas)?.copy_memory());
        Ok(Self { frames: frames.collect::<Result<_>>()?, ..self.clone() })
    }

    /// The first alone.
    pub(crate) fn still(&self) -> Self {
        Self { frames: vec![self.first().clone()], ..self.clone() }
    }

    /// As libvips wants animations: one tall image that knows where its pages end.
    pub(crate) fn rolled(&self) -> Result<VipsImage> {
        if self.frames.len() == 1 {
            let mut still = self.first().copy()?;
            for name in ["n-pages", "page-height", "delay", "gif-delay", "loop"] {
                still.remove(name)?;
            }
            return Ok(still);
        }
        let mut roll =
            VipsImage::arrayjoin_with_opts(&self.frames, VOption::new().set("across", 1))?.copy()?;
        roll.set_int("page-height", self.first().get_height())?;
        roll.set_int("loop", self.repeats)?;
        if self.delays_ms.len() == self.frames.len() {
            roll.set_array_int("delay", &self.delays_ms)?;
        }
        Ok(roll)
    }
}

/// The pixels and nothing else. Telling a saver to strip is not enough: that of libvips 8.14 for WebP writes EXIF all
/// the same, and puts it together from single fields where the block itself was removed.
fn bare(image: &VipsImage) -> Result<VipsImage> {
    let interpretation = image.get_interpretation()?;
    // Only what is in memory already can be copied out without a chance to fail.
    let pixels = image.copy_memory()?.write_to_memory();
    let (width, height, bands) = (image.get_width(), image.get_height(), image.get_bands());
    let image = VipsImage::new_from_memory_copy(&pixels, width, height, bands, image.get_format()?)?;
    image.copy_with_opts(VOption::new().set("interpretation", interpretation as i32))
}

/// Exactly to that size. Pixels that are seen through weigh less.
pub(crate) fn scaled(image: &VipsImage, size: Size) -> Result<VipsImage> {
    if size_of(image) == size {
        return Ok(image.clone());
    }
    let factor = |wanted: u32, have: i32| f64::from(wanted) / f64::from(have);
    let (horizontal, vertical) =
        (factor(size.width, image.get_width()), factor(size.height, image.get_height()));
    let resize =
        |image: &VipsImage| image.resize_with_opts(horizontal, VOption::new().set("vscale", vertical));
    let resized = if image.hasalpha() {
        let format = image.get_format()?;
        resize(&image.premultiply()?)?.unpremultiply()?.cast(format)?
    } else {
        resize(image)?
    };
    if size_of(&resized) == size { Ok(resized) } else { on_canvas(&resized, size) }
}

fn on_canvas(image: &VipsImage, canvas: Size) -> Result<VipsImage> {
    let side = |side: u32| i32::try_from(side).unwrap_or(i32::MAX);
    let (width, height) = (side(canvas.width), side(canvas.height));
    let (have_width, have_height) = (image.get_width(), image.get_height());
    let cut = image.extract_area(
        (have_width - width).max(0) / 2,
        (have_height - height).max(0) / 2,
        width.min(have_width),
        height.min(have_height),
    )?;
    if cut.get_width() == width && cut.get_height() == height {
        return Ok(cut);
    }
    // White bars, or clear ones where the picture can be seen through.
    let mut bar = vec![WHITE; usize::try_from(cut.get_bands()).unwrap_or(3)];
    if cut.hasalpha() {
        bar.fill(0.0);
    }
    let (left, top) = ((width - cut.get_width()) / 2, (height - cut.get_height()) / 2);
    let options = VOption::new().set("extend", Extend::Background as i32).set("background", &bar[..]);
    cut.embed_with_opts(left, top, width, height, options)
}

/// To sRGB or grey of 8 bits. A profile that cannot be read is as good as none.
fn to_web_colours(image: &VipsImage) -> Result<VipsImage> {
    let mut image = image.clone();
    if let Ok(profile) = image.get_blob("icc-profile-data")
        && !is_srgb(&profile)
    {
        let options =
            VOption::new().set("embedded", true).set("intent", Intent::Relative as i32).set("depth", 8);
        if let Ok(converted) = image.icc_transform_with_opts("srgb", options) {
            image = converted;
        }
    }
    let is_grey = image.get_bands() <= 2;
    let space = if is_grey { Interpretation::BW } else { Interpretation::Srgb };
    if image.get_interpretation()? != space {
        image = image.colourspace(space)?;
    }
    if image.get_format()? != BandFormat::Uchar { image.cast(BandFormat::Uchar) } else { Ok(image) }
}

/// By its name, in the one or two bytes a letter of either version of the format. Most pictures carry one, and
/// converting from sRGB to sRGB would cost as much as scaling.
fn is_srgb(profile: &[u8]) -> bool {
    let wide: Vec<u8> = "sRGB".bytes().flat_map(|letter| [0, letter]).collect();
    let holds = |name: &[u8]| profile.windows(name.len()).take(4096).any(|window| window == name);
    holds(b"sRGB") || holds(&wide)
}
