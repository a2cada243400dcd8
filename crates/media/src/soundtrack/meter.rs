//! How loud it is, from what the meter of FFmpeg says when it ends.

use crate::loudness::LoudnessMeasure;

/// What a metered run said.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Metered {
    pub(super) loudness: LoudnessMeasure,
    /// Of all channels together.
    pub(super) samples: u64,
}

/// The meter's own gate: what is below is silence.
const SILENCE_LUFS: f64 = -70.0;

/// Reads the end of a log. Only the last summary counts: what comes before may be the input's own words.
pub(super) fn parse(log: &str) -> Option<Metered> {
    let summary = &log[log.rfind("Summary:")?..];
    let figure = |name: &str, unit: &str| {
        let line = summary.lines().map(str::trim).find(|line| line.starts_with(name))?;
        line[name.len()..].trim().strip_suffix(unit)?.trim().parse::<f64>().ok()
    };
    let count = &log[log.rfind("n_samples:")? + "n_samples:".len()..];
    let samples = count.split_whitespace().next()?.parse().ok()?;
    let integrated = figure("I:", "LUFS")?;
    let is_sound = integrated.is_finite() && integrated > SILENCE_LUFS;
    let finite = |value: Option<f64>| value.filter(|value| is_sound && value.is_finite());
    let loudness = LoudnessMeasure {
        integrated_lufs: finite(Some(integrated)),
        range_lu: finite(figure("LRA:", "LU")),
        true_peak_dbtp: finite(figure("Peak:", "dBFS")),
        threshold_lufs: finite(figure("Threshold:", "LUFS")),
    };
    Some(Metered { loudness, samples })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "    title : Summary: I: -1.0 LUFS n_samples: 7\n\
        [Parsed_volumedetect_4 @ 0x1] n_samples: 577342\n\
        [Parsed_ebur128_3 @ 0x1] Summary:\n  Integrated loudness:\n    I:         -21.8 LUFS\n    \
        Threshold: -31.8 LUFS\n  Loudness range:\n    LRA:         3.0 LU\n    Threshold: -41.8 LUFS\n    \
        LRA low:   -21.8 LUFS\n    LRA high:  -21.8 LUFS\n  True peak:\n    Peak:      -20.7 dBFS\n";

    #[test]
    fn the_last_summary_becomes_figures() {
        let metered = parse(LOG).unwrap();

        assert_eq!(metered.samples, 577_342);
        assert_eq!(metered.loudness.integrated_lufs, Some(-21.8));
        assert_eq!(metered.loudness.threshold_lufs, Some(-31.8));
        assert_eq!(metered.loudness.range_lu, Some(3.0));
        assert_eq!(metered.loudness.true_peak_dbtp, Some(-20.7));
    }

    #[test]
    fn silence_has_no_loudness() {
        let log = LOG.replace("I:         -21.8 LUFS", "I:         -70.0 LUFS");

        assert_eq!(parse(&log).unwrap().loudness, LoudnessMeasure::default());
    }

    #[test]
    fn a_log_without_a_summary_is_not_guessed_at() {
        assert_eq!(parse("n_samples: 5"), None);
    }
}
