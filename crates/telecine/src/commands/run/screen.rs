//! How the work is shown: bars on a terminal, lines now and then anywhere else.

mod bars;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use telecine_pipeline::kinds::INGEST;

use self::bars::Bars;
use super::batch::Followed;
use super::pace::Pace;
use super::sight::{StepSight, StepState};
use crate::human;
use crate::output::{harmless, say};

/// Often enough to see that it lives, seldom enough for a log.
const LINE_EVERY: Duration = Duration::from_secs(5);

pub(crate) enum Screen {
    Bars(Bars),
    Lines { last: Instant },
    Quiet,
}

impl Screen {
    pub(crate) fn new(is_quiet: bool) -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if is_quiet {
            Self::Quiet
        } else if std::io::stderr().is_terminal() && !is_dumb {
            Self::Bars(Bars::new())
        } else {
            Self::Lines { last: Instant::now() }
        }
    }

    pub(crate) fn show(&mut self, followed: &[Followed]) {
        match self {
            Self::Bars(bars) => bars.show(followed),
            Self::Lines { last } if last.elapsed() >= LINE_EVERY => {
                *last = Instant::now();
                for one in followed.iter().filter(|one| is_at_work(one)) {
                    say(line(one));
                }
            }
            Self::Lines { .. } | Self::Quiet => {}
        }
    }

    /// Something that stays to be read.
    pub(crate) fn tell(&self, message: impl std::fmt::Display) {
        match self {
            Self::Bars(_) | Self::Lines { .. } => say(message),
            Self::Quiet => {}
        }
    }

    /// Takes the bars away.
    pub(crate) fn clear(&mut self) {
        if let Self::Bars(bars) = self {
            bars.clear();
        }
    }
}

fn is_at_work(followed: &Followed) -> bool {
    followed.steps.iter().any(|step| step.state == StepState::Running)
}

fn line(followed: &Followed) -> String {
    let steps = followed.steps.iter().zip(&followed.paces);
    let told = steps.filter(|(step, _)| step.state == StepState::Running).map(|(step, pace)| {
        let share = (step.done.share * 100.0).floor();
        let rest = told(step, pace);
        format!("{} {share} %{}{rest}", step.name, if rest.is_empty() { "" } else { ", " })
    });
    harmless(&format!("{}: {}", followed.file.shown, told.collect::<Vec<_>>().join("; ")))
}

/// How a step fares beside its share.
fn told(step: &StepSight, pace: &Pace) -> String {
    let took = || step.took.map_or_else(String::new, human::duration);
    match step.state {
        StepState::Waiting => format!("waits for {}", step.waits_for.join(", ")),
        StepState::Queued => step.trouble.clone().unwrap_or_else(|| "waits for a slot".into()),
        StepState::Running => {
            let speed = pace.speed().map(|speed| match speed {
                ..1.0 => format!("{speed:.2}x"),
                _ => format!("{speed:.1}x"),
            });
            let left = pace.left().map(|left| format!("{} left", human::duration(left)));
            let is_looking = step.name == INGEST && pace.left().is_none();
            if is_looking {
                return "looks at the file".into();
            }
            let parts: Vec<String> = speed.into_iter().chain(left).chain(step.trouble.clone()).collect();
            parts.join(", ")
        }
        StepState::Done => format!("done in {}", took()),
        StepState::Failed => "failed".into(),
        StepState::Skipped => "left out".into(),
    }
}
