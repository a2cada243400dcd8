//! Whether a file ends where its own structure says that it does.
//!
//! FFmpeg and libvips make the best of half a file, and call that a success. So the end of every input is looked at
//! before a program is started: a few reads where headers tell sizes, a walk over the parts where they do not. Only
//! what is certainly missing is reported; what breaks the rules in another way is left to the decoders.
//!
//! What each format tells, and where it cannot:
//!
//! | format | a cut is known by | and not known where |
//! |---|---|---|
//! | MP4, QuickTime, M4A | sizes of atoms, offsets of the index, `sidx` | a file of fragments without `sidx` ends between two of them |
//! | AVIF, HEIC | sizes of boxes, locations of items | |
//! | Matroska, WebM | size of the segment, of clusters, of blocks | a live recording without sizes ends between two clusters or blocks |
//! | AVI, WAV, WebP | sizes of the form and of its chunks | a WAV that was written to a pipe: its sizes are unknown |
//! | FLV | the size behind the last tag, `filesize` | without `filesize`, an end between two tags |
//! | MPEG-TS | a part of a packet | an end between two packets: a recording may stop anywhere |
//! | Ogg | the last page of each stream | |
//! | FLAC | the number and the checksum of the last frame | a stream that does not count its samples ends between two frames |
//! | MP3 | Xing's, Info's and VBRI's counts; a part of a frame | without such a header, an end between two frames |
//! | ADTS | a part of a frame | an end between two frames |
//! | JPEG, PNG, GIF | the end marker | |

mod ebml;
mod flac;
mod flv;
mod frames;
mod gif;
mod heif;
mod jpeg;
mod mpegts;
mod ogg;
mod png;
mod riff;
mod source;

use std::io;
use std::path::{Path, PathBuf};

pub(crate) use heif::picture as heif_picture;
use source::Source;

use crate::error::{At, InputProblem, MediaError, Result};
use crate::isobmff;
use crate::sniff::Format;

/// Parts that are walked over before a file is left to the decoders: a hostile one may be made of nothing but headers.
const PARTS_MAX: usize = 1 << 22;

/// Refuses a file whose end is missing as `input_truncated`. `format` is what [`crate::sniff_file`] said, and errors
/// name the step.
pub async fn require_whole(path: &Path, format: Format, step: &'static str) -> Result<()> {
    let path: PathBuf = path.to_owned();
    let looked = tokio::task::spawn_blocking(move || missing(&path, format)).await;
    let missing = looked
        .map_err(|error| MediaError::unexpected(At::new(step, format!("the look ended: {error}"))))?
        .map_err(|error| MediaError::io(step, "the input cannot be read", &error))?;
    match missing {
        None => Ok(()),
        Some(what) => Err(MediaError::bad_input(InputProblem::Truncated, At::new(step, what))),
    }
}

/// What is certainly missing at the end.
fn missing(path: &Path, format: Format) -> io::Result<Option<String>> {
    if matches!(format, Format::Mp4 | Format::M4a) {
        return Ok(isobmff::summarise(path)?.truncated);
    }
    let mut source = Source::open(path)?;
    match format {
        Format::Mp4 | Format::M4a => Ok(None),
        Format::Matroska | Format::Webm => ebml::missing(&mut source),
        Format::Avi | Format::Wav | Format::Webp => riff::missing(&mut source),
        Format::MpegTs => mpegts::missing(&mut source),
        Format::Flv => flv::missing(&mut source),
        Format::Ogg => ogg::missing(&mut source),
        Format::Mp3 => frames::missing_of_mp3(&mut source),
        Format::Adts => frames::missing_of_adts(&mut source),
        Format::Flac => flac::missing(&mut source),
        Format::Jpeg => jpeg::missing(&mut source),
        Format::Png => png::missing(&mut source),
        Format::Gif => gif::missing(&mut source),
        Format::Avif | Format::Heic => heif::missing(&mut source),
    }
}

/// The words for a part that reaches past the end.
fn beyond(part: impl std::fmt::Display, end: u64, file_bytes: u64) -> Option<String> {
    Some(format!("{part} reaches to byte {end} of a file of {file_bytes} bytes"))
}
