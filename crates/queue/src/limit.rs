//! Limits, pauses, the shares and caps of tenants as values, and what they mean for jobs: decided here once, applied by
//! each database.
//!
//! A job is bounded by its `limit_key` and, if its tenant has a cap, by its tenant. It is *admitted* when it is pending
//! or running. Whoever changes how many are (push, finish, reap, cancel, …) balances its bounds: lock their rows, count
//! the admitted jobs, then let the next parked ones in or park the last pending ones. Nothing is remembered that could
//! leak: a worker that is killed leaves rows behind, and rows are what is counted.
//!
//! A job with two bounds needs room in both, and must not hold up others while it has it in one only. So it stands in
//! one line at a time, its tenant's or its key's. A tenant with room for three calls the best three of its jobs whose keys
//! have room to the lines of those; a key sends back to their tenants those it comes to whose tenant is full. If a tenant
//! still has room when none of its keys has, one job in the line of each stands in for the others, so that whoever makes
//! room in the key comes to that tenant. What a balance moves thus goes by the room there is, not by how many are parked
//! or how many keys they have.

mod gates;

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;

pub(crate) use self::gates::{Balanced, Candidate, Gate, Gates};
use crate::error::{QueueError, Result};
use crate::job::check_name;
use crate::timestamp::Timestamp;

/// What `slow_down` leaves at least.
const LOWEST_PACE: f64 = 1.0 / 16.0;
/// What a pace gains back per millisecond: a sixteenth in ten seconds, so the lowest is whole again after 150.
const PACE_PER_MS: f64 = 1.0 / 16.0 / 10_000.0;
/// Tokens that arrive faster than this are admitted together: no promote needs to run more often.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
/// How often a pace that recovers is looked at.
const RECOVERY_WAIT: Duration = Duration::from_secs(1);

/// How many jobs with this `limit_key` may run at once, and start in a minute, over all workers. `None` is no bound;
/// without any bound there is no limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Limit {
    pub key: String,
    pub max_running: Option<u32>,
    pub per_minute: Option<f64>,
}

impl Limit {
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), max_running: None, per_minute: None }
    }

    #[must_use]
    pub fn max_running(mut self, jobs: u32) -> Self {
        self.max_running = Some(jobs);
        self
    }

    #[must_use]
    pub fn per_minute(mut self, jobs: f64) -> Self {
        self.per_minute = Some(jobs);
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_name("limit key", &self.key)?;
        check_max_running("limit", self.max_running)?;
        if self.per_minute.is_some_and(|jobs| !(jobs > 0.0 && jobs <= 1e9)) {
            return Err(QueueError::invalid(
                "per_minute of a limit is above 0; to let nothing run, set max_running to 0",
            ));
        }
        Ok(())
    }
}

/// A limit and how its jobs stand.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LimitState {
    #[serde(flatten)]
    pub limit: Limit,
    /// Between 1/16 and 1: what part of the limit is in use since somebody asked to slow down.
    pub pace: f64,
    pub running: u64,
    /// Let in, but not claimed yet.
    pub pending: u64,
    /// Waiting to be let in.
    pub parked: u64,
    pub changed_at: Timestamp,
}

/// What can be paused: workers go on with what they run, and claim nothing more of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "scope", content = "name", rename_all = "snake_case")]
pub enum Pausable {
    Lane(String),
    Kind(String),
}

impl Pausable {
    pub fn name(&self) -> &str {
        match self {
            Self::Lane(name) | Self::Kind(name) => name,
        }
    }

