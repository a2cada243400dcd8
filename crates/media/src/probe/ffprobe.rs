//! From ffprobe's JSON to a [`Probe`].

use std::collections::HashMap;

use serde::Deserialize;

use super::stream::{AudioStream, ColourRange, HdrKind, Rotation, Size, VideoStream};
use super::{Chapter, Probe, STEP, TIME_MAX_US};
use crate::error::{At, InputProblem, MediaError, Result};
use crate::rational::Rational;
use crate::sniff::Format;

/// Pixels that are longer or higher than so many times the other side were made up; those of anamorphic films are not
/// twice as long.
const MAD_ASPECT: i64 = 8;

/// Rates that differ by more are not a matter of rounding: one part in 200.
const VFR_TOLERANCE: f64 = 0.005;

#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(default)]
    streams: Vec<RawStream>,
    #[serde(default)]
    chapters: Vec<RawChapter>,
    format: Option<RawFormat>,
}

#[derive(Debug, Deserialize)]
struct RawFormat {
    duration: Option<String>,
    start_time: Option<String>,
    bit_rate: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RawChapter {
    start_time: Option<String>,
    end_time: Option<String>,
    #[serde(default)]
    tags: HashMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct RawStream {
    index: u32,
    codec_type: Option<String>,
    codec_name: Option<String>,
    profile: Option<String>,
    level: Option<i32>,
    width: Option<u32>,
    height: Option<u32>,
    has_b_frames: Option<i32>,
    sample_aspect_ratio: Option<String>,
    pix_fmt: Option<String>,
    color_range: Option<String>,
    color_space: Option<String>,
    color_transfer: Option<String>,
    color_primaries: Option<String>,
    field_order: Option<String>,
    bits_per_raw_sample: Option<String>,
    r_frame_rate: Option<String>,
    avg_frame_rate: Option<String>,
    time_base: Option<String>,
    start_time: Option<String>,
    duration: Option<String>,
    bit_rate: Option<String>,
    nb_frames: Option<String>,
    sample_rate: Option<String>,
    channels: Option<u32>,
    channel_layout: Option<String>,
    #[serde(default)]
    disposition: HashMap<String, i32>,
    #[serde(default)]
    tags: HashMap<String, String>,
    #[serde(default)]
    side_data_list: Vec<RawSideData>,
}

#[derive(Debug, Deserialize)]
struct RawSideData {
    side_data_type: Option<String>,
    rotation: Option<f64>,
}

pub(super) fn parse(answer: &[u8], format: Format, file_bytes: u64) -> Result<Probe> {
    let answer: Answer = serde_json::from_slice(answer).map_err(|error| {
        MediaError::unexpected(At::new(STEP, format!("ffprobe's answer is not as known: {error}")))
    })?;
    let of_type = |wanted: &'static str| {
        answer.streams.iter().filter(move |stream| stream.codec_type.as_deref() == Some(wanted))
    };
    let video_streams: Vec<VideoStream> = of_type("video").filter_map(RawStream::video).collect();
    let mut audio_streams: Vec<AudioStream> = of_type("audio").filter_map(RawStream::audio).collect();
    if video_streams.is_empty() && audio_streams.is_empty() {
        let what = "no stream of pictures or sound that could be read";
        return Err(MediaError::bad_input(InputProblem::Corrupt, At::new(STEP, what)));
    }
    let subtitle_count = of_type("subtitle").count();
    let longest =
        video_streams.iter().map(|v| v.duration_us).chain(audio_streams.iter().map(|a| a.duration_us)).max();
    if format.guesses_length() {
        audio_streams.iter_mut().for_each(|audio| audio.duration_us = None);
    }
    let header = answer.format.as_ref();
    Ok(Probe {
        format,
        file_bytes,
        duration_us: header.and_then(|f| positive_us(f.duration.as_deref())).or(longest.flatten()),
        start_us: header.and_then(|f| microseconds(f.start_time.as_deref()?)).unwrap_or(0),
        bit_rate: header.and_then(|f| number(f.bit_rate.as_deref())),
        subtitle_count,
        other_count: answer.streams.len() - video_streams.len() - audio_streams.len() - subtitle_count,
        stream_count: answer.streams.len(),
        video_streams,
        audio_streams,
        chapters: answer.chapters.iter().filter_map(RawChapter::chapter).collect(),
    })
}

impl RawStream {
    /// `None` for a stream whose size nobody found out: it cannot be decoded.
    fn video(&self) -> Option<VideoStream> {
        let (width, height) = (self.width.filter(|w| *w > 0)?, self.height.filter(|h| *h > 0)?);
        let (sample_aspect, rotation) = (self.sample_aspect(), self.rotation());
        let (avg_fps, base_fps) =
            (positive(self.avg_frame_rate.as_deref()), positive(self.r_frame_rate.as_deref()));
        let is_attached_picture = self.is("attached_pic");
        Some(VideoStream {
            index: self.index,
            codec: self.codec_name.clone().unwrap_or_else(|| "unknown".into()),
            profile: known(self.profile.as_deref()),
            level: self.level.filter(|level| *level >= 0),
            width,
            height,
            sample_aspect,
            rotation,
            display: Size::displayed(width, height, sample_aspect, rotation),
            bit_depth: self.bit_depth(),
            pixel_format: known(self.pix_fmt.as_deref()),
            colour_primaries: known(self.color_primaries.as_deref()),
            colour_transfer: known(self.color_transfer.as_deref()),
            colour_matrix: known(self.color_space.as_deref()),
            colour_range: self.colour_range(),
            hdr: self.hdr(),
            is_vfr: !is_attached_picture && differ(avg_fps, base_fps),
            avg_fps,
            base_fps,
            is_interlaced: matches!(self.field_order.as_deref(), Some("tt" | "bb" | "tb" | "bt")),
            bit_rate: number(self.bit_rate.as_deref()),
            start_us: self.start_us(),
            duration_us: self.duration_us(),
            frame_count: number(self.nb_frames.as_deref()),
            time_base: self.time_base(),
            has_b_frames: self.has_b_frames.unwrap_or(0) > 0,
            is_default: self.is("default"),
            is_attached_picture,
        })
    }

