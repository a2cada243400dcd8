//! Where a picture comes to lie in a variant. Pure arithmetic.

use crate::probe::Size;
use crate::recipe::{Fit, ImageVariant};

/// A picture is scaled to `scaled`, of which the middle that fits `canvas` is kept; what is left of `canvas` are bars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    pub scaled: Size,
    pub canvas: Size,
}

impl Placement {
    /// Never enlarges: a `cover` that the source cannot fill becomes a smaller box of the same shape.
    ///
    /// ```
    /// use telecine_media::{Fit, ImageFormat, ImageVariant, Placement, Size};
    ///
    /// let variant = ImageVariant {
    ///     width: Some(400), height: Some(400), fit: Fit::Cover, formats: vec![ImageFormat::Webp], quality: None,
    /// };
    /// let placement = Placement::of(&variant, Size { width: 4000, height: 3000 });
    /// assert_eq!(placement.scaled, Size { width: 533, height: 400 });
    /// assert_eq!(placement.canvas, Size { width: 400, height: 400 });
    /// ```
    pub fn of(variant: &ImageVariant, source: Size) -> Self {
        let horizontal = variant.width.map(|width| f64::from(width) / f64::from(source.width));
        let vertical = variant.height.map(|height| f64::from(height) / f64::from(source.height));
        let inside = horizontal.into_iter().chain(vertical).fold(1.0, f64::min);
        let Some(wanted) = variant.width.zip(variant.height).map(|(width, height)| Size { width, height })
        else {
            return Self::whole(scaled(source, inside));
        };
        match variant.fit {
            Fit::Contain => Self::whole(scaled(source, inside)),
            Fit::Pad => Self { scaled: scaled(source, inside), canvas: wanted },
            Fit::Cover => {
                let filling = horizontal.into_iter().chain(vertical).fold(0.0, f64::max);
                let canvas = scaled(wanted, 1.0 / filling.max(1.0));
                let scaled = scaled(source, filling.min(1.0));
                let canvas =
                    Size { width: canvas.width.min(scaled.width), height: canvas.height.min(scaled.height) };
                Self { scaled, canvas }
            }
        }
    }

    fn whole(size: Size) -> Self {
        Self { scaled: size, canvas: size }
    }
}

fn scaled(size: Size, factor: f64) -> Size {
    let side = |side: u32| (f64::from(side) * factor).round().max(1.0) as u32;
    Size { width: side(size.width), height: side(size.height) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(width: Option<u32>, height: Option<u32>, fit: Fit, source: (u32, u32)) -> [(u32, u32); 2] {
        let variant = ImageVariant { width, height, fit, formats: Vec::new(), quality: None };
        let placement = Placement::of(&variant, Size { width: source.0, height: source.1 });
        [placement.scaled, placement.canvas].map(|size| (size.width, size.height))
    }

    #[test]
    fn a_picture_is_never_enlarged() {
        assert_eq!(placed(Some(800), None, Fit::Contain, (400, 300)), [(400, 300); 2]);
        assert_eq!(placed(None, None, Fit::Contain, (400, 300)), [(400, 300); 2]);
        assert_eq!(placed(Some(800), Some(800), Fit::Cover, (400, 300)), [(400, 300), (300, 300)]);
        assert_eq!(placed(Some(800), Some(600), Fit::Pad, (400, 300)), [(400, 300), (800, 600)]);
    }

    #[test]
    fn shapes_are_kept_and_sides_never_vanish() {
        assert_eq!(placed(Some(400), None, Fit::Contain, (4000, 3000)), [(400, 300); 2]);
        assert_eq!(placed(Some(400), Some(100), Fit::Contain, (4000, 3000)), [(133, 100); 2]);
        assert_eq!(placed(Some(10), None, Fit::Contain, (4000, 3)), [(10, 1); 2]);
        assert_eq!(placed(Some(100), Some(100), Fit::Pad, (4000, 2000)), [(100, 50), (100, 100)]);
        assert_eq!(placed(Some(100), Some(100), Fit::Cover, (4000, 2000)), [(200, 100), (100, 100)]);
        assert_eq!(placed(Some(64), Some(64), Fit::Cover, (1, 1)), [(1, 1), (1, 1)]);
    }
}
