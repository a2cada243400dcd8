//! How long after its decoding a keyframe may be shown, by a file's tables alone.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use mp4_atom::{Atom, Ctts, Elst, Mdhd, Stss};

use super::AtomSpan;
use super::segment::{atom_at, read_range};

/// Atoms at one level; real files have tens.
const ATOMS_MAX: usize = 1024;
/// Six hours at 60 frames a second with an entry for each have 10 MB.
const TABLE_MAX_BYTES: u64 = 16 << 20;

/// The longest time from a keyframe's decoding to its showing, over all tracks; `None` where the tables do not tell it:
/// fragments, edits that do more than move the beginning, a track that begins without a keyframe, damage.
pub(crate) fn keyframe_delay_us(path: &Path) -> std::io::Result<Option<u64>> {
    let mut file = File::open(path)?;
    let end = file.seek(SeekFrom::End(0))?;
    let Some(moov) = atoms(&mut file, 0..end)?.into_iter().find(|atom| atom.kind == *b"moov") else {
        return Ok(None);
    };
    let inside = atoms(&mut file, moov.body(end).0)?;
    if inside.iter().any(|atom| atom.kind == *b"mvex") {
        return Ok(None);
    }
    let mut longest_us = None;
    for track in inside.iter().filter(|atom| atom.kind == *b"trak") {
        let mut tables = Tables::default();
        tables.read(&mut file, track.body(end).0)?;
        let Some(delay_us) = tables.keyframe_delay_us() else { return Ok(None) };
        longest_us = longest_us.max(Some(delay_us));
    }
    Ok(longest_us)
}

fn atoms(file: &mut File, range: Range<u64>) -> std::io::Result<Vec<AtomSpan>> {
    let mut found = Vec::new();
    let mut at = range.start;
    while at < range.end && found.len() < ATOMS_MAX {
        let Some(span) = atom_at(file, at)? else { break };
        at = span.body(range.end).0.end;
        found.push(span);
    }
    Ok(found)
}

/// What one track says of its samples' times.
#[derive(Debug, Default)]
struct Tables {
    header: Option<Mdhd>,
    edits: Option<Elst>,
    /// Without one every sample is a keyframe.
    keyframes: Option<Stss>,
    /// Without one samples are shown as they are decoded.
    offsets: Option<Ctts>,
    is_damaged: bool,
}

impl Tables {
    fn read(&mut self, file: &mut File, range: Range<u64>) -> std::io::Result<()> {
        for atom in atoms(file, range.clone())? {
            let (body, is_whole) = atom.body(range.end);
            match &atom.kind {
                b"edts" | b"mdia" | b"minf" | b"stbl" => self.read(file, body)?,
                b"mdhd" => self.header = self.decoded(file, body, is_whole)?,
                b"elst" => self.edits = self.decoded(file, body, is_whole)?,
                b"stss" => self.keyframes = self.decoded(file, body, is_whole)?,
                b"ctts" => self.offsets = self.decoded(file, body, is_whole)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn decoded<A: Atom>(
        &mut self,
        file: &mut File,
        body: Range<u64>,
        is_whole: bool,
    ) -> std::io::Result<Option<A>> {
        let mut atom = None;
        if is_whole && body.end - body.start <= TABLE_MAX_BYTES {
            atom = A::decode_body(&mut read_range(file, body)?.as_slice()).ok();
        }
        self.is_damaged |= atom.is_none();
        Ok(atom)
    }

    fn keyframe_delay_us(&self) -> Option<u64> {
        let timescale = u64::from(self.header.as_ref().filter(|header| header.timescale > 0)?.timescale);
        let begins_late =
            self.keyframes.as_ref().is_some_and(|keyframes| keyframes.entries.first() != Some(&1));
        if self.is_damaged || begins_late || !self.has_plain_edits() {
            return None;
        }
        let ticks = u64::try_from(self.keyframe_delay_ticks()).ok()?;
        Some(ticks.checked_mul(1_000_000)?.div_ceil(timescale))
    }

    /// At most one edit, which moves decoding and showing alike.
    fn has_plain_edits(&self) -> bool {
        self.edits.as_ref().is_none_or(|edits| {
            edits.entries.len() <= 1 && edits.entries.iter().all(|it| it.media_time.is_some())
        })
    }

    /// Where offsets are negative, FFmpeg moves all decoding times back until none is.
    fn keyframe_delay_ticks(&self) -> i64 {
        let Some(offsets) = &self.offsets else { return 0 };
        let earliest = offsets.entries.iter().map(|run| run.sample_offset).min().unwrap_or(0).min(0);
        let mut keyframes = self.keyframes.as_ref().map(|table| table.entries.iter().copied().peekable());
        let (mut sample, mut latest) = (1_u64, 0);
        for run in &offsets.entries {
            let behind = sample + u64::from(run.sample_count);
            let has_keyframe = keyframes.as_mut().is_none_or(|keyframes| {
                std::iter::from_fn(|| keyframes.next_if(|number| u64::from(*number) < behind)).count() > 0
            });
            if has_keyframe {
                latest = run.sample_offset.max(latest);
            }
            sample = behind;
        }
        latest - earliest
    }
}

#[cfg(test)]
mod tests {
    use mp4_atom::{CttsEntry, ElstEntry};

    use super::*;

    fn tables(keyframes: &[u32], offsets: &[(u32, i64)]) -> Tables {
        let run = |&(sample_count, sample_offset)| CttsEntry { sample_count, sample_offset };
        Tables {
            header: Some(Mdhd { timescale: 1000, ..Mdhd::default() }),
            keyframes: Some(Stss { entries: keyframes.to_vec() }),
            offsets: Some(Ctts { entries: offsets.iter().map(run).collect() }),
            ..Tables::default()
        }
    }

    #[test]
    fn only_keyframes_count() {
        let delay = |keyframes: &[u32]| tables(keyframes, &[(1, 20), (3, 90), (2, 40)]).keyframe_delay_us();

        assert_eq!(delay(&[1]), Some(20_000));
        assert_eq!(delay(&[1, 5]), Some(40_000));
        assert_eq!(delay(&[1, 4, 6]), Some(90_000));
    }

    #[test]
    fn without_tables_every_sample_is_a_keyframe_that_is_shown_at_once() {
        let all_keys = Tables { keyframes: None, ..tables(&[], &[(1, 20), (3, 90)]) };
        assert_eq!(all_keys.keyframe_delay_us(), Some(90_000));

        let plain = Tables { offsets: None, ..tables(&[1], &[]) };
        assert_eq!(plain.keyframe_delay_us(), Some(0));
    }

    #[test]
    fn negative_offsets_move_decoding_back() {
        assert_eq!(tables(&[1], &[(1, 0), (1, 40), (2, -20)]).keyframe_delay_us(), Some(20_000));
    }

    #[test]
    fn what_is_not_plain_is_not_told() {
        let edit = |media_time| ElstEntry { media_time, ..ElstEntry::default() };
        let edited = |entries: Vec<ElstEntry>| {
            Tables { edits: Some(Elst { entries }), ..tables(&[1], &[(1, 20)]) }.keyframe_delay_us()
        };

        assert_eq!(edited(vec![edit(Some(20))]), Some(20_000));
        assert_eq!(edited(vec![edit(None), edit(Some(20))]), None);
        assert_eq!(edited(vec![edit(Some(0)), edit(Some(500))]), None);
        assert_eq!(tables(&[3], &[(1, 20)]).keyframe_delay_us(), None);
        assert_eq!(Tables { is_damaged: true, ..tables(&[1], &[(1, 20)]) }.keyframe_delay_us(), None);
    }
}
