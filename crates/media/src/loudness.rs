//! How loud sound is by EBU R 128, and the filter that brings it to one level.

use serde::{Deserialize, Serialize};

/// What streaming players expect.
pub(crate) const TARGET_LUFS: i32 = -16;
const TARGET_PEAK_DBTP: f64 = -1.5;

/// `None` is silence, which has none of these.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LoudnessMeasure {
    pub integrated_lufs: Option<f64>,
    pub range_lu: Option<f64>,
    pub true_peak_dbtp: Option<f64>,
    /// The gate below which sound did not count.
    pub threshold_lufs: Option<f64>,
}

impl LoudnessMeasure {
    /// One gain for the whole, where the peak allows it; FFmpeg falls back to a gain that moves, where it does not. The
    /// range it is told is the sound's own, so that a wide one is no reason to move the gain. Silence needs no filter.
    /// Samples are counted anew behind it: a gain that moves leaves a gap of a tenth of a second in FFmpeg 7.0's times.
    pub(crate) fn correction(&self) -> Option<String> {
        let (integrated, peak) = (self.integrated_lufs?, self.true_peak_dbtp?);
        let (range, threshold) = (self.range_lu.unwrap_or(0.0), self.threshold_lufs?);
        let range_target = range.ceil().clamp(7.0, 50.0);
        Some(format!(
            "loudnorm=I={TARGET_LUFS}:TP={TARGET_PEAK_DBTP}:LRA={range_target}:linear=true:measured_I={integrated:.2}\
             :measured_TP={peak:.2}:measured_LRA={range:.2}:measured_thresh={threshold:.2}\
             ,asetpts=STARTPTS+N/SR/TB"
        ))
    }
}
