//! How fast something gets on, from what was seen of it lately.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Long enough to even out bursts, short enough to follow a change.
const WINDOW: Duration = Duration::from_secs(20);
/// Less says nothing yet.
const SHORTEST: Duration = Duration::from_secs(1);

/// What was done by when, of one step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    seen: VecDeque<(Instant, Done)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Done {
    /// 0 to 1.
    pub(crate) share: f64,
    pub(crate) media_us: u64,
}

impl Pace {
    pub(crate) fn note(&mut self, at: Instant, done: Done) {
        self.seen.push_back((at, done));
        // One from before the window stays, so that the window is always full.
        while self.seen.get(1).is_some_and(|(then, _)| at.duration_since(*then) >= WINDOW) {
            self.seen.pop_front();
        }
    }

    /// Seconds of media in a second.
    pub(crate) fn speed(&self) -> Option<f64> {
        let (took, from, to) = self.span()?;
        let media = to.media_us.saturating_sub(from.media_us);
        (media > 0).then(|| media as f64 / 1e6 / took.as_secs_f64())
    }

    /// How long the rest will take.
    pub(crate) fn left(&self) -> Option<Duration> {
        let (took, from, to) = self.span()?;
        let gained = to.share - from.share;
        let left = (1.0 - to.share) / gained * took.as_secs_f64();
        (gained > 0.0).then(|| Duration::try_from_secs_f64(left.max(0.0)).ok()).flatten()
    }

    fn span(&self) -> Option<(Duration, Done, Done)> {
        let ((first, from), (last, to)) = (self.seen.front()?, self.seen.back()?);
        let took = last.duration_since(*first);
        (took >= SHORTEST).then_some((took, *from, *to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_and_what_is_left_follow_what_was_seen_lately() {
        let (start, mut pace) = (Instant::now(), Pace::default());
        let at = |second: u64| start + Duration::from_secs(second);
        // What an earlier process did does not count as speed of this one.
        pace.note(at(0), Done { share: 0.5, media_us: 50_000_000 });
        assert_eq!((pace.speed(), pace.left()), (None, None));

        pace.note(at(10), Done { share: 0.6, media_us: 60_000_000 });
        assert_eq!(pace.speed(), Some(1.0));
        assert_eq!(pace.left().map(|left| left.as_secs_f64().round()), Some(40.0));

        for second in 11..=40 {
            let seconds = second - 10;
            pace.note(
                at(second),
                Done { share: 0.6 + 0.01 * seconds as f64, media_us: 60_000_000 + seconds * 2_000_000 },
            );
        }
        assert_eq!(pace.speed(), Some(2.0));
    }

    #[test]
    fn what_does_not_get_on_has_no_end() {
        let (start, mut pace) = (Instant::now(), Pace::default());
        pace.note(start, Done { share: 0.2, media_us: 5 });
        pace.note(start + Duration::from_secs(5), Done { share: 0.2, media_us: 5 });

        assert_eq!((pace.speed(), pace.left()), (None, None));
    }
}
