//! What a look at a file's atoms tells, in a few reads: no program is started and no media read.

use std::fs::File;
use std::io::Seek;
use std::path::{Path, PathBuf};

use mp4_atom::{Atom, Mehd, Mvhd, Sidx};
use serde::Serialize;

use super::AtomSpan;
use super::segment::{atom_at, read_range};
use crate::error::{At, InputProblem, MediaError, Result};

const STEP: &str = "mp4_summary";
/// A day in fragments of a fifth of a second has fewer.
const ATOMS_MAX: usize = 1 << 20;
/// Its 65,535 references of 12 bytes, and what is before them.
const SIDX_MAX_BYTES: u64 = 1 << 20;
/// `mvhd` and `mehd` are far smaller.
const HEADER_MAX_BYTES: u64 = 256;

/// The frame of an MP4 or QuickTime file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mp4Summary {
    pub file_bytes: u64,
    /// What is missing, where the file ends before its own structure does.
    pub truncated: Option<String>,
    /// The index comes before the media, so that playing can begin with the first bytes.
    pub faststart: bool,
    /// It is made of fragments, each with an index of its own.
    pub fragmented: bool,
    /// As its header says; `None` where that says nothing.
    pub duration_us: Option<u64>,
    /// Of a track of pictures, by its index; fragments are not counted. `None` where there is none.
    pub video_frames: Option<u64>,
}

/// Looks at the atoms of a file that was sniffed as MP4.
pub async fn mp4_summary(path: &Path) -> Result<Mp4Summary> {
    let path: PathBuf = path.to_owned();
    let looked = tokio::task::spawn_blocking(move || summarise(&path)).await;
    looked
        .map_err(|error| MediaError::unexpected(At::new(STEP, format!("the look ended: {error}"))))?
        .map_err(|error| MediaError::io(STEP, "the input cannot be read", &error))
}

impl Mp4Summary {
    /// Refuses a file whose end is missing.
    pub fn require_whole(&self) -> Result<()> {
        match &self.truncated {
            None => Ok(()),
            Some(what) => Err(MediaError::bad_input(InputProblem::Truncated, At::new(STEP, what.clone()))),
        }
    }
}

#[derive(Debug, Default)]
struct Seen {
    moov_at: Option<u64>,
    mdat_at: Option<u64>,
    moof: bool,
    /// Behind the last fragment that an index of fragments (`sidx`) names.
    indexed_end: Option<u64>,
    header: MoovFacts,
}

#[derive(Debug, Default)]
struct MoovFacts {
    duration_us: Option<u64>,
    last_chunk_at: Option<u64>,
    video_frames: Option<u64>,
}

pub(crate) fn summarise(path: &Path) -> std::io::Result<Mp4Summary> {
    let mut file = File::open(path)?;
    let file_bytes = file.seek(std::io::SeekFrom::End(0))?;
    let mut seen = Seen::default();
    let mut truncated = None;
    let mut at = 0;
    for _ in 0..ATOMS_MAX {
        if at >= file_bytes {
            break;
        }
        // Files with a few foreign bytes at their end exist and play; what they claim to be is no atom.
        let Some(span) = atom_at(&mut file, at)?.filter(AtomSpan::looks_real) else {
            let rest = file_bytes - at;
            if seen.moof && rest < 8 {
                truncated = Some(format!("the header of an atom at byte {at} is cut"));
            }
            break;
        };
        let (body, whole) = span.body(file_bytes);
        if !whole {
            let end = span.end.unwrap_or(file_bytes);
            truncated =
                Some(format!("{} reaches to byte {end} of a file of {file_bytes} bytes", span.name()));
        }
        match &span.kind {
            b"moov" if seen.moov_at.is_none() => {
                seen.moov_at = Some(span.start);
                seen.header = moov_facts(&mut file, body.clone())?;
            }
            b"mdat" if seen.mdat_at.is_none() => seen.mdat_at = Some(span.start),
            b"moof" => seen.moof = true,
            b"sidx" => {
                let index = read_range(&mut file, body.start..body.end.min(body.start + SIDX_MAX_BYTES))?;
                let end = Sidx::decode_body(&mut index.as_slice()).ok().and_then(|it| indexed(&it, body.end));
                seen.indexed_end = seen.indexed_end.max(end);
            }
            _ => {}
        }
        at = body.end;
    }
    Ok(Mp4Summary {
        file_bytes,
        truncated: truncated.or_else(|| seen.what_is_missing(file_bytes)),
        faststart: seen.moov_at.is_some_and(|moov| seen.mdat_at.is_none_or(|mdat| moov < mdat)),
        fragmented: seen.moof,
        duration_us: seen.header.duration_us,
        video_frames: seen.header.video_frames,
    })
}

