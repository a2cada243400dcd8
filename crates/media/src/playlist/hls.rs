//! HLS playlists, version 7: what fragmented MP4 in `EXT-X-MAP` needs.

use std::fmt::Write;

use super::bandwidth::Bandwidth;
use super::{MediaFacts, Presentation, SegmentFact, language_tag, microseconds, plain};
use crate::rational::Rational;

const VERSION: u32 = 7;
const AUDIO_GROUP: &str = "audio";
/// What most viewers' lines carry: the rung that players begin with, before they have measured anything.
const FIRST_VARIANT_BITS: u64 = 2_000_000;

/// A rung as a master playlist names it.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    pub playlist_uri: String,
    pub bandwidth: Bandwidth,
    pub codec: String,
    pub width: u32,
    pub height: u32,
    pub frame_rate: Rational,
}

/// The sound as a master playlist names it.
#[derive(Debug, Clone, PartialEq)]
pub struct AudioGroup {
    pub name: String,
    pub playlist_uri: String,
    pub bandwidth: Bandwidth,
    pub codec: String,
    pub channels: u32,
    pub language: Option<String>,
}

/// A media playlist that is written again and again while segments are made.
#[derive(Debug, Clone, PartialEq)]
pub struct GrowingPlaylist<'a> {
    pub init_uri: &'a str,
    pub timescale: u32,
    /// The contiguous beginning that every rung and the sound have.
    pub segments: &'a [SegmentFact],
    /// Of the longest segment that will come: it may not change while the playlist grows.
    pub target_seconds: u64,
    /// Nothing will be added.
    pub is_whole: bool,
}

impl GrowingPlaylist<'_> {
    pub fn render(&self) -> String {
        let mut text = head(self.target_seconds, Some("EVENT"));
        segments(&mut text, self.init_uri, self.segments, self.timescale);
        if self.is_whole {
            text.push_str("#EXT-X-ENDLIST\n");
        }
        text
    }

    /// How many segments from the first on are there in every one of these.
    pub fn common_prefix(made: &[&[Option<SegmentFact>]]) -> usize {
        let prefix = |list: &&[Option<SegmentFact>]| list.iter().take_while(|one| one.is_some()).count();
        made.iter().map(prefix).min().unwrap_or(0)
    }
}

/// The master playlist of a film that is still being made: its bandwidths are the plan's.
pub fn hls_planned_master(variants: &[Variant], audio: Option<&AudioGroup>) -> String {
    let mut text = master_head();
    if let Some(audio) = audio {
        audio.render(&mut text);
    }
    for variant in in_order(variants, audio) {
        variant.render(&mut text, audio);
    }
    text
}

pub(super) fn master(film: &Presentation) -> String {
    let variants: Vec<Variant> = film
        .video
        .iter()
        .map(|rung| Variant {
            playlist_uri: rung.playlist_uri.clone(),
            bandwidth: rung.media.bandwidth(),
            codec: rung.media.codec.clone(),
            width: rung.width,
            height: rung.height,
            frame_rate: rung.frame_rate,
        })
        .collect();
    let audio = film.audio.as_ref().map(|audio| AudioGroup {
        name: audio.name.clone(),
        playlist_uri: audio.playlist_uri.clone(),
        bandwidth: audio.media.bandwidth(),
        codec: audio.media.codec.clone(),
        channels: audio.channels,
        language: audio.language.clone(),
    });
    if film.video.is_empty() {
        return audio_only_master(audio.as_ref());
    }
    let mut text = hls_planned_master(&variants, audio.as_ref());
    keyframe_variants(&mut text, film);
    text
}

fn master_head() -> String {
    format!("#EXTM3U\n#EXT-X-VERSION:{VERSION}\n#EXT-X-INDEPENDENT-SEGMENTS\n")
}

/// Sound alone is a variant itself, not a group of one.
fn audio_only_master(audio: Option<&AudioGroup>) -> String {
    let mut text = master_head();
    if let Some(audio) = audio {
        let Bandwidth { peak, average } = audio.bandwidth;
        let _ = writeln!(
            text,
            "#EXT-X-STREAM-INF:BANDWIDTH={peak},AVERAGE-BANDWIDTH={average},CODECS=\"{}\"\n{}",
            plain(&audio.codec),
            plain(&audio.playlist_uri)
        );
    }
    text
}

/// The one to begin with, then the others from the lowest on.
fn in_order<'a>(variants: &'a [Variant], audio: Option<&AudioGroup>) -> Vec<&'a Variant> {
    let audio = audio.map(|audio| audio.bandwidth).unwrap_or_default();
    let mut sorted: Vec<&Variant> = variants.iter().collect();
    sorted.sort_by_key(|variant| (variant.bandwidth.average, variant.bandwidth.peak));
    let first = sorted
        .iter()
        .rposition(|variant| variant.bandwidth.with(audio).average <= FIRST_VARIANT_BITS)
        .unwrap_or(0);
    if let Some(up_to_first) = sorted.get_mut(..=first) {
        up_to_first.rotate_right(1);
    }
    sorted
}

