//! The samples of media segments, and the writing of fragments.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use mp4_atom::{Atom, Encode, Mfhd, Moof, Tfdt, Tfhd, Traf, Trun, TrunEntry, TrunSamples};

use super::init::{InitSegment, Track, read_init};
use super::{AtomSpan, IsobmffError};

/// Hours of a segment at any rate of ours. A run may claim four billion samples in twenty bytes.
const SEGMENT_MAX_SAMPLES: usize = 1 << 20;
const MOOF_MAX_BYTES: u64 = 64 << 20;
const FRAGMENT_MAX_BYTES: u64 = 1 << 30;
const ATOMS_MAX: usize = 1 << 20;

/// The flag of a sample that cannot be decoded by itself.
const IS_NON_SYNC: u32 = 0x0001_0000;
/// Flags of a sample that depends on no other, as every sample of sound.
const INDEPENDENT: u32 = 0x0200_0000;

/// What a segment holds of one track, in decoding order. Times are in the track's ticks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaSegment {
    pub samples: Vec<Sample>,
    /// How many fragments it is made of.
    pub fragments: usize,
    /// Of the whole segment.
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub decode_time: u64,
    pub duration: u32,
    /// Presentation minus decoding.
    pub composition_offset: i64,
    pub is_sync: bool,
    /// Where its bytes are in the segment.
    pub data: Range<usize>,
}

/// Reads a media segment of one track. Atoms that do not matter are skipped.
pub fn read_segment(bytes: &[u8], track: &Track) -> Result<MediaSegment, IsobmffError> {
    let mut segment = MediaSegment { samples: Vec::new(), fragments: 0, bytes: bytes.len() as u64 };
    let limit = bytes.len() as u64;
    let mut at = 0_u64;
    while let Some(head) = bytes.get(at as usize..).filter(|head| !head.is_empty()) {
        let Some(span) = AtomSpan::parse(head, at) else {
            return Err(IsobmffError::EndsEarly(format!("no atom at byte {at}")));
        };
        let (body, whole) = span.body(limit);
        if !whole {
            return Err(IsobmffError::EndsEarly(span.name()));
        }
        if &span.kind == b"moof" {
            let moof = Moof::decode_body(&mut &bytes[body.start as usize..body.end as usize])
                .map_err(|error| IsobmffError::Malformed(format!("moof: {error}")))?;
            segment.take_fragment(&moof, span.start, limit, track)?;
        }
        at = body.end;
    }
    if segment.samples.is_empty() {
        return Err(IsobmffError::Malformed("no samples".to_owned()));
    }
    Ok(segment)
}

impl MediaSegment {
    fn take_fragment(
        &mut self,
        moof: &Moof,
        moof_start: u64,
        limit: u64,
        track: &Track,
    ) -> Result<(), IsobmffError> {
        let malformed = |what: &str| IsobmffError::Malformed(format!("moof: {what}"));
        let [traf] = moof.traf.as_slice() else { return Err(malformed("not one track")) };
        if traf.tfhd.track_id != track.id {
            return Err(malformed("of another track"));
        }
        if traf.tfhd.base_data_offset.is_some() {
            return Err(malformed("offsets into a file"));
        }
        let Some(tfdt) = &traf.tfdt else { return Err(malformed("no decode time")) };
        let mut clock = tfdt.base_media_decode_time;
        let mut data_at = moof_start;
        for run in &traf.trun {
            if run.samples.len() > SEGMENT_MAX_SAMPLES.saturating_sub(self.samples.len()) {
                return Err(IsobmffError::TooLarge(format!("a run of {} samples", run.samples.len())));
            }
            if let Some(offset) = run.data_offset {
                let at = i128::from(moof_start) + i128::from(offset);
                data_at = u64::try_from(at).map_err(|_| malformed("data before the segment"))?;
            }
            for entry in &run.samples {
                let sample = resolve(entry, &traf.tfhd, track, clock, data_at, limit)?;
                clock = clock
                    .checked_add(u64::from(sample.duration))
                    .ok_or_else(|| malformed("times without end"))?;
                data_at = sample.data.end as u64;
                self.samples.push(sample);
            }
        }
        self.fragments += 1;
        Ok(())
    }

