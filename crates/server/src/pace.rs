//! How fast one caller may ask: so many requests a second, by key, or by address where there is no key.

use std::net::IpAddr;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota};

use crate::problem::{Code, Problem};

/// Whose requests are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asker {
    Key(String),
    Address(IpAddr),
}

impl Asker {
    /// Of IPv6 a customer has a whole network.
    pub(crate) fn at(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
            address => address,
        })
    }
}

/// Askers that have been quiet are forgotten every so many requests.
const FORGET_EVERY: u64 = 4096;

#[derive(Debug)]
pub(crate) struct Pace {
    limiter: Option<DefaultKeyedRateLimiter<Asker>>,
    asked: AtomicU64,
}

impl Pace {
    /// 0 is without a bound. A burst of two seconds' worth goes through.
    pub(crate) fn of(requests_per_second: u32) -> Self {
        let quota = NonZero::new(requests_per_second).map(|each| {
            Quota::per_second(each).allow_burst(each.saturating_mul(NonZero::<u32>::MIN.saturating_add(1)))
        });
        Self { limiter: quota.map(DefaultKeyedRateLimiter::keyed), asked: AtomicU64::new(0) }
    }

    pub(crate) fn ask(&self, asker: Asker) -> Result<(), Problem> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        if self.asked.fetch_add(1, Ordering::Relaxed) % FORGET_EVERY == FORGET_EVERY - 1 {
            limiter.retain_recent();
        }
        limiter.check_key(&asker).map_err(|until| {
            Problem::new(Code::RateLimited, "too many requests; wait as long as `Retry-After` says")
                .retry_after(until.wait_time_from(DefaultClock::default().now()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_asker_is_slowed_down_and_others_are_not() {
        let pace = Pace::of(2);
        let flood: Vec<_> = (0..10).map(|_| pace.ask(Asker::Key("one".into()))).collect();

        assert_eq!(flood.iter().filter(|answer| answer.is_ok()).count(), 4);
        assert_eq!(flood[9].as_ref().unwrap_err().code(), Code::RateLimited);
        assert!(pace.ask(Asker::Key("other".into())).is_ok());
        assert!(pace.ask(Asker::at("192.0.2.1".parse().unwrap())).is_ok());
    }

    #[test]
    fn a_network_of_ipv6_is_one_asker() {
        let at = |address: &str| Asker::at(address.parse().unwrap());
        assert_eq!(at("2001:db8:1:2::1"), at("2001:db8:1:2:ffff::9"));
        assert_ne!(at("2001:db8:1:2::1"), at("2001:db8:1:3::1"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
        assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
    }

    #[test]
    fn without_a_bound_nobody_is_slowed_down() {
        let pace = Pace::of(0);
        assert!((0..10_000).all(|_| pace.ask(Asker::Key("one".into())).is_ok()));
    }
}
