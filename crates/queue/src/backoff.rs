//! How long a failed job waits before its next attempt. The policy is data on the job's row, so whoever frees
//! a job needs no code of its kind.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Exponential backoff: `base x factor^(n-1)`, at most `cap`, spread by +-50 % so that failures do not return together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Backoff {
    pub base_ms: u32,
    pub factor: u32,
    pub cap_ms: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base_ms: 5_000, factor: 4, cap_ms: 15 * 60 * 1_000 }
    }
}

impl Backoff {
    /// The same delay every time (still spread by +-50 %).
    pub fn constant(delay: Duration) -> Self {
        let ms = delay.as_millis().try_into().unwrap_or(u32::MAX);
        Self { base_ms: ms, factor: 1, cap_ms: ms }
    }

    /// The delay before the attempt that follows failure number `failures` (1 = the first).
    pub fn delay(&self, failures: u32) -> Duration {
        self.delay_spread_by(failures, fastrand::f64())
    }

    fn delay_spread_by(&self, failures: u32, spread: f64) -> Duration {
        let grown =
            f64::from(self.base_ms) * f64::from(self.factor).powf(f64::from(failures.saturating_sub(1)));
        let capped = grown.min(f64::from(self.cap_ms));
        Duration::from_secs_f64(capped * (0.5 + spread) / 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_cap_and_stay_within_half_of_it() {
        let backoff = Backoff { base_ms: 100, factor: 4, cap_ms: 1_000 };

        let middle: Vec<u128> = (1..=4).map(|n| backoff.delay_spread_by(n, 0.5).as_millis()).collect();

        assert_eq!(middle, [100, 400, 1_000, 1_000]);
        assert_eq!(backoff.delay_spread_by(1, 0.0).as_millis(), 50);
        assert_eq!(backoff.delay_spread_by(1, 1.0).as_millis(), 150);
        assert_eq!(backoff.delay_spread_by(u32::MAX, 0.5).as_millis(), 1_000);
    }
}