impl Seen {
    /// Every atom is whole; what they promise together may still not be there.
    fn what_is_missing(&self, file_bytes: u64) -> Option<String> {
        if self.moov_at.is_none() {
            return Some("there is no index (moov)".to_owned());
        }
        if self.mdat_at.is_none() {
            return Some("there is no media (mdat)".to_owned());
        }
        if let Some(end) = self.indexed_end.filter(|end| *end > file_bytes) {
            return Some(format!("fragments reach to byte {end} of a file of {file_bytes} bytes"));
        }
        let chunk = self.header.last_chunk_at.filter(|chunk| *chunk >= file_bytes)?;
        Some(format!("media at byte {chunk} of a file of {file_bytes} bytes"))
    }
}

/// References count from the first byte behind their index.
fn indexed(index: &Sidx, behind: u64) -> Option<u64> {
    let sizes: u64 = index.references.iter().map(|it| u64::from(it.referenced_size)).sum();
    behind.checked_add(index.first_offset)?.checked_add(sizes)
}

fn moov_facts(file: &mut File, moov: std::ops::Range<u64>) -> std::io::Result<MoovFacts> {
    let mut facts = MoovFacts::default();
    let mut timescale = 0;
    let mut duration = 0;
    // Whether the track that is looked at is of pictures: its kind comes before its tables.
    let mut is_video = false;
    // Depth first, over what may hold something of interest; a file of nothing but small atoms is bounded too.
    let mut pending = vec![moov];
    let mut looked_at = 0;
    while let Some(range) = pending.pop() {
        let mut at = range.start;
        while at < range.end && looked_at < ATOMS_MAX {
            looked_at += 1;
            let Some(span) = atom_at(file, at)? else { break };
            let (body, _) = span.body(range.end);
            at = body.end;
            match &span.kind {
                b"trak" | b"mdia" | b"minf" | b"stbl" | b"mvex" => pending.push(body),
                b"mvhd" => {
                    let header = read_range(file, body.start..body.end.min(body.start + HEADER_MAX_BYTES))?;
                    if let Ok(header) = Mvhd::decode_body(&mut header.as_slice()) {
                        timescale = header.timescale;
                        duration = duration.max(known_duration(header.duration));
                    }
                }
                b"mehd" => {
                    let header = read_range(file, body.start..body.end.min(body.start + HEADER_MAX_BYTES))?;
                    if let Ok(header) = Mehd::decode_body(&mut header.as_slice()) {
                        duration = duration.max(known_duration(header.fragment_duration));
                    }
                }
                b"hdlr" => {
                    // QuickTime has another one beside the tables, of how data are read (`dhlr`).
                    let kinds = read_range(file, body.start + 4..body.end.min(body.start + 12))?;
                    is_video = if kinds.starts_with(b"dhlr") { is_video } else { kinds.ends_with(b"vide") };
                }
                b"stsz" | b"stz2" if is_video && facts.video_frames.is_none() => {
                    let count = read_range(file, body.start + 8..body.end.min(body.start + 12))?;
                    facts.video_frames = count.try_into().ok().map(|count| u32::from_be_bytes(count).into());
                }
                b"stco" => facts.take_chunk(last_offset::<4>(file, body)?),
                b"co64" => facts.take_chunk(last_offset::<8>(file, body)?),
                _ => {}
            }
        }
    }
    if timescale > 0 && duration > 0 {
        let micros = u128::from(duration) * 1_000_000 / u128::from(timescale);
        facts.duration_us = u64::try_from(micros).ok();
    }
    Ok(facts)
}

impl MoovFacts {
    fn take_chunk(&mut self, offset: Option<u64>) {
        self.last_chunk_at = self.last_chunk_at.max(offset);
    }
}

/// All ones is how a header says that it does not know.
fn known_duration(ticks: u64) -> u64 {
    if ticks == u64::MAX || ticks == u64::from(u32::MAX) { 0 } else { ticks }
}

/// The last entry of a table of chunk offsets, each of so many bytes.
fn last_offset<const BYTES: usize>(
    file: &mut File,
    body: std::ops::Range<u64>,
) -> std::io::Result<Option<u64>> {
    let head = read_range(file, body.start..body.end.min(body.start + 8))?;
    let Some(count) = head.get(4..8).and_then(|count| count.try_into().ok()).map(u32::from_be_bytes) else {
        return Ok(None);
    };
    let Some(last) = u64::from(count).checked_sub(1) else { return Ok(None) };
    let at = body.start + 8 + last * BYTES as u64;
    if at + BYTES as u64 > body.end {
        return Ok(None);
    }
    let entry = read_range(file, at..at + BYTES as u64)?;
    if entry.len() < BYTES {
        return Ok(None);
    }
    Ok(Some(entry.iter().fold(0, |offset, byte| offset << 8 | u64::from(*byte))))
}
