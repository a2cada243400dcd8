//! One process makes the whole sound. A second one before it only where the gain depends on the measure.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::meter::{self, Metered};
use super::{Channels, SAMPLE_RATE, STEP, SoundtrackSpec};
use crate::capability::Piece;
use crate::error::{At, MediaError, Result};
use crate::loudness::LoudnessMeasure;
use crate::plan::CLOCK_STREAMS;
use crate::probe::{file_url, input_args};
use crate::recipe::{AudioCodec, Loudness};
use crate::tool::{Output, Program, Progress, Tool, ToolLimits, Toolbox};

/// The film's zero in the uncut file: one second, so that the frame before it has a time of its own.
pub(super) const WHOLE_OFFSET_TICKS: i64 = SAMPLE_RATE as i64;

pub(super) struct Encoded {
    pub(super) whole: PathBuf,
    pub(super) source_loudness: LoudnessMeasure,
    pub(super) loudness: LoudnessMeasure,
    pub(super) decoded_us: u64,
}

pub(super) async fn encode(
    toolbox: &Toolbox,
    spec: &SoundtrackSpec<'_>,
    on_progress: &(dyn Fn(Progress) + Sync),
    cancel: &CancellationToken,
) -> Result<Encoded> {
    let source = match spec.loudness {
        Loudness::Keep => None,
        Loudness::Normalise => Some(measure(toolbox, spec, cancel).await?),
    };
    let gain = source.and_then(|source| source.loudness.correction());
    let gain = gain.map(|filter| format!(",{filter},aresample={SAMPLE_RATE}"));
    let whole = std::path::absolute(spec.folder.join("whole.mp4"))
        .map_err(|error| MediaError::io(STEP, "the folder has no path", &error))?;
    let graph = whole_graph(&spec.sound()?, &gain.unwrap_or_default(), spec.ticks(spec.duration)?);
    let tool = spec
        .tool(toolbox)?
        .args(["-filter_complex", &graph, "-map", "[out]"])
        .args(["-c:a", encoder(spec.codec), "-b:a", &format!("{}k", spec.kbits)])
        .args(["-bitexact", "-threads", "1", "-map_metadata", "-1", "-map_chapters", "-1"])
        .args(["-output_ts_offset", "1", "-avoid_negative_ts", "disabled", "-f", "mp4"])
        .args(["-movflags", "+cmaf+empty_moov+frag_discont", "-frag_duration", "4000000", "-y"])
        .arg(file_url(&whole))
        // Not into `anullsink`, beside which FFmpeg 7.0 aborts when the padding begins.
        .args(["-map", "[heard]", "-f", "null", "-"]);
    let metered = metered(spec.keeping_the_clock(tool), on_progress, cancel).await?;
    let channels = u64::from(spec.channel_count());
    let (samples, source_loudness) = match source {
        Some(source) => (source.samples, source.loudness),
        None => (metered.samples, metered.loudness),
    };
    Ok(Encoded {
        whole,
        source_loudness,
        loudness: metered.loudness,
        decoded_us: samples / channels * 1_000_000 / u64::from(SAMPLE_RATE),
    })
}

/// What any soundtrack of that kind needs of the installation.
pub(crate) fn pieces(codec: AudioCodec, loudness: Loudness) -> BTreeSet<Piece> {
    let gain = match loudness {
        Loudness::Keep => "",
        Loudness::Normalise => ",loudnorm,aresample",
    };
    let mut pieces = Piece::filters_of(&whole_graph(&sound_graph(0, "stereo", 1), gain, 1));
    pieces.insert(Piece::Encoder(encoder(codec).into()));
    pieces
}

fn whole_graph(sound: &str, gain: &str, samples: i64) -> String {
    format!(
        "{sound}{gain},asplit=2[sound][metered];[metered]{METER}[heard];\
         [sound]apad=whole_len={samples},atrim=end_sample={samples}[out]"
    )
}

