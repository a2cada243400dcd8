//! AVIF and HEIC, which FFmpeg does not read: their index is looked at here, and libvips decodes them.

use std::path::Path;

use super::stream::{Rotation, Size, VideoStream};
use super::{Probe, STEP};
use crate::ending::heif_picture;
use crate::error::{At, InputProblem, MediaError, Result};
use crate::rational::Rational;
use crate::sniff::Format;

/// What the index says. Nothing is known of colours: libvips converts them.
pub(super) async fn described(path: &Path, format: Format, file_bytes: u64) -> Result<Probe> {
    let source = path.to_owned();
    let looked = tokio::task::spawn_blocking(move || heif_picture(&source)).await;
    let found = looked
        .map_err(|error| MediaError::unexpected(At::new(STEP, format!("the look ended: {error}"))))?
        .map_err(|error| MediaError::io(STEP, "the input cannot be read", &error))?;
    let Some((size, quarter_turns)) = found.filter(|(size, _)| size.width > 0 && size.height > 0) else {
        let what = "no picture that could be read";
        return Err(MediaError::bad_input(InputProblem::Corrupt, At::new(STEP, what)));
    };
    let rotation = Rotation::from_matrix_degrees(90.0 * f64::from(quarter_turns));
    Ok(Probe {
        format,
        file_bytes,
        duration_us: None,
        start_us: 0,
        bit_rate: None,
        video_streams: vec![picture(format, size, rotation)],
        audio_streams: Vec::new(),
        subtitle_count: 0,
        other_count: 0,
        stream_count: 1,
        chapters: Vec::new(),
    })
}

fn picture(format: Format, size: Size, rotation: Rotation) -> VideoStream {
    let Size { width, height } = size;
    VideoStream {
        index: 0,
        codec: if format == Format::Avif { "av1" } else { "hevc" }.into(),
        profile: None,
        level: None,
        width,
        height,
        sample_aspect: Rational::ONE,
        rotation,
        display: Size::displayed(width, height, Rational::ONE, rotation),
        pixel_format: None,
        bit_depth: 8,
        colour_primaries: None,
        colour_transfer: None,
        colour_matrix: None,
        colour_range: None,
        hdr: None,
        avg_fps: None,
        base_fps: None,
        is_vfr: false,
        is_interlaced: false,
        bit_rate: None,
        start_us: 0,
        duration_us: None,
        frame_count: Some(1),
        time_base: Rational::ONE,
        has_b_frames: false,
        is_default: true,
        is_attached_picture: false,
    }
}