    pub(crate) fn scope(&self) -> &'static str {
        match self {
            Self::Lane(_) => "lane",
            Self::Kind(_) => "kind",
        }
    }

    pub(crate) fn of(scope: &str, name: String) -> Self {
        match scope {
            "lane" => Self::Lane(name),
            _ => Self::Kind(name),
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_name(self.scope(), self.name())
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Paused {
    #[serde(flatten)]
    pub what: Pausable,
    pub paused_at: Timestamp,
}

/// A tenant's share and cap. One of weight 2 has its backlog served twice as fast as one of weight 1, which is the
/// default; no more than `max_running` of its jobs run at once over all workers, if that is set.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TenantPolicy {
    pub name: String,
    pub weight: f64,
    pub max_running: Option<u32>,
}

impl TenantPolicy {
    /// The policy of a tenant for which none was set.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), weight: 1.0, max_running: None }
    }

    #[must_use]
    pub fn weight(mut self, weight: f64) -> Self {
        self.weight = weight;
        self
    }

    #[must_use]
    pub fn max_running(mut self, jobs: u32) -> Self {
        self.max_running = Some(jobs);
        self
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::new(self.name.as_str())
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_name("tenant", &self.name)?;
        if !(self.weight >= 0.001 && self.weight <= 1_000.0) {
            return Err(QueueError::invalid("the weight of a tenant is between 0.001 and 1000"));
        }
        check_max_running("tenant", self.max_running)
    }
}

/// A tenant's policy and how its jobs stand.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TenantState {
    #[serde(flatten)]
    pub policy: TenantPolicy,
    pub running: u64,
    pub pending: u64,
    /// Waiting for room: the tenant's own, or that of their keys.
    pub parked: u64,
}

fn check_max_running(of: &str, jobs: Option<u32>) -> Result<()> {
    if jobs.is_some_and(|jobs| jobs > i32::MAX.unsigned_abs()) {
        return Err(QueueError::invalid(format!("max_running of a {of} is out of range")));
    }
    Ok(())
}

/// How far a job of a named tenant stands behind that tenant's last one, before weights. As in retry.sql.
pub(crate) fn tenant_step_us(cost_ms: u32) -> i64 {
    const UNKNOWN_COST_MS: u32 = 1_000;
    i64::from(if cost_ms == 0 { UNKNOWN_COST_MS } else { cost_ms }) * 1_000
}

/// A limit's row: the bounds, and a bucket of tokens as it was at `refilled_at_ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bucket {
    pub(crate) max_running: Option<u32>,
    pub(crate) per_minute: Option<f64>,
    pub(crate) pace: f64,
    pub(crate) tokens: f64,
    pub(crate) refilled_at_ms: i64,
}

impl Bucket {
    /// As it is now: the pace recovered, the tokens of the time between added. A clock that went back adds nothing.
    pub(crate) fn at(self, now_ms: i64) -> Self {
        let elapsed_ms = (now_ms - self.refilled_at_ms).max(0) as f64;
        let pace = (self.pace + elapsed_ms * PACE_PER_MS).min(1.0);
        let now = Self { pace, refilled_at_ms: now_ms, ..self };
        let gained =
            self.per_minute.map_or(0.0, |jobs| jobs / 60_000.0 * elapsed_ms * (self.pace + pace) / 2.0);
        Self { tokens: (self.tokens + gained).min(now.burst()), ..now }
    }

    pub(crate) fn slower(self) -> Self {
        Self { pace: (self.pace / 2.0).max(LOWEST_PACE), ..self }
    }

    pub(crate) fn spent(self, jobs: u64) -> Self {
        Self { tokens: (self.tokens - jobs as f64).max(0.0), ..self }
    }

    /// How many more may be let in; below zero, how many pending ones are too many.
    ///
    /// Of a key with `per_minute`, no more than a second's worth waits to be claimed: what was let in while no worker
    /// was there must not start all at once when one comes.
    pub(crate) fn room(&self, pending: u64, running: u64) -> i64 {
        let (pending, running) = (whole(pending), whole(running));
        let by_number = self.most_running().map(|most| most - pending - running);
        let by_pace = self.per_minute.map(|_| {
            let unclaimed = self.burst().floor() as i64 - pending;
            unclaimed.min((self.tokens.floor() as i64).max(0))
        });
        let room = by_number.unwrap_or(i64::MAX).min(by_pace.unwrap_or(i64::MAX));
        // Those that run are never stopped, so no more than the pending ones can be too many.
        room.max(-pending)
    }

