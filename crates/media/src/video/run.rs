//! One decoder, and the encoders of the segments that it feeds.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::folder::{Folder, OpenFolder};
use super::fragment::{self, Expected};
use super::pump::{self, Pumped};
use super::seek::seek_point;
use super::witness::Witness;
use super::{RangeEvent, RangeJob, RangeProgress, STEP, SegmentDone, SegmentFile};
use crate::error::{At, InputProblem, MediaError, Result};
use crate::plan::{DecodeInputs, DecodeSpan, SegmentRange, VideoPlan};
use crate::sniff::Format;
use crate::tool::{Activity, Input, Output, Program, Running, Tool, ToolLimits, Toolbox};

/// While one encoder writes its last frames the next is fed; a third in hand would only share the same cores.
const MAX_FINISHING: usize = 2;
const TELL_EVERY: Duration = Duration::from_millis(500);
/// A bound against a mad encoder; a segment of the highest rung has some megabytes.
const SEGMENT_MAX_BYTES: u64 = 1 << 30;

/// How much further back a decoder begins that found nothing to show where it began; more each time.
const SEEK_STEP_US: u64 = 10_000_000;

/// FFmpeg allocates every raw frame anew, and the C library would get its pages from the kernel and give them back each
/// time. Keeping them halved an encoder's system time (0.35 s to 0.17 s for two seconds of 1080p). Huge pages
/// (`glibc.malloc.hugetlb=1`) have nine times fewer faults, but no saving of CPU time could be shown.
const KEEP_MEMORY: [(&str, &str); 2] =
    [("MALLOC_MMAP_THRESHOLD_", "67108864"), ("MALLOC_TRIM_THRESHOLD_", "268435456")];

/// Contiguous segments that are all missing.
pub(super) struct Run<'a> {
    pub(super) toolbox: &'a Toolbox,
    pub(super) job: &'a RangeJob<'a>,
    pub(super) mark_format: Option<Format>,
    pub(super) segments: SegmentRange,
    pub(super) cancel: &'a CancellationToken,
}

/// The decoder of a run, its frames, and whoever reads its log.
struct Decoder {
    running: Running,
    frames: OwnedFd,
    witness: Arc<Witness>,
}

/// An encoder that waits for frames or gets them.
struct Encoder {
    running: Running,
    sink: OwnedFd,
    outputs: Vec<PathBuf>,
}

/// How many frames a segment may have.
#[derive(Clone, Copy)]
struct Allowed {
    least: u64,
    most: u64,
}

