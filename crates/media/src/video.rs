//! A range of segments, encoded so that its bytes are the same wherever and however often they are made.
//!
//! ```text
//!  source ─► decoder ══ raw frames ══► pump ══► encoder of segment 7 ─► 720p, 480p, … of segment 7
//!            one per range, constant    │       (fresh, one thread)
//!            rate, highest rung's size  └─────► encoder of segment 8, started while 7 is fed
//! ```
//! - The pump moves exactly the frames of a segment into its encoder, inside the kernel (`splice`), and closes the pipe.
//!   The encoder's exit makes the segment: nothing of it is told before, so a kill loses only the segment in hand.
//! - A fresh encoder knows nothing of what came before, so a segment's bytes depend on its frames and number alone; and
//!   its frames depend on the source's own timestamps, not on where the decoder started.
//! - Every finished segment is looked at: as many frames as were fed, each at its time on the grid to the tick.
//! - Only the end of the stream may miss the plan, by the timeline's tolerance, because containers tell their length
//!   inexactly: then the last segment has the frames that there are. Fewer are `input_truncated`, more `input_corrupt`.

mod folder;
mod fragment;
mod hardware;
mod length;
mod pump;
mod run;
mod seek;
mod witness;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::ending::require_whole;
use crate::error::{At, InputProblem, MediaError, Result};
use crate::limits::Limits;
use crate::plan::{Delivery, SegmentRange, VideoPlan};
use crate::sniff::{Format, sniff_file};
use crate::tool::Toolbox;

pub use length::with_measured_length;
use run::Run;

const STEP: &str = "encode_range";

/// What is to be encoded, and where.
#[derive(Debug, Clone, Copy)]
pub struct RangeJob<'a> {
    pub plan: &'a VideoPlan,
    pub source: &'a Path,
    /// A folder of the caller's, for this job alone, by its absolute path. Finished files appear in it whole or not at
    /// all; `*.part` files are of a segment in hand.
    pub folder: &'a Path,
    /// Any contiguous part of the grid.
    pub range: SegmentRange,
    /// Segments of the range that are stored already.
    pub skip: &'a [u32],
    pub limits: &'a Limits,
    /// A program that does not get on for so long is killed: [`RangeJob::STALL`], usually.
    pub stall: Duration,
}

/// What is told while a range is encoded.
#[derive(Debug, Clone, PartialEq)]
pub enum RangeEvent {
    Progress(RangeProgress),
    /// A segment is finished, checked and in the folder.
    Segment(SegmentDone),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RangeProgress {
    /// Frames that the encoders have been given.
    pub frames: u64,
    pub frames_total: u64,
    pub segments: u32,
    pub segments_total: u32,
}

/// A segment in every rung, in the order of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentDone {
    pub segment: u32,
    /// As counted in the files. Only the last segment may differ from the plan.
    pub frames: u32,
    /// How many of them are not what the source showed there, because it could not be decoded.
    #[serde(default)]
    pub damaged_frames: u32,
    pub files: Vec<SegmentFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentFile {
    /// The rung's name.
    pub rung: String,
    /// `moof` and `mdat`.
    pub path: PathBuf,
    pub bytes: u64,
    /// In hexadecimal digits.
    pub sha256: String,
    pub init: InitFile,
}

/// `ftyp` and `moov`: the same bytes for every segment of a rung.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitFile {
    pub path: PathBuf,
    pub bytes: u64,
    pub sha256: String,
}

/// A range that is done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeDone {
    /// Those that were made now, in order; what was to be skipped is not among them.
    pub segments: Vec<SegmentDone>,
}

/// Encodes the segments of a range that are not to be skipped, and tells of each as soon as it is finished. Must be
/// called on a tokio runtime; cancelling the token or dropping the future kills the programs.
pub async fn encode_range(
    toolbox: &Toolbox,
    job: &RangeJob<'_>,
    cancel: &CancellationToken,
    tell: &mut (dyn FnMut(RangeEvent) + Send),
) -> Result<RangeDone> {
    job.check()?;
    let mark_format = job.mark_format().await?;
    let runs = job.runs();
    let mut progress = job.no_progress(&runs);
    let mut done = RangeDone::default();
    for segments in runs {
        let run = Run { toolbox, job, mark_format, segments, cancel };
        let made = Box::pin(run.encode(&mut progress, tell)).await?;
        done.segments.extend(made);
    }
    done.same_inits()?;
    Ok(done)
}

impl RangeJob<'_> {
    pub const STALL: Duration = Duration::from_secs(60);

    fn check(&self) -> Result<()> {
        let SegmentRange { start, end } = self.range;
        let wrong = |what: String| Err(MediaError::unexpected(At::new(STEP, what)));
        if self.plan.delivery != Delivery::Encode {
            return wrong("the plan copies its streams".into());
        }
        if start >= end || end > self.plan.grid.segments {
            return wrong(format!("segments {start} to {end} of {}", self.plan.grid.segments));
        }
        if !self.folder.is_absolute() {
            return wrong("the folder's path is not absolute".into());
        }
        Ok(())
    }

    /// By content, as with any picture; the recipe's word for it does not count.
    async fn mark_format(&self) -> Result<Option<Format>> {
        let Some(mark) = &self.plan.picture.mark else { return Ok(None) };
        match sniff_file(&mark.image).await? {
            format @ (Format::Png | Format::Jpeg | Format::Webp) => {
                require_whole(&mark.image, format, STEP).await?;
                Ok(Some(format))
            }
            other => Err(MediaError::bad_input(
                InputProblem::Unsupported,
                At::new(STEP, format!("the watermark is {}", other.mime())),
            )),
        }
    }

    /// The parts of the range that are missing, each of which is decoded in one go.
    fn runs(&self) -> Vec<SegmentRange> {
        let mut runs: Vec<SegmentRange> = Vec::new();
        for segment in self.range.segments().filter(|segment| !self.skip.contains(segment)) {
            match runs.last_mut() {
                Some(run) if run.end == segment => run.end += 1,
                _ => runs.push(SegmentRange { start: segment, end: segment + 1 }),
            }
        }
        runs
    }

    fn no_progress(&self, runs: &[SegmentRange]) -> RangeProgress {
        let segments = || runs.iter().flat_map(|run| run.segments());
        RangeProgress {
            frames_total: segments().map(|segment| u64::from(self.plan.grid.frames(segment))).sum(),
            segments_total: u32::try_from(segments().count()).unwrap_or(u32::MAX),
            ..RangeProgress::default()
        }
    }
}

impl RangeDone {
    /// Frames that are not what the source showed, because it could not be decoded: worth a warning. A film of which a
    /// twentieth is damaged is `input_corrupt`, which [`crate::verify()`] says of all ranges together.
    pub fn damaged_frames(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.damaged_frames)).sum()
    }

    /// A player has one init segment for all: another one would make half of them unplayable.
    fn same_inits(&self) -> Result<()> {
        let differs = |pair: &[SegmentDone]| {
            pair[0].files.iter().zip(&pair[1].files).any(|(a, b)| a.init.sha256 != b.init.sha256)
        };
        match self.segments.windows(2).find(|pair| differs(pair)) {
            None => Ok(()),
            Some(pair) => Err(MediaError::unexpected(At::new(
                STEP,
                format!("segment {} has another init segment than the one before", pair[1].segment),
            ))),
        }
    }
}
