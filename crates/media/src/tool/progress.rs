//! FFmpeg's `-progress`: blocks of `key=value` lines, each block ended by `progress=continue` or `progress=end`. A user's
//! own program says how far it is in one line: `progress: 0.42`.

use serde::Serialize;

/// How far a child has come. What it did not say is zero or `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Progress {
    pub frame: u64,
    /// The time of the last frame written, which starts at the output's offset.
    pub out_time_us: i64,
    /// Bytes written.
    pub total_size: u64,
    pub fps: Option<f32>,
    /// Seconds of media in a second of wall clock.
    pub speed: Option<f32>,
    pub duplicated_frames: u64,
    pub dropped_frames: u64,
    /// FFmpeg wrote its last block.
    pub ended: bool,
    /// What a user's own program says is done of its work, 0 to 1.
    pub fraction: Option<f32>,
}

/// Collects lines into blocks.
#[derive(Debug, Default)]
pub(super) struct ProgressParser {
    block: Progress,
    of_fractions: bool,
}

/// What a line turned out to be.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    NotProgress,
    Part,
    Block(Progress),
}

impl ProgressParser {
    /// Of a user's own program.
    pub(super) fn of_fractions() -> Self {
        Self { of_fractions: true, ..Self::default() }
    }

    pub(super) fn line(&mut self, line: &str) -> Line {
        if self.of_fractions {
            let fraction = fraction(line);
            return fraction.map_or(Line::NotProgress, |_| Line::Block(Progress { fraction, ..self.block }));
        }
        let Some((key, value)) = line.split_once('=') else { return Line::NotProgress };
        let value = value.trim();
        let block = &mut self.block;
        match key {
            "frame" => block.frame = value.parse().unwrap_or(block.frame),
            "out_time_us" => block.out_time_us = value.parse().unwrap_or(block.out_time_us),
            "total_size" => block.total_size = value.parse().unwrap_or(block.total_size),
            "fps" => block.fps = value.parse().ok(),
            "speed" => block.speed = value.trim_end_matches('x').trim().parse().ok(),
            "dup_frames" => block.duplicated_frames = value.parse().unwrap_or(block.duplicated_frames),
            "drop_frames" => block.dropped_frames = value.parse().unwrap_or(block.dropped_frames),
            "progress" => {
                block.ended = value == "end";
                return Line::Block(*block);
            }
            // `out_time_ms` is in microseconds too, and `out_time` says the same again.
            "out_time_ms" | "out_time" | "bitrate" => {}
            key if key.starts_with("stream_") => {}
            _ => return Line::NotProgress,
        }
        Line::Part
    }
}

/// `progress: 0.42` or `progress: 42%`, with whatever case and room. Beyond the ends is at the end.
fn fraction(line: &str) -> Option<f32> {
    let (key, value) = line.split_once([':', '='])?;
    if !key.trim().eq_ignore_ascii_case("progress") {
        return None;
    }
    let value = value.trim();
    let percent = value.strip_suffix('%').map(|percent| percent.trim().parse::<f32>().map(|it| it / 100.0));
    let said = percent.unwrap_or_else(|| value.parse()).ok()?;
    said.is_finite().then(|| said.clamp(0.0, 1.0))
}

impl Progress {
    /// Whether the child got anywhere since `earlier`.
    pub(super) fn is_beyond(&self, earlier: &Self) -> bool {
        self.frame > earlier.frame
            || self.out_time_us > earlier.out_time_us
            || self.total_size > earlier.total_size
            || (self.ended && !earlier.ended)
            || self.fraction > earlier.fraction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_becomes_typed_values() {
        let mut parser = ProgressParser::default();
        let lines = "frame=48\nfps=12.50\nstream_0_0_q=28.0\nbitrate= 700.1kbits/s\ntotal_size=120044\n\
                     out_time_us=1920000\nout_time_ms=1920000\nout_time=00:00:01.920000\ndup_frames=1\n\
                     drop_frames=2\nspeed=0.5x";
        for line in lines.lines() {
            assert_eq!(parser.line(line), Line::Part, "{line}");
        }

        let Line::Block(block) = parser.line("progress=end") else { panic!("the block did not end") };

        assert_eq!((block.frame, block.out_time_us, block.total_size), (48, 1_920_000, 120_044));
        assert_eq!((block.fps, block.speed), (Some(12.5), Some(0.5)));
        assert_eq!((block.duplicated_frames, block.dropped_frames, block.ended), (1, 2, true));
    }

    #[test]
    fn values_not_yet_known_are_no_errors() {
        let mut parser = ProgressParser::default();
        for line in ["total_size=N/A", "out_time_us=N/A", "speed=N/A"] {
            assert_eq!(parser.line(line), Line::Part);
        }

        assert_eq!(parser.line("progress=continue"), Line::Block(Progress::default()));
    }

    #[test]
    fn a_users_program_says_how_far_it_is_in_a_line() {
        let mut parser = ProgressParser::of_fractions();
        let mut said = |line: &str| match parser.line(line) {
            Line::Block(block) => block.fraction,
            Line::Part | Line::NotProgress => None,
        };

        for line in ["progress: 0.25", "Progress:25%", "  progress = .25 ", "progress: 25 %"] {
            assert_eq!(said(line), Some(0.25), "{line}");
        }
        assert_eq!((said("progress: 7"), said("progress: -1")), (Some(1.0), Some(0.0)));
        for line in
            ["progress: NaN", "progress: inf", "progress: done", "progress", "in progress: 0.5", "frame=1"]
        {
            assert_eq!(said(line), None, "{line}");
        }
    }

    #[test]
    fn log_lines_are_told_apart() {
        let mut parser = ProgressParser::default();
        assert_eq!(parser.line("[mov @ 0x55] moov atom not found"), Line::NotProgress);
        assert_eq!(parser.line("x=1"), Line::NotProgress);
    }
}
