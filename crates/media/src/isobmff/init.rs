//! The tracks of an init segment.

use mp4_atom::{Atom, Codec, Moov, Trak, Trex};

use super::codecs::codec_string;
use super::{AtomSpan, IsobmffError};

/// Ours have less than 2 KiB; one of a recorder may carry more.
const INIT_MAX_BYTES: usize = 4 << 20;

/// What comes before the media: the tracks and how they are coded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitSegment {
    pub tracks: Vec<Track>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    pub id: u32,
    pub kind: TrackKind,
    /// Ticks in a second.
    pub timescale: u32,
    /// As RFC 6381 writes it, from the parameter sets: `avc1.64001F`.
    pub codec: String,
    pub(crate) defaults: SampleDefaults,
    /// How many bytes give the length of a NAL unit, where samples are made of those.
    pub(crate) nal_length_bytes: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrackKind {
    Video {
        width: u32,
        height: u32,
    },
    Audio {
        channels: u32,
        sample_rate: u32,
        /// Samples at the start that are for the decoder only, where the codec's header says it (Opus).
        pre_skip: u32,
    },
}

/// What a fragment need not repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SampleDefaults {
    pub(crate) duration: u32,
    pub(crate) size: u32,
    pub(crate) flags: u32,
}

/// Reads an init segment: what comes before the first fragment of a fragmented file may be one too.
pub fn read_init(bytes: &[u8]) -> Result<InitSegment, IsobmffError> {
    if bytes.len() > INIT_MAX_BYTES {
        let what = format!("an init segment of {} bytes", bytes.len());
        return Err(IsobmffError::TooLarge(what));
    }
    let moov = find_moov(bytes)?;
    let moov =
        Moov::decode_body(&mut &*moov).map_err(|error| IsobmffError::Malformed(format!("moov: {error}")))?;
    let trexes = moov.mvex.as_ref().map(|mvex| mvex.trex.as_slice()).unwrap_or_default();
    let tracks: Vec<Track> =
        moov.trak.iter().map(|trak| track(trak, trexes)).collect::<Result<_, IsobmffError>>()?;
    if tracks.is_empty() {
        return Err(IsobmffError::Malformed("no track".to_owned()));
    }
    Ok(InitSegment { tracks })
}

impl InitSegment {
    /// The one track that a segment of ours has.
    pub fn only_track(&self) -> Result<&Track, IsobmffError> {
        match self.tracks.as_slice() {
            [track] => Ok(track),
            tracks => Err(IsobmffError::Malformed(format!("{} tracks where one is expected", tracks.len()))),
        }
    }
}

fn find_moov(bytes: &[u8]) -> Result<&[u8], IsobmffError> {
    let limit = bytes.len() as u64;
    let mut at = 0;
    while let Some(span) = bytes.get(at..).and_then(|head| AtomSpan::parse(head, at as u64)) {
        let (body, whole) = span.body(limit);
        if !whole {
            return Err(IsobmffError::EndsEarly(span.name()));
        }
        if &span.kind == b"moov" {
            return Ok(&bytes[body.start as usize..body.end as usize]);
        }
        at = body.end as usize;
    }
    Err(IsobmffError::Malformed("no moov".to_owned()))
}

fn track(trak: &Trak, trexes: &[Trex]) -> Result<Track, IsobmffError> {
    let id = trak.tkhd.track_id;
    let malformed = |what: &str| IsobmffError::Malformed(format!("track {id}: {what}"));
    let timescale = trak.mdia.mdhd.timescale;
    if timescale == 0 {
        return Err(malformed("no timescale"));
    }
    let [codec] = trak.mdia.minf.stbl.stsd.codecs.as_slice() else {
        return Err(malformed("not one sample description"));
    };
    let trex = trexes.iter().find(|trex| trex.track_id == id);
    let defaults = trex.map(|trex| SampleDefaults {
        duration: trex.default_sample_duration,
        size: trex.default_sample_size,
        flags: trex.default_sample_flags,
    });
    Ok(Track {
        id,
        kind: kind(codec).ok_or_else(|| malformed("a kind of track that is not known"))?,
        timescale,
        codec: codec_string(codec).ok_or_else(|| malformed("a codec that is not known"))?,
        defaults: defaults.unwrap_or_default(),
        nal_length_bytes: nal_length_bytes(codec),
    })
}

fn kind(codec: &Codec) -> Option<TrackKind> {
    let video = |visual: &mp4_atom::Visual| TrackKind::Video {
        width: visual.width.into(),
        height: visual.height.into(),
    };
    let audio = |audio: &mp4_atom::Audio, pre_skip: u32| TrackKind::Audio {
        channels: audio.channel_count.into(),
        sample_rate: audio.sample_rate.integer().into(),
        pre_skip,
    };
    match codec {
        Codec::Avc1(entry) => Some(video(&entry.visual)),
        Codec::Avc3(entry) => Some(video(&entry.visual)),
        Codec::Hvc1(entry) => Some(video(&entry.visual)),
        Codec::Hev1(entry) => Some(video(&entry.visual)),
        Codec::Av01(entry) => Some(video(&entry.visual)),
        Codec::Mp4a(entry) => {
            let specific = entry.esds.es_desc.dec_config.dec_specific.as_ref();
            // FFmpeg states two channels in the sample entry whatever there are.
            let channels = match specific.map_or(0, |specific| specific.chan_conf) {
                0 => entry.audio.channel_count,
                7 => 8,
                channels => channels.into(),
            };
            Some(audio(&mp4_atom::Audio { channel_count: channels, ..entry.audio.clone() }, 0))
        }
        Codec::Opus(entry) => {
            let channels = entry.dops.output_channel_count.into();
            let pre_skip = entry.dops.pre_skip.into();
            Some(audio(&mp4_atom::Audio { channel_count: channels, ..entry.audio.clone() }, pre_skip))
        }
        Codec::Flac(entry) => Some(audio(&entry.audio, 0)),
        _ => None,
    }
}

fn nal_length_bytes(codec: &Codec) -> Option<u8> {
    match codec {
        Codec::Avc1(entry) => Some(entry.avcc.length_size),
        Codec::Avc3(entry) => Some(entry.avcc.length_size),
        Codec::Hvc1(entry) => Some(entry.hvcc.length_size_minus_one + 1),
        Codec::Hev1(entry) => Some(entry.hvcc.length_size_minus_one + 1),
        _ => None,
    }
}
