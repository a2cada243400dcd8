//! The source's sound at one rate and one layout, whatever it changes to in the middle.
//!
//! When a stream changes its rate or its channels, FFmpeg builds its filters anew, and one that fills up from the film's
//! zero would do so again. So one process only decodes, and writes samples with their times into a pipe; the filters
//! that must see the whole film are in another. Between the two it is also known how much sound there really was,
//! before holes are filled with silence.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{SAMPLE_RATE, STEP, SoundtrackSpec};
use crate::error::{At, MediaError, Result};
use crate::tool::{Activity, Input, LogLine, LogReader, Output, Running, Toolbox, complains_of_input};

/// The film's zero in the pipe: what lies before it needs a time of its own.
pub(super) const PIPE_OFFSET_SECONDS: u32 = 10;
/// Whoever listens has what it needs before the decoder has ended; more than this it would not leave unread.
const UNREAD_MAX_BYTES: usize = 64 << 20;

/// A decoder, and the pipe that whoever encodes reads from.
pub(super) struct Decoding {
    running: Running,
    samples: PipeReader,
    log: Arc<DecoderLog>,
}

/// What a decoder gave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given {
    pub(super) samples: u64,
    /// Something of the input could not be read or decoded.
    pub(super) is_damaged: bool,
}

impl Decoding {
    pub(super) fn start(
        toolbox: &Toolbox,
        spec: &SoundtrackSpec<'_>,
        cancel: &CancellationToken,
    ) -> Result<Self> {
        let (samples, writer) = pipe()?;
        let log = Arc::new(DecoderLog::default());
        let tool = spec
            .source_tool(toolbox)?
            .log_reader(Arc::clone(&log) as _)
            // How many samples were written is said at this level only.
            .args(["-v", "repeat+level+verbose", "-filter_complex", &spec.decoder_graph(), "-map", "[out]"])
            .args(["-c:a", "pcm_f32le", "-threads", "1", "-map_metadata", "-1", "-map_chapters", "-1"])
            .args(["-output_ts_offset", &PIPE_OFFSET_SECONDS.to_string(), "-avoid_negative_ts", "disabled"])
            .args(["-f", "nut", "pipe:1"])
            .stdout(Output::Into(OwnedFd::from(writer)));
        let running = spec.keeping_the_clock(tool).start(cancel)?;
        Ok(Self { running, samples, log })
    }

    /// Passes the samples on to a program that is started with the reading end of their pipe, and waits for both.
    pub(super) async fn into<T>(
        self,
        start: impl FnOnce(Input) -> Result<Running>,
        finish: impl AsyncFnOnce(Running) -> Result<T>,
    ) -> Result<(T, Given)> {
        let (reader, writer) = pipe()?;
        let listener = start(Input::From(reader.into()))?;
        let alive = [self.running.activity(), listener.activity()];
        let passing = pass_on(self.samples, writer, alive);
        let heard = finish(listener).await;
        let decoded = match &heard {
            Err(MediaError::Cancelled { .. }) => None,
            _ => Some(self.running.finish().await),
        };
        passing.await.map_err(|error| {
            MediaError::unexpected(At::new(STEP, format!("the thread that passes sound on ended: {error}")))
        })?;
        match (heard, decoded) {
            // Without its sound, whoever listens has failed too.
            (_, Some(Err(error @ (MediaError::BadInput { .. } | MediaError::Cancelled { .. })))) => {
                Err(error)
            }
            (Err(error), _) | (Ok(_), Some(Err(error))) => Err(error),
            (Ok(heard), _) => Ok((heard, self.log.given())),
        }
    }
}

/// On a thread of its own. It ends when the decoder does.
fn pass_on(mut samples: PipeReader, writer: PipeWriter, alive: [Activity; 2]) -> JoinHandle<()> {
    tokio::task::spawn_blocking(move || {
        let mut buffer = vec![0_u8; 1 << 16];
        let (mut writer, mut unread) = (Some(writer), 0);
        while let Ok(count @ 1..) = samples.read(&mut buffer) {
            let is_heard = writer.as_mut().is_some_and(|writer| writer.write_all(&buffer[..count]).is_ok());
            if !is_heard {
                writer = None;
                unread += count;
            }
            if unread > UNREAD_MAX_BYTES {
                return;
            }
            alive.iter().for_each(Activity::advanced);
        }
    })
}

fn pipe() -> Result<(PipeReader, PipeWriter)> {
    std::io::pipe().map_err(|error| MediaError::io(STEP, "a pipe cannot be made", &error))
}

impl SoundtrackSpec<'_> {
    fn decoder_graph(&self) -> String {
        let index = self.probe.audio().map_or(0, |audio| audio.index);
        let end = self.duration.as_f64();
        decoder_graph(index, self.layout(), end)
    }
}

/// Cut by time and not by count: it may be built anew in the middle. The one sample at the end is for a film that is cut
/// from behind the end of the sound: a pipe without any could not be read.
pub(super) fn decoder_graph(index: u32, layout: &str, end_seconds: f64) -> String {
    format!(
        "[0:{index}]aresample={SAMPLE_RATE},\
         aformat=sample_fmts=flt:sample_rates={SAMPLE_RATE}:channel_layouts={layout},\
         apad=pad_len=1,atrim=end={end_seconds:.6}[out]"
    )
}

#[derive(Debug, Default)]
struct DecoderLog {
    samples: AtomicU64,
    is_damaged: AtomicBool,
}

impl DecoderLog {
    fn given(&self) -> Given {
        Given {
            samples: self.samples.load(Ordering::Relaxed),
            is_damaged: self.is_damaged.load(Ordering::Relaxed),
        }
    }
}

impl LogReader for DecoderLog {
    fn line(&self, line: LogLine<'_>) -> bool {
        if complains_of_input(&line) {
            self.is_damaged.store(true, Ordering::Relaxed);
        }
        if let Some(samples) = written_samples(&line) {
            self.samples.store(samples, Ordering::Relaxed);
        }
        false
    }

    fn ended(&self) {}
}

/// `  Output stream #0:0 (audio): 282 frames encoded (288000 samples); …`, which is said at the end; since FFmpeg 7 under
/// the output's name.
fn written_samples(line: &LogLine<'_>) -> Option<u64> {
    if !line.is_info || line.speaker.is_some_and(|speaker| speaker != "out#0/nut") {
        return None;
    }
    let rest = line.text.trim_start().strip_prefix("Output stream #0:0 (audio): ")?;
    let (_, counted) = rest.split_once(" frames encoded (")?;
    counted.split_once(" samples)")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_samples_is_read_from_the_last_words() {
        let text = "  Output stream #0:0 (audio): 282 frames encoded (288000 samples); 282 packets muxed (1 bytes); ";
        let line = LogLine { is_info: true, is_error: false, speaker: None, text };

        assert_eq!(written_samples(&line), Some(288_000));
        assert_eq!(written_samples(&LogLine { speaker: Some("out#0/nut"), ..line }), Some(288_000));
        assert_eq!(written_samples(&LogLine { text: "    title : 1 samples)", ..line }), None);
    }
}