    /// Of the first sample. A segment has at least one.
    pub fn decode_start(&self) -> u64 {
        self.samples.first().map_or(0, |sample| sample.decode_time)
    }

    /// Behind the last sample.
    pub fn decode_end(&self) -> u64 {
        let last = self.samples.last();
        last.map_or(0, |sample| sample.decode_time.saturating_add(u64::from(sample.duration)))
    }

    /// The earliest time at which anything is shown or heard.
    pub fn presentation_start(&self) -> u64 {
        let times = self.samples.iter().map(Sample::presentation_time);
        times.min().and_then(|time| u64::try_from(time).ok()).unwrap_or(0)
    }

    pub fn duration_ticks(&self) -> u64 {
        self.samples.iter().map(|sample| u64::from(sample.duration)).sum()
    }

    /// From the segment's first byte to the end of its first sample, where that is one a player can begin with: what a
    /// playlist of key frames points at.
    pub fn keyframe_bytes(&self) -> Option<u64> {
        self.samples.first().filter(|sample| sample.is_sync).map(|sample| sample.data.end as u64)
    }
}

impl Sample {
    pub fn presentation_time(&self) -> i128 {
        i128::from(self.decode_time) + i128::from(self.composition_offset)
    }
}

fn resolve(
    entry: TrunEntry,
    tfhd: &Tfhd,
    track: &Track,
    decode_time: u64,
    data_at: u64,
    limit: u64,
) -> Result<Sample, IsobmffError> {
    let defaults = &track.defaults;
    let size = entry.size.or(tfhd.default_sample_size).unwrap_or(defaults.size);
    let flags = entry.flags.or(tfhd.default_sample_flags).unwrap_or(defaults.flags);
    let end = data_at.saturating_add(u64::from(size));
    if end > limit {
        return Err(IsobmffError::EndsEarly(format!(
            "a sample reaches to byte {end} of a segment of {limit}"
        )));
    }
    Ok(Sample {
        decode_time,
        duration: entry.duration.or(tfhd.default_sample_duration).unwrap_or(defaults.duration),
        composition_offset: entry.cts.unwrap_or(0),
        is_sync: flags & IS_NON_SYNC == 0,
        data: data_at as usize..end as usize,
    })
}

/// Reads a fragmented file one fragment at a time.
#[derive(Debug)]
pub(crate) struct FragmentReader {
    file: File,
    file_bytes: u64,
    at: u64,
    init: InitSegment,
    init_bytes: Vec<u8>,
}

/// A `moof`, its `mdat`, and what lies between.
#[derive(Debug)]
pub(crate) struct FileFragment {
    pub(crate) bytes: Vec<u8>,
    pub(crate) segment: MediaSegment,
}

impl FragmentReader {
    pub(crate) fn open(path: &Path) -> Result<Self, IsobmffError> {
        let mut file = File::open(path)?;
        let file_bytes = file.metadata()?.len();
        let mut at = 0;
        for _ in 0..ATOMS_MAX {
            match atom_at(&mut file, at)? {
                Some(span) if &span.kind == b"moof" => break,
                Some(span) => at = span.body(file_bytes).0.end,
                None => break,
            }
        }
        if at > MOOF_MAX_BYTES {
            return Err(IsobmffError::TooLarge(format!("{at} bytes before the first fragment")));
        }
        let init_bytes = read_range(&mut file, 0..at)?;
        let init = read_init(&init_bytes)?;
        Ok(Self { file, file_bytes, at, init, init_bytes })
    }

    pub(crate) fn init(&self) -> &InitSegment {
        &self.init
    }

    pub(crate) fn init_bytes(&self) -> &[u8] {
        &self.init_bytes
    }