impl Run<'_> {
    pub(super) async fn encode(
        &self,
        progress: &mut RangeProgress,
        tell: &mut (dyn FnMut(RangeEvent) + Send),
    ) -> Result<Vec<SegmentDone>> {
        let Decoder { running: decoder, frames: source, witness } = self.begin_decoding().await?;
        let source = Arc::new(source);
        let mut told = Told { progress, tell, made: Vec::new() };
        let open = OpenFolder::at(self.job.folder);
        let mut finishing = JoinSet::new();
        let mut waiting = VecDeque::from([self.start_encoder(self.segments.start)?]);
        for segment in self.segments.segments() {
            if segment + 1 < self.segments.end {
                // Started ahead, so that the decoder never waits for a program to load (60 ms).
                waiting.push_back(self.start_encoder(segment + 1)?);
            }
            let Some(encoder) = waiting.pop_front() else { break };
            let alive: Vec<Activity> = [&encoder.running, &decoder]
                .into_iter()
                .chain(waiting.iter().map(|next| &next.running))
                .map(Running::activity)
                .collect();
            // An encoder has nothing to do while the decoder is still on its way to the run.
            witness.keep_alive(alive.clone());
            let fed = Feed::start(&source, encoder.sink, self.pump_bytes(segment), alive);
            let pumped = told.while_feeding(fed, self.frame_bytes(), &mut finishing).await?;
            let frames = match self.judge(segment, pumped) {
                Fed::Frames(frames) => frames,
                Fed::EncoderGone => return Err(self.encoder_gone(encoder.running).await),
                Fed::TooFew(frames) => return Err(self.too_few(decoder, segment, frames).await),
            };
            self.refuse_more(segment, pumped, &source).await?;
            let facts = self.expected(segment, frames, open.folder());
            finishing.spawn(finish(encoder.running, encoder.outputs, facts, Arc::clone(&witness)));
            while finishing.len() >= MAX_FINISHING {
                told.one_finished(&mut finishing).await?;
            }
        }
        while !finishing.is_empty() {
            told.one_finished(&mut finishing).await?;
        }
        if self.job.plan.grid.is_last(self.segments.end - 1) {
            decoder.finish().await?;
        }
        witness.require_sound(self.job.plan)?;
        told.made.sort_by_key(|segment| segment.segment);
        Ok(told.made)
    }

    /// A decoder that has come to the run. Should it have found nothing but broken packets where it was sent to, another
    /// one begins further back: what is on display when the run begins must not depend on where it was cut.
    async fn begin_decoding(&self) -> Result<Decoder> {
        let RangeJob { plan, source, limits, .. } = *self.job;
        let first_frame = plan.grid.first_frame(self.segments.start);
        let mut seek_us = seek_point(self.toolbox, plan, source, first_frame, limits, self.cancel).await?;
        let mut step_us = SEEK_STEP_US;
        loop {
            let decoder = self.start_decoder(seek_us)?;
            let Some(sought_us) = seek_us else { return Ok(decoder) };
            if decoder.witness.began_in_time().await {
                return Ok(decoder);
            }
            seek_us = sought_us.checked_sub(step_us).filter(|us| *us > 0);
            step_us = step_us.saturating_mul(4);
        }
    }

    fn start_decoder(&self, seek_us: Option<u64>) -> Result<Decoder> {
        let RangeJob { plan, source, limits, .. } = *self.job;
        let first_frame = plan.grid.first_frame(self.segments.start);
        let span = DecodeSpan { seek_us, first_frame, frames: self.decoder_frames() };
        let inputs = DecodeInputs { source, mark_format: self.mark_format };
        let (frames, writer) = pump::wide_pipe().map_err(cannot("a pipe cannot be made"))?;
        let witness = Arc::new(Witness::new(plan, self.segments));
        let mut tool = self
            .ffmpeg()?
            .log_reader(Arc::clone(&witness) as _)
            .args(plan.decoder_args(&inputs, &span, limits)?)
            .readable(source)
            .stdout(Output::Into(writer))
            .limits(ToolLimits { file_size_bytes: Some(0), ..self.decoder_limits(&span) });
        if let Some(mark) = &plan.picture.mark {
            tool = tool.readable(&mark.image);
        }
        Ok(Decoder { running: tool.start(self.cancel)?, frames, witness })
    }

    /// In proportion to all that must be decoded, and not only to what is made of it.
    fn decoder_limits(&self, span: &DecodeSpan) -> ToolLimits {
        let timeline = &self.job.plan.timeline;
        let until_us = timeline.time_us(span.first_frame + span.frames);
        let from_us = timeline.origin_us.saturating_neg().saturating_add_unsigned(span.seek_us.unwrap_or(0));
        let decoded_us = until_us.saturating_sub(u64::try_from(from_us).unwrap_or(0));
        ToolLimits { stall: Some(self.job.stall), ..ToolLimits::for_media(Duration::from_micros(decoded_us)) }
    }

    /// At the end of the stream one frame more than may be used: its absence shows that the end was reached.
    fn decoder_frames(&self) -> u64 {
        self.segments
            .segments()
            .map(|segment| {
                let end = u64::from(self.job.plan.grid.is_last(segment) && self.is_open_ended());
                self.allowed(segment).most + end
            })
            .sum()
    }

    /// The end of a part that was cut out is not the end of the stream.
    fn is_open_ended(&self) -> bool {
        self.job.plan.timeline.tolerance_frames > 0
    }

    fn start_encoder(&self, segment: u32) -> Result<Encoder> {
        let RangeJob { plan, folder, .. } = *self.job;
        let outputs: Vec<PathBuf> = plan
            .rungs
            .iter()
            .map(|rung| folder.join(format!("{}.part", file_name(segment, &rung.name))))
            .collect();
        let (reader, sink) = pump::wide_pipe().map_err(cannot("a pipe cannot be made"))?;
        let tool = self
            .ffmpeg()?
            .arg("-y")
            .args(plan.encoder_args(segment, &outputs))
            .scratch(folder)
            .stdin(Input::From(reader))
            .stdout(Output::Progress)
            .limits(ToolLimits {
                file_size_bytes: Some(SEGMENT_MAX_BYTES),
                ..self.tool_limits(self.allowed(segment).most)
            });
        Ok(Encoder { running: tool.start(self.cancel)?, sink, outputs })
    }

    fn ffmpeg(&self) -> Result<Tool> {
        let tool = self.toolbox.tool(Program::Ffmpeg, STEP)?;
        Ok(KEEP_MEMORY.into_iter().fold(tool, |tool, (name, value)| tool.env(name, value)))
    }

    fn tool_limits(&self, frames: u64) -> ToolLimits {
        let duration = Duration::from_micros(self.job.plan.timeline.time_us(frames));
        ToolLimits { stall: Some(self.job.stall), ..ToolLimits::for_media(duration) }
    }

    fn allowed(&self, segment: u32) -> Allowed {
        let VideoPlan { grid, timeline, .. } = self.job.plan;
        let frames = u64::from(grid.frames(segment));
        let tolerance = if grid.is_last(segment) { grid.tolerance_frames(timeline) } else { 0 };
        Allowed { least: frames - tolerance, most: frames + tolerance }
    }

    /// Of 8-bit 4:2:0 with even sides.
    fn frame_bytes(&self) -> u64 {
        let size = self.job.plan.picture.size;
        u64::from(size.width) * u64::from(size.height) * 3 / 2
    }

    fn pump_bytes(&self, segment: u32) -> u64 {
        self.allowed(segment).most * self.frame_bytes()
    }

    fn judge(&self, segment: u32, pumped: Pumped) -> Fed {
        let allowed = self.allowed(segment);
        match pumped {
            Pumped::Full => Fed::Frames(allowed.most),
            Pumped::SinkClosed => Fed::EncoderGone,
            Pumped::SourceEnded { bytes } => {
                let frames = bytes / self.frame_bytes();
                let is_whole = bytes % self.frame_bytes() == 0;
                if is_whole && frames >= allowed.least { Fed::Frames(frames) } else { Fed::TooFew(frames) }
            }
        }
    }

    /// The encoder closed its input before it had all frames: it failed, and knows why.
    async fn encoder_gone(&self, encoder: Running) -> MediaError {
        match encoder.finish().await {
            Err(error) => error,
            Ok(_) => MediaError::unexpected(At::new(STEP, "an encoder ended before it had all frames")),
        }
    }

    /// The decoder gave fewer frames than there must be. If it failed it says why; if it thinks that all is well, the
    /// file has ended too early.
    async fn too_few(&self, decoder: Running, segment: u32, frames: u64) -> MediaError {
        match decoder.finish().await {
            Err(error) => error,
            Ok(finished) => {
                let least = self.allowed(segment).least;
                let what = format!("segment {segment} has {frames} frames of the {least} that it must have");
                let at = At::new(STEP, what).with_stderr(finished.stderr_tail);
                MediaError::bad_input(InputProblem::Truncated, at)
            }
        }
    }

    /// A stream that goes on behind its end by the container's word would be published short.
    async fn refuse_more(&self, segment: u32, pumped: Pumped, source: &Arc<OwnedFd>) -> Result<()> {
        let may_go_on = self.job.plan.grid.is_last(segment) && self.is_open_ended() && pumped == Pumped::Full;
        if !may_go_on {
            return Ok(());
        }
        let source = Arc::clone(source);
        let at_end =
            blocking(move || pump::is_at_end(&source)).await?.map_err(cannot("the decoder's pipe"))?;
        if at_end {
            return Ok(());
        }
        let what = "it has more frames than its container says";
        Err(MediaError::bad_input(InputProblem::Corrupt, At::new(STEP, what)))
    }

    fn expected(&self, segment: u32, frames: u64, folder: Arc<Folder>) -> SegmentFacts {
        let VideoPlan { grid, timeline, rungs, .. } = self.job.plan;
        SegmentFacts {
            segment,
            rungs: rungs.iter().map(|rung| rung.name.clone()).collect(),
            folder,
            end_frame: grid.first_frame(segment) + frames,
            expected: Expected {
                frames: u32::try_from(frames).unwrap_or(u32::MAX),
                start_ticks: timeline.ticks(grid.first_frame(segment)),
                ticks_per_frame: timeline.ticks_per_frame,
            },
        }
    }
}

