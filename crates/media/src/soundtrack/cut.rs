//! The frames of a whole soundtrack, sorted into segments.

use std::path::{Path, PathBuf};

use super::STEP;
use crate::digest::sha256_hex;
use crate::error::{At, MediaError, Result};
use crate::fresh;
use crate::isobmff::{FragmentReader, IsobmffError, Track, read_segment, write_fragment};
use crate::playlist::SegmentFact;
use crate::verify::SegmentHashes;

/// How a fragmented file of sound becomes segments. Times are in the sound's own ticks.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) whole: PathBuf,
    /// The film's zero in the whole file.
    pub(crate) whole_zero: i64,
    /// The film's zero in the segments.
    pub(crate) offset_ticks: i64,
    /// Where segments begin, counted from the film's zero, without the first.
    pub(crate) boundaries: Vec<i64>,
    /// How long every frame really is, where the times of the whole file are rounded to a container's milliseconds.
    pub(crate) frame_ticks: Option<u32>,
    pub(crate) folder: PathBuf,
    pub(crate) name: String,
}

#[derive(Debug)]
pub(crate) struct CutAudio {
    pub(crate) init: PathBuf,
    pub(crate) segments: Vec<PathBuf>,
    pub(crate) hashes: Vec<SegmentHashes>,
    pub(crate) facts: Vec<SegmentFact>,
    pub(crate) track: Track,
    init_sha256: String,
    /// How far a frame was from where the frames before it put it, at worst: a gap, or rounding.
    pub(crate) worst_gap_ticks: u64,
}

/// A frame with its start, counted from the film's zero.
#[derive(Debug)]
struct Frame {
    start: i64,
    duration: u32,
    data: Vec<u8>,
}

impl Cut {
    pub(crate) async fn run(self) -> Result<CutAudio> {
        let cut = tokio::task::spawn_blocking(move || self.run_blocking()).await;
        cut.map_err(|error| MediaError::unexpected(At::new(STEP, format!("the cut ended: {error}"))))?
    }

    fn run_blocking(self) -> Result<CutAudio> {
        let unreadable = |error: IsobmffError| error.of_output(STEP, "the uncut sound");
        let mut reader = FragmentReader::open(&self.whole).map_err(unreadable)?;
        let track = reader.init().only_track().map_err(unreadable)?.clone();
        let init = self.folder.join(format!("{}-init.mp4", self.name));
        write(&init, reader.init_bytes())?;

        let mut made = CutAudio {
            init,
            segments: Vec::new(),
            hashes: Vec::new(),
            facts: Vec::new(),
            track,
            init_sha256: sha256_hex(reader.init_bytes()),
            worst_gap_ticks: 0,
        };
        let mut frames: Vec<Frame> = Vec::new();
        let mut expected: Option<i64> = None;
        while let Some(fragment) = reader.next().map_err(unreadable)? {
            for sample in &fragment.segment.samples {
                let stated = sample.decode_time.cast_signed() - self.whole_zero;
                let frame = Frame {
                    start: expected.filter(|_| self.frame_ticks.is_some()).unwrap_or(stated),
                    duration: self.frame_ticks.unwrap_or(sample.duration),
                    data: fragment.bytes[sample.data.clone()].to_vec(),
                };
                let gap = expected.map_or(0, |expected| expected.abs_diff(stated));
                made.worst_gap_ticks = made.worst_gap_ticks.max(gap);
                expected = Some(frame.start + i64::from(frame.duration));
                // A segment is not closed by its last frame but by the first of the next, so that one frame can be
                // left for a last segment that is shorter than a frame.
                while made.segments.len() < self.boundaries.len()
                    && frame.middle() >= self.boundaries[made.segments.len()]
                    && !frames.is_empty()
                {
                    self.close_segment(&mut made, &mut frames, 0)?;
                }
                frames.push(frame);
            }
        }
        self.close_rest(&mut made, &mut frames)?;
        Ok(made)
    }

    /// The last frames. Segments that are still owed get a frame each from the end, as far as there are any.
    fn close_rest(&self, made: &mut CutAudio, frames: &mut Vec<Frame>) -> Result<()> {
        while !frames.is_empty() {
            let owed = self.boundaries.len() - made.segments.len();
            let left = owed.min(frames.len() - 1);
            self.close_segment(made, frames, left)?;
            if owed == 0 {
                break;
            }
        }
        Ok(())
    }

    fn close_segment(&self, made: &mut CutAudio, frames: &mut Vec<Frame>, left: usize) -> Result<()> {
        let rest = frames.split_off(frames.len() - left);
        let taken = std::mem::replace(frames, rest);
        let Some(first) = taken.first() else { return Ok(()) };
        let Ok(decode_time) = u64::try_from(first.start + self.offset_ticks) else {
            let what = format!(
                "the constant offset of {} ticks leaves no room for the {} before zero that a decoder needs",
                self.offset_ticks, -first.start
            );
            return Err(MediaError::unexpected(At::new(STEP, what)));
        };
        let number = made.segments.len();
        let sequence = u32::try_from(number + 1).unwrap_or(u32::MAX);
        let samples: Vec<(u32, Vec<u8>)> =
            taken.into_iter().map(|frame| (frame.duration, frame.data)).collect();
        let wrong = |error: IsobmffError| error.of_output(STEP, format!("segment {number} of the sound"));
        let bytes = write_fragment(made.track.id, sequence, decode_time, &samples).map_err(wrong)?;
        let segment = read_segment(&bytes, &made.track).map_err(wrong)?;
        let name = format!("{}-{number:05}.m4s", self.name);
        let path = self.folder.join(&name);
        write(&path, &bytes)?;
        made.segments.push(path);
        let init_sha256 = made.init_sha256.clone();
        made.hashes.push(SegmentHashes { sha256: sha256_hex(&bytes), init_sha256 });
        made.facts.push(SegmentFact::of(name, &segment));
        Ok(())
    }
}

impl Frame {
    fn middle(&self) -> i64 {
        self.start + i64::from(self.duration / 2)
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fresh::write(path, bytes).map_err(|error| MediaError::io(STEP, "a segment cannot be written", &error))
}
