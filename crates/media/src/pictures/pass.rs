//! One run of FFmpeg over the film, with any number of branches.

use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::STEP;
use super::branch::Branch;
use crate::error::{At, InputProblem, MediaError, Result};
use crate::limits::Limits;
use crate::plan::DEINTERLACE;
use crate::probe::{Probe, VideoStream, input_args};
use crate::sniff::Format;
use crate::tool::{Finished, Output, Program, ToolLimits, Toolbox};

/// No picture and no list of times comes near it.
const OUTPUT_MAX_BYTES: u64 = 1 << 30;

#[derive(Debug)]
pub(super) struct Pass<'a> {
    pub(super) toolbox: &'a Toolbox,
    pub(super) input: &'a Path,
    pub(super) probe: &'a Probe,
    pub(super) video: &'a VideoStream,
    pub(super) limits: &'a Limits,
    pub(super) scratch: &'a Path,
    pub(super) cancel: &'a CancellationToken,
}

/// Which frames are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frames {
    All,
    Key,
    Window { start: Duration, length: Duration },
}

/// So much more than is expected or allowed is decoded, to see that there is more.
const BEYOND: Duration = Duration::from_secs(1);

/// What is known of a run that came to its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ran {
    pub(super) frames: Frames,
    pub(super) decoded_frames: u64,
    pub(super) cpu: Duration,
}

impl Pass<'_> {
    pub(super) async fn run(&self, branches: &[Branch], frames: Frames) -> Result<Ran> {
        let duration = self.probe.duration().unwrap_or_default();
        let tool = self
            .toolbox
            .tool(Program::Ffmpeg, STEP)?
            // Turning is left to the branches, which have fewer pixels to turn.
            .args(["-y", "-noautorotate"])
            .args(self.before_input(frames))
            .args(input_args(self.input, self.probe.format, self.limits)?)
            .arg("-filter_complex")
            .arg(graph(self.video, branches))
            // All frames go to nowhere first: FFmpeg's progress counts the first output.
            .args(["-map", "[all]", "-fps_mode", "passthrough", "-f", "null", "-"])
            .args(branches.iter().enumerate().flat_map(|(n, branch)| {
                let map = ["-map".to_owned(), format!("[b{n}]"), "-fps_mode".into(), "passthrough".into()];
                map.into_iter().chain(branch.output.clone())
            }))
            .scratch(self.scratch)
            .readable(self.input)
            .stdout(Output::Progress)
            .limits(ToolLimits {
                file_size_bytes: Some(OUTPUT_MAX_BYTES),
                ..ToolLimits::for_media(duration)
            });
        let finished = tool.start(self.cancel)?.finish().await?;
        self.check_length(frames, &finished)?;
        Ok(Ran { frames, decoded_frames: finished.progress.frame, cpu: finished.cpu })
    }

    /// Before the input these bind the decoder; after it, only the first output.
    fn before_input(&self, frames: Frames) -> Vec<String> {
        let seconds = |duration: Duration| format!("{:.6}", duration.as_secs_f64());
        let until = || ["-t".to_owned(), seconds(self.longest().saturating_add(BEYOND))];
        match frames {
            Frames::All => until().into(),
            Frames::Key => ["-skip_frame".into(), "nokey".into()].into_iter().chain(until()).collect(),
            Frames::Window { start, length } => {
                vec!["-ss".into(), seconds(start), "-t".into(), seconds(length)]
            }
        }
    }

    /// No film plays for longer: neither than is allowed, nor much longer than it says.
    fn longest(&self) -> Duration {
        self.told().map_or(self.limits.duration, |told| {
            told.saturating_add(Duration::from_secs(1)).saturating_add(told / 50).min(self.limits.duration)
        })
    }

    /// How long the film says that it is. Where frames come unevenly, only the whole file's length is the truth.
    fn told(&self) -> Option<Duration> {
        let guesses = matches!(self.probe.format, Format::MpegTs | Format::Avi);
        let told_us = self.video.duration_us.max(self.probe.duration_us).filter(|_| !guesses);
        told_us.map(Duration::from_micros)
    }

    fn check_length(&self, frames: Frames, finished: &Finished) -> Result<()> {
        let played = Duration::from_micros(u64::try_from(finished.progress.out_time_us).unwrap_or(0));
        // The last frame's own length is counted, too.
        let longest = self.longest().saturating_add(BEYOND / 2);
        if matches!(frames, Frames::Window { .. }) || played <= longest {
            return Ok(());
        }
        let (problem, what) = match self.told() {
            Some(told) if told < self.limits.duration => {
                (InputProblem::Corrupt, format!("it plays for longer than the {told:?} that it tells"))
            }
            _ => (InputProblem::TooLong, format!("it plays for longer than {:?}", self.limits.duration)),
        };
        Err(MediaError::bad_input(problem, At::new(STEP, what).with_stderr(finished.stderr_tail.clone())))
    }
}

/// Fields are woven once, for all branches, but not for the count of frames.
pub(super) fn graph(video: &VideoStream, branches: &[Branch]) -> String {
    let (stream, ways) = (video.index, branches.len());
    let labels: String = (0..ways).map(|n| format!("[s{n}]")).collect();
    let mut graph = if video.is_interlaced {
        format!("[0:{stream}]split=2[all][fields];[fields]{DEINTERLACE},split={ways}{labels}")
    } else {
        format!("[0:{stream}]split={}[all]{labels}", ways + 1)
    };
    for (n, branch) in branches.iter().enumerate() {
        graph.push_str(&format!(";[s{n}]{}[b{n}]", branch.filters));
    }
    graph
}