    /// The next fragment; `None` when there is none. The index at the end of a file is not one.
    pub(crate) fn next(&mut self) -> Result<Option<FileFragment>, IsobmffError> {
        let start = self.at;
        let mut has_moof = false;
        for _ in 0..ATOMS_MAX {
            let Some(span) = atom_at(&mut self.file, self.at)? else { return Ok(None) };
            let (body, whole) = span.body(self.file_bytes);
            if !whole {
                return Err(IsobmffError::EndsEarly(span.name()));
            }
            self.at = body.end;
            has_moof |= &span.kind == b"moof";
            if has_moof && &span.kind == b"mdat" {
                return self.fragment(start..body.end).map(Some);
            }
        }
        Err(IsobmffError::TooLarge(format!("more than {ATOMS_MAX} atoms")))
    }

    fn fragment(&mut self, range: Range<u64>) -> Result<FileFragment, IsobmffError> {
        if range.end - range.start > FRAGMENT_MAX_BYTES {
            let what = format!("a fragment of {} bytes", range.end - range.start);
            return Err(IsobmffError::TooLarge(what));
        }
        let bytes = read_range(&mut self.file, range)?;
        let segment = read_segment(&bytes, self.init.only_track()?)?;
        Ok(FileFragment { bytes, segment })
    }
}

/// `None` where there is no whole header.
pub(super) fn atom_at(file: &mut File, at: u64) -> std::io::Result<Option<AtomSpan>> {
    file.seek(SeekFrom::Start(at))?;
    let mut head = Vec::with_capacity(16);
    file.take(16).read_to_end(&mut head)?;
    Ok(AtomSpan::parse(&head, at))
}

pub(super) fn read_range(file: &mut File, range: Range<u64>) -> std::io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(range.start))?;
    let mut bytes = Vec::new();
    file.take(range.end.saturating_sub(range.start)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// One fragment of samples that each stand alone, as those of sound do: the same bytes whatever file they came from.
pub(crate) fn write_fragment(
    track_id: u32,
    sequence: u32,
    decode_time: u64,
    samples: &[(u32, Vec<u8>)],
) -> Result<Vec<u8>, IsobmffError> {
    let failed = |error: mp4_atom::Error| IsobmffError::Malformed(format!("cannot be written: {error}"));
    let usual = samples.first().map_or(0, |(duration, _)| *duration);
    let differs = samples.iter().any(|(duration, _)| *duration != usual);
    let entries = samples.iter().map(|(duration, data)| TrunEntry {
        duration: differs.then_some(*duration),
        size: u32::try_from(data.len()).ok(),
        ..TrunEntry::default()
    });
    let mut moof = Moof {
        mfhd: Mfhd { sequence_number: sequence },
        traf: vec![Traf {
            tfhd: Tfhd {
                track_id,
                default_sample_duration: Some(usual),
                default_sample_flags: Some(INDEPENDENT),
                default_base_is_moof: true,
                ..Tfhd::default()
            },
            tfdt: Some(Tfdt { base_media_decode_time: decode_time }),
            trun: vec![Trun { data_offset: Some(0), samples: TrunSamples::Explicit(entries.collect()) }],
            ..Traf::default()
        }],
    };
    let mut bytes = Vec::new();
    moof.encode(&mut bytes).map_err(failed)?;
    let header_bytes = 8;
    moof.traf[0].trun[0].data_offset = i32::try_from(bytes.len() + header_bytes).ok();
    bytes.clear();
    moof.encode(&mut bytes).map_err(failed)?;

    let data_bytes: usize = samples.iter().map(|(_, data)| data.len()).sum();
    let mdat_bytes = u32::try_from(data_bytes + header_bytes)
        .map_err(|_| IsobmffError::TooLarge(format!("{data_bytes} bytes of samples")))?;
    bytes.extend_from_slice(&mdat_bytes.to_be_bytes());
    bytes.extend_from_slice(b"mdat");
    for (_, data) in samples {
        bytes.extend_from_slice(data);
    }
    Ok(bytes)
}