    fn audio(&self) -> Option<AudioStream> {
        Some(AudioStream {
            index: self.index,
            codec: self.codec_name.clone().unwrap_or_else(|| "unknown".into()),
            profile: known(self.profile.as_deref()),
            sample_rate: number(self.sample_rate.as_deref())
                .and_then(|rate| u32::try_from(rate).ok())
                .filter(|r| *r > 0)?,
            channels: self.channels.filter(|channels| *channels > 0)?,
            layout: known(self.channel_layout.as_deref()),
            bit_rate: number(self.bit_rate.as_deref()),
            language: known(self.tags.get("language").map(String::as_str))
                .filter(|language| language != "und"),
            start_us: self.start_us(),
            duration_us: self.duration_us(),
            time_base: self.time_base(),
            is_default: self.is("default"),
        })
    }

    fn is(&self, disposition: &str) -> bool {
        self.disposition.get(disposition).is_some_and(|set| *set != 0)
    }

    fn start_us(&self) -> i64 {
        self.start_time.as_deref().and_then(microseconds).unwrap_or(0)
    }

    /// As the container says, or the tag that writers of Matroska files leave: `00:00:02.002000000`.
    fn duration_us(&self) -> Option<u64> {
        positive_us(self.duration.as_deref()).or_else(|| clock_us(self.tags.get("DURATION")?))
    }

    /// Players take pixels of a mad shape for square ones, too.
    fn sample_aspect(&self) -> Rational {
        let is_sane = |aspect: &Rational| {
            aspect.num() <= aspect.den().saturating_mul(MAD_ASPECT)
                && aspect.den() <= aspect.num().saturating_mul(MAD_ASPECT)
        };
        positive(self.sample_aspect_ratio.as_deref()).filter(is_sane).unwrap_or(Rational::ONE)
    }

    fn time_base(&self) -> Rational {
        positive(self.time_base.as_deref()).unwrap_or(Rational::ONE)
    }

    /// The display matrix, or the tag that FFmpeg wrote before 5.0 instead, which is clockwise.
    fn rotation(&self) -> Rotation {
        let matrix = self.side_data_list.iter().find_map(|side| side.rotation);
        let tag = || self.tags.get("rotate")?.parse::<f64>().ok().map(|clockwise| -clockwise);
        matrix.or_else(tag).map(Rotation::from_matrix_degrees).unwrap_or_default()
    }

    fn colour_range(&self) -> Option<ColourRange> {
        match self.color_range.as_deref()? {
            "tv" => Some(ColourRange::Limited),
            "pc" => Some(ColourRange::Full),
            _ => None,
        }
    }

