//! The times of a file's packets.

use std::collections::BTreeMap;
use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::STEP;
use super::gaps::Gaps;
use crate::error::{At, InputProblem, MediaError, Result};
use crate::limits::Limits;
use crate::probe::{Probe, TIME_MAX_US, input_args};
use crate::rational::Rational;
use crate::tool::{Lines, Output, Program, Tool, ToolLimits, Toolbox};

/// Of all streams beside the pictures. The finest known, TrueHD, has 1,200 packets a second.
const OTHER_PACKETS_PER_SECOND: u64 = 10_000;

/// What the packets of one stream say.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) packets: u64,
    pub(super) first_us: i64,
    /// Of the packet that is shown last, which is not the one that is decoded last.
    last_us: i64,
    /// How long that packet lasts; zero where nobody says.
    last_lasts_us: i64,
    /// Between its packets; of pictures only.
    pub(super) gaps: Gaps,
}

pub(super) type Spans = BTreeMap<u32, Span>;

/// When a packet is shown, and for how long.
#[derive(Debug, Clone, Copy)]
struct Shown {
    stream: u32,
    pts_us: i64,
    lasts_us: i64,
}

impl Span {
    fn at(shown: Shown) -> Self {
        let Shown { pts_us, lasts_us, .. } = shown;
        Self { packets: 0, first_us: pts_us, last_us: pts_us, last_lasts_us: lasts_us, gaps: Gaps::default() }
    }

    fn take(&mut self, shown: Shown) {
        self.packets += 1;
        self.first_us = self.first_us.min(shown.pts_us);
        if shown.pts_us >= self.last_us {
            (self.last_us, self.last_lasts_us) = (shown.pts_us, shown.lasts_us);
        }
    }

    /// From one packet to the next, on average.
    pub(super) fn pace_us(&self) -> i64 {
        let between = i64::try_from(self.packets.saturating_sub(1).max(1)).unwrap_or(i64::MAX);
        self.last_us.saturating_sub(self.first_us) / between
    }

    /// The last packet stays for as long as the others do on average, where nobody says.
    pub(super) fn end_us(&self) -> i64 {
        let lasts_us = if self.last_lasts_us > 0 { self.last_lasts_us } else { self.pace_us() };
        self.last_us.saturating_add(lasts_us)
    }

    pub(super) fn duration_us(&self) -> i64 {
        self.end_us().saturating_sub(self.first_us).max(1)
    }
}

pub(super) async fn read_packets(
    toolbox: &Toolbox,
    path: &Path,
    probe: &Probe,
    limits: &Limits,
    cancel: &CancellationToken,
) -> Result<Spans> {
    let mut listing =
        if probe.format.clock_may_jump() { Listing::counted_on(probe) } else { Listing::AsTheyAre };
    let mut running = listing
        .tool(toolbox, path, probe, limits)?
        .readable(path)
        .stdout(Output::Pipe)
        .limits(ToolLimits { file_size_bytes: Some(0), ..ToolLimits::for_media(limits.duration) })
        .start(cancel)?;
    let (stdout, activity) = (running.take_stdout(), running.activity());
    let mut spans = Spans::new();
    let mut left = Left::of(limits);
    let pictures = probe.video().map(|video| video.index);
    if let Some(stdout) = stdout {
        let mut lines = Lines::of(stdout);
        while let Some(line) = lines.next().await {
            activity.advanced();
            let Some(shown) = listing.shown(&line) else { continue };
            let is_picture = Some(shown.stream) == pictures;
            left.take(is_picture)?;
            let span = spans.entry(shown.stream).or_insert_with(|| Span::at(shown));
            span.take(shown);
            if is_picture {
                span.gaps.take(shown.pts_us);
            }
        }
    }
    running.finish().await?;
    spans.values_mut().for_each(|span| span.gaps.end());
    Ok(spans)
}

/// How packets are listed.
#[derive(Debug)]
enum Listing {
    /// By ffprobe, with the times that they have in the file.
    AsTheyAre,
    /// By ffmpeg, which counts on where a clock jumps, as it does when it decodes.
    CountedOn {
        /// The streams of the file, in the order in which they are listed, and their ticks in microseconds.
        streams: Vec<(u32, f64)>,
        start_us: i64,
    },
}

