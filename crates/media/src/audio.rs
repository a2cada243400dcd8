//! Sound alone: renditions, how loud it is, and a waveform for drawing.
//!
//! One decode feeds the encoders and, through a pipe, this process, which measures loudness and peaks. Only when the
//! loudness is to be changed does the sound have to be read twice: it must be known before it can be corrected.

mod listen;
mod waveform;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::capability::Piece;
use crate::digest::sha256_of_file;
use crate::error::{At, InputProblem, Interruption, MediaError, Result};
use crate::fresh;
use crate::limits::Limits;
use crate::loudness::LoudnessMeasure;
use crate::probe::{AudioStream, Probe, input_args};
use crate::recipe::{AudioCodec, AudioFormat, AudioSpec, Loudness};
use crate::sniff::Format;
use crate::tool::{Finished, Output, Program, Tool, ToolLimits, Toolbox};

use listen::{Heard, Listener};
use waveform::Waveform;

const STEP: &str = "audio";
const RATE_MAX_HZ: u32 = 48_000;
/// The form in which samples come here.
const SAMPLES: &str = "pcm_f32le";
const OUTPUT_MAX_BYTES: u64 = 8 << 30;
/// Encoders fill their last frame, and not every container tells with how much.
const PADDING_US: u64 = 150_000;
/// So much more than is expected or allowed is decoded, to see that there is more.
const BEYOND_US: u64 = 1_000_000;

/// Everything that came out of one sound.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AudioSet {
    /// In the order of the recipe.
    pub renditions: Vec<AudioFile>,
    /// JSON in the second version of audiowaveform's format.
    pub waveform: Option<PathBuf>,
    /// Of the source, as it was before any correction.
    pub loudness: LoudnessMeasure,
    /// Counted in samples.
    pub duration_us: u64,
    /// Of all processes that it took.
    pub cpu: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AudioFile {
    pub codec: AudioCodec,
    pub kbits: u32,
    pub path: PathBuf,
    pub bytes: u64,
    /// In lower-case hex.
    pub sha256: String,
    pub channels: u32,
}

/// Makes the renditions in `scratch`, of the stream that is meant ([`Probe::audio`]). More than two channels become
/// stereo.
pub async fn make_audio(
    toolbox: &Toolbox,
    input: &Path,
    probe: &Probe,
    spec: &AudioSpec,
    limits: &Limits,
    scratch: &Path,
    cancel: &CancellationToken,
) -> Result<AudioSet> {
    let Some(stream) = probe.audio() else {
        let at = At::new(STEP, "there is no sound");
        return Err(MediaError::bad_input(InputProblem::NoSuchStream, at));
    };
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|error| MediaError::io(STEP, "a folder has no path", &error))
    };
    let (input, scratch) = (absolute(input)?, absolute(scratch)?);
    Work { toolbox, input: &input, probe, stream, spec, limits, scratch: &scratch, cancel }.all().await
}

/// What the renditions and the measures need of the installation.
pub(crate) fn pieces(spec: &AudioSpec, stream: &AudioStream) -> BTreeSet<Piece> {
    let correction = match spec.loudness {
        Loudness::Keep => "",
        Loudness::Normalise => ",loudnorm",
    };
    let mut pieces = Piece::filters_of(&graph(stream, spec.formats.len(), correction, true));
    pieces.insert(Piece::Encoder(SAMPLES.into()));
    pieces.extend(spec.formats.iter().map(|format| Piece::Encoder(encoder(format.codec).into())));
    pieces
}

struct Work<'a> {
    toolbox: &'a Toolbox,
    input: &'a Path,
    probe: &'a Probe,
    stream: &'a AudioStream,
    spec: &'a AudioSpec,
    limits: &'a Limits,
    scratch: &'a Path,
    cancel: &'a CancellationToken,
}

