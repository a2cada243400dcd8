//! How many bits a second a player must be able to load.

use super::SegmentFact;

/// Bits a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bandwidth {
    pub peak: u64,
    pub average: u64,
}

impl Bandwidth {
    /// As RFC 8216 defines it: the peak is that of any contiguous segments which together last half to one and a half
    /// target durations. A short last segment with its key frame alone would otherwise look like the peak.
    pub(super) fn measured(segments: &[SegmentFact], timescale: u32) -> Self {
        let ticks: u64 = segments.iter().map(|segment| segment.duration_ticks).sum();
        let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let average = bits_a_second(bytes, ticks, timescale);
        let target = super::target_seconds(segments, timescale) * u64::from(timescale);
        let mut peak = average;
        for first in 0..segments.len() {
            let (mut ticks, mut bytes) = (0, 0);
            for segment in &segments[first..] {
                ticks += segment.duration_ticks;
                bytes += segment.bytes;
                if 2 * ticks > 3 * target {
                    break;
                }
                if 2 * ticks >= target {
                    peak = peak.max(bits_a_second(bytes, ticks, timescale));
                }
            }
        }
        Self { peak, average }
    }

    pub(super) fn with(self, other: Self) -> Self {
        Self { peak: self.peak + other.peak, average: self.average + other.average }
    }
}

/// Rounded up: less would be a promise that is not kept.
fn bits_a_second(bytes: u64, ticks: u64, timescale: u32) -> u64 {
    let bits = u128::from(bytes) * 8 * u128::from(timescale);
    u64::try_from(bits.div_ceil(u128::from(ticks.max(1)))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(duration_ticks: u64, bytes: u64) -> SegmentFact {
        SegmentFact {
            uri: String::new(),
            start_ticks: 0,
            duration_ticks,
            bytes,
            frames: 1,
            keyframe_bytes: None,
        }
    }

    #[test]
    fn the_peak_is_of_a_segment_and_the_average_of_all() {
        let segments = [segment(4000, 500_000), segment(4000, 1_000_000), segment(4000, 250_000)];

        let bandwidth = Bandwidth::measured(&segments, 1000);

        assert_eq!(bandwidth, Bandwidth { peak: 2_000_000, average: 1_166_667 });
    }

    #[test]
    fn a_short_last_segment_is_no_peak_by_itself() {
        let segments = [segment(4000, 500_000), segment(200, 100_000)];

        let bandwidth = Bandwidth::measured(&segments, 1000);

        assert_eq!(bandwidth.peak, 1_142_858, "the two together, not 4 Mbit/s");
    }

    #[test]
    fn a_single_short_segment_is_its_own_average() {
        assert_eq!(Bandwidth::measured(&[segment(200, 1000)], 1000).peak, 40_000);
    }
}
