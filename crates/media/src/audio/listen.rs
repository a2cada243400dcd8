//! Samples as they come out of a decoder: how loud they are, and their peaks.

use std::io::Read;

use ebur128::{EbuR128, Mode};

use super::{STEP, Waveform};
use crate::error::{At, InputProblem, MediaError, Result};
use crate::loudness::LoudnessMeasure;
use crate::tool::Activity;

const CHUNK_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Heard {
    pub(super) loudness: LoudnessMeasure,
    pub(super) waveform: Option<Waveform>,
    /// Samples of one channel.
    pub(super) frames: u64,
    rate: u32,
}

pub(super) struct Listener {
    meter: EbuR128,
    waveform: Option<Waveform>,
    channels: usize,
    rate: u32,
}

impl Listener {
    pub(super) fn new(rate: u32, channels: u32, points_per_second: Option<u32>) -> Result<Self> {
        let meter = EbuR128::new(channels, rate, Mode::I | Mode::LRA | Mode::TRUE_PEAK).map_err(|error| {
            let detail = format!("{rate} samples a second cannot be measured: {error}");
            MediaError::bad_input(InputProblem::Unsupported, At::new(STEP, detail))
        })?;
        let waveform = points_per_second.map(|points| Waveform::new(rate, points));
        Ok(Self { meter, waveform, channels: channels as usize, rate })
    }

    /// Reads interleaved 32-bit floats to the end.
    pub(super) fn hear(mut self, mut source: impl Read, activity: &Activity) -> Result<Heard> {
        let (mut bytes, mut held, mut frames) = (vec![0; CHUNK_BYTES], 0, 0);
        let mut samples: Vec<f32> = Vec::with_capacity(CHUNK_BYTES / 4);
        loop {
            let read = source.read(&mut bytes[held..]);
            let read = read.map_err(|error| MediaError::io(STEP, "samples cannot be read", &error))?;
            if read == 0 {
                break;
            }
            activity.advanced();
            held += read;
            let whole = held - held % (4 * self.channels);
            samples.clear();
            // A broken decoder may give anything; the measures must stay numbers.
            let sample = |bytes: &[u8]| {
                let value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                if value.is_finite() { value } else { 0.0 }
            };
            samples.extend(bytes[..whole].chunks_exact(4).map(sample));
            self.meter.add_frames_f32(&samples).map_err(failed)?;
            if let Some(waveform) = &mut self.waveform {
                samples.chunks_exact(self.channels).for_each(|frame| waveform.add(frame));
            }
            frames += (samples.len() / self.channels) as u64;
            bytes.copy_within(whole..held, 0);
            held -= whole;
        }
        Ok(Heard { loudness: self.loudness()?, waveform: self.waveform, frames, rate: self.rate })
    }

    fn loudness(&self) -> Result<LoudnessMeasure> {
        let integrated = self.meter.loudness_global().map_err(failed)?;
        let mut peak = 0.0_f64;
        for channel in 0..self.meter.channels() {
            peak = peak.max(self.meter.true_peak(channel).map_err(failed)?);
        }
        let threshold = self.meter.relative_threshold().map_err(failed)?;
        let is_sound = integrated.is_finite();
        Ok(LoudnessMeasure {
            integrated_lufs: is_sound.then_some(integrated),
            range_lu: is_sound.then_some(self.meter.loudness_range().map_err(failed)?),
            true_peak_dbtp: (is_sound && peak > 0.0).then(|| 20.0 * peak.log10()),
            threshold_lufs: threshold.is_finite().then_some(threshold),
        })
    }
}

impl Heard {
    pub(super) fn duration_us(&self) -> u64 {
        u64::try_from(u128::from(self.frames) * 1_000_000 / u128::from(self.rate)).unwrap_or(u64::MAX)
    }
}

fn failed(error: ebur128::Error) -> MediaError {
    MediaError::unexpected(At::new(STEP, format!("the loudness meter: {error}")))
}
