//! One process makes the whole sound out of what another decodes. A second one before it only where the gain depends on the measure.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::decode::{Decoding, Given, PIPE_OFFSET_SECONDS, decoder_graph};
use super::meter::{self, Metered};
use super::{Channels, SAMPLE_RATE, STEP, SoundtrackSpec};
use crate::capability::Piece;
use crate::error::{At, MediaError, Result};
use crate::loudness::LoudnessMeasure;
use crate::plan::CLOCK_STREAMS;
use crate::probe::{file_url, input_args};
use crate::recipe::{AudioCodec, Loudness};
use crate::tool::{Output, Program, Progress, Running, Tool, ToolLimits, Toolbox};

/// The film's zero in the uncut file: one second, so that the frame before it has a time of its own.
pub(super) const WHOLE_OFFSET_TICKS: i64 = SAMPLE_RATE as i64;

pub(super) struct Encoded {
    pub(super) whole: PathBuf,
    pub(super) source_loudness: LoudnessMeasure,
    pub(super) loudness: LoudnessMeasure,
    /// From the film's zero to the end of the sound, with what was filled.
    pub(super) decoded_us: u64,
    pub(super) damaged_us: u64,
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
        .listener(toolbox)?
        .args(["-filter_complex", &graph, "-map", "[out]"])
        .args(["-c:a", encoder(spec.codec), "-b:a", &format!("{}k", spec.kbits)])
        .args(["-bitexact", "-threads", "1", "-map_metadata", "-1", "-map_chapters", "-1"])
        .args(["-output_ts_offset", "1", "-avoid_negative_ts", "disabled", "-f", "mp4"])
        .args(["-movflags", "+cmaf+empty_moov+frag_discont", "-frag_duration", "4000000", "-y"])
        .arg(file_url(&whole))
        // Not into `anullsink`, beside which FFmpeg 7.0 aborts when the padding begins.
        .args(["-map", "[heard]", "-f", "null", "-"]);
    let (made, given) = metered(toolbox, spec, tool, on_progress, cancel).await?;
    let heard = source.unwrap_or(made);
    // One sample is the decoder's own.
    let microseconds = |samples: u64| samples.saturating_sub(1) * 1_000_000 / u64::from(SAMPLE_RATE);
    let decoded_us = microseconds(heard.samples / u64::from(spec.channel_count()));
    Ok(Encoded {
        whole,
        source_loudness: heard.loudness,
        loudness: made.loudness,
        decoded_us,
        damaged_us: if given.is_damaged {
            spec.filled_us(decoded_us, microseconds(given.samples))
        } else {
            0
        },
    })
}

/// What any soundtrack of that kind needs of the installation.
pub(crate) fn pieces(codec: AudioCodec, loudness: Loudness) -> BTreeSet<Piece> {
    let gain = match loudness {
        Loudness::Keep => "",
        Loudness::Normalise => ",loudnorm,aresample",
    };
    let mut pieces = Piece::filters_of(&whole_graph(&sound_graph("stereo", 1), gain, 1));
    pieces.extend(Piece::filters_of(&decoder_graph(0, "stereo", 1.0)));
    pieces.insert(Piece::Encoder("pcm_f32le".into()));
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
fn sound_graph(layout: &str, samples: i64) -> String {
    let zero = PIPE_OFFSET_SECONDS * SAMPLE_RATE;
    format!(
        "[0:0]asetpts=PTS-{zero},aresample={SAMPLE_RATE}:async=1:first_pts=0,\
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
    let tool = spec.listener(toolbox)?.args([
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
    Ok(metered(toolbox, spec, tool, &|_| {}, cancel).await?.0)
}

/// Decodes the source into `tool`, whose meter speaks at the level of information.
async fn metered(
    toolbox: &Toolbox,
    spec: &SoundtrackSpec<'_>,
    tool: Tool,
    on_progress: &(dyn Fn(Progress) + Sync),
    cancel: &CancellationToken,
) -> Result<(Metered, Given)> {
    let decoding = Decoding::start(toolbox, spec, cancel)?;
    let finish = async |running: Running| running.finish_watched(on_progress).await;
    let (finished, given) = decoding.into(|samples| tool.stdin(samples).start(cancel), finish).await?;
    let metered = meter::parse(&finished.stderr_tail).ok_or_else(|| {
        let at = At::new(STEP, "FFmpeg's meter said nothing").with_stderr(finished.stderr_tail.clone());
        MediaError::unexpected(at)
    })?;
    Ok((metered, given))
}

fn encoder(codec: AudioCodec) -> &'static str {
    match codec {
        AudioCodec::Opus => "libopus",
        AudioCodec::Aac | AudioCodec::Mp3 => "aac",
    }
}

impl SoundtrackSpec<'_> {
    fn sound(&self) -> Result<String> {
        Ok(sound_graph(self.layout(), self.ticks(self.duration)?))
    }

    /// How much of what was heard from the film's zero on is silence that stands for something else. Sound that begins
    /// late is preceded by silence of its own.
    fn filled_us(&self, heard_us: u64, given_us: u64) -> u64 {
        let begins_us =
            self.probe.audio().map_or(0, |audio| audio.start_us.saturating_sub(self.probe.start_us));
        let late_us = u64::try_from(begins_us).unwrap_or(0).saturating_sub(self.zero_us);
        heard_us.saturating_sub(given_us).saturating_sub(late_us)
    }

    /// A program that hears the decoded source, and writes into the folder.
    fn listener(&self, toolbox: &Toolbox) -> Result<Tool> {
        let folder = std::path::absolute(self.folder)
            .map_err(|error| MediaError::io(STEP, "the folder has no path", &error))?;
        Ok(toolbox
            .tool(Program::Ffmpeg, STEP)?
            .args(["-v", "info", "-copyts", "-protocol_whitelist", "pipe", "-format_whitelist", "nut"])
            .args(["-f", "nut", "-i", "pipe:0"])
            .scratch(folder)
            .stdout(Output::Progress)
            .limits(ToolLimits::for_media(self.play_time())))
    }

    fn play_time(&self) -> Duration {
        let us = self.duration.scale(1_000_000).and_then(|us| u64::try_from(us).ok());
        Duration::from_micros(us.unwrap_or(0))
    }

    /// In formats whose clocks may jump, FFmpeg counts from the earliest stream that is used (5.1 and since), which would
    /// move sound that begins late to the film's zero. So all streams are used, for nothing.
    pub(super) fn keeping_the_clock(&self, tool: Tool) -> Tool {
        if self.probe.format.clock_may_jump() {
            tool.args(CLOCK_STREAMS).args(["-f", "null", "-"])
        } else {
            tool
        }
    }

    /// Only what every player's decoder knows by number.
    pub(super) fn layout(&self) -> &'static str {
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

    /// A program that reads the source from the film's zero on.
    pub(super) fn source_tool(&self, toolbox: &Toolbox) -> Result<Tool> {
        let source = std::path::absolute(self.source)
            .map_err(|error| MediaError::io(STEP, "the input has no path", &error))?;
        let mut tool = toolbox.tool(Program::Ffmpeg, STEP)?;
        if self.zero_us > 0 {
            tool = tool.args(["-ss", &format!("{}us", self.zero_us)]);
        }
        Ok(tool
            // A little more than needed: the graph cuts to the sample.
            .args(["-t", &format!("{}us", (self.play_time() + Duration::from_secs(1)).as_micros())])
            .args(input_args(&source, self.probe.format, self.limits)?)
            .readable(&source)
            .limits(ToolLimits { file_size_bytes: Some(0), ..ToolLimits::for_media(self.play_time()) }))
    }
}
