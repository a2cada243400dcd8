//! What the decoder really gave, before repeated frames fill the holes: read from its log while it runs.
//!
//! A filter that makes a constant rate repeats the last good picture over whatever was lost, so a count of what comes
//! out proves nothing. The decoder's graph therefore begins by logging every frame with its time. A hole between two of
//! them is the source's own pause, unless a demuxer or decoder complained just before: then what is shown in it is damage.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::STEP;
use crate::damage;
use crate::error::{At, InputProblem, MediaError, Result};
use crate::plan::{SegmentRange, VideoPlan};
use crate::tool::{Activity, LogLine, LogReader, complains_of_input};

/// A demuxer reads that many frames ahead of what is shown: pictures are reordered by 16 at most, and since version 7
/// FFmpeg keeps eight packets and eight frames between its threads.
const READ_AHEAD_FRAMES: u32 = 40;
/// Reads along with one decoder.
#[derive(Debug)]
pub(super) struct Witness {
    clock: Clock,
    /// The output frames of the run.
    wanted: std::ops::Range<i64>,
    frames_per_segment: i64,
    may_change: bool,
    seen: Mutex<Seen>,
    /// The highest output frame that the decoder has come to.
    reached: watch::Sender<i64>,
    /// Whoever waits for the decoder.
    waiting: Mutex<Vec<Activity>>,
}

/// From a source's time to an output frame.
#[derive(Debug, Clone, Copy)]
struct Clock {
    origin_us: i64,
    fps_num: i128,
    fps_den: i128,
}

#[derive(Debug, Default)]
struct Seen {
    first: Option<i64>,
    last: Option<i64>,
    /// Frames since a complaint; `None` while there was none.
    since_complaint: Option<u32>,
    /// Since version 7 decoder and filters are threads of their own, so it may be one of the ten frames after the next.
    next_is_concealed: bool,
    /// Damaged frames of each segment.
    damaged: BTreeMap<i64, u32>,
    shape: Option<String>,
    change: Option<String>,
}

impl Witness {
    pub(super) fn new(plan: &VideoPlan, run: SegmentRange) -> Self {
        let first = |segment: u32| i64::try_from(plan.grid.first_frame(segment)).unwrap_or(i64::MAX);
        let last = run.end.saturating_sub(1);
        Self {
            clock: Clock {
                origin_us: plan.timeline.origin_us,
                fps_num: i128::from(plan.timeline.fps.num()),
                fps_den: i128::from(plan.timeline.fps.den()),
            },
            wanted: first(run.start)..first(last).saturating_add(i64::from(plan.grid.frames(last))),
            frames_per_segment: i64::from(plan.grid.frames_per_segment.max(1)),
            may_change: plan.picture.frame.is_some(),
            seen: Mutex::default(),
            reached: watch::Sender::new(i64::MIN),
            waiting: Mutex::default(),
        }
    }

    /// These wait for the decoder, and are not stalled while it gets on.
    pub(super) fn keep_alive(&self, waiting: Vec<Activity>) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = waiting;
    }

    /// Waits until the decoder has come to that output frame, or to its end.
    pub(super) async fn reached(&self, frame: u64) {
        let frame = i64::try_from(frame).unwrap_or(i64::MAX);
        // The sender is ours, so it cannot be gone.
        let _ = self.reached.subscribe().wait_for(|reached| *reached >= frame).await;
    }

    /// Waits for the first frame, and says whether one was there when the run begins. A decoder that found only broken
    /// packets where it was sent to begins behind that.
    pub(super) async fn began_in_time(&self) -> bool {
        let _ = self.reached.subscribe().wait_for(|reached| *reached > i64::MIN).await;
        self.seen().first.is_none_or(|first| first <= self.wanted.start)
    }

    /// How many frames of a segment are not what the source showed there. Known when what lies behind it was reached.
    pub(super) fn damaged_frames(&self, segment: u32) -> u32 {
        self.seen().damaged.get(&i64::from(segment)).copied().unwrap_or(0)
    }

    pub(super) fn require_sound(&self, plan: &VideoPlan) -> Result<()> {
        let seen = self.seen();
        if let Some(change) = seen.change.as_ref().filter(|_| !self.may_change) {
            let what = format!("its frames change from {change} in the middle of the stream");
            return Err(MediaError::bad_input(InputProblem::Unsupported, At::new(STEP, what)));
        }
        let damaged: u64 = seen.damaged.values().copied().map(u64::from).sum();
        let (damaged_us, film_us) = (plan.timeline.time_us(damaged), plan.timeline.duration_us());
        if damage::is_too_much(damaged_us, film_us) {
            let what = format!("{damaged} frames cannot be decoded, of a film of {}", plan.timeline.frames);
            return Err(MediaError::bad_input(InputProblem::Corrupt, At::new(STEP, what)));
        }
        Ok(())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decoded(&self, frame: i64, shape: Option<&str>) {
        let mut seen = self.seen();
        let near = seen.since_complaint.is_some_and(|frames| frames <= READ_AHEAD_FRAMES);
        let hole_from = seen.last.map_or(self.wanted.start, |last| last.saturating_add(1));
        if near {
            self.mark(&mut seen, hole_from..frame);
        }
        if std::mem::take(&mut seen.next_is_concealed) {
            self.mark(&mut seen, frame..frame.saturating_add(1));
        }
        seen.first.get_or_insert(frame);
        let last = seen.last.map_or(frame, |last| last.max(frame));
        seen.last = Some(last);
        seen.since_complaint = seen.since_complaint.map(|frames| frames.saturating_add(1));
        seen.notice_shape(shape);
        drop(seen);
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Activity::advanced);
        self.reached.send_replace(last);
    }

    fn mark(&self, seen: &mut Seen, frames: std::ops::Range<i64>) {
        let mut from = frames.start.max(self.wanted.start);
        let until = frames.end.min(self.wanted.end);
        let last_segment = (self.wanted.end - 1) / self.frames_per_segment;
        while from < until {
            let segment = from / self.frames_per_segment;
            let segment_end = (segment + 1).saturating_mul(self.frames_per_segment);
            let end = if segment < last_segment { until.min(segment_end) } else { until };
            let count = u32::try_from(end - from).unwrap_or(u32::MAX);
            let damaged = seen.damaged.entry(segment).or_default();
            *damaged = damaged.saturating_add(count);
            from = end;
        }
    }
}