    fn hdr(&self) -> Option<HdrKind> {
        let is_dolby =
            |side: &RawSideData| side.side_data_type.as_deref().is_some_and(|kind| kind.starts_with("DOVI"));
        if self.side_data_list.iter().any(is_dolby) {
            return Some(HdrKind::DolbyVision);
        }
        match self.color_transfer.as_deref()? {
            "smpte2084" => Some(HdrKind::Pq),
            "arib-std-b67" => Some(HdrKind::Hlg),
            _ => None,
        }
    }

    /// What the stream says, or what the name of its pixel format does: `yuv420p10le`, `p010le`, `gray12`.
    fn bit_depth(&self) -> u8 {
        if let Some(bits) =
            number(self.bits_per_raw_sample.as_deref()).and_then(|bits| u8::try_from(bits).ok())
            && bits > 0
        {
            return bits;
        }
        let name = self.pix_fmt.as_deref().unwrap_or_default().trim_end_matches("le").trim_end_matches("be");
        let suffixes = [("p9", 9), ("10", 10), ("12", 12), ("14", 14), ("16", 16)];
        suffixes.into_iter().find(|(suffix, _)| name.ends_with(suffix)).map_or(8, |(_, bits)| bits)
    }
}

impl RawChapter {
    fn chapter(&self) -> Option<Chapter> {
        Some(Chapter {
            start_us: microseconds(self.start_time.as_deref()?)?,
            end_us: microseconds(self.end_time.as_deref()?)?,
            title: known(self.tags.get("title").map(String::as_str)),
        })
    }
}

fn differ(avg: Option<Rational>, base: Option<Rational>) -> bool {
    match (avg, base) {
        (Some(avg), Some(base)) => (avg.as_f64() / base.as_f64() - 1.0).abs() > VFR_TOLERANCE,
        _ => false,
    }
}

fn known(text: Option<&str>) -> Option<String> {
    text.filter(|text| !matches!(*text, "" | "unknown" | "N/A")).map(str::to_owned)
}

fn number(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

fn positive(text: Option<&str>) -> Option<Rational> {
    text?.parse().ok().filter(|value: &Rational| value.is_positive())
}

fn positive_us(text: Option<&str>) -> Option<u64> {
    u64::try_from(microseconds(text?)?).ok().filter(|us| *us > 0)
}

/// `HH:MM:SS.fraction`.
fn clock_us(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, ':');
    let (hours, minutes): (u64, u64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let seconds_us = u64::try_from(microseconds(parts.next()?)?).ok()?;
    let whole_us = hours.saturating_mul(60).saturating_add(minutes).saturating_mul(60_000_000);
    let us = whole_us.saturating_add(seconds_us).min(TIME_MAX_US.unsigned_abs());
    Some(us).filter(|us| *us > 0)
}

/// `-12.345678` seconds, exactly. Every time that a file tells comes through here, and none is beyond [`TIME_MAX_US`]:
/// what computes with them needs no care, and the limits refuse what was cut down.
fn microseconds(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction: String = fraction.chars().chain(std::iter::repeat('0')).take(6).collect();
    let (whole, fraction): (u64, u32) = (whole.parse().ok()?, fraction.parse().ok()?);
    let us = whole.saturating_mul(1_000_000).saturating_add(fraction.into());
    Some(sign * i64::try_from(us).unwrap_or(i64::MAX).min(TIME_MAX_US))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_exact_microseconds() {
        assert_eq!(microseconds("2.002000"), Some(2_002_000));
        assert_eq!(microseconds("-0.046440"), Some(-46_440));
        assert_eq!(microseconds("7"), Some(7_000_000));
        assert_eq!(microseconds("N/A"), None);
        assert_eq!(clock_us("01:00:02.002000000"), Some(3_602_002_000));
        assert_eq!(clock_us("2.0"), None);
    }

    #[test]
    fn no_time_that_a_file_tells_is_beyond_what_can_be_computed_with() {
        assert_eq!(microseconds("99999999999999"), Some(TIME_MAX_US));
        assert_eq!(microseconds("-18446744073709551615.999999"), Some(-TIME_MAX_US));
        assert_eq!(clock_us("2562047788:0:54.80"), Some(TIME_MAX_US.unsigned_abs()));
        assert_eq!(clock_us("900000000:00:00.00"), Some(TIME_MAX_US.unsigned_abs()));
        assert_eq!(clock_us("18446744073709551615:18446744073709551615:1"), Some(TIME_MAX_US.unsigned_abs()));
    }

    #[test]
    fn an_answer_without_streams_is_a_corrupt_input() {
        let error = parse(b"{\"streams\": [], \"format\": {}}", Format::Mp4, 1).unwrap_err();

        assert_eq!(error.code(), "input_corrupt");
    }
}