impl Work<'_> {
    async fn all(&self) -> Result<AudioSet> {
        let (heard, cpu) = match self.spec.loudness {
            Loudness::Keep => self.listen(&self.spec.formats).await?,
            Loudness::Normalise => {
                let (heard, measuring) = self.listen(&[]).await?;
                let encoding = self.encode_at(heard.loudness).await?;
                (heard, measuring + encoding)
            }
        };
        if self.probe.format.guesses_length() {
            // Nobody may have told how much there should be.
            self.probe.require_uncut(self.input, STEP).await?;
        }
        Ok(AudioSet {
            renditions: self.renditions(heard.duration_us()).await?,
            waveform: self.write_waveform(&heard).await?,
            loudness: heard.loudness,
            duration_us: heard.duration_us(),
            cpu,
        })
    }

    /// One decode: the samples come here, and to any number of encoders.
    async fn listen(&self, formats: &[AudioFormat]) -> Result<(Heard, Duration)> {
        let (reader, writer) =
            std::io::pipe().map_err(|error| MediaError::io(STEP, "no pipe can be made", &error))?;
        let tool = self.tool(formats, "", true)?.progress_on_stderr().stdout(Output::Into(writer.into()));
        let running = tool.start(self.cancel)?;
        let pace = self.spec.waveform_points_per_second;
        let listener = Listener::new(self.stream.sample_rate, self.channels(), pace)?;
        let activity = running.activity();
        let listening = tokio::task::spawn_blocking(move || listener.hear(reader, &activity));
        // The pipe ends with the child, so the listener does too.
        let finished = running.finish().await;
        let heard = listening.await.map_err(|error| {
            MediaError::unexpected(At::new(STEP, format!("listening ended early: {error}")))
        })?;
        let finished = finished?;
        let heard = heard?;
        self.check_whole(&heard, &finished)?;
        Ok((heard, finished.cpu))
    }

    async fn encode_at(&self, measured: LoudnessMeasure) -> Result<Duration> {
        if self.spec.formats.is_empty() {
            return Ok(Duration::ZERO);
        }
        let correction = measured.correction().map_or_else(String::new, |filter| format!(",{filter}"));
        let tool = self.tool(&self.spec.formats, &correction, false)?.stdout(Output::Progress);
        Ok(tool.start(self.cancel)?.finish().await?.cpu)
    }

    fn tool(&self, formats: &[AudioFormat], filter: &str, with_samples: bool) -> Result<Tool> {
        let mut tool = self
            .toolbox
            .tool(Program::Ffmpeg, STEP)?
            .args(["-y"])
            .args(self.trim_args())
            .args(input_args(self.input, self.probe.format, self.limits)?)
            .arg("-filter_complex")
            .arg(graph(self.stream, formats.len(), filter, with_samples));
        if with_samples {
            tool = tool.args(["-map", "[samples]", "-c:a", SAMPLES, "-f", "f32le", "pipe:1"]);
        }
        for (n, format) in formats.iter().enumerate() {
            tool =
                tool.arg("-map").arg(format!("[r{n}]")).args(["-map_metadata", "-1", "-map_chapters", "-1"]);
            tool = tool.args(encoder_args(format)).arg(file_name(n, format.codec));
        }
        let limits = ToolLimits {
            file_size_bytes: Some(OUTPUT_MAX_BYTES),
            ..ToolLimits::for_media(self.probe.duration().unwrap_or_default())
        };
        Ok(tool.scratch(self.scratch).readable(self.input).limits(limits))
    }

    /// Before the input, where they bind every output. Whatever a file tells of its length, no more is decoded than is
    /// needed to see that it lies.
    fn trim_args(&self) -> Vec<String> {
        let seconds = |us: u64| format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
        let trim = self.spec.trim;
        let mut args = Vec::new();
        if trim.start_ms > 0 {
            args.extend(["-ss".into(), seconds(trim.start_ms.saturating_mul(1000))]);
        }
        let asked_us = trim.end_ms.map(|end_ms| end_ms.saturating_sub(trim.start_ms).saturating_mul(1000));
        let told_us =
            self.wanted_us().map(|us| us.saturating_add(tolerance_us(us)).saturating_add(BEYOND_US));
        let allowed_us = self.limits.duration_us().saturating_add(BEYOND_US);
        let longest_us = asked_us.into_iter().chain(told_us).fold(allowed_us, u64::min);
        args.extend(["-t".into(), seconds(longest_us)]);
        args
    }

    fn channels(&self) -> u32 {
        channels(self.stream)
    }

    /// How much sound should come out, where the container knows: some guess it from the bit rate.
    fn wanted_us(&self) -> Option<u64> {
        let guesses = matches!(self.probe.format, Format::MpegTs | Format::Avi);
        let whole_us = self.probe.duration_us.filter(|_| !self.probe.format.guesses_length());
        let said_us = self.stream.duration_us.or(whole_us).filter(|_| !guesses)?;
        let trim = self.spec.trim;
        let until_us = trim.end_ms.map_or(said_us, |end_ms| said_us.min(end_ms.saturating_mul(1000)));
        Some(until_us.saturating_sub(trim.start_ms.saturating_mul(1000)))
    }

    /// FFmpeg is content with half a file, and with one that plays for longer than it says.
    fn check_whole(&self, heard: &Heard, finished: &Finished) -> Result<()> {
        let refuse = |problem, detail: String| {
            Err(MediaError::bad_input(
                problem,
                At::new(STEP, detail).with_stderr(finished.stderr_tail.clone()),
            ))
        };
        let (heard_us, allowed_us) = (heard.duration_us(), self.limits.duration_us());
        if heard.frames == 0 {
            return refuse(InputProblem::Corrupt, "no sound came out".into());
        }
        if heard_us > allowed_us {
            return refuse(InputProblem::TooLong, format!("more than {allowed_us} us of sound came out"));
        }
        let Some(wanted_us) = self.wanted_us() else { return Ok(()) };
        let tolerance_us = tolerance_us(wanted_us);
        if heard_us.saturating_add(tolerance_us) < wanted_us {
            return refuse(
                InputProblem::Truncated,
                format!("{heard_us} of {wanted_us} us of sound came out"),
            );
        }
        if heard_us > wanted_us.saturating_add(tolerance_us) {
            return refuse(
                InputProblem::Corrupt,
                format!("more sound came out than the {wanted_us} us that it is said to have"),
            );
        }
        Ok(())
    }

    async fn renditions(&self, heard_us: u64) -> Result<Vec<AudioFile>> {
        let mut renditions = Vec::with_capacity(self.spec.formats.len());
        for (n, format) in self.spec.formats.iter().enumerate() {
            let path = self.scratch.join(file_name(n, format.codec));
            self.prove(&path, format.codec, heard_us).await?;
            let (bytes, sha256) =
                sha256_of_file(&path).map_err(|error| MediaError::io(STEP, path.display(), &error))?;
            let (codec, kbits, channels) = (format.codec, format.kbits, self.channels());
            renditions.push(AudioFile { codec, kbits, path, bytes, sha256, channels });
        }
        Ok(renditions)
    }

    /// Decodes what was made: all of the sound must be in it, whatever the encoder's exit code was.
    async fn prove(&self, path: &Path, codec: AudioCodec, heard_us: u64) -> Result<()> {
        let format = match codec {
            AudioCodec::Aac => Format::M4a,
            AudioCodec::Opus => Format::Ogg,
            AudioCodec::Mp3 => Format::Mp3,
        };
        let tool = self
            .toolbox
            .tool(Program::Ffmpeg, STEP)?
            .arg("-xerror")
            .args(input_args(path, format, self.limits)?)
            .args(["-map", "0:a:0", "-f", "null", "-"])
            .scratch(self.scratch)
            .stdout(Output::Progress)
            .limits(ToolLimits {
                file_size_bytes: Some(0),
                ..ToolLimits::for_media(Duration::from_micros(heard_us))
            });
        let failed = |what: String, stderr_tail: &str| {
            let at = At::new(STEP, format!("{} {what}", path.display())).with_stderr(stderr_tail);
            MediaError::interrupted(Interruption::Failed, at)
        };
        let decoded = match tool.start(self.cancel)?.finish().await {
            // The file is ours: its faults are none of the source's.
            Err(error @ MediaError::BadInput { .. }) => {
                return Err(failed(format!("was made and cannot be decoded: {error}"), error.stderr_tail()));
            }
            decoded => decoded?,
        };
        let decoded_us = u64::try_from(decoded.progress.out_time_us).unwrap_or(0);
        if decoded_us.abs_diff(heard_us) > PADDING_US {
            let what = format!("has {decoded_us} us of the {heard_us} us of sound that were encoded");
            return Err(failed(what, &decoded.stderr_tail));
        }
        Ok(())
    }

    async fn write_waveform(&self, heard: &Heard) -> Result<Option<PathBuf>> {
        let Some(waveform) = &heard.waveform else { return Ok(None) };
        let path = self.scratch.join("waveform.json");
        let written = fresh::write(&path, waveform.to_json());
        written.map_err(|error| MediaError::io(STEP, "the waveform cannot be written", &error))?;
        Ok(Some(path))
    }
}

