//! MP3 and ADTS, which are frames and nothing else: the last one is whole, and where a header counts them, all are there.

use std::io;

use super::PARTS_MAX;
use super::source::Source;
use crate::sniff::{adts_frame_bytes, id3_bytes, mp3_frame_bytes};

/// Holds many frames: an MP3 frame has at most 1,441 bytes, an ADTS frame 8,191.
const TAIL_BYTES: u64 = 64 << 10;
/// So many frames in a row are no chance.
const CHAIN_MIN: usize = 4;
const OLD_TAG_BYTES: u64 = 128;
const APE_FOOTER_BYTES: u64 = 32;

#[derive(Clone, Copy)]
struct Kind {
    frame_bytes: fn(&[u8]) -> Option<usize>,
    /// What stays the same in the first bytes of all frames: version, layer or profile, sampling rate.
    constant: [u8; 3],
}

const MP3: Kind = Kind { frame_bytes: mp3_frame_bytes, constant: [0xff, 0xfe, 0x0c] };
const ADTS: Kind = Kind { frame_bytes: adts_frame_bytes, constant: [0xff, 0xfe, 0xfc] };

pub(super) fn missing_of_mp3(source: &mut Source) -> io::Result<Option<String>> {
    let Some(span) = Span::of(source)? else { return Ok(Some("it ends in its tag".into())) };
    let Some(first) = span.first_frame(source, MP3)? else { return Ok(None) };
    if let Some(counts) = Counts::of(&first)
        && let Some(what) = counts.missing(source, &span, MP3)?
    {
        return Ok(Some(what));
    }
    span.missing(source, MP3, &first)
}

pub(super) fn missing_of_adts(source: &mut Source) -> io::Result<Option<String>> {
    let Some(span) = Span::of(source)? else { return Ok(Some("it ends in its tag".into())) };
    let Some(first) = span.first_frame(source, ADTS)? else { return Ok(None) };
    span.missing(source, ADTS, &first)
}

/// Where the frames are, between the tags.
struct Span {
    start: u64,
    end: u64,
}

impl Span {
    /// `None` where the file ends in the tag before the first frame.
    fn of(source: &mut Source) -> io::Result<Option<Self>> {
        let mut start = id3_bytes(source.piece(0, 10)?).unwrap_or(0) as u64;
        if start >= source.bytes() {
            return Ok(None);
        }
        // Some writers pad behind the tag.
        let padding = source.piece(start, TAIL_BYTES as usize)?.iter().take_while(|byte| **byte == 0).count();
        start += padding as u64;
        let mut end = source.bytes();
        if source.array::<3>(end.saturating_sub(OLD_TAG_BYTES))? == Some(*b"TAG") {
            end -= OLD_TAG_BYTES;
        }
        if let Some(footer) = source.array::<16>(end.saturating_sub(APE_FOOTER_BYTES))?
            && footer.starts_with(b"APETAGEX")
        {
            let size = u64::from(u32::from_le_bytes([footer[12], footer[13], footer[14], footer[15]]));
            end = end.saturating_sub(size);
            // A header like the footer may stand before it.
            if source.array::<8>(end.saturating_sub(APE_FOOTER_BYTES))? == Some(*b"APETAGEX") {
                end -= APE_FOOTER_BYTES;
            }
        }
        Ok(Some(Self { start: start.min(end), end }))
    }

    fn first_frame(&self, source: &mut Source, kind: Kind) -> io::Result<Option<Vec<u8>>> {
        let head = source.piece(self.start, 8 << 10)?;
        Ok((kind.frame_bytes)(head).map(|bytes| head[..bytes.min(head.len())].to_vec()))
    }

    /// Finds the frames of the tail and follows them to the end.
    fn missing(&self, source: &mut Source, kind: Kind, first: &[u8]) -> io::Result<Option<String>> {
        let tail_at = self.start.max(self.end.saturating_sub(TAIL_BYTES));
        let count = usize::try_from(self.end - tail_at).unwrap_or(usize::MAX);
        let tail = source.piece(tail_at, count)?;
        // In a short file the first frame is in the tail, and needs no confirmation by others.
        let starts = 0..if tail_at == self.start { 1 } else { tail.len() };
        let chains = starts.map(|at| Chain::from(tail, at, kind, first));
        let is_sure = |chain: &Chain| tail_at == self.start || chain.frames >= CHAIN_MIN;
        Ok(chains.into_iter().find(is_sure).and_then(|chain| chain.missing(tail)))
    }
}

