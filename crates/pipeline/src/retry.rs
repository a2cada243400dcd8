//! Starting steps of a run over.

use std::collections::BTreeSet;

use telecine_queue::{JobState, Queue, QueueError, Run, RunId, RunState, StepCount};

use crate::kinds;
use crate::lifetime::{announce_first_retry, announce_retry, is_deleted};
use crate::records::LifetimeRecord;

/// Starts steps of a run over, with all that needs them; without a name what did not complete. A step that makes a film
/// stands for all its parts, each of which can be named as well (`hls.audio`). Says how many jobs it started over by name.
pub async fn retry(queue: &dyn Queue, run: &RunId, steps: &[String]) -> Result<u64, QueueError> {
    let found = queue.get_run(run).await?.ok_or_else(|| QueueError::NoSuchRun(run.clone()))?;
    if is_deleted(queue, run).await? {
        return Err(QueueError::NoSuchRun(run.clone()));
    }
    let parts = Parts::of(queue.run_steps(run).await?);
    let named = parts.named(steps)?;
    let lifetime = announce_retry(queue, &found).await?;
    start_over(queue, found, &lifetime, &parts, named).await
}

/// The same for a run that was seen to have ended: if nobody has started it over since, or is about to. `None`: somebody
/// was first.
pub(crate) async fn retry_unchanged(
    queue: &dyn Queue,
    seen: &Run,
    steps: &[String],
) -> Result<Option<u64>, QueueError> {
    let parts = Parts::of(queue.run_steps(&seen.id).await?);
    let named = parts.named(steps)?;
    let Some(lifetime) = announce_first_retry(queue, seen).await? else { return Ok(None) };
    match queue.get_run(&seen.id).await? {
        Some(now) if (now.generation, now.finished_at) == (seen.generation, seen.finished_at) => {
            start_over(queue, now, &lifetime, &parts, named).await.map(Some)
        }
        _ => Ok(None),
    }
}

async fn start_over(
    queue: &dyn Queue,
    found: Run,
    lifetime: &LifetimeRecord,
    parts: &Parts,
    mut named: Vec<String>,
) -> Result<u64, QueueError> {
    if lifetime.has_lost_blobs && found.state == RunState::Cancelled {
        // Also what its outputs name: steps that are done would stay done, and nobody would make it again.
        let hint = "what it had made was removed since; submit the input again".to_owned();
        return Err(QueueError::WrongRunState { id: found.id, state: found.state, hint });
    }
    if lifetime.has_lost_blobs {
        named = parts.with_makers(named);
    }
    queue.retry_run(&found.id, &named).await
}

/// The parts of a run's steps.
struct Parts {
    all: BTreeSet<String>,
    /// Those of which something did not complete.
    incomplete: BTreeSet<String>,
}

impl Parts {
    fn of(counts: Vec<StepCount>) -> Self {
        let incomplete = counts.iter().filter(|count| count.state != JobState::Completed);
        let incomplete = incomplete.filter_map(|count| count.step.clone()).collect();
        Self { all: counts.into_iter().filter_map(|count| count.step).collect(), incomplete }
    }

    fn named(&self, steps: &[String]) -> Result<Vec<String>, QueueError> {
        let is_named = |first: &str| steps.iter().any(|step| step_of(step) == first);
        // Who has borrowed everything only publishes it: that follows again from what it takes in.
        let is_planned =
            |part: &String| !matches!(step_of(part), kinds::INGEST | kinds::SCAN | kinds::PUBLISH);
        let is_planned = self.all.iter().any(is_planned);
        let ingest_alone = steps.iter().any(|step| step == kinds::INGEST)
            && self.all.iter().any(|part| part != kinds::INGEST && part != kinds::PUBLISH);
        if ingest_alone || is_planned && (is_named(kinds::INGEST) || is_named(kinds::SCAN)) {
            let reason = "the run has taken its input in already; submit it again, or retry other steps";
            return Err(QueueError::Invalid { reason: reason.to_owned() });
        }
        let mut named = Vec::new();
        for step in steps {
            let parts = format!("{step}.");
            let of_step = self.all.iter().filter(|name| *name == step || name.starts_with(&parts));
            let before = named.len();
            named.extend(of_step.cloned());
            if named.len() == before {
                let known: Vec<&str> = self.all.iter().map(String::as_str).collect();
                let reason = format!("the run has no step `{step}`; its steps are {}", known.join(", "));
                return Err(QueueError::Invalid { reason });
            }
        }
        Ok(named)
    }

    /// Also those that make what was swept away: who joins it would find nothing.
    fn with_makers(&self, named: Vec<String>) -> Vec<String> {
        let named: BTreeSet<String> =
            if named.is_empty() { self.incomplete.clone() } else { named.into_iter().collect() };
        let steps: BTreeSet<&str> = named.iter().map(|part| step_of(part)).collect();
        // All parts of their steps: those that had nothing swept away find it there, and are done at once.
        let parts = self.all.iter().filter(|part| steps.contains(step_of(part)));
        // An input is taken in once, also where its scan is started over.
        let is_scanned = self.all.contains(kinds::SCAN);
        parts.filter(|part| !is_scanned || *part != kinds::INGEST).cloned().collect()
    }
}

/// `hls` of `hls.audio`.
fn step_of(part: &str) -> &str {
    part.split('.').next().unwrap_or(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(counts: &[(&str, JobState)]) -> Parts {
        let count = |(step, state): &(&str, JobState)| StepCount {
            step: Some((*step).to_owned()),
            state: *state,
            jobs: 1,
            progress: 0.0,
        };
        Parts::of(counts.iter().map(count).collect())
    }

    #[test]
    fn what_was_swept_away_is_made_again_before_it_is_joined() {
        use JobState::{Completed, Failed, Skipped};
        let film = parts(&[
            ("ingest", Completed),
            ("hls", Completed),
            ("hls.audio", Completed),
            ("hls.package", Failed),
            ("pictures", Completed),
            ("conclude", Skipped),
        ]);

        let alone = film.with_makers(film.named(&["hls.package".into()]).unwrap());
        let incomplete = film.with_makers(Vec::new());

        assert!(film.named(&["scan".into()]).is_err() && film.named(&["ingest".into()]).is_err());
        assert_eq!(alone, ["hls", "hls.audio", "hls.package"]);
        assert_eq!(incomplete, ["conclude", "hls", "hls.audio", "hls.package"]);
    }

    #[test]
    fn a_scan_is_started_over_without_taking_the_input_in_again() {
        use JobState::{Completed, Failed, Skipped};
        let refused = parts(&[("ingest", Completed), ("scan", Failed), ("ingest.plan", Skipped)]);

        assert_eq!(refused.named(&["scan".into()]).unwrap(), ["scan"]);
        assert_eq!(refused.with_makers(Vec::new()), ["ingest.plan", "scan"]);
        assert!(refused.named(&["ingest".into()]).is_err());
        // Who was not scanned and has only borrowed takes its input in again.
        let borrower = parts(&[("ingest", Completed)]);
        assert_eq!(borrower.with_makers(borrower.named(&["ingest".into()]).unwrap()), ["ingest"]);
        let publisher = parts(&[("ingest", Completed), ("publish", Completed)]);
        assert_eq!(publisher.named(&["ingest".into()]).unwrap(), ["ingest"]);
    }
}
