//! What the outputs beside the video need of the installation.

use super::Reasons;
use crate::capability::{Capabilities, Piece};
use crate::probe::Probe;
use crate::recipe::{AudioSpec, ImageSpec, PicturesSpec};
use crate::sniff::{Class, Format};
use crate::tool::Program;
use crate::{audio, image, pictures};

/// Nothing where there is no film to take pictures of: then none are made.
pub(super) fn of_pictures(
    spec: &PicturesSpec,
    probe: &Probe,
    capabilities: &Capabilities,
    reasons: &mut Reasons,
) {
    let Some(video) = probe.video() else { return };
    let mut pieces = pictures::pieces(spec, probe, video, pictures::Colours::Converted);
    let conversion = ["zscale", "tonemap"].map(|name| Piece::Filter(name.into()));
    if conversion.iter().any(|filter| pieces.contains(filter) && !capabilities.has(filter)) {
        let why = "FFmpeg's filters zscale and tonemap, which would convert them, are not there";
        reasons.warn("pictures", "in the source's own colours: they will look flat", why);
        pieces = pictures::pieces(spec, probe, video, pictures::Colours::Kept);
    }
    if !pieces.is_empty() {
        reasons.require(Piece::Program(Program::Ffmpeg));
        reasons.require_all(pieces);
    }
}

pub(super) fn of_audio(spec: &AudioSpec, probe: &Probe, reasons: &mut Reasons) {
    let Some(stream) = probe.audio() else { return };
    reasons.require(Piece::Program(Program::Ffmpeg));
    reasons.require_all(audio::pieces(spec, stream));
}

/// Of a film they are made of its poster.
pub(super) fn of_images(spec: &ImageSpec, probe: &Probe, capabilities: &Capabilities, reasons: &mut Reasons) {
    reasons.require(Piece::Program(Program::VipsHelper));
    let source = if probe.format.class() == Class::Image { probe.format } else { Format::Jpeg };
    // Only libvips' own program lists what the library can do; the helper does without that program.
    if capabilities.has(&Piece::Program(Program::Vips)) {
        reasons.require_all(image::pieces(spec, source));
    }
}
