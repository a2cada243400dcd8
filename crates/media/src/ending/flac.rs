//! FLAC: the last frame is whole, and it is the last one.

use std::io;

use super::source::Source;
use super::{PARTS_MAX, beyond};
use crate::sniff::id3_bytes;

const STREAM_INFO: u8 = 0;
/// Frames of 65,535 samples in eight channels of 32 bits are not larger; none that is met is near it.
const FRAME_MAX_BYTES: usize = 4 << 20;
/// Sync codes that are none are found by chance, and end with a wrong checksum.
const CANDIDATES_MAX: usize = 4096;
const OLD_TAG_BYTES: u64 = 128;

#[derive(Debug, Clone, Copy, Default)]
struct StreamInfo {
    block_samples: u64,
    frame_max_bytes: usize,
    /// 0 where nobody counted.
    samples: u64,
}

pub(super) fn missing(source: &mut Source) -> io::Result<Option<String>> {
    let start = id3_bytes(source.piece(0, 10)?).unwrap_or(0) as u64;
    if source.array::<4>(start)? != Some(*b"fLaC") {
        return Ok(None);
    }
    let mut at = start + 4;
    let mut info = StreamInfo::default();
    for _ in 0..PARTS_MAX {
        let Some([kind, a, b, c]) = source.array::<4>(at)? else {
            return Ok(Some("it ends in its metadata".into()));
        };
        let end = at + 4 + u64::from(u32::from_be_bytes([0, a, b, c]));
        if end > source.bytes() {
            return Ok(beyond("a block of metadata", end, source.bytes()));
        }
        if kind & 0x7f == STREAM_INFO
            && let Some(body) = source.array::<18>(at + 4)?
        {
            info = StreamInfo::of(&body);
        }
        at = end;
        if kind & 0x80 != 0 {
            return missing_frames(source, at, info);
        }
    }
    Ok(None)
}

fn missing_frames(source: &mut Source, first_at: u64, info: StreamInfo) -> io::Result<Option<String>> {
    let mut end = source.bytes();
    if end >= first_at + OLD_TAG_BYTES && source.array::<3>(end - OLD_TAG_BYTES)? == Some(*b"TAG") {
        end -= OLD_TAG_BYTES;
    }
    if first_at >= end {
        return Ok((info.samples > 0).then(|| "there are no frames".into()));
    }
    let reach = if info.frame_max_bytes > 0 { info.frame_max_bytes } else { FRAME_MAX_BYTES };
    let from = first_at.max(end.saturating_sub(reach.min(FRAME_MAX_BYTES) as u64));
    let count = usize::try_from(end - from).unwrap_or(usize::MAX);
    let tail = source.piece(from, count)?;
    let starts = (0..tail.len()).rev().filter_map(|at| Some((at, Frame::parse(&tail[at..], info)?)));
    let last = starts.take(CANDIDATES_MAX).find(|(at, _)| crc16(&tail[*at..]) == 0);
    let Some((_, frame)) = last else { return Ok(Some("the last frame is cut".into())) };
    let end_sample = frame.first_sample.saturating_add(frame.samples);
    let is_short = info.samples > end_sample;
    Ok(is_short.then(|| format!("the last frame ends with sample {end_sample} of {}", info.samples)))
}

impl StreamInfo {
    fn of(body: &[u8; 18]) -> Self {
        let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        Self {
            block_samples: number(&body[..2]),
            frame_max_bytes: usize::try_from(number(&body[7..10])).unwrap_or(0),
            // The low 36 bits behind rate, channels and depth.
            samples: number(&body[10..18]) & 0xf_ffff_ffff,
        }
    }
}

struct Frame {
    first_sample: u64,
    samples: u64,
}

impl Frame {
    /// The frame whose header these bytes begin with, if its checksum is right.
    fn parse(bytes: &[u8], info: StreamInfo) -> Option<Self> {
        let [0xff, sync, sizes, channels, ..] = *bytes else { return None };
        let (size_code, rate_code) = (sizes >> 4, sizes & 0xf);
        if sync & 0xfe != 0xf8 || channels & 1 != 0 || channels >> 4 > 10 || size_code == 0 || rate_code == 15
        {
            return None;
        }
        let (number, number_bytes) = coded_number(&bytes[4..])?;
        let mut at = 4 + number_bytes;
        let samples = match size_code {
            1 => 192,
            2..=5 => 576 << (size_code - 2),
            6 => {
                at += 1;
                u64::from(*bytes.get(at - 1)?) + 1
            }
            7 => {
                at += 2;
                u64::from(u16::from_be_bytes([*bytes.get(at - 2)?, *bytes.get(at - 1)?])) + 1
            }
            _ => 256 << (size_code - 8),
        };
        at += match rate_code {
            12 => 1,
            13 | 14 => 2,
            _ => 0,
        };
        let is_header = crc8(bytes.get(..at)?) == *bytes.get(at)?;
        // A stream of equal blocks counts frames, another counts samples.
        let first_sample = if sync & 1 == 0 { number.saturating_mul(info.block_samples) } else { number };
        is_header.then_some(Self { first_sample, samples })
    }
}

/// As UTF-8 codes a character, but of up to seven bytes.
fn coded_number(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = match first.leading_ones() {
        0 => return Some((first.into(), 1)),
        ones @ 2..=7 => ones as usize,
        _ => return None,
    };
    let high = u64::from(first) & (0x7f >> length);
    let follow = bytes.get(1..length)?;
    let number = follow
        .iter()
        .try_fold(high, |sum, byte| (byte & 0xc0 == 0x80).then(|| sum << 6 | u64::from(byte & 0x3f)))?;
    Some((number, length))
}

fn crc8(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ byte, |crc, _| if crc & 0x80 == 0 { crc << 1 } else { crc << 1 ^ 0x07 })
    })
}

/// Over a frame and the checksum behind it, it is 0.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ u16::from(*byte) << 8,
            |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x8005 }
            },
        )
    })
}