/// What came of feeding an encoder.
enum Fed {
    Frames(u64),
    EncoderGone,
    TooFew(u64),
}

/// A pump at work on a thread of its own. It ends when one of its two programs does, which dropping them makes sure of.
struct Feed {
    thread: JoinHandle<std::io::Result<Pumped>>,
    moved_bytes: Arc<AtomicU64>,
}

impl Feed {
    fn start(source: &Arc<OwnedFd>, sink: OwnedFd, bytes: u64, alive: Vec<Activity>) -> Self {
        let moved_bytes = Arc::new(AtomicU64::new(0));
        let (source, moved) = (Arc::clone(source), Arc::clone(&moved_bytes));
        // The sink is dropped at the end: that is the encoder's end of file.
        let thread = tokio::task::spawn_blocking(move || pump::pump(&source, &sink, bytes, &moved, &alive));
        Self { thread, moved_bytes }
    }
}

/// What has been made and told so far.
struct Told<'a> {
    progress: &'a mut RangeProgress,
    tell: &'a mut (dyn FnMut(RangeEvent) + Send),
    made: Vec<SegmentDone>,
}

type Finishing = JoinSet<Result<SegmentDone>>;

impl Told<'_> {
    /// Waits for the pump, and meanwhile tells of progress and of segments that get finished.
    async fn while_feeding(
        &mut self,
        mut feed: Feed,
        frame_bytes: u64,
        finishing: &mut Finishing,
    ) -> Result<Pumped> {
        let before = self.progress.frames;
        let mut ticks = tokio::time::interval(TELL_EVERY);
        loop {
            let pumped = tokio::select! {
                biased;
                pumped = &mut feed.thread => Some(pumped),
                Some(finished) = finishing.join_next() => {
                    self.finished(finished)?;
                    None
                }
                _ = ticks.tick() => None,
            };
            self.progress.frames = before + feed.moved_bytes.load(Ordering::Relaxed) / frame_bytes;
            (self.tell)(RangeEvent::Progress(*self.progress));
            if let Some(pumped) = pumped {
                return pumped.map_err(lost_thread)?.map_err(cannot("frames cannot be passed on"));
            }
        }
    }

    async fn one_finished(&mut self, finishing: &mut Finishing) -> Result<()> {
        match finishing.join_next().await {
            Some(finished) => self.finished(finished),
            None => Ok(()),
        }
    }

    fn finished(&mut self, finished: Result<Result<SegmentDone>, tokio::task::JoinError>) -> Result<()> {
        let segment = finished.map_err(lost_thread)??;
        self.progress.segments += 1;
        self.made.push(segment.clone());
        (self.tell)(RangeEvent::Segment(segment));
        (self.tell)(RangeEvent::Progress(*self.progress));
        Ok(())
    }
}