impl Listing {
    fn counted_on(probe: &Probe) -> Self {
        let pictures = probe.video_streams.iter().map(|video| (video.index, video.time_base));
        let sounds = probe.audio_streams.iter().map(|audio| (audio.index, audio.time_base));
        let streams = pictures.chain(sounds).map(|(index, base)| (index, base.as_f64() * 1e6)).collect();
        Self::CountedOn { streams, start_us: probe.start_us }
    }

    fn tool(&self, toolbox: &Toolbox, path: &Path, probe: &Probe, limits: &Limits) -> Result<Tool> {
        let input = input_args(path, probe.format, limits)?;
        match self {
            Self::AsTheyAre => Ok(toolbox
                .tool(Program::Ffprobe, STEP)?
                .args(["-of", "csv=p=0", "-show_entries"])
                .arg("packet=stream_index,pts_time,duration_time,flags")
                .args(input)),
            Self::CountedOn { streams, .. } => {
                let tool = toolbox.tool(Program::Ffmpeg, STEP)?.args(input);
                let mapped =
                    streams.iter().fold(tool, |tool, (index, _)| tool.args(["-map", &format!("0:{index}")]));
                // Packets before the first key frame count, too.
                Ok(mapped.args(["-c", "copy", "-copyinkf", "-f", "framecrc", "pipe:1"]))
            }
        }
    }

    fn shown(&mut self, line: &str) -> Option<Shown> {
        match self {
            Self::AsTheyAre => listed(line),
            Self::CountedOn { streams, start_us } => match line.strip_prefix("#tb ") {
                Some(base) => {
                    take_time_base(streams, base);
                    None
                }
                None => counted(line, streams, *start_us),
            },
        }
    }
}

/// `0: 1/90000`.
fn take_time_base(streams: &mut [(u32, f64)], text: &str) {
    let Some((number, base)) = text.split_once(": ") else { return };
    let (Ok(number), Ok(base)) = (number.parse::<usize>(), base.trim().parse::<Rational>()) else { return };
    if let Some((_, tick_us)) = streams.get_mut(number) {
        *tick_us = base.as_f64() * 1e6;
    }
}

/// `0,    -7200,        0,     3600,     1234, 0x1234abcd`: the stream, when it is decoded and shown, how long it lasts.
fn counted(line: &str, streams: &[(u32, f64)], start_us: i64) -> Option<Shown> {
    let mut fields = line.split(',').map(str::trim);
    let (stream, tick_us) = streams.get(fields.next()?.parse::<usize>().ok()?)?;
    let mut times = fields.skip(1).map(|field| field.parse::<i64>().ok().filter(|ticks| *ticks != i64::MIN));
    let (pts, lasts) = (times.next()??, times.next()?.unwrap_or(0));
    let us = |ticks: i64| (ticks as f64 * tick_us).round() as i64;
    Some(Shown { stream: *stream, pts_us: us(pts).saturating_add(start_us), lasts_us: us(lasts) })
}

/// How many packets are still looked at: a file of nothing but headers would be read for days.
struct Left {
    pictures: u64,
    others: u64,
}

impl Left {
    fn of(limits: &Limits) -> Self {
        let seconds = limits.duration.as_secs().saturating_add(1);
        Self {
            pictures: seconds.saturating_mul(limits.video_fps.into()),
            others: seconds.saturating_mul(OTHER_PACKETS_PER_SECOND),
        }
    }

    fn take(&mut self, is_picture: bool) -> Result<()> {
        let left = if is_picture { &mut self.pictures } else { &mut self.others };
        *left = left.checked_sub(1).ok_or_else(|| {
            let what = "it has more packets than a film of the longest length and the highest rate";
            MediaError::bad_input(InputProblem::TooLarge, At::new(STEP, what))
        })?;
        Ok(())
    }
}

/// `0,1.400000,0.040000,K__`. A packet without a time tells nothing, and one that an edit list hides is not shown.
fn listed(line: &str) -> Option<Shown> {
    let mut fields = line.split(',');
    let mut field = || fields.next().unwrap_or_default();
    let (stream, pts_us) = (field().parse().ok()?, microseconds(field())?);
    let lasts_us = microseconds(field()).unwrap_or(0);
    let is_hidden = field().contains('D');
    (!is_hidden).then_some(Shown { stream, pts_us, lasts_us })
}

fn microseconds(text: &str) -> Option<i64> {
    let us = (text.parse::<f64>().ok()? * 1e6).round() as i64;
    (us.saturating_abs() <= TIME_MAX_US).then_some(us)
}
