//! How long pictures stay, counted in bounded memory: a stranger's file may have any number of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Packets come in the order of decoding. No codec moves a picture by more than 16 places.
const REORDERED_MAX: usize = 64;
/// Different gaps that are told apart. A real film has a handful; what has more is counted in milliseconds.
const EXACT_MAX: usize = 1 << 12;
const ROUGH_US: i64 = 1_000;
/// Gaps of a minute and more are one.
const LONGEST_US: i64 = 60_000_000;

/// The gaps between pictures, in the order in which they are shown.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// The latest of those that came, which another may still come before.
    waiting: BinaryHeap<Reverse<i64>>,
    last_us: Option<i64>,
    /// How often each gap was met.
    counts: BTreeMap<i64, u64>,
}

impl Gaps {
    pub(super) fn take(&mut self, shown_us: i64) {
        self.waiting.push(Reverse(shown_us));
        if self.waiting.len() > REORDERED_MAX
            && let Some(Reverse(shown_us)) = self.waiting.pop()
        {
            self.count(shown_us);
        }
    }

    /// No other picture comes.
    pub(super) fn end(&mut self) {
        while let Some(Reverse(shown_us)) = self.waiting.pop() {
            self.count(shown_us);
        }
    }

    /// The gap where pictures come fast: one in ten is not longer.
    pub(super) fn burst_us(&self) -> Option<i64> {
        let all: u64 = self.counts.values().sum();
        let mut passed = 0;
        self.counts.iter().find_map(|(gap_us, count)| {
            passed += count;
            (passed > all / 10).then_some(*gap_us)
        })
    }

    fn count(&mut self, shown_us: i64) {
        let gap_us = self.last_us.map_or(0, |last_us| shown_us.saturating_sub(last_us)).min(LONGEST_US);
        self.last_us = Some(self.last_us.map_or(shown_us, |last_us| last_us.max(shown_us)));
        if gap_us <= 0 {
            return;
        }
        let is_known = self.counts.len() < EXACT_MAX || self.counts.contains_key(&gap_us);
        let gap_us = if is_known { gap_us } else { (gap_us / ROUGH_US * ROUGH_US).max(1) };
        *self.counts.entry(gap_us).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_that_are_decoded_out_of_order_are_counted_in_order() {
        let mut gaps = Gaps::default();
        for group in 0..100 {
            [0, 3, 1, 2].map(|n| (group * 4 + n) * 40_000).into_iter().for_each(|us| gaps.take(us));
        }
        gaps.end();

        assert_eq!(gaps.burst_us(), Some(40_000));
        assert_eq!(gaps.counts.len(), 1);
    }

    #[test]
    fn a_million_different_gaps_take_no_more_memory_than_some_thousands() {
        let (mut gaps, mut at_us) = (Gaps::default(), 0);
        for n in 0..1_000_000 {
            at_us += 1 + n * 7 % 90_000_001;
            gaps.take(at_us);
        }

        assert!(gaps.counts.len() <= EXACT_MAX + 60_001, "{}", gaps.counts.len());
        assert!(gaps.burst_us().is_some());
    }
}
