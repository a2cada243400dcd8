//! How long the streams of a file really are, where its container's word is not exact.

mod gaps;
mod packets;

use std::path::Path;

use tokio_util::sync::CancellationToken;

use crate::error::{At, InputProblem, MediaError, Result};
use crate::limits::Limits;
use crate::probe::{AudioStream, Probe, VideoStream};
use crate::rational::Rational;
use crate::sniff::Class;
use crate::tool::Toolbox;

use packets::{Span, Spans, read_packets};

const STEP: &str = "measure_length";
/// Streams that end so much before the length that the container tells were cut off.
const MISSING_US: i64 = 1_000_000;
/// The sound may well end so much later than the picture.
const UNEXPLAINED_US: u64 = 100_000;
/// Rates that differ by more are not a matter of rounding.
const SAME_PACE: f64 = 0.005;
/// Containers round times to milliseconds.
const ROUNDING_US: i64 = 1_000;
/// A gap may stand for one of these; what is not near to one stands for itself.
const BURST_RATES: [i64; 10] = [60, 50, 48, 30, 25, 24, 20, 15, 12, 10];

/// The probe with the length, the rate and the count of frames of its video stream as its packets have them.
///
/// An MP4 whose count, length and rate agree is believed, and its probe returned as it is. Everything else is read once,
/// and nothing decoded: recordings of browsers and live streams tell nothing, Matroska tells a rate that is only an
/// average, an MP4 whose frames come unevenly tells the sum of its decoding steps, and a fragmented one counts from zero
/// what begins later. A file that ends before the length it tells is `input_truncated`. Of MP3 and ADTS, which tell none,
/// the length of the sound is measured.
pub async fn with_measured_length(
    toolbox: &Toolbox,
    path: &Path,
    probe: Probe,
    limits: &Limits,
    cancel: &CancellationToken,
) -> Result<Probe> {
    let is_picture = probe.format.class() == Class::Image;
    let is_known = match probe.video() {
        Some(video) => is_exact(&probe, video),
        None => !probe.format.guesses_length(),
    };
    if is_picture || is_known {
        return Ok(probe);
    }
    let streams = read_packets(toolbox, path, &probe, limits, cancel).await?;
    // Where clocks may jump, what is told is only the difference between the last time and the first.
    if !probe.format.clock_may_jump() && !probe.format.guesses_length() {
        refuse_truncated(&probe, &streams)?;
    }
    let measured = match probe.video() {
        Some(_) => correct(probe, &streams)?,
        None => correct_guess(probe, &streams)?,
    };
    limits.check(&measured)?;
    Ok(measured)
}

/// Whether all that a container says of its pictures agrees. A picture that stands still at the end of an MP4 is shown
/// long after the sum of all decoding steps, and only the length of the whole file tells.
fn is_exact(probe: &Probe, video: &VideoStream) -> bool {
    let (Some(us), Some(count), Some(fps)) = (video.duration_us, video.frame_count, video.base_fps) else {
        return false;
    };
    let by_length = us as f64 / 1e6 * fps.as_f64();
    let late_us = video.start_us.saturating_sub(probe.start_us).max(0).unsigned_abs();
    let rest_us = probe.duration_us.unwrap_or(us).saturating_sub(us.saturating_add(late_us));
    !video.is_vfr && (count as f64 - by_length).abs() <= 1.0 && rest_us <= UNEXPLAINED_US
}

fn refuse_truncated(probe: &Probe, spans: &Spans) -> Result<()> {
    let Some(told_us) = probe.duration_us.and_then(|us| i64::try_from(us).ok()) else { return Ok(()) };
    let end_us = spans.values().map(Span::end_us).max().unwrap_or(0).saturating_sub(probe.start_us);
    if end_us.saturating_add(MISSING_US) >= told_us {
        return Ok(());
    }
    let what = format!("it ends at {:.3} s of {:.3} s", end_us as f64 / 1e6, told_us as f64 / 1e6);
    Err(MediaError::bad_input(InputProblem::Truncated, At::new(STEP, what)))
}

