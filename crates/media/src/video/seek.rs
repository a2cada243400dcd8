//! Where a decoder must start so that it has the first picture of a range.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::STEP;
use crate::error::{At, MediaError, Result};
use crate::isobmff::{KeyFrame, mp4_key_frames};
use crate::limits::Limits;
use crate::plan::VideoPlan;
use crate::probe::input_args;
use crate::sniff::Format;
use crate::tool::{Output, Program, ToolLimits, Toolbox};

/// After so many steps back it is cheaper to read from the beginning.
const MAX_LOOKS: u32 = 8;
const FIRST_STEP_US: u64 = 2_000_000;
/// Times are rounded to ticks on their way into a demuxer.
const ROUNDING_US: i64 = 1_000;

/// A time to seek to from the container's start, or `None` to read from the beginning.
///
/// Demuxers seek by decoding time. A keyframe after a long still picture is decoded long before it is shown, so the
/// keyframe that is found may be shown behind the range, and the picture that stands when the range begins would be
/// missing. So the place is looked at first: in the index of the file where that can be read here, and otherwise by an
/// ffprobe for the range.
pub(super) async fn seek_point(
    toolbox: &Toolbox,
    plan: &VideoPlan,
    source: &Path,
    first_frame: u64,
    limits: &Limits,
    cancel: &CancellationToken,
) -> Result<Option<u64>> {
    let time_us = |frame: u64| i64::try_from(plan.timeline.time_us(frame)).unwrap_or(i64::MAX);
    let shown_us = plan.timeline.origin_us.saturating_add(time_us(first_frame));
    let lead_us = time_us(u64::from(plan.lead_frames)).saturating_add(time_us(1) / 2);
    // Deinterlacing looks at the frame before.
    let needed_us = if plan.picture.deinterlace { shown_us.saturating_sub(time_us(2)) } else { shown_us };
    let key_frames = match plan.format {
        Format::Mp4 if plan.is_seekable && first_frame > 0 => {
            mp4_key_frames(source, plan.stream_index).await?
        }
        _ => None,
    };
    let mut seek_us = shown_us.saturating_sub(lead_us);
    let mut step_us = FIRST_STEP_US.cast_signed();
    for _ in 0..MAX_LOOKS {
        let at_us = seek_us.saturating_add(plan.container_start_us);
        if !plan.is_seekable || seek_us <= 0 || at_us < 0 {
            return Ok(None);
        }
        let packet = match &key_frames {
            Some(key_frames) => found_by_a_seek(key_frames, at_us),
            None => first_packet(toolbox, plan, source, at_us, limits, cancel).await?,
        };
        let Some(packet) = packet else {
            // Nothing can be read there: the decoder will find that out and say how.
            return Ok(u64::try_from(seek_us).ok());
        };
        let from_start = |us: i64| us.saturating_sub(plan.container_start_us);
        let is_early_enough = packet.pts_us.is_some_and(|us| from_start(us) <= needed_us);
        if packet.is_key && is_early_enough {
            return Ok(u64::try_from(seek_us).ok());
        }
        let before_it = packet.dts_us.map_or(i64::MAX, |us| from_start(us).saturating_sub(1_000));
        seek_us = seek_us.saturating_sub(step_us).min(before_it);
        step_us = step_us.saturating_mul(3);
    }
    Ok(None)
}

/// The key frame that a seek to that time of the file finds, or one before it: FFmpeg goes back a little further where
/// pictures are reordered. So the latest of all that might be found is what counts.
fn found_by_a_seek(key_frames: &[KeyFrame], at_us: i64) -> Option<Packet> {
    let reached = key_frames.partition_point(|key| key.decode_us <= at_us.saturating_add(ROUNDING_US));
    let before = &key_frames[..reached.max(1).min(key_frames.len())];
    let pts_us = before.iter().map(|key| key.shown_us).max();
    before.last().map(|key| Packet { pts_us, dts_us: Some(key.decode_us), is_key: true })
}

#[derive(Debug)]
struct Packet {
    pts_us: Option<i64>,
    dts_us: Option<i64>,
    is_key: bool,
}

#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(default)]
    packets: Vec<RawPacket>,
}

#[derive(Debug, Deserialize)]
struct RawPacket {
    pts_time: Option<String>,
    dts_time: Option<String>,
    flags: Option<String>,
}

async fn first_packet(
    toolbox: &Toolbox,
    plan: &VideoPlan,
    source: &Path,
    at_us: i64,
    limits: &Limits,
    cancel: &CancellationToken,
) -> Result<Option<Packet>> {
    let interval = format!("{}.{:06}%+#1", at_us / 1_000_000, at_us % 1_000_000);
    let stream = plan.stream_index.to_string();
    let tool = toolbox
        .tool(Program::Ffprobe, STEP)?
        .args(["-of", "json=compact=1", "-show_entries", "packet=pts_time,dts_time,flags"])
        .args(["-select_streams", &stream, "-read_intervals", &interval])
        .args(input_args(source, plan.format, limits)?)
        .readable(source)
        .stdout(Output::Capture { max_bytes: 1 << 20 })
        .limits(ToolLimits {
            wall: Duration::from_secs(60),
            file_size_bytes: Some(0),
            ..ToolLimits::default()
        });
    let answer = tool.start(cancel)?.finish().await?.stdout;
    let answer: Answer = serde_json::from_slice(&answer).map_err(|error| {
        MediaError::unexpected(At::new(STEP, format!("ffprobe's answer is not as known: {error}")))
    })?;
    let microseconds = |text: &Option<String>| {
        text.as_deref()?.parse::<f64>().ok().map(|seconds| (seconds * 1e6).round() as i64)
    };
    Ok(answer.packets.first().map(|packet| Packet {
        pts_us: microseconds(&packet.pts_time),
        dts_us: microseconds(&packet.dts_time),
        is_key: packet.flags.as_deref().is_some_and(|flags| flags.starts_with('K')),
    }))
}
