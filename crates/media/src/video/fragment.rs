//! An encoder's file, taken apart into the init segment and the media segment, and checked to the tick.

use std::path::Path;

use crate::isobmff::{FragmentReader, IsobmffError, MediaSegment, Sample};

/// What a file must hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) frames: u32,
    /// Of the first frame shown.
    pub(super) start_ticks: u64,
    pub(super) ticks_per_frame: u32,
}

/// The two parts of a file.
#[derive(Debug)]
pub(super) struct Parts {
    /// `ftyp` and `moov`.
    pub(super) init: Vec<u8>,
    /// `moof` and `mdat`.
    pub(super) media: Vec<u8>,
}

/// Takes a file apart that has one fragment of one track, and checks its frames and their times.
pub(super) fn take_apart(file: &Path, expected: &Expected) -> Result<Parts, IsobmffError> {
    let mut reader = FragmentReader::open(file)?;
    let Some(fragment) = reader.next()? else { return wrong("it has no fragment") };
    if reader.next()?.is_some() {
        return wrong("it has more than one fragment");
    }
    expected.check(&fragment.segment)?;
    Ok(Parts { init: reader.init_bytes().to_vec(), media: fragment.bytes })
}

impl Expected {
    /// Each frame is shown at its place on the grid, whatever order they are coded in.
    fn check(&self, segment: &MediaSegment) -> Result<(), IsobmffError> {
        let mut shown_at: Vec<i128> = segment.samples.iter().map(Sample::presentation_time).collect();
        if shown_at.len() != self.frames as usize {
            return wrong(format!("{} frames instead of {}", shown_at.len(), self.frames));
        }
        shown_at.sort_unstable();
        let on_grid = |n: usize| i128::from(self.start_ticks) + n as i128 * i128::from(self.ticks_per_frame);
        match shown_at.iter().enumerate().find(|(n, ticks)| **ticks != on_grid(*n)) {
            None => Ok(()),
            Some((n, ticks)) => wrong(format!("frame {n} is at tick {ticks}")),
        }
    }
}

fn wrong<T>(what: impl Into<String>) -> Result<T, IsobmffError> {
    Err(IsobmffError::Malformed(what.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: Expected = Expected { frames: 3, start_ticks: 1000, ticks_per_frame: 10 };

    /// Three frames from tick 980 on.
    fn segment(offsets: [i64; 3]) -> MediaSegment {
        let frame = |(decode_time, composition_offset)| Sample {
            decode_time,
            duration: 10,
            composition_offset,
            is_sync: decode_time == 980,
            data: 0..0,
        };
        let samples = [980, 990, 1000].into_iter().zip(offsets).map(frame).collect();
        MediaSegment { samples, fragments: 1, bytes: 0 }
    }

    #[test]
    fn frames_are_on_the_grid_whatever_order_they_are_coded_in() {
        EXPECTED.check(&segment([20, 30, 10])).unwrap();
        EXPECTED.check(&segment([20, 20, 20])).unwrap();
    }

    #[test]
    fn a_frame_off_the_grid_or_missing_is_noticed() {
        assert!(EXPECTED.check(&segment([20, 31, 10])).is_err());
        assert!(EXPECTED.check(&segment([20, 30, 20])).is_err());
        let more = Expected { frames: 4, ..EXPECTED };
        let missing = more.check(&segment([20, 30, 10])).unwrap_err();
        assert_eq!(missing.to_string(), "3 frames instead of 4");
    }
}
