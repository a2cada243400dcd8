//! Schedules: pushes that repeat. When one is due, and what becomes of ticks that nobody was there for, is decided here
//! once; each database only sees to it that one process does it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, Utc};
use croner::parser::{CronParser, Seconds};
use serde::{Serialize, Serializer};

use crate::error::{QueueError, Result};
use crate::job::check_name;
use crate::push::Push;
use crate::timestamp::Timestamp;

/// A tick that is later than this was missed: no worker was there.
const ON_TIME: Duration = Duration::from_secs(60);

/// A push to be repeated.
///
/// The jobs of a tick have its instant as their `run_at`, unless the template says otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSchedule {
    /// A schedule of the same name is replaced; if its times stay the same, no tick is lost or repeated.
    pub name: String,
    /// Five fields as in crontab, or six with seconds first, in UTC.
    pub cron: String,
    pub missed: Missed,
    /// What each tick pushes. Without an idempotency key: each tick is new.
    pub push: Push,
}

impl NewSchedule {
    pub fn new(name: impl Into<String>, cron: impl Into<String>, push: impl Into<Push>) -> Self {
        Self { name: name.into(), cron: cron.into(), missed: Missed::Skip, push: push.into() }
    }

    #[must_use]
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// Refuses what could never be pushed; gives the times.
    pub(crate) fn check(&self) -> Result<Cron> {
        check_name("name of a schedule", &self.name)?;
        if self.push.idempotency_key.is_some() {
            return Err(QueueError::invalid(
                "a schedule's push has no idempotency key: only its first tick would push",
            ));
        }
        if matches!(self.missed, Missed::All { at_most } if at_most > Missed::MOST) {
            return Err(QueueError::invalid(format!(
                "at most {} missed ticks can be made up for",
                Missed::MOST
            )));
        }
        self.push.check()?;
        self.cron.parse()
    }

    pub(crate) fn template(&self) -> String {
        serde_json::to_string(&self.push).expect("a push is plain data")
    }
}

/// A schedule as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Schedule {
    pub name: String,
    pub cron: String,
    #[cfg_attr(feature = "openapi", schema(value_type = String, pattern = "^(skip|once|all:[0-9]{1,10})$"))]
    pub missed: Missed,
    pub push: Push,
    pub next_at: Timestamp,
    /// The last tick that pushed.
    pub last_at: Option<Timestamp>,
}

/// What becomes of ticks that are over a minute late, because no worker ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    /// They are left out.
    #[default]
    Skip,
    /// The last of them stands for all.
    Once,
    /// They are made up for, the last `at_most` of them.
    All { at_most: u32 },
}

impl Missed {
    /// More would be pushed in one transaction than others should wait for.
    pub const MOST: u32 = 1_000;
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skip => f.pad("skip"),
            Self::Once => f.pad("once"),
            Self::All { at_most } => f.pad(&format!("all:{at_most}")),
        }
    }
}

impl FromStr for Missed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("all:").map(str::parse)) {
            ("skip", _) => Ok(Self::Skip),
            ("once", _) => Ok(Self::Once),
            (_, Some(Ok(at_most))) => Ok(Self::All { at_most }),
            _ => Err(format!("`{text}` says nothing about missed ticks: use skip, once or all:N")),
        }
    }
}

impl Serialize for Missed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What a look at the schedules came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticked {
    /// Ticks that were pushed.
    pub pushed: u64,
    /// How long until the next schedule is due.
    pub next_in: Option<Duration>,
}

/// The times of a schedule.
#[derive(Debug)]
pub(crate) struct Cron(croner::Cron);

impl FromStr for Cron {
    type Err = QueueError;

    fn from_str(text: &str) -> Result<Self> {
        let parser = CronParser::builder().seconds(Seconds::Optional).build();
        let cron = parser.parse(text).map(Self).map_err(|error| {
            QueueError::invalid(format!("`{text}` is not a cron expression such as `*/5 * * * *`: {error}"))
        })?;
        match cron.after(Timestamp::now()) {
            Some(_) => Ok(cron),
            None => Err(QueueError::invalid(format!("`{text}` never comes"))),
        }
    }
}

impl Cron {
    /// The first tick later than `at`.
    pub(crate) fn after(&self, at: Timestamp) -> Option<Timestamp> {
        let from = second(at.as_ms().div_euclid(1_000))?;
        self.0.find_next_occurrence(&from, false).ok().map(instant)
    }

    /// The last tick earlier than `at`.
    fn before(&self, at: Timestamp) -> Option<Timestamp> {
        let from = second(-(-at.as_ms()).div_euclid(1_000))?;
        self.0.find_previous_occurrence(&from, false).ok().map(instant)
    }
}

fn second(since_epoch: i64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(since_epoch, 0)
}

fn instant(at: DateTime<Utc>) -> Timestamp {
    Timestamp::from_ms(at.timestamp_millis())
}

/// What to do about a schedule that is due.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// The ticks to push, oldest first.
    pub(crate) ticks: Vec<Timestamp>,
    pub(crate) next_at: Timestamp,
}