fn correct(mut probe: Probe, spans: &Spans) -> Result<Probe> {
    let index = probe.video().map(|video| video.index);
    let Some(video) = probe.video_streams.iter_mut().find(|video| Some(video.index) == index) else {
        return Ok(probe);
    };
    let Some(span) = spans.get(&video.index) else {
        let what = "no packet of its pictures could be read";
        return Err(MediaError::bad_input(InputProblem::Corrupt, At::new(STEP, what)));
    };
    let duration_us = span.duration_us();
    video.start_us = span.first_us;
    video.duration_us = Some(duration_us.unsigned_abs());
    video.frame_count = Some(span.packets);
    let frames = i64::try_from(span.packets).unwrap_or(i64::MAX);
    if let Some(pace) = Rational::new(frames.saturating_mul(1_000_000), duration_us) {
        let burst_us = span.gaps.burst_us();
        video.is_vfr = burst_us.is_some_and(|gap_us| is_uneven(gap_us, span.pace_us()));
        video.base_fps = match (burst_us, video.base_fps) {
            (Some(gap_us), _) if video.is_vfr => rate_of_gap(gap_us).or(Some(pace)),
            (Some(gap_us), Some(told)) if is_same_gap(told, gap_us) => Some(told),
            _ => Some(pace),
        };
        video.avg_fps = Some(pace);
    }
    let end_us = span.first_us.saturating_add(duration_us);
    let longest_us = spans.values().map(Span::end_us).max().unwrap_or(end_us).max(end_us);
    let whole_us = u64::try_from(longest_us.saturating_sub(probe.start_us)).ok();
    if probe.format.clock_may_jump() {
        probe.duration_us = whole_us;
        probe.audio_streams.iter_mut().for_each(|audio| correct_sound(audio, spans));
    }
    probe.duration_us = probe.duration_us.or(whole_us);
    Ok(probe)
}

/// A picture may lie beside the sound, which lasts for nothing.
fn correct_guess(mut probe: Probe, spans: &Spans) -> Result<Probe> {
    probe.audio_streams.iter_mut().for_each(|audio| correct_sound(audio, spans));
    let index = probe.audio().map(|audio| audio.index);
    let Some(span) = index.and_then(|index| spans.get(&index)) else {
        let what = "no packet of its sound could be read";
        return Err(MediaError::bad_input(InputProblem::Corrupt, At::new(STEP, what)));
    };
    probe.duration_us = u64::try_from(span.end_us().saturating_sub(probe.start_us)).ok();
    Ok(probe)
}

fn correct_sound(audio: &mut AudioStream, spans: &Spans) {
    if let Some(span) = spans.get(&audio.index) {
        audio.start_us = span.first_us;
        audio.duration_us = Some(span.duration_us().unsigned_abs());
    }
}

/// Whether frames come much faster at times than they do on average.
fn is_uneven(burst_us: i64, pace_us: i64) -> bool {
    (pace_us - burst_us).abs() > ROUNDING_US.max((burst_us as f64 * SAME_PACE) as i64)
}

/// Frames that were dropped now and then make the average lower than the rate that is meant.
fn is_same_gap(told: Rational, gap_us: i64) -> bool {
    (1e6 / told.as_f64() - gap_us as f64).abs() <= ROUNDING_US as f64
}

/// The usual rate that a gap stands for, or its own.
fn rate_of_gap(gap_us: i64) -> Option<Rational> {
    let error_us = |rate: &&i64| (1_000_000 / **rate - gap_us).abs();
    let usual = BURST_RATES.iter().filter(|rate| error_us(rate) <= ROUNDING_US).min_by_key(error_us);
    usual.and_then(|rate| Rational::new(*rate, 1)).or_else(|| Rational::new(1_000_000, gap_us))
}

#[cfg(test)]
mod tests {
    use super::gaps::Gaps;
    use super::*;

    fn burst_gap_us(times_us: &[i64]) -> Option<i64> {
        let mut gaps = Gaps::default();
        times_us.iter().for_each(|us| gaps.take(*us));
        gaps.end();
        gaps.burst_us()
    }

    #[test]
    fn the_rate_of_bursts_is_found_among_pauses() {
        let burst_rate = |times_us: &[i64]| burst_gap_us(times_us).and_then(rate_of_gap);
        let ntsc: Vec<i64> =
            (0..30).map(|n| (n * 1001 * 1000 / 30_000) * 1000).chain([5_000_000, 9_000_000]).collect();
        let film: Vec<i64> = (0..10).map(|n| n * 1_000_000 / 24).chain([3_000_000]).collect();

        assert_eq!(burst_rate(&ntsc), Rational::new(30, 1));
        assert_eq!(burst_rate(&film), Rational::new(24, 1));
        assert_eq!(burst_rate(&[0]), None);
    }

    #[test]
    fn times_rounded_to_milliseconds_are_even() {
        for (num, den) in [(24_000, 1001), (24, 1), (30_000, 1001), (60_000, 1001), (75, 1), (25, 2)] {
            let rounded: Vec<i64> = (0..200).map(|n| n * 1000 * den / num * 1000).collect();
            let pace_us = (rounded[199] - rounded[0]) / 199;

            assert!(!is_uneven(burst_gap_us(&rounded).unwrap(), pace_us), "{num}/{den}");
        }
    }
}
