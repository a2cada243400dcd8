//! The grid of segments, which is the same however the work is cut.

use serde::{Deserialize, Serialize};

use super::{Timeline, refusal};
use crate::error::{InputProblem, Result};

/// A range of segments decodes for at least this long, where there is as much, before another begins.
const LONG_RANGE_SECONDS: u64 = 60;
/// Each is a file for each rung, an entry of a playlist and a part of a job: eleven days of segments of a second.
const SEGMENTS_MAX: u64 = 1_000_000;
/// A keyframe at least so often, for seeking.
const GOP_SECONDS: u32 = 2;

/// Every segment but the last has the same number of frames, and every GOP of it too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    pub frames_per_gop: u32,
    pub frames_per_segment: u32,
    pub segments: u32,
    /// As planned; what the end of the stream really gives may differ by the timeline's tolerance.
    pub last_segment_frames: u32,
}

/// Segments `start..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentRange {
    pub start: u32,
    pub end: u32,
}

impl Grid {
    pub(super) fn of(timeline: &Timeline, segment_seconds: u32) -> Result<Self> {
        let gops = (segment_seconds / GOP_SECONDS).max(1);
        let gop = (timeline.fps.as_f64() * f64::from(segment_seconds) / f64::from(gops)).round();
        let frames_per_gop = (gop as u32).max(1);
        let frames_per_segment = frames_per_gop * gops;
        // A last segment that could turn out empty is no segment of its own: its frames go to the one before.
        let (whole, rest) = (
            timeline.frames / u64::from(frames_per_segment),
            timeline.frames % u64::from(frames_per_segment),
        );
        if whole >= SEGMENTS_MAX {
            let what = format!("it has {whole} segments, of which {SEGMENTS_MAX} are allowed");
            return Err(refusal(InputProblem::TooLong, what));
        }
        let has_own = whole == 0 || rest > Self::uncertain(timeline, frames_per_segment);
        let segments = u32::try_from(whole).unwrap_or(u32::MAX - 1) + u32::from(has_own);
        let before = u64::from(segments - 1) * u64::from(frames_per_segment);
        let last = u32::try_from(timeline.frames - before).unwrap_or(u32::MAX);
        Ok(Self { frames_per_gop, frames_per_segment, segments, last_segment_frames: last })
    }

    /// How many frames more or fewer the last segment may have.
    pub(crate) fn tolerance_frames(&self, timeline: &Timeline) -> u64 {
        Self::uncertain(timeline, self.frames_per_segment).min(u64::from(self.last_segment_frames) - 1)
    }

    fn uncertain(timeline: &Timeline, frames_per_segment: u32) -> u64 {
        timeline.tolerance_frames.min(u64::from(frames_per_segment / 2))
    }

    pub fn first_frame(&self, segment: u32) -> u64 {
        u64::from(segment) * u64::from(self.frames_per_segment)
    }

    /// How many frames a segment has by plan.
    pub fn frames(&self, segment: u32) -> u32 {
        if self.is_last(segment) { self.last_segment_frames } else { self.frames_per_segment }
    }

    pub fn is_last(&self, segment: u32) -> bool {
        segment + 1 >= self.segments
    }

    pub fn whole(&self) -> SegmentRange {
        SegmentRange { start: 0, end: self.segments }
    }

    /// One segment first, then ranges that double up to a minute: the cost of a range is what it decodes twice, from
    /// the source's keyframe before it.
    pub(super) fn ranges(&self, timeline: &Timeline) -> Vec<SegmentRange> {
        let segment_us = timeline.time_us(u64::from(self.frames_per_segment)).max(1);
        let longest =
            u32::try_from((LONG_RANGE_SECONDS * 1_000_000).div_ceil(segment_us)).unwrap_or(u32::MAX);
        let mut ranges = Vec::new();
        let (mut start, mut length) = (0, 1);
        while start < self.segments {
            let end = start.saturating_add(length).min(self.segments);
            ranges.push(SegmentRange { start, end });
            (start, length) = (end, (length * 2).min(longest));
        }
        ranges
    }

    pub(super) fn told(&self, timeline: &Timeline) -> String {
        let seconds = timeline.time_us(u64::from(self.frames_per_segment)) as f64 / 1e6;
        format!(
            "{} of {} frames ({seconds:.3} s), the last of {}",
            self.segments, self.frames_per_segment, self.last_segment_frames
        )
    }

    pub(super) fn reason(&self) -> String {
        format!("whole groups of {} frames on one grid, whatever range they are made in", self.frames_per_gop)
    }
}

impl SegmentRange {
    pub fn segments(self) -> std::ops::Range<u32> {
        self.start..self.end
    }

    pub(super) fn told(ranges: &[Self]) -> String {
        let lengths: Vec<String> = ranges.iter().map(|range| (range.end - range.start).to_string()).collect();
        let shown = lengths.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
        let more = if lengths.len() > 8 { ", …" } else { "" };
        format!("{} of {shown}{more} segments", ranges.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(frames: u64, fps: &str, tolerance_frames: u64) -> Timeline {
        Timeline {
            fps: fps.parse().unwrap(),
            origin_us: 0,
            frames,
            tolerance_frames,
            timescale: 30_000,
            ticks_per_frame: 1001,
        }
    }

    #[test]
    fn a_segment_is_whole_groups_of_frames_at_any_rate() {
        let grid = Grid::of(&timeline(1000, "30000/1001", 2), 4).unwrap();

        assert_eq!((grid.frames_per_gop, grid.frames_per_segment), (60, 120));
        assert_eq!((grid.segments, grid.last_segment_frames), (9, 40));
    }

    #[test]
    fn the_last_segment_cannot_turn_out_empty() {
        for frames in 1..=400 {
            for tolerance in [0, 2, 30] {
                let timeline = timeline(frames, "30/1", tolerance);
                let grid = Grid::of(&timeline, 4).unwrap();

                assert!(u64::from(grid.last_segment_frames) > grid.tolerance_frames(&timeline), "{frames}");
                let all: u64 = grid.whole().segments().map(|n| u64::from(grid.frames(n))).sum();
                assert_eq!(all, frames);
            }
        }
    }

    #[test]
    fn ranges_cover_every_segment_once_and_the_first_is_the_shortest() {
        let timeline = timeline(30 * 3600, "30/1", 2);
        let grid = Grid::of(&timeline, 4).unwrap();

        let ranges = grid.ranges(&timeline);

        assert_eq!(ranges[0], SegmentRange { start: 0, end: 1 });
        assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!(ranges.last().map(|range| range.end), Some(grid.segments));
        assert!(ranges.iter().all(|range| range.end - range.start <= 15));
    }

    #[test]
    fn a_film_of_more_segments_than_anyone_can_list_is_too_long() {
        let error = Grid::of(&timeline(u64::MAX, "30/1", 2), 4).unwrap_err();

        assert_eq!(error.code(), "input_too_long");
    }
}