fn graph(stream: &AudioStream, encoders: usize, filter: &str, with_samples: bool) -> String {
    let layout = if channels(stream) == 1 { "mono" } else { "stereo" };
    let (rate, index) = (stream.sample_rate, stream.index);
    let samples = if with_samples { "[samples]" } else { "" };
    let splits: String = (0..encoders).map(|n| format!("[s{n}]")).collect();
    let ways = encoders + usize::from(with_samples);
    let mut graph = format!(
        "[0:{index}]aformat=channel_layouts={layout}:sample_rates={rate}:sample_fmts=flt{filter},\
         asplit={ways}{samples}{splits}"
    );
    // Not `aresample`: between filters and encoders that take any layout FFmpeg (5.1) cannot choose one for it.
    let form = if rate > RATE_MAX_HZ || !filter.is_empty() {
        format!("aformat=sample_rates=48000:channel_layouts={layout}")
    } else {
        "anull".to_owned()
    };
    for n in 0..encoders {
        graph.push_str(&format!(";[s{n}]{form}[r{n}]"));
    }
    graph
}

/// By how much a length may be wrong that a container tells.
fn tolerance_us(wanted_us: u64) -> u64 {
    500_000 + wanted_us / 50
}

fn channels(stream: &AudioStream) -> u32 {
    stream.channels.min(2)
}

