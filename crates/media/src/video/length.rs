//! How long the streams of a file really are, where its container does not say.

use std::collections::BTreeMap;
use std::path::Path;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_util::sync::CancellationToken;

use crate::error::{At, InputProblem, MediaError, Result};
use crate::limits::Limits;
use crate::probe::{Probe, input_args};
use crate::rational::Rational;
use crate::tool::{Output, Program, ToolLimits, Toolbox};

const STEP: &str = "measure_length";
/// Streams that end so much before the length that the container tells were cut off.
const MISSING_US: i64 = 1_000_000;
/// Rates that differ by more are not a matter of rounding.
const SAME_PACE: f64 = 0.005;

/// The probe with the length, the rate and the count of frames of its video stream as its packets have them.
///
/// MP4 tells them itself, and the probe is returned as it is. Recordings of browsers and of live streams tell nothing,
/// and others only the length of the longest stream: all of their packets are read, none is decoded. A file that ends
/// before the length it tells is `input_truncated`.
pub async fn with_measured_length(
    toolbox: &Toolbox,
    path: &Path,
    probe: Probe,
    limits: &Limits,
    cancel: &CancellationToken,
) -> Result<Probe> {
    let is_told = probe.video().is_none_or(|video| video.duration_us.is_some());
    if is_told {
        return Ok(probe);
    }
    let streams = read_packets(toolbox, path, &probe, limits, cancel).await?;
    refuse_truncated(&probe, &streams)?;
    let measured = correct(probe, &streams)?;
    limits.check(&measured)?;
    Ok(measured)
}

/// What the packets of one stream say.
#[derive(Debug)]
struct Span {
    packets: u64,
    first_us: i64,
    last_us: i64,
    end_us: i64,
    /// When each packet is shown; of pictures only.
    times_us: Vec<i64>,
}

type Spans = BTreeMap<u32, Span>;

async fn read_packets(
    toolbox: &Toolbox,
    path: &Path,
    probe: &Probe,
    limits: &Limits,
    cancel: &CancellationToken,
) -> Result<Spans> {
    let mut running = toolbox
        .tool(Program::Ffprobe, STEP)?
        .args(["-of", "csv=p=0", "-show_entries", "packet=stream_index,pts_time,duration_time"])
        .args(input_args(path, probe.format, limits)?)
        .readable(path)
        .stdout(Output::Pipe)
        .limits(ToolLimits { file_size_bytes: Some(0), ..ToolLimits::for_media(limits.duration) })
        .start(cancel)?;
    let (stdout, activity) = (running.take_stdout(), running.activity());
    let mut spans = Spans::new();
    let pictures = probe.video().map(|video| video.index);
    if let Some(stdout) = stdout {
        let mut lines = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            activity.advanced();
            take_line(&mut spans, &line, pictures);
        }
    }
    running.finish().await?;
    Ok(spans)
}

/// `0,1.400000,0.040000`; a packet without a time tells nothing.
fn take_line(spans: &mut Spans, line: &str, pictures: Option<u32>) {
    let mut fields = line.split(',');
    let mut field = || fields.next().unwrap_or_default();
    let (Ok(stream), Some(pts_us)) = (field().parse::<u32>(), microseconds(field())) else { return };
    let end_us = pts_us.saturating_add(microseconds(field()).unwrap_or(0));
    let fresh = || Span { packets: 0, first_us: pts_us, last_us: pts_us, end_us, times_us: Vec::new() };
    let span = spans.entry(stream).or_insert_with(fresh);
    if Some(stream) == pictures {
        span.times_us.push(pts_us);
    }
    span.packets += 1;
    span.first_us = span.first_us.min(pts_us);
    span.last_us = span.last_us.max(pts_us);
    span.end_us = span.end_us.max(end_us);
}

fn microseconds(text: &str) -> Option<i64> {
    text.parse::<f64>()
        .ok()
        .filter(|seconds| seconds.abs() < 1e9)
        .map(|seconds| (seconds * 1e6).round() as i64)
}

fn refuse_truncated(probe: &Probe, spans: &Spans) -> Result<()> {
    let Some(told_us) = probe.duration_us.and_then(|us| i64::try_from(us).ok()) else { return Ok(()) };
    let end_us = spans.values().map(|span| span.end_us).max().unwrap_or(0) - probe.start_us;
    if end_us + MISSING_US >= told_us {
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
    // The last frame stays for as long as the others do on average, where nobody says.
    let between = i64::try_from(span.packets.saturating_sub(1).max(1)).unwrap_or(i64::MAX);
    let pace_us = (span.last_us - span.first_us) / between;
    let end_us = if span.end_us > span.last_us { span.end_us } else { span.last_us + pace_us };
    let duration_us = (end_us - span.first_us).max(1);
    let pace =
        Rational::new(i64::try_from(span.packets).unwrap_or(i64::MAX).saturating_mul(1_000_000), duration_us);
    video.start_us = span.first_us;
    video.duration_us = Some(duration_us.unsigned_abs());
    video.frame_count = Some(span.packets);
    if let Some(pace) = pace {
        video.is_vfr =
            video.base_fps.is_none_or(|base| (pace.as_f64() / base.as_f64() - 1.0).abs() > SAME_PACE);
        if video.is_vfr {
            video.base_fps = Some(burst_rate(&span.times_us).unwrap_or(pace));
        }
        video.avg_fps = Some(pace);
    }
    let longest_us = spans.values().map(|span| span.end_us - probe.start_us).max().unwrap_or(duration_us);
    probe.duration_us = probe.duration_us.or(u64::try_from(longest_us.max(end_us - probe.start_us)).ok());
    Ok(probe)
}

/// The usual rate at which frames come where they come fast: by the gap that one in ten stays below. Containers round
/// times to milliseconds, and so are gaps compared.
fn burst_rate(times_us: &[i64]) -> Option<Rational> {
    let mut times_us = times_us.to_vec();
    times_us.sort_unstable();
    let mut gaps_us: Vec<i64> =
        times_us.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > 0).collect();
    gaps_us.sort_unstable();
    let gap_us = *gaps_us.get(gaps_us.len() / 10)?;
    let is_meant = |rate: &&i64| (1_000_000 / **rate - gap_us).abs() <= 1_000;
    let usual = [60, 50, 30, 25, 24, 15, 10].iter().find(is_meant).and_then(|rate| Rational::new(*rate, 1));
    usual.or_else(|| Rational::new(1_000_000, gap_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_bursts_is_found_among_pauses() {
        let ntsc: Vec<i64> =
            (0..30).map(|n| (n * 1001 * 1000 / 30_000) * 1000).chain([5_000_000, 9_000_000]).collect();
        let film: Vec<i64> = (0..10).map(|n| n * 1_000_000 / 24).chain([3_000_000]).collect();

        assert_eq!(burst_rate(&ntsc), Rational::new(30, 1));
        assert_eq!(burst_rate(&film), Rational::new(24, 1));
        assert_eq!(burst_rate(&[0]), None);
    }
}
