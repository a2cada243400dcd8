//! What an ISO base media file (MP4, CMAF) says of itself, read without a program.
//!
//! Four looks, each bounded on hostile bytes: [`mp4_summary`] walks the atoms of a file without reading its media;
//! [`mp4_key_frames`] takes the times of key frames out of its index;
//! [`read_init`] takes the tracks, their clocks and their codecs' real parameters out of an init segment;
//! [`read_segment`] takes every sample's time, size and kind out of a media segment.

mod codecs;
mod index;
mod init;
mod segment;
mod summary;

pub use index::{KeyFrame, mp4_key_frames};
pub use init::{InitSegment, Track, TrackKind, read_init};
pub(crate) use segment::{FragmentReader, write_fragment};
pub use segment::{MediaSegment, Sample, read_segment};
pub(crate) use summary::summarise;
pub use summary::{Mp4Summary, mp4_summary};

use crate::error::{At, MediaError};

/// Why bytes are not the ISO base media that they should be.
#[derive(Debug, thiserror::Error)]
pub enum IsobmffError {
    /// They end before their own structure does.
    #[error("it ends early: {0}")]
    EndsEarly(String),
    #[error("{0}")]
    Malformed(String),
    /// It may be right, but costs more than any file of ours would.
    #[error("{0}")]
    TooLarge(String),
    #[error("it cannot be read")]
    Unreadable(#[from] std::io::Error),
}

impl IsobmffError {
    /// The error of a step whose own output does not read as it should.
    pub(crate) fn of_output(self, step: &'static str, what: impl std::fmt::Display) -> MediaError {
        match self {
            Self::Unreadable(error) => MediaError::io(step, what, &error),
            wrong => MediaError::unexpected(At::new(step, format!("{what}: {wrong}"))),
        }
    }
}

/// Where an atom is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AtomSpan {
    pub(crate) kind: [u8; 4],
    /// Of its first byte, which is its header's.
    pub(crate) start: u64,
    pub(crate) header_bytes: u64,
    /// Behind its last byte, as its header says; `None` is the end of whatever holds it.
    pub(crate) end: Option<u64>,
}

impl AtomSpan {
    /// The atom whose header begins at `start`; `head` is what can be read from there on, 16 bytes if there are so many.
    pub(crate) fn parse(head: &[u8], start: u64) -> Option<Self> {
        let size = u32::from_be_bytes(head.get(..4)?.try_into().ok()?);
        let kind: [u8; 4] = head.get(4..8)?.try_into().ok()?;
        let (header_bytes, size) = match size {
            0 => (8, None),
            1 => (16, Some(u64::from_be_bytes(head.get(8..16)?.try_into().ok()?))),
            size => (8, Some(u64::from(size))),
        };
        if size.is_some_and(|size| size < header_bytes) {
            return None;
        }
        let end = size.map(|size| start.checked_add(size));
        match end {
            Some(None) => None,
            known => Some(Self { kind, start, header_bytes, end: known.flatten() }),
        }
    }

    /// Where its body is within what ends at `limit`, and whether all of it is there.
    pub(crate) fn body(&self, limit: u64) -> (std::ops::Range<u64>, bool) {
        let begin = self.start + self.header_bytes;
        let end = self.end.unwrap_or(limit);
        (begin.min(limit)..end.min(limit), end <= limit && begin <= limit)
    }

    /// Registered kinds are printable, and QuickTime's begin with a copyright sign.
    pub(crate) fn looks_real(&self) -> bool {
        self.kind.iter().all(|byte| (0x20..0x7f).contains(byte) || *byte == 0xa9)
    }

    pub(crate) fn name(&self) -> String {
        self.kind.iter().map(|byte| char::from(*byte)).collect()
    }
}