fn encoder(codec: AudioCodec) -> &'static str {
    match codec {
        AudioCodec::Aac => "aac",
        AudioCodec::Opus => "libopus",
        AudioCodec::Mp3 => "libmp3lame",
    }
}

fn encoder_args(format: &AudioFormat) -> Vec<String> {
    let muxer: &[&str] = match format.codec {
        AudioCodec::Aac => &["-movflags", "+faststart", "-f", "ipod"],
        AudioCodec::Opus => &["-f", "ogg"],
        AudioCodec::Mp3 => &["-f", "mp3"],
    };
    let mut args = vec!["-c:a".to_owned(), encoder(format.codec).to_owned()];
    // The same bytes each time: Ogg would number its stream at random.
    args.extend(["-fflags", "+bitexact", "-flags:a", "+bitexact"].map(str::to_owned));
    args.extend(muxer.iter().map(|arg| (*arg).to_owned()));
    args.extend(["-b:a".into(), format!("{}k", format.kbits)]);
    args
}

fn file_name(n: usize, codec: AudioCodec) -> String {
    let extension = match codec {
        AudioCodec::Aac => "m4a",
        AudioCodec::Opus => "opus",
        AudioCodec::Mp3 => "mp3",
    };
    format!("audio-{n}.{extension}")
}
