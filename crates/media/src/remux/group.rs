//! Fragments, one for each key frame, sorted into segments.

use std::path::{Path, PathBuf};

use super::STEP;
use super::independence::{Start, Units};
use crate::digest::sha256_hex;
use crate::error::{At, InputProblem, MediaError, Result};
use crate::fresh;
use crate::isobmff::{FragmentReader, IsobmffError, Track, read_segment};
use crate::playlist::SegmentFact;
use crate::rational::Rational;
use crate::verify::SegmentHashes;

/// Segments above so many times the length asked for make players wait: such a source is better encoded.
pub(super) const LONGEST_TIMES: u64 = 3;
/// What is kept in memory until the next picture that stands alone.
const SEGMENT_MAX_BYTES: usize = 256 << 20;

#[derive(Debug)]
pub(super) struct Group {
    pub(super) whole: PathBuf,
    pub(super) units: Units,
    pub(super) offset: Rational,
    pub(super) segment_seconds: u32,
    pub(super) folder: PathBuf,
}

#[derive(Debug)]
pub(super) struct Grouped {
    pub(super) init: PathBuf,
    pub(super) segments: Vec<PathBuf>,
    pub(super) hashes: Vec<SegmentHashes>,
    pub(super) facts: Vec<SegmentFact>,
    pub(super) track: Track,
    pub(super) duration_us: u64,
    init_sha256: String,
}

impl Group {
    /// The inner error says why the source is unfit.
    pub(super) async fn run(self) -> Result<Result<Grouped, String>> {
        let grouped = tokio::task::spawn_blocking(move || self.run_blocking()).await;
        grouped
            .map_err(|error| MediaError::unexpected(At::new(STEP, format!("the sorting ended: {error}"))))?
    }

    fn run_blocking(self) -> Result<Result<Grouped, String>> {
        let unreadable = |error: IsobmffError| error.of_output(STEP, "the copied picture");
        let mut reader = FragmentReader::open(&self.whole).map_err(unreadable)?;
        let track = reader.init().only_track().map_err(unreadable)?.clone();
        let init = self.folder.join("video-init.mp4");
        write(&init, reader.init_bytes())?;
        let timescale = i64::from(track.timescale);
        let ticks = |seconds: i64| seconds * timescale;
        let zero = self.offset.scale(timescale).unwrap_or(0);
        let longest = ticks(i64::from(self.segment_seconds)).unsigned_abs() * LONGEST_TIMES;

        let init_sha256 = sha256_hex(reader.init_bytes());
        let mut made = Grouped {
            init,
            segments: Vec::new(),
            hashes: Vec::new(),
            facts: Vec::new(),
            track,
            init_sha256,
            duration_us: 0,
        };
        let mut pending: Vec<u8> = Vec::new();
        let mut begins = 0;
        while let Some(fragment) = reader.next().map_err(unreadable)? {
            let Some(first) = fragment.segment.samples.first() else { continue };
            let data = &fragment.bytes[first.data.clone()];
            let begins_with = self.units.start_of(data, made.track.nal_length_bytes.unwrap_or(0));
            if begins_with == Start::OwnParameters {
                return Ok(
                    Err("it repeats its parameter sets, which `hvc1` samples may not hold".to_owned()),
                );
            }
            let begins_anew = first.is_sync && begins_with == Start::Alone;
            let due = zero + ticks((made.segments.len() as i64 + 1) * i64::from(self.segment_seconds));
            let start = fragment.segment.presentation_start().cast_signed();
            if pending.is_empty() && !begins_anew {
                return Ok(Err("it does not begin with a picture that stands alone".to_owned()));
            }
            if !pending.is_empty() && begins_anew && start >= due {
                self.close(&mut made, &mut pending)?;
            }
            if pending.is_empty() {
                begins = fragment.segment.decode_start();
            }
            pending.extend_from_slice(&fragment.bytes);
            let lasts = fragment.segment.decode_end().saturating_sub(begins);
            // At once: the rest of the film would be kept, too.
            if lasts > longest || pending.len() > SEGMENT_MAX_BYTES {
                let seconds = lasts / u64::from(made.track.timescale.max(1));
                return Ok(Err(format!("no picture stands alone for {seconds} s or more")));
            }
        }
        if pending.is_empty() {
            let what = "there is not one picture in it";
            return Err(MediaError::bad_input(InputProblem::Truncated, At::new(STEP, what)));
        }
        self.close(&mut made, &mut pending)?;
        let all: u64 = made.facts.iter().map(|fact| fact.duration_ticks).sum();
        let us = u128::from(all) * 1_000_000 / u128::from(made.track.timescale);
        made.duration_us = u64::try_from(us).unwrap_or(u64::MAX);
        Ok(Ok(made))
    }

    fn close(&self, made: &mut Grouped, pending: &mut Vec<u8>) -> Result<()> {
        let bytes = std::mem::take(pending);
        let number = made.segments.len();
        let segment = read_segment(&bytes, &made.track)
            .map_err(|error| error.of_output(STEP, format!("segment {number}")))?;
        let name = format!("video-{number:05}.m4s");
        let path = self.folder.join(&name);
        write(&path, &bytes)?;
        made.segments.push(path);
        let init_sha256 = made.init_sha256.clone();
        made.hashes.push(SegmentHashes { sha256: sha256_hex(&bytes), init_sha256 });
        made.facts.push(SegmentFact::of(name, &segment));
        Ok(())
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fresh::write(path, bytes).map_err(|error| MediaError::io(STEP, "a segment cannot be written", &error))
}
