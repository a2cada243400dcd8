//! One run of FFmpeg over the film, with any number of branches.

use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::STEP;
use super::branch::Branch;
use crate::error::Result;
use crate::limits::Limits;
use crate::plan::DEINTERLACE;
use crate::probe::{Probe, VideoStream, input_args};
use crate::tool::{Output, Program, ToolLimits, Toolbox};

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
            .args(before_input(frames))
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
        Ok(Ran { frames, decoded_frames: finished.progress.frame, cpu: finished.cpu })
    }
}

/// Before the input these bind the decoder; after it, only the first output.
fn before_input(frames: Frames) -> Vec<String> {
    match frames {
        Frames::All => Vec::new(),
        Frames::Key => vec!["-skip_frame".into(), "nokey".into()],
        Frames::Window { start, length } => {
            let seconds = |duration: Duration| format!("{:.6}", duration.as_secs_f64());
            vec!["-ss".into(), seconds(start), "-t".into(), seconds(length)]
        }
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