impl Variant {
    fn render(&self, text: &mut String, audio: Option<&AudioGroup>) {
        let Bandwidth { peak, average } =
            self.bandwidth.with(audio.map(|audio| audio.bandwidth).unwrap_or_default());
        let mut codecs = plain(&self.codec);
        if let Some(audio) = audio {
            let _ = write!(codecs, ",{}", plain(&audio.codec));
        }
        let _ = write!(
            text,
            "#EXT-X-STREAM-INF:BANDWIDTH={peak},AVERAGE-BANDWIDTH={average},CODECS=\"{codecs}\",\
             RESOLUTION={}x{},FRAME-RATE={},CLOSED-CAPTIONS=NONE",
            self.width,
            self.height,
            thousandths(self.frame_rate)
        );
        if audio.is_some() {
            let _ = write!(text, ",AUDIO=\"{AUDIO_GROUP}\"");
        }
        let _ = writeln!(text, "\n{}", plain(&self.playlist_uri));
    }
}

impl AudioGroup {
    fn render(&self, text: &mut String) {
        let _ = write!(
            text,
            "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"{AUDIO_GROUP}\",NAME=\"{}\",DEFAULT=YES,AUTOSELECT=YES",
            plain(&self.name)
        );
        if let Some(language) = language_tag(self.language.as_deref()) {
            let _ = write!(text, ",LANGUAGE=\"{language}\"");
        }
        let _ = writeln!(text, ",CHANNELS=\"{}\",URI=\"{}\"", self.channels, plain(&self.playlist_uri));
    }
}

fn keyframe_variants(text: &mut String, film: &Presentation) {
    let mut rungs: Vec<_> = film.video.iter().collect();
    rungs.sort_by_key(|rung| rung.media.bandwidth().average);
    for rung in rungs {
        let (Some(uri), Some(pictures)) = (&rung.keyframes_uri, keyframe_facts(&rung.media)) else {
            continue;
        };
        let Bandwidth { peak, average } = Bandwidth::measured(&pictures, rung.media.timescale);
        let _ = writeln!(
            text,
            "#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH={peak},AVERAGE-BANDWIDTH={average},CODECS=\"{}\",\
             RESOLUTION={}x{},URI=\"{}\"",
            plain(&rung.media.codec),
            rung.width,
            rung.height,
            plain(uri)
        );
    }
}

fn keyframe_facts(media: &MediaFacts) -> Option<Vec<SegmentFact>> {
    let picture = |segment: &SegmentFact| {
        segment.keyframe_bytes.map(|bytes| SegmentFact { bytes, frames: 1, ..segment.clone() })
    };
    media.segments.iter().map(picture).collect()
}

pub(super) fn vod(media: &MediaFacts, target_seconds: u64) -> String {
    let mut text = head(target_seconds, Some("VOD"));
    segments(&mut text, &media.init_uri, &media.segments, media.timescale);
    text.push_str("#EXT-X-ENDLIST\n");
    text
}

pub(super) fn keyframes(media: &MediaFacts, target_seconds: u64) -> Option<String> {
    let pictures = keyframe_facts(media)?;
    let mut text = head(target_seconds, Some("VOD"));
    let _ = writeln!(text, "#EXT-X-I-FRAMES-ONLY\n#EXT-X-MAP:URI=\"{}\"", plain(&media.init_uri));
    for (picture, duration_us) in pictures.iter().zip(durations_us(&pictures, media.timescale)) {
        let (seconds, bytes) = (seconds(duration_us), picture.bytes);
        let _ = writeln!(text, "#EXTINF:{seconds},\n#EXT-X-BYTERANGE:{bytes}@0\n{}", plain(&picture.uri));
    }
    text.push_str("#EXT-X-ENDLIST\n");
    Some(text)
}

fn head(target_seconds: u64, kind: Option<&str>) -> String {
    let mut text = format!(
        "#EXTM3U\n#EXT-X-VERSION:{VERSION}\n#EXT-X-TARGETDURATION:{target_seconds}\n#EXT-X-MEDIA-SEQUENCE:0\n"
    );
    if let Some(kind) = kind {
        let _ = writeln!(text, "#EXT-X-PLAYLIST-TYPE:{kind}");
    }
    text.push_str("#EXT-X-INDEPENDENT-SEGMENTS\n");
    text
}

fn segments(text: &mut String, init_uri: &str, segments: &[SegmentFact], timescale: u32) {
    let _ = writeln!(text, "#EXT-X-MAP:URI=\"{}\"", plain(init_uri));
    for (segment, duration_us) in segments.iter().zip(durations_us(segments, timescale)) {
        let _ = writeln!(text, "#EXTINF:{},\n{}", seconds(duration_us), plain(&segment.uri));
    }
}

/// Differences of rounded ends, not rounded differences: over any number of segments they add up to the truth.
fn durations_us(segments: &[SegmentFact], timescale: u32) -> impl Iterator<Item = u64> {
    segments.iter().scan((0_u64, 0_u64), move |(ticks, end_us), segment| {
        *ticks += segment.duration_ticks;
        let begin_us = std::mem::replace(end_us, microseconds(*ticks, timescale));
        Some(*end_us - begin_us)
    })
}

fn seconds(duration_us: u64) -> String {
    format!("{}.{:06}", duration_us / 1_000_000, duration_us % 1_000_000)
}

/// `29.970`.
fn thousandths(rate: Rational) -> String {
    let scaled = Rational::new(rate.num(), rate.den()).and_then(|rate| rate.scale(1000)).unwrap_or(0).max(0);
    format!("{}.{:03}", scaled / 1000, scaled % 1000)
}
