//! Files of each format.

use std::fmt::Write as _;
use std::io::Read;

use rs_vips::VipsImage;
use rs_vips::enums::ForeignHeifCompression;
use rs_vips::voption::{Setter, VOption};
use sha2::{Digest, Sha256};
use telecine_media::ImageFormat;

use crate::failure::Failure;
use crate::frames::Frames;
use crate::webp;

const WHITE: &[f64] = &[255.0];

pub(crate) fn image(
    frames: &Frames,
    format: ImageFormat,
    quality: Option<u8>,
    keep_metadata: bool,
    name: &str,
) -> Result<(), Failure> {
    let write = || -> rs_vips::Result<()> {
        let mut image = frames.rolled()?;
        // Made from the picture before it was turned and cut; some viewers show it instead.
        image.remove("jpeg-thumbnail-data")?;
        let options = VOption::new().set("strip", !keep_metadata);
        let quality = i32::from(quality.unwrap_or(usual_quality(format)));
        match format {
            ImageFormat::Jpeg => {
                let options = options.set("Q", quality).set("interlace", true).set("optimize_coding", true);
                without_alpha(&image)?.jpegsave_with_opts(name, options)
            }
            ImageFormat::Webp => image.webpsave_with_opts(name, options.set("Q", quality).set("effort", 4)),
            ImageFormat::Png => image.pngsave_with_opts(name, options.set("compression", 6)),
            ImageFormat::Gif => image.gifsave_with_opts(name, options.set("effort", 4)),
            // Higher efforts take several times as long for a few per cent.
            ImageFormat::Avif => {
                let av1 = ForeignHeifCompression::Av1 as i32;
                let options = options.set("Q", quality).set("compression", av1).set("effort", 2);
                image.heifsave_with_opts(name, options)
            }
        }
    };
    write().map_err(Failure::of_writing)?;
    if format == ImageFormat::Webp && !keep_metadata {
        let failed = |error: std::io::Error| Failure::Ours(format!("{name}: {error}"));
        let bytes = std::fs::read(name).map_err(failed)?;
        std::fs::write(name, webp::without_metadata(bytes)).map_err(failed)?;
    }
    Ok(())
}

/// AVIF's scale is another: its 50 looks like the 80 of the others.
fn usual_quality(format: ImageFormat) -> u8 {
    match format {
        ImageFormat::Avif => 50,
        ImageFormat::Jpeg | ImageFormat::Webp | ImageFormat::Png | ImageFormat::Gif => 80,
    }
}

fn without_alpha(image: &VipsImage) -> rs_vips::Result<VipsImage> {
    if image.hasalpha() {
        image.flatten_with_opts(VOption::new().set("background", WHITE))
    } else {
        Ok(image.clone())
    }
}

/// The size of a written file and its SHA-256 in hex.
pub(crate) fn measured(name: &str) -> Result<(u64, String), Failure> {
    let failed = |error: std::io::Error| Failure::Ours(format!("{name}: {error}"));
    let mut file = std::fs::File::open(name).map_err(failed)?;
    let (mut bytes, mut hash, mut buffer) = (0, Sha256::new(), vec![0; 256 << 10]);
    loop {
        let read = file.read(&mut buffer).map_err(failed)?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        hash.update(&buffer[..read]);
    }
    let mut hex = String::with_capacity(64);
    for byte in hash.finalize() {
        let _ = write!(hex, "{byte:02x}");
    }
    Ok((bytes, hex))
}
