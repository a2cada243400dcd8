//! The key frames of a track, out of the index of an MP4 or QuickTime file: what a seek would find, without a program.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use mp4_atom::{Atom, Ctts, CttsEntry, Elst, ElstEntry, Hdlr, Mdhd, Stss, Stts, SttsEntry};

use super::segment::{atom_at, read_range};
use crate::error::{At, MediaError, Result};

const STEP: &str = "mp4_key_frames";
/// Tables of a film of a day fit in, and no more than this is read of each.
const TABLE_MAX_BYTES: u64 = 32 << 20;
/// At one a frame, ten hours at 60 frames a second.
const KEY_FRAMES_MAX: usize = 1 << 21;
/// Pictures are reordered by 16 at most, so the first one shown is among these.
const FIRST_SAMPLES: u32 = 32;
const ATOMS_MAX: usize = 1 << 16;

/// On the clock of the file, as FFmpeg tells times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyFrame {
    /// By which demuxers seek.
    pub decode_us: i64,
    pub shown_us: i64,
}

/// The key frames of the track with that place among all tracks, FFmpeg's `0:stream_index`, in the order of decoding.
///
/// `None` where this simple reading might differ from a demuxer's: in fragments, or with edits that do more than let the
/// first picture be shown at zero.
pub async fn mp4_key_frames(path: &Path, stream_index: u32) -> Result<Option<Vec<KeyFrame>>> {
    let path: PathBuf = path.to_owned();
    let looked = tokio::task::spawn_blocking(move || read(&path, stream_index)).await;
    looked
        .map_err(|error| MediaError::unexpected(At::new(STEP, format!("the look ended: {error}"))))?
        .map_err(|error| MediaError::io(STEP, "the input cannot be read", &error))
}

fn read(path: &Path, stream_index: u32) -> std::io::Result<Option<Vec<KeyFrame>>> {
    let mut file = File::open(path)?;
    let all = 0..file.metadata()?.len();
    let Some(moov) = find(&mut file, all, b"moov")? else { return Ok(None) };
    if find(&mut file, moov.clone(), b"mvex")?.is_some() {
        return Ok(None);
    }
    let tracks = children(&mut file, moov)?.into_iter().filter(|(kind, _)| kind == b"trak");
    let Some((_, trak)) = tracks.into_iter().nth(stream_index as usize) else { return Ok(None) };
    let tables = Tables::read(&mut file, trak)?;
    Ok(tables.and_then(|tables| tables.key_frames()))
}

/// What an index says of one track.
#[derive(Debug)]
struct Tables {
    timescale: u32,
    durations: Stts,
    offsets: Option<Ctts>,
    /// `None` when every sample is one.
    sync: Option<Stss>,
    edits: Vec<ElstEntry>,
}

impl Tables {
    fn read(file: &mut File, trak: Range<u64>) -> std::io::Result<Option<Self>> {
        let Some(mdia) = find(file, trak.clone(), b"mdia")? else { return Ok(None) };
        let Some(minf) = find(file, mdia.clone(), b"minf")? else { return Ok(None) };
        let Some(stbl) = find(file, minf, b"stbl")? else { return Ok(None) };
        let (header, handler) = (table::<Mdhd>(file, &mdia)?, table::<Hdlr>(file, &mdia)?);
        let elst = match find(file, trak, b"edts")? {
            Some(edts) => table::<Elst>(file, &edts)?,
            None => Table::Absent,
        };
        // Other ways to say that a sample is one to begin with.
        let more_ways = [b"stps", b"sbgp"].map(|kind| find(file, stbl.clone(), kind));
        for way in more_ways {
            if way?.is_some() {
                return Ok(None);
            }
        }
        let (Table::Present(header), Table::Present(handler)) = (header, handler) else { return Ok(None) };
        let Table::Present(durations) = table::<Stts>(file, &stbl)? else { return Ok(None) };
        let (Some(offsets), Some(sync), Some(edits)) =
            (table::<Ctts>(file, &stbl)?.known(), table::<Stss>(file, &stbl)?.known(), elst.known())
        else {
            return Ok(None);
        };
        if &<[u8; 4]>::from(handler.handler) != b"vide" || header.timescale == 0 {
            return Ok(None);
        }
        let edits = edits.map_or_else(Vec::new, |edits| edits.entries);
        Ok(Some(Self { timescale: header.timescale, durations, offsets, sync, edits }))
    }

    fn key_frames(&self) -> Option<Vec<KeyFrame>> {
        let zero = self.zero()?;
        let us = |ticks: i64| {
            let us = i128::from(ticks - zero) * 1_000_000 / i128::from(self.timescale);
            i64::try_from(us).ok()
        };
        let mut clock = Clock::of(self);
        let mut keys = Vec::new();
        let mut add = |sample: u32| {
            let (decode, shown) = clock.at(sample)?;
            (keys.len() < KEY_FRAMES_MAX).then_some(())?;
            keys.push(KeyFrame { decode_us: us(decode)?, shown_us: us(shown)? });
            Some(())
        };
        match &self.sync {
            Some(sync) => sync.entries.iter().try_for_each(|sample| add(sample.checked_sub(1)?))?,
            None => (0..self.sample_count()?).try_for_each(&mut add)?,
        }
        (!keys.is_empty()).then_some(keys)
    }