impl Due {
    /// `next_at` is a tick; everything before it was dealt with.
    pub(crate) fn of(cron: &Cron, missed: Missed, next_at: Timestamp, now: Timestamp) -> Self {
        let just_before = |at: Timestamp| Timestamp::from_ms(at.as_ms() - 1);
        let on_time_from = next_at.max(Timestamp::from_ms(now.as_ms() - ON_TIME.as_millis() as i64));
        let following = std::iter::successors(cron.after(just_before(on_time_from)), |at| cron.after(*at));
        let on_time: Vec<Timestamp> = following.take_while(|at| *at <= now).collect();
        let preceding = std::iter::successors(cron.before(on_time_from), |at| cron.before(*at));
        let late = preceding.take_while(|at| *at >= next_at);
        let mut ticks: Vec<Timestamp> = match missed {
            Missed::Skip => Vec::new(),
            // One that is on time stands for those that were not.
            Missed::Once => late.take(usize::from(on_time.is_empty())).collect(),
            Missed::All { at_most } => late.take(at_most.min(Missed::MOST) as usize).collect(),
        };
        ticks.reverse();
        ticks.extend(on_time);
        // A schedule that never comes again stays, for people to see.
        Self { ticks, next_at: cron.after(now).unwrap_or(Timestamp::from_ms(i64::MAX)) }
    }
}

impl Schedule {
    /// What to push now, and when to look again.
    pub(crate) fn due(&self, now: Timestamp) -> Result<(Vec<Push>, Due)> {
        let due = Due::of(&self.cron.parse()?, self.missed, self.next_at, now);
        let pushes = due.ticks.iter().map(|tick| self.push_at(*tick)).collect();
        Ok((pushes, due))
    }

    fn push_at(&self, tick: Timestamp) -> Push {
        let mut push = self.push.clone();
        for job in &mut push.jobs {
            job.run_at.get_or_insert(tick);
        }
        push
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-03-01T{text}Z").parse().expect("an instant")
    }

    fn due(cron: &str, missed: Missed, next_at: &str, now: &str) -> (Vec<String>, String) {
        let due = Due::of(&cron.parse().expect("a cron expression"), missed, at(next_at), at(now));
        let clock = |at: &Timestamp| at.to_string()[11..19].to_owned();
        (due.ticks.iter().map(clock).collect(), clock(&due.next_at))
    }

    #[test]
    fn a_tick_on_time_is_pushed_under_every_policy() {
        for missed in [Missed::Skip, Missed::Once, Missed::All { at_most: 5 }] {
            let told = due("0 * * * *", missed, "10:00:00", "10:00:00.250");

            assert_eq!(told, (vec!["10:00:00".into()], "11:00:00".into()), "{missed}");
        }
    }

    #[test]
    fn seconds_are_ticks_too() {
        let told = due("*/2 * * * * *", Missed::Skip, "10:00:02", "10:00:06.999");

        assert_eq!(told, (vec!["10:00:02".into(), "10:00:04".into(), "10:00:06".into()], "10:00:08".into()));
    }

    #[test]
    fn missed_ticks_follow_their_policy() {
        let after_a_night = |missed| due("0 * * * *", missed, "01:00:00", "07:30:00");

        assert_eq!(after_a_night(Missed::Skip), (vec![], "08:00:00".into()));
        assert_eq!(after_a_night(Missed::Once), (vec!["07:00:00".into()], "08:00:00".into()));
        let (made_up, next_at) = after_a_night(Missed::All { at_most: 3 });
        assert_eq!((made_up.join(" "), next_at.as_str()), ("05:00:00 06:00:00 07:00:00".into(), "08:00:00"));
        let (all, _) = after_a_night(Missed::All { at_most: 100 });
        assert_eq!((all.len(), all[0].as_str()), (7, "01:00:00"));
    }

    #[test]
    fn one_on_time_stands_for_those_that_were_missed() {
        assert_eq!(due("0 * * * *", Missed::Once, "01:00:00", "07:00:01").0, ["07:00:00"]);
    }

    #[test]
    fn a_long_absence_of_a_quick_schedule_is_bounded() {
        let started = std::time::Instant::now();

        let cron = "* * * * * *".parse().expect("a cron expression");
        let due = Due::of(&cron, Missed::All { at_most: 10 }, Timestamp::from_ms(0), at("10:00:00"));

        assert_eq!(due.ticks.len(), 10 + 61);
        assert!(started.elapsed() < Duration::from_secs(1));
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for bad in ["", "every day", "61 * * * *", "0 0 31 2 *"] {
            let error = bad.parse::<Cron>().expect_err(bad);

            assert!(matches!(error, QueueError::Invalid { .. }), "{error}");
        }
    }

    #[test]
    fn policies_are_written_as_they_are_read() {
        for missed in [Missed::Skip, Missed::Once, Missed::All { at_most: 7 }] {
            assert_eq!(missed.to_string().parse(), Ok(missed));
        }
        assert!("all".parse::<Missed>().is_err());
    }
}