impl Seen {
    fn notice_shape(&mut self, shape: Option<&str>) {
        let Some(shape) = shape else { return };
        match &self.shape {
            None => self.shape = Some(shape.to_owned()),
            Some(first) if first != shape && self.change.is_none() => {
                self.change = Some(format!("{first} to {shape}"));
            }
            Some(_) => {}
        }
    }
}

impl LogReader for Witness {
    fn line(&self, line: LogLine<'_>) -> bool {
        let is_frame = line.is_info && line.speaker.is_some_and(|it| it.starts_with("Parsed_showinfo_"));
        if is_frame {
            let Some(pts_us) = field(line.text, "pts:").and_then(|text| text.parse().ok()) else {
                return false;
            };
            self.decoded(self.clock.frame(pts_us), shape(line.text));
            return true;
        }
        if line.is_info {
            return false;
        }
        if complains_of_input(&line) {
            let mut seen = self.seen();
            seen.since_complaint = Some(0);
            seen.next_is_concealed |= line.is_of_concealed_frame();
        }
        false
    }

    fn ended(&self) {
        self.reached.send_replace(i64::MAX);
    }
}

impl Clock {
    /// The nearest, as the filter has it that makes the constant rate.
    fn frame(self, pts_us: i64) -> i64 {
        let num = i128::from(pts_us.saturating_sub(self.origin_us)) * self.fps_num;
        let den = self.fps_den.max(1) * 1_000_000;
        i64::try_from((2 * num + den).div_euclid(2 * den)).unwrap_or(i64::MAX)
    }
}

/// `n:   1 pts:    512 pts_time:0.0333333 … fmt:yuv420p sar:1/1 s:640x360 …`
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let at = text.find(&format!(" {name}"))?;
    text[at + 1 + name.len()..].split_whitespace().next()
}

/// The pixel format and the size, as one text.
fn shape(text: &str) -> Option<&str> {
    let (from, size) = (text.find("fmt:")?, text.find(" s:")?);
    let end = text[size + 1..].find(' ').map_or(text.len(), |at| size + 1 + at);
    text.get(from..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two segments of ten frames each at 10 fps, from frame 20 on.
    fn witness() -> Witness {
        Witness {
            clock: Clock { origin_us: 0, fps_num: 10, fps_den: 1 },
            wanted: 20..40,
            frames_per_segment: 10,
            may_change: false,
            seen: Mutex::default(),
            reached: watch::Sender::new(i64::MIN),
            waiting: Mutex::default(),
        }
    }

    fn shows(witness: &Witness, frame: i64) {
        let text =
            format!("n:  1 pts: {:6} pts_time:1 pos: 1 fmt:yuv420p sar:1/1 s:640x360 i:P", frame * 100_000);
        let line =
            LogLine { is_info: true, is_error: false, speaker: Some("Parsed_showinfo_1"), text: &text };
        assert!(witness.line(line));
    }

    fn complains(witness: &Witness, speaker: Option<&str>, text: &str) {
        witness.line(LogLine { is_info: false, is_error: true, speaker, text });
    }

    #[test]
    fn a_hole_is_damage_only_after_a_complaint() {
        let witness = witness();
        shows(&witness, 18);
        shows(&witness, 25);
        assert_eq!(witness.damaged_frames(2), 0);

        complains(&witness, Some("matroska,webm"), "invalid as first byte of an EBML number");
        shows(&witness, 26);
        shows(&witness, 34);

        assert_eq!((witness.damaged_frames(2), witness.damaged_frames(3)), (3, 4));
    }

    #[test]
    fn a_concealed_frame_counts_and_one_before_the_run_does_not() {
        let witness = witness();
        for frame in [19, 20, 21] {
            complains(&witness, None, "a.mp4: corrupt decoded frame in stream 0");
            shows(&witness, frame);
        }

        assert_eq!(witness.damaged_frames(2), 2);
        assert_eq!(witness.damaged_frames(1), 0);
    }

    #[test]
    fn what_the_input_says_of_itself_is_no_complaint() {
        let witness = witness();
        shows(&witness, 20);
        let title = "    title : Error while decoding stream #0:0: Invalid data";
        witness.line(LogLine { is_info: true, is_error: false, speaker: None, text: title });
        shows(&witness, 30);

        assert_eq!(witness.damaged_frames(2), 0);
    }

    #[test]
    fn a_change_of_size_is_noticed() {
        let witness = witness();
        shows(&witness, 20);
        let text = "n:  1 pts: 2100000 pts_time:1 pos: 1 fmt:yuv420p sar:1/1 s:360x640 i:P";
        witness.line(LogLine { is_info: true, is_error: false, speaker: Some("Parsed_showinfo_1"), text });

        let change = witness.seen().change.clone().unwrap();
        assert_eq!(change, "fmt:yuv420p sar:1/1 s:640x360 to fmt:yuv420p sar:1/1 s:360x640");
    }
}
