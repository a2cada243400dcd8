//! How much of a film may be missing in its middle.
//!
//! A decoder that meets broken packets goes on behind them, as players do, and a film with a scratch is better than
//! none: a little is told with the result. Beyond a share of the whole it is `input_corrupt`, for good.

/// Of the whole film.
const MAX_PERCENT: u64 = 5;
/// Always allowed, so that one broken packet does not cost a short clip.
const MIN_US: u64 = 500_000;

pub(crate) fn is_too_much(damaged_us: u64, film_us: u64) -> bool {
    damaged_us > MIN_US.max(film_us / 100 * MAX_PERCENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twentieth_may_be_damaged_or_half_a_second() {
        assert!(!is_too_much(500_000, 2_000_000));
        assert!(is_too_much(500_001, 2_000_000));
        assert!(!is_too_much(3_000_000, 60_000_000));
        assert!(is_too_much(3_000_001, 60_000_000));
    }
}
