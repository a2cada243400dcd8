//! Manifests over segments, written by ourselves.
//!
//! FFmpeg's playlists lack what players need (measured and average bandwidth, frame rate) and cannot be trusted after a
//! signal. Here they are pure functions of facts: [`Presentation`] is what was made, and gives the master, the media
//! playlists and the DASH manifest over the same segments; [`GrowingPlaylist`] and [`hls_planned_master`] are for the time
//! while it is being made.

mod bandwidth;
mod dash;
mod hls;

use serde::{Deserialize, Serialize};

use crate::isobmff::{MediaSegment, Track, TrackKind};
use crate::rational::Rational;

pub use bandwidth::Bandwidth;
pub use hls::{AudioGroup, GrowingPlaylist, Variant, hls_planned_master};

/// A finished film: the same segment boundaries in every rung, and the sound beside them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Presentation {
    /// In any order; manifests sort them.
    pub video: Vec<VideoRendition>,
    pub audio: Option<AudioRendition>,
    /// The one constant by which all timestamps are shifted, in seconds.
    pub offset: Rational,
}

/// One rung.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VideoRendition {
    /// Unique among the rungs: `720p`.
    pub name: String,
    /// Of its media playlist, as the master names it.
    pub playlist_uri: String,
    /// Of its playlist of key frames; `None` writes none.
    pub keyframes_uri: Option<String>,
    pub width: u32,
    pub height: u32,
    pub frame_rate: Rational,
    pub media: MediaFacts,
}

/// The sound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AudioRendition {
    pub name: String,
    pub playlist_uri: String,
    pub channels: u32,
    pub sample_rate: u32,
    /// As the source tags it: untrusted, and left out where it is no language tag.
    pub language: Option<String>,
    pub media: MediaFacts,
}

/// What every manifest says of a rendition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MediaFacts {
    pub init_uri: String,
    /// As RFC 6381 writes it.
    pub codec: String,
    /// Ticks in a second.
    pub timescale: u32,
    pub segments: Vec<SegmentFact>,
}

/// One media segment. Times are in the rendition's ticks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentFact {
    pub uri: String,
    /// When its first frame is shown, the constant offset included.
    pub start_ticks: u64,
    pub duration_ticks: u64,
    pub bytes: u64,
    pub frames: u32,
    /// From its first byte to the end of its first frame; `None` where that is not a key frame.
    pub keyframe_bytes: Option<u64>,
}

impl SegmentFact {
    /// The facts of a segment that was read.
    pub fn of(uri: impl Into<String>, segment: &MediaSegment) -> Self {
        Self {
            uri: uri.into(),
            start_ticks: segment.presentation_start(),
            duration_ticks: segment.duration_ticks(),
            bytes: segment.bytes,
            frames: u32::try_from(segment.samples.len()).unwrap_or(u32::MAX),
            keyframe_bytes: segment.keyframe_bytes(),
        }
    }
}

impl MediaFacts {
    pub fn of(track: &Track, init_uri: impl Into<String>, segments: Vec<SegmentFact>) -> Self {
        Self { init_uri: init_uri.into(), codec: track.codec.clone(), timescale: track.timescale, segments }
    }

    pub fn duration_ticks(&self) -> u64 {
        self.segments.iter().map(|segment| segment.duration_ticks).sum()
    }

    /// The peak over the stretches that players buffer, and the average.
    pub fn bandwidth(&self) -> Bandwidth {
        Bandwidth::measured(&self.segments, self.timescale)
    }
}

impl VideoRendition {
    /// `None` for a track of sound.
    pub fn of(name: &str, track: &Track, frame_rate: Rational, media: MediaFacts) -> Option<Self> {
        let TrackKind::Video { width, height } = track.kind else { return None };
        Some(Self {
            name: name.to_owned(),
            playlist_uri: format!("{name}.m3u8"),
            keyframes_uri: None,
            width,
            height,
            frame_rate,
            media,
        })
    }
}

impl AudioRendition {
    /// `None` for a track of pictures.
    pub fn of(name: &str, track: &Track, media: MediaFacts) -> Option<Self> {
        let TrackKind::Audio { channels, sample_rate, .. } = track.kind else { return None };
        Some(Self {
            name: name.to_owned(),
            playlist_uri: format!("{name}.m3u8"),
            channels,
            sample_rate,
            language: None,
            media,
        })
    }
}

impl Presentation {
    /// The longest segment of any rendition in whole seconds, which all playlists state alike.
    pub fn target_seconds(&self) -> u64 {
        let all =
            self.video.iter().map(|rung| &rung.media).chain(self.audio.iter().map(|audio| &audio.media));
        all.map(|media| target_seconds(&media.segments, media.timescale)).max().unwrap_or(1)
    }

    /// Of the longest rendition.
    pub fn duration_us(&self) -> u64 {
        let all =
            self.video.iter().map(|rung| &rung.media).chain(self.audio.iter().map(|audio| &audio.media));
        all.map(|media| microseconds(media.duration_ticks(), media.timescale)).max().unwrap_or(0)
    }

    /// The HLS master playlist, with bandwidths as measured.
    pub fn hls_master(&self) -> String {
        hls::master(self)
    }

    /// The media playlist of a rung.
    pub fn hls_video(&self, rung: &VideoRendition) -> String {
        hls::vod(&rung.media, self.target_seconds())
    }

    /// The media playlist of the sound, where there is any.
    pub fn hls_audio(&self) -> Option<String> {
        self.audio.as_ref().map(|audio| hls::vod(&audio.media, self.target_seconds()))
    }

    /// The playlist of a rung's key frames; `None` where a segment does not begin with one.
    pub fn hls_keyframes(&self, rung: &VideoRendition) -> Option<String> {
        hls::keyframes(&rung.media, self.target_seconds())
    }

    /// The DASH manifest over the same segments.
    pub fn dash_manifest(&self) -> String {
        dash::manifest(self)
    }
}

/// The rule of RFC 8216: no segment's duration, rounded, may be above it.
fn target_seconds(segments: &[SegmentFact], timescale: u32) -> u64 {
    let longest = segments.iter().map(|segment| segment.duration_ticks).max().unwrap_or(0);
    rounded_seconds(longest, timescale)
}

/// Half up, and at least one.
fn rounded_seconds(ticks: u64, timescale: u32) -> u64 {
    let timescale = u128::from(timescale.max(1));
    u64::try_from((2 * u128::from(ticks) + timescale) / (2 * timescale)).unwrap_or(u64::MAX).max(1)
}

/// Half up.
fn microseconds(ticks: u64, timescale: u32) -> u64 {
    let timescale = u128::from(timescale.max(1));
    u64::try_from((2_000_000 * u128::from(ticks) + timescale) / (2 * timescale)).unwrap_or(u64::MAX)
}

/// Ours are plain; a quote or a line break in one would become syntax.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() && *c != '"').collect()
}

/// A tag as BCP 47 shapes it, or nothing.
fn language_tag(text: Option<&str>) -> Option<&str> {
    let is_part =
        |part: &str| (1..=8).contains(&part.len()) && part.chars().all(|c| c.is_ascii_alphanumeric());
    text.filter(|text| text.len() >= 2 && text.len() <= 35 && text.split('-').all(is_part))
}