/// All that must be known to finish a segment.
struct SegmentFacts {
    segment: u32,
    rungs: Vec<String>,
    folder: Arc<Folder>,
    /// The one behind its last.
    end_frame: u64,
    expected: Expected,
}

async fn finish(
    encoder: Running,
    outputs: Vec<PathBuf>,
    facts: SegmentFacts,
    witness: Arc<Witness>,
) -> Result<SegmentDone> {
    encoder.finish().await?;
    witness.reached(facts.end_frame).await;
    let damaged_frames = witness.damaged_frames(facts.segment);
    blocking(move || {
        let files = facts.rungs.iter().zip(&outputs).map(|(rung, output)| facts.store(rung, output));
        Ok(SegmentDone {
            segment: facts.segment,
            frames: facts.expected.frames,
            damaged_frames,
            files: files.collect::<Result<_>>()?,
        })
    })
    .await?
}

impl SegmentFacts {
    /// Checks an encoder's file and puts its two parts beside it.
    fn store(&self, rung: &str, output: &Path) -> Result<SegmentFile> {
        let parts = fragment::take_apart(output, &self.expected)
            .map_err(|wrong| wrong.of_output(STEP, format_args!("segment {} of {rung}", self.segment)))?;
        let name = file_name(self.segment, rung);
        let init = self.folder.put(&format!("init-{rung}.mp4"), &format!("{name}.init.part"), &parts.init)?;
        let media = self.folder.put(&format!("{name}.m4s"), &format!("{name}.media.part"), &parts.media)?;
        std::fs::remove_file(output).map_err(cannot("a segment cannot be removed"))?;
        Ok(SegmentFile {
            rung: rung.to_owned(),
            path: media.path,
            bytes: media.bytes,
            sha256: media.sha256,
            init,
        })
    }
}

fn file_name(segment: u32, rung: &str) -> String {
    format!("segment-{segment:05}-{rung}")
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(lost_thread)
}

fn lost_thread(error: tokio::task::JoinError) -> MediaError {
    MediaError::unexpected(At::new(STEP, format!("a thread ended: {error}")))
}

fn cannot(what: &'static str) -> impl Fn(std::io::Error) -> MediaError {
    move |error| MediaError::io(STEP, what, &error)
}
