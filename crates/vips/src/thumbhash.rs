//! Some 25 bytes that stand for a picture while it loads.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rs_vips::enums::Interpretation;
use telecine_media::{Fit, ImageVariant, Placement, Size};

use crate::failure::Failure;
use crate::frames::Frames;

/// More would be slower and say nothing new.
const SIDE_MAX: u32 = 100;

/// From the smallest of the sizes that is large enough.
pub(crate) fn of(sizes: &HashMap<Size, Frames>) -> Result<String, Failure> {
    let of_use = |size: &Size| (size.long_side() < SIDE_MAX, size.long_side().abs_diff(SIDE_MAX));
    let Some((_, frames)) = sizes.iter().min_by_key(|(size, _)| of_use(size)) else {
        return Err(Failure::Ours("no size was made".into()));
    };
    let within = ImageVariant {
        width: Some(SIDE_MAX),
        height: Some(SIDE_MAX),
        fit: Fit::Contain,
        formats: Vec::new(),
        quality: None,
    };
    let size = Placement::of(&within, frames.size()).scaled;
    let pixels = || -> rs_vips::Result<Vec<u8>> {
        let mut image = frames.still().scaled_to(size)?.first().colourspace(Interpretation::Srgb)?;
        if !image.hasalpha() {
            // `addalpha` is no operation before libvips 8.16, and asking for one that is missing crashes.
            image = image.bandjoin_const(&[255.0])?;
        }
        // Only what is in memory already can be copied out without a chance to fail.
        Ok(image.copy_memory()?.write_to_memory())
    };
    let pixels = pixels().map_err(Failure::of_writing)?;
    let hash = thumbhash::rgba_to_thumb_hash(size.width as usize, size.height as usize, &pixels);
    Ok(STANDARD.encode(hash))
}