    /// The tick that is shown first. One edit may begin there, which makes it the clock's zero.
    fn zero(&self) -> Option<i64> {
        let mut clock = Clock::of(self);
        let shown = (0..FIRST_SAMPLES.min(self.sample_count()?))
            .map(|sample| clock.at(sample).map(|(_, shown)| shown));
        let first = shown.collect::<Option<Vec<i64>>>()?.into_iter().min()?;
        match self.edits.as_slice() {
            [] => Some(0),
            [edit] => {
                let is_at_pace = (edit.media_rate.integer(), edit.media_rate.decimal()) == (1, 0);
                let begins = edit.media_time.and_then(|ticks| i64::try_from(ticks).ok());
                begins.filter(|begins| is_at_pace && *begins == first)
            }
            _ => None,
        }
    }

    fn sample_count(&self) -> Option<u32> {
        self.durations.entries.iter().try_fold(0_u32, |sum, entry| sum.checked_add(entry.sample_count))
    }
}

/// Times of samples that are asked for in rising order, out of tables of runs: a run may claim billions of samples.
#[derive(Debug)]
struct Clock<'a> {
    durations: Runs<'a, SttsEntry>,
    offsets: Option<Runs<'a, CttsEntry>>,
    /// When the first sample of the current run is decoded.
    run_decode: i64,
}

#[derive(Debug)]
struct Runs<'a, Entry> {
    entries: &'a [Entry],
    /// The first sample of the first of them.
    start: u32,
}

impl<'a> Clock<'a> {
    fn of(tables: &'a Tables) -> Self {
        let offsets = tables.offsets.as_ref().map(|offsets| Runs { entries: &offsets.entries, start: 0 });
        Self { durations: Runs { entries: &tables.durations.entries, start: 0 }, offsets, run_decode: 0 }
    }

    /// When a sample is decoded and when it is shown, in ticks; `None` where the tables do not say, or say that
    /// something is shown before it is decoded, which demuxers correct in ways of their own.
    fn at(&mut self, sample: u32) -> Option<(i64, i64)> {
        let runs = &mut self.durations;
        let run = loop {
            let (run, rest) = runs.entries.split_first()?;
            if sample.checked_sub(runs.start)? < run.sample_count {
                break run;
            }
            let lasts = i64::from(run.sample_count) * i64::from(run.sample_delta);
            self.run_decode = self.run_decode.checked_add(lasts)?;
            (runs.start, runs.entries) = (runs.start.checked_add(run.sample_count)?, rest);
        };
        let into = i64::from(sample.checked_sub(runs.start)?);
        let decode = self.run_decode.checked_add(into * i64::from(run.sample_delta))?;
        let offset = match &mut self.offsets {
            None => 0,
            Some(runs) => runs.offset(sample)?,
        };
        (offset >= 0).then_some((decode, decode.checked_add(offset)?))
    }
}

impl Runs<'_, CttsEntry> {
    fn offset(&mut self, sample: u32) -> Option<i64> {
        while let Some((run, rest)) = self.entries.split_first() {
            if sample.checked_sub(self.start)? < run.sample_count {
                return Some(run.sample_offset);
            }
            (self.start, self.entries) = (self.start.checked_add(run.sample_count)?, rest);
        }
        None
    }
}

enum Table<T> {
    Present(T),
    Absent,
    /// Too large, cut or malformed: whoever reads it otherwise may see something else.
    Unreadable,
}

impl<T> Table<T> {
    /// The outer `None` is a table that cannot be read.
    fn known(self) -> Option<Option<T>> {
        match self {
            Self::Present(table) => Some(Some(table)),
            Self::Absent => Some(None),
            Self::Unreadable => None,
        }
    }
}

fn table<T: Atom>(file: &mut File, parent: &Range<u64>) -> std::io::Result<Table<T>> {
    let kind: [u8; 4] = T::KIND.into();
    let Some(body) = find(file, parent.clone(), &kind)? else { return Ok(Table::Absent) };
    if body.end - body.start > TABLE_MAX_BYTES {
        return Ok(Table::Unreadable);
    }
    let bytes = read_range(file, body)?;
    Ok(T::decode_body(&mut bytes.as_slice()).map_or(Table::Unreadable, Table::Present))
}

/// The first atom of that kind.
fn find(file: &mut File, parent: Range<u64>, kind: &[u8; 4]) -> std::io::Result<Option<Range<u64>>> {
    Ok(children(file, parent)?.into_iter().find(|(found, _)| found == kind).map(|(_, body)| body))
}

/// Kinds and bodies of the atoms in a range, as far as they are whole.
fn children(file: &mut File, parent: Range<u64>) -> std::io::Result<Vec<([u8; 4], Range<u64>)>> {
    let mut found = Vec::new();
    let mut at = parent.start;
    while at < parent.end && found.len() < ATOMS_MAX {
        let Some(span) = atom_at(file, at)? else { break };
        let (body, is_whole) = span.body(parent.end);
        // Half of the media may be missing; half of an index is none.
        if !is_whole && &span.kind != b"mdat" {
            break;
        }
        at = body.end;
        found.push((span.kind, body));
    }
    Ok(found)
}