/// Frames that follow one another.
struct Chain {
    frames: usize,
    /// Behind the last of them, which may be past the end.
    end: usize,
}

impl Chain {
    fn from(bytes: &[u8], start: usize, kind: Kind, first: &[u8]) -> Self {
        let mut chain = Self { frames: 0, end: start };
        while let Some(rest) = bytes.get(chain.end..).filter(|rest| !rest.is_empty())
            && kind.is_like(rest, first)
            && let Some(frame_bytes) = (kind.frame_bytes)(rest)
        {
            chain.frames += 1;
            chain.end += frame_bytes;
        }
        chain
    }

    fn missing(&self, bytes: &[u8]) -> Option<String> {
        if let Some(more) = self.end.checked_sub(bytes.len()).filter(|more| *more > 0) {
            return Some(format!("the last frame lacks {more} bytes"));
        }
        // Whatever is not a frame does not belong to the sound, but for the beginning of a header.
        let rest = &bytes[self.end..];
        let is_header = rest.first() == Some(&0xff) && rest.len() < 7;
        is_header.then(|| "it ends in the header of a frame".into())
    }
}

impl Kind {
    fn is_like(self, frame: &[u8], first: &[u8]) -> bool {
        let same = |n: usize| match (frame.get(n), first.get(n)) {
            (Some(have), Some(want)) => have & self.constant[n] == want & self.constant[n],
            _ => true,
        };
        (0..3).all(same)
    }
}

/// What the first frame of an MP3 says of all: Xing's header, under that name or as `Info`, or Fraunhofer's VBRI.
#[derive(Debug, Default)]
struct Counts {
    /// The frame that says so is not among them.
    frames: Option<u32>,
    /// Here it is.
    bytes: Option<u32>,
}

impl Counts {
    fn of(first: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_be_bytes(first.get(at..at + 4)?.try_into().ok()?));
        let (is_v1, is_mono) = (first.get(1)? & 8 != 0, first.get(3)? >> 6 == 3);
        let at = 4 + match (is_v1, is_mono) {
            (true, false) => 32,
            (true, true) | (false, false) => 17,
            (false, true) => 9,
        };
        if matches!(first.get(at..at + 4)?, b"Xing" | b"Info") {
            let flags = number(at + 4)?;
            let frames = if flags & 1 != 0 { number(at + 8) } else { None };
            let bytes_at = at + 8 + if flags & 1 != 0 { 4 } else { 0 };
            let bytes = if flags & 2 != 0 { number(bytes_at) } else { None };
            return Some(Self { frames, bytes });
        }
        let vbri = first.get(36..)?.starts_with(b"VBRI");
        vbri.then(|| Self { frames: number(50), bytes: number(46) })
    }

    fn missing(&self, source: &mut Source, span: &Span, kind: Kind) -> io::Result<Option<String>> {
        let have = span.end - span.start;
        if let Some(bytes) = self.bytes.filter(|bytes| *bytes > 0) {
            // Writers that count an old tag at the end as sound exist.
            let is_short = have + OLD_TAG_BYTES < u64::from(bytes);
            return Ok(is_short.then(|| format!("{have} of {bytes} bytes of sound are there")));
        }
        let Some(wanted) = self.frames.filter(|frames| *frames > 0) else { return Ok(None) };
        let mut at = span.start;
        for frames in 0..PARTS_MAX {
            let frame_bytes = (kind.frame_bytes)(source.piece(at, 8)?).filter(|_| at < span.end);
            let Some(frame_bytes) = frame_bytes else {
                // The first is the one that counts the others.
                let is_short = at >= span.end && frames <= wanted as usize;
                return Ok(
                    is_short.then(|| format!("{} of {wanted} frames are there", frames.saturating_sub(1)))
                );
            };
            at += frame_bytes as u64;
        }
        Ok(None)
    }
}