    /// When time alone may let the next one in. `None`: only another event can.
    pub(crate) fn next_in(&self) -> Option<Duration> {
        let recovery = (self.pace < 1.0).then_some(RECOVERY_WAIT);
        let token = self.per_minute.map(|jobs| {
            let missing = if self.tokens >= 1.0 { 1.0 } else { 1.0 - self.tokens };
            let wait_ms = (missing * 60_000.0 / (jobs * self.pace)).ceil();
            Duration::from_millis(wait_ms as u64).max(SHORTEST_WAIT)
        });
        [recovery, token].into_iter().flatten().min()
    }

    fn most_running(&self) -> Option<i64> {
        self.max_running.map(|most| (f64::from(most) * self.pace).ceil() as i64)
    }

    /// The most tokens that are kept: a second's worth, so that any minute has `per_minute` starts and few more.
    fn burst(&self) -> f64 {
        self.per_minute.map_or(0.0, |jobs| (jobs * self.pace / 60.0).max(1.0))
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX / 4)
}

/// What a job must find room in. Their order is that in which their rows are locked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Bound {
    Key(String),
    Tenant(String),
}

/// The bounds of jobs that were moved.
pub(crate) type Bounds = BTreeSet<Bound>;

impl Bound {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Key(name) | Self::Tenant(name) => name,
        }
    }

    pub(crate) fn scope(&self) -> &'static str {
        match self {
            Self::Key(_) => "key",
            Self::Tenant(_) => "tenant",
        }
    }

    pub(crate) fn of(scope: &str, name: String) -> Self {
        match scope {
            "key" => Self::Key(name),
            _ => Self::Tenant(name),
        }
    }

    /// Of a job with this key, whose tenant is named if it has a cap.
    pub(crate) fn of_job(limit_key: Option<String>, capped: Option<String>) -> impl Iterator<Item = Self> {
        limit_key.map(Self::Key).into_iter().chain(capped.map(Self::Tenant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(max_running: Option<u32>, per_minute: Option<f64>) -> Bucket {
        Bucket { max_running, per_minute, pace: 1.0, tokens: 1.0, refilled_at_ms: 0 }
    }

    #[test]
    fn the_number_that_runs_bounds_the_room() {
        assert_eq!(bucket(Some(4), None).room(1, 2), 1);
        assert_eq!(bucket(Some(4), None).room(3, 4), -3);
        assert_eq!(bucket(Some(4), None).room(0, 9), 0, "none is stopped");
    }

    #[test]
    fn tokens_come_with_time_and_are_kept_for_a_second() {
        let empty = bucket(None, Some(60.0)).spent(1);

        assert_eq!(empty.at(999).room(0, 5), 0);
        assert_eq!(empty.at(1_000).room(0, 5), 1);
        assert_eq!(empty.at(3_600_000).room(0, 0), 1, "an idle hour is not made up for");
        assert_eq!(empty.at(3_600_000).room(1, 0), 0, "one already waits for a worker");
        assert_eq!(empty.next_in(), Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_minute_has_no_more_starts_than_it_may() {
        for per_minute in [1.0, 30.0, 600.0, 90_000.0] {
            let (mut bucket, mut started) = (bucket(None, Some(per_minute)), 0);
            for ms in (0..60_000).step_by(10) {
                bucket = bucket.at(ms);
                let room = bucket.room(0, 0).max(0).unsigned_abs();
                bucket = bucket.spent(room);
                started += room;
            }
            assert!(started as f64 <= per_minute + 1.0, "{started} of {per_minute}");
            assert!(started as f64 >= per_minute * 0.99 - 1.0, "{started} of {per_minute}");
        }
    }

    #[test]
    fn a_lowered_pace_halves_the_limit_and_recovers() {
        let slow = bucket(Some(8), None).slower();

        assert_eq!(slow.room(0, 0), 4);
        assert_eq!(slow.at(40_000).room(0, 0), 6);
        assert_eq!(slow.at(80_000).room(0, 0), 8);
        let slowest = (0..9).fold(bucket(Some(8), None), |bucket, _| bucket.slower());
        assert_eq!((slowest.pace, slowest.room(0, 0)), (LOWEST_PACE, 1));
    }
}
