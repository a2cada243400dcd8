//! What an input may cost, checked on its description before anything is decoded.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{At, InputProblem, MediaError, Result};
use crate::probe::{Probe, TIME_MAX_US, VideoStream};
use crate::rational::Rational;
use crate::sniff::Class;

const STEP: &str = "limits";

/// The largest input that is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    pub file_bytes: u64,
    pub image_pixels: u64,
    pub image_side: u32,
    pub image_frames: u64,
    /// Pixels of a frame times frames.
    pub image_total_pixels: u64,
    /// The longer and the shorter side of a video.
    pub video_long_side: u32,
    pub video_short_side: u32,
    pub video_fps: u32,
    pub duration: Duration,
    pub streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 50 << 30,
            image_pixels: 100_000_000,
            image_side: 16_384,
            image_frames: 1_000,
            image_total_pixels: 1_000_000_000,
            video_long_side: 8192,
            video_short_side: 4320,
            video_fps: 240,
            duration: Duration::from_secs(6 * 3600),
            streams: 32,
        }
    }
}

impl Limits {
    /// The most pixels that a decoder may be given memory for, for FFmpeg's `-max_pixels`.
    pub fn max_pixels(&self) -> u64 {
        let video = u64::from(self.video_long_side) * u64::from(self.video_short_side);
        // Coded sizes are rounded up to whole blocks.
        video.max(self.image_pixels) + (1 << 20)
    }

    pub(crate) fn duration_us(&self) -> u64 {
        u64::try_from(self.duration.as_micros()).unwrap_or(u64::MAX)
    }

    pub fn check(&self, probe: &Probe) -> Result<()> {
        self.check_file_bytes(probe.file_bytes)?;
        if probe.stream_count > self.streams as usize {
            let what = format!("{} streams, of which {} are allowed", probe.stream_count, self.streams);
            return Err(refusal(InputProblem::TooManyStreams, what));
        }
        self.check_times(probe)?;
        // All of them, covers too: any stream may end up in a decoder.
        probe.video_streams.iter().try_for_each(|video| match probe.format.class() {
            Class::Image => self.check_image(video.width, video.height, video.frame_count.unwrap_or(1)),
            Class::Video | Class::Audio => self.check_video(video),
        })
    }

    /// The length of the file and the end of each of its streams: any of them may be what work goes by.
    fn check_times(&self, probe: &Probe) -> Result<()> {
        let video = probe.video_streams.iter().map(|video| (video.start_us, video.duration_us));
        let audio = probe.audio_streams.iter().map(|audio| (audio.start_us, audio.duration_us));
        let streams: Vec<(i64, u64)> =
            video.chain(audio).map(|(start_us, us)| (start_us, us.unwrap_or(0))).collect();
        let starts_us = streams.iter().map(|(start_us, _)| *start_us).chain([probe.start_us]);
        if let Some(start_us) = starts_us.into_iter().find(|us| us.abs() >= TIME_MAX_US) {
            let what = format!("it begins at {} s, which no clock shows", start_us / 1_000_000);
            return Err(refusal(InputProblem::Corrupt, what));
        }
        let ends_us = streams.iter().map(|(start_us, us)| {
            let late_us = start_us.saturating_sub(probe.start_us).max(0).unsigned_abs();
            late_us.saturating_add(*us)
        });
        let longest_us = ends_us.chain(probe.duration_us).max().unwrap_or(0);
        if Duration::from_micros(longest_us) > self.duration {
            let what = format!(
                "it plays for {} s, of which {} are allowed",
                longest_us / 1_000_000,
                self.duration.as_secs()
            );
            return Err(refusal(InputProblem::TooLong, what));
        }
        Ok(())
    }

    pub fn check_file_bytes(&self, bytes: u64) -> Result<()> {
        if bytes > self.file_bytes {
            let what = format!("{bytes} bytes, of which {} are allowed", self.file_bytes);
            return Err(refusal(InputProblem::TooLarge, what));
        }
        Ok(())
    }

    /// For whoever learns a picture's size from another program than ffprobe.
    pub fn check_image(&self, width: u32, height: u32, frames: u64) -> Result<()> {
        let pixels = u64::from(width) * u64::from(height);
        let fits = width.max(height) <= self.image_side
            && pixels <= self.image_pixels
            && frames <= self.image_frames
            && pixels.saturating_mul(frames) <= self.image_total_pixels;
        if fits {
            return Ok(());
        }
        let what = format!(
            "{width}x{height} pixels in {frames} frames; allowed are {} a side, {} in a frame, {} frames, {} in all",
            self.image_side, self.image_pixels, self.image_frames, self.image_total_pixels
        );
        Err(refusal(InputProblem::TooLarge, what))
    }

    /// As it is coded, and as it is displayed: pixels that are not square make a small picture a large one.
    fn check_video(&self, video: &VideoStream) -> Result<()> {
        self.check_sides(video.width, video.height)?;
        if !video.is_attached_picture {
            self.check_sides(video.display.width, video.display.height)?;
        }
        let fps = video.avg_fps.or(video.base_fps);
        if let (Some(fps), Some(most)) = (fps, Rational::new(i64::from(self.video_fps), 1))
            && fps.is_above(most)
            && !video.is_attached_picture
        {
            let what =
                format!("{:.1} frames a second, of which {} are allowed", fps.as_f64(), self.video_fps);
            return Err(refusal(InputProblem::TooLarge, what));
        }
        Ok(())
    }

    fn check_sides(&self, width: u32, height: u32) -> Result<()> {
        if width.max(height) <= self.video_long_side && width.min(height) <= self.video_short_side {
            return Ok(());
        }
        let (long, short) = (self.video_long_side, self.video_short_side);
        let what = format!("{width}x{height} pixels, of which {long}x{short} are allowed");
        Err(refusal(InputProblem::TooLarge, what))
    }
}

fn refusal(problem: InputProblem, what: String) -> MediaError {
    MediaError::bad_input(problem, At::new(STEP, what))
}