/// The source's sound on the film's clock: silence where it begins late or pauses, nothing from before zero or behind
/// the end.
fn sound_graph(index: u32, layout: &str, samples: i64) -> String {
    format!(
        "[0:{index}]aresample={SAMPLE_RATE}:async=1:first_pts=0,\
         aformat=sample_fmts=fltp:sample_rates={SAMPLE_RATE}:channel_layouts={layout},atrim=end_sample={samples}"
    )
}

/// The true peak costs two thirds of it, and is what a gain must know. Counting samples is nearly free.
const METER: &str = "ebur128=peak=true:framelog=verbose,volumedetect";

async fn measure(
    toolbox: &Toolbox,
    spec: &SoundtrackSpec<'_>,
    cancel: &CancellationToken,
) -> Result<Metered> {
    let graph = format!("{},{METER}[out]", spec.sound()?);
    let tool = spec.tool(toolbox)?.args([
        "-filter_complex",
        &graph,
        "-map",
        "[out]",
        "-threads",
        "1",
        "-f",
        "null",
        "-",
    ]);
    metered(spec.keeping_the_clock(tool), &|_| {}, cancel).await
}

/// The meter speaks at the level of information.
async fn metered(
    tool: Tool,
    on_progress: &(dyn Fn(Progress) + Sync),
    cancel: &CancellationToken,
) -> Result<Metered> {
    let finished = tool.start(cancel)?.finish_watched(on_progress).await?;
    meter::parse(&finished.stderr_tail).ok_or_else(|| {
        let at = At::new(STEP, "FFmpeg's meter said nothing").with_stderr(finished.stderr_tail.clone());
        MediaError::unexpected(at)
    })
}

fn encoder(codec: AudioCodec) -> &'static str {
    match codec {
        AudioCodec::Opus => "libopus",
        AudioCodec::Aac | AudioCodec::Mp3 => "aac",
    }
}

impl SoundtrackSpec<'_> {
    fn sound(&self) -> Result<String> {
        let index = self.probe.audio().map_or(0, |audio| audio.index);
        Ok(sound_graph(index, self.layout(), self.ticks(self.duration)?))
    }

    /// In formats whose clocks may jump, FFmpeg counts from the earliest stream that is used (5.1 and since), which would
    /// move sound that begins late to the film's zero. So all streams are used, for nothing.
    fn keeping_the_clock(&self, tool: Tool) -> Tool {
        if self.probe.format.clock_may_jump() {
            tool.args(CLOCK_STREAMS).args(["-f", "null", "-"])
        } else {
            tool
        }
    }

    /// Only what every player's decoder knows by number.
    fn layout(&self) -> &'static str {
        match self.channel_count() {
            1 => "mono",
            6 => "5.1",
            _ => "stereo",
        }
    }

    fn channel_count(&self) -> u32 {
        let source = self.probe.audio().map_or(2, |audio| audio.channels);
        match (self.channels, source) {
            (_, 1) => 1,
            (Channels::Keep, 6..) => 6,
            _ => 2,
        }
    }

    fn tool(&self, toolbox: &Toolbox) -> Result<Tool> {
        let source = std::path::absolute(self.source)
            .map_err(|error| MediaError::io(STEP, "the input has no path", &error))?;
        let folder = std::path::absolute(self.folder)
            .map_err(|error| MediaError::io(STEP, "the folder has no path", &error))?;
        let mut tool = toolbox.tool(Program::Ffmpeg, STEP)?.args(["-v", "info"]);
        if self.zero_us > 0 {
            tool = tool.args(["-ss", &format!("{}us", self.zero_us)]);
        }
        let duration = Duration::from_micros(
            self.duration.scale(1_000_000).and_then(|us| u64::try_from(us).ok()).unwrap_or(0),
        );
        Ok(tool
            // A little more than needed: the graph cuts to the sample.
            .args(["-t", &format!("{}us", (duration + Duration::from_secs(1)).as_micros())])
            .args(input_args(&source, self.probe.format, self.limits)?)
            .readable(&source)
            .scratch(folder)
            .stdout(Output::Progress)
            .limits(ToolLimits::for_media(duration)))
    }
}
