//! Headers and pixels of the input, through the one loader that its content decided for.

use rs_vips::VipsImage;
use rs_vips::enums::{Access, FailOn};
use rs_vips::voption::{Setter, VOption};
use telecine_media::{Format, Refusal, Size, VipsJob};

use crate::failure::Failure;

/// What the header says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    /// Of one frame as stored.
    pub(crate) stored: Size,
    pub(crate) frames: u32,
    /// EXIF's 1 to 8.
    pub(crate) orientation: i32,
    pub(crate) has_alpha: bool,
}

impl Header {
    pub(crate) fn read(job: &VipsJob) -> Result<Self, Failure> {
        let image = open(job, 1, 1)?;
        let frames = if moves(job.format) { image.get_n_pages().max(1) } else { 1 };
        Ok(Self {
            stored: size_of(&image),
            frames: frames.unsigned_abs(),
            orientation: image.get_orientation(),
            has_alpha: image.hasalpha(),
        })
    }

    /// As it is seen.
    pub(crate) fn upright(&self) -> Size {
        self.turned(self.stored)
    }

    /// Between stored and seen, in either direction.
    pub(crate) fn turned(&self, size: Size) -> Size {
        let is_on_its_side = (5..=8).contains(&self.orientation);
        if is_on_its_side { Size { width: size.height, height: size.width } } else { size }
    }
}

/// Opens the picture for reading its rows once, top down. Nothing is decoded until they are asked for.
///
/// `shrink` is 1, 2, 4 or 8, and does nothing in formats that have to be decoded whole.
pub(crate) fn open(job: &VipsJob, shrink: u32, frames: u32) -> Result<VipsImage, Failure> {
    let path = job.input.to_str().ok_or_else(|| Failure::Ours("the input's path is not text".into()))?;
    let mut options =
        VOption::new().set("access", Access::Sequential as i32).set("fail_on", FailOn::Error as i32);
    if frames > 1 {
        options.add("n", i32::try_from(frames).unwrap_or(-1));
    }
    let opened = match job.format {
        Format::Jpeg => {
            let shrink = i32::try_from(shrink).unwrap_or(1);
            VipsImage::jpegload_with_opts(path, options.set("shrink", shrink))
        }
        Format::Webp => VipsImage::webpload_with_opts(path, options.set("scale", 1.0 / f64::from(shrink))),
        Format::Png => VipsImage::pngload_with_opts(path, options),
        Format::Gif => VipsImage::gifload_with_opts(path, options),
        Format::Avif | Format::Heic => VipsImage::heifload_with_opts(path, options),
        _ => {
            let detail = format!("{} is not a picture", job.format.mime());
            return Err(Failure::Input { why: Refusal::Unsupported, detail });
        }
    };
    opened.map_err(Failure::of_reading)
}

/// The most that the loader may shrink by while no side falls below what is needed.
pub(crate) fn shrink_on_load(stored: Size, needed: Size) -> u32 {
    let fits = |shrink: u32| stored.width / shrink >= needed.width && stored.height / shrink >= needed.height;
    [8, 4, 2].into_iter().find(|shrink| fits(*shrink)).unwrap_or(1)
}

fn moves(format: Format) -> bool {
    matches!(format, Format::Gif | Format::Webp)
}

pub(crate) fn size_of(image: &VipsImage) -> Size {
    Size { width: image.get_width().unsigned_abs(), height: image.get_height().unsigned_abs() }
}
