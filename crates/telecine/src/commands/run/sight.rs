//! How far a run is, step by step, as its jobs tell.

use std::collections::BTreeMap;
use std::time::Duration;

use telecine_media::{Plan, SegmentRange, Size};
use telecine_pipeline::Recipe;
use telecine_pipeline::kinds::INGEST;
use telecine_queue::{Job, JobState};

use super::pace::Done;

/// The part of a film's length that its sound, and what joins it, count for.
const LESSER_PART: u64 = 20;

/// A step of the recipe, or `ingest`, which comes before all of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StepSight {
    pub(crate) name: String,
    pub(crate) state: StepState,
    /// Steps that come before it.
    pub(crate) waits_for: Vec<String>,
    pub(crate) done: Done,
    /// How long its jobs have taken by the clock, from the first that began.
    pub(crate) took: Option<Duration>,
    /// Why something of it is tried again.
    pub(crate) trouble: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepState {
    /// For other steps.
    Waiting,
    /// For a slot.
    Queued,
    Running,
    Done,
    Failed,
    /// This input cannot give it, or what it needs failed.
    Skipped,
}

/// What is known of the input and of what is to be made of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) duration_us: u64,
    /// As it is shown.
    pub(crate) size: Option<Size>,
    /// Of the steps that make a film.
    pub(crate) plans: BTreeMap<String, Plan>,
}

/// Every step of the recipe in its order, `ingest` first.
pub(crate) fn steps(recipe: &Recipe, known: &Known, jobs: &[Job]) -> Vec<StepSight> {
    let of = |step: &str| jobs.iter().filter(|job| step_of(job) == step).collect::<Vec<_>>();
    let ingest = step(INGEST, &of(INGEST), known, false);
    // Until it has ended, nobody knows what else there will be.
    let is_planned = ingest.state == StepState::Done;
    let rest: Vec<StepSight> = recipe
        .enabled_steps()
        .map(|wanted| StepSight {
            waits_for: if is_planned { wanted.needs.clone() } else { vec![INGEST.to_owned()] },
            ..step(&wanted.name, &of(&wanted.name), known, is_planned)
        })
        .collect();
    std::iter::once(ingest).chain(rest).collect()
}

/// The step of the recipe that a job works for: `hls` for `hls.audio`.
fn step_of(job: &Job) -> &str {
    let of_payload = job.payload["step"].as_str();
    of_payload.or(job.step.as_deref()).unwrap_or(&job.kind)
}

fn step(name: &str, jobs: &[&Job], known: &Known, is_planned: bool) -> StepSight {
    let lengths: Vec<Option<u64>> = jobs.iter().map(|job| range_length_us(job, known)).collect();
    let film_us: u64 = lengths.iter().flatten().sum();
    let whole_us = if film_us > 0 { film_us } else { known.duration_us.max(1) };
    let weights = jobs.iter().zip(&lengths).map(|(job, length)| match length {
        Some(length_us) => *length_us,
        None if job.kind == "playable" => 0,
        None if film_us > 0 => film_us / LESSER_PART,
        None => whole_us,
    });
    let (mut weight, mut weight_done, mut media_us) = (0, 0.0, 0);
    for ((job, length), weighs) in jobs.iter().zip(&lengths).zip(weights) {
        let share = share(job);
        weight += weighs;
        weight_done += weighs as f64 * share;
        media_us += match length {
            Some(length_us) => (*length_us as f64 * share) as u64,
            None if film_us > 0 || name == INGEST => 0,
            None => (known.duration_us as f64 * share) as u64,
        };
    }
    let state = state(jobs, is_planned);
    let share = match state {
        StepState::Done => 1.0,
        _ if weight == 0 => 0.0,
        _ => weight_done / weight as f64,
    };
    StepSight {
        name: name.to_owned(),
        state,
        waits_for: Vec::new(),
        done: Done { share, media_us },
        took: took(jobs),
        trouble: jobs.iter().find_map(|job| trouble(job)),
    }
}

/// How much of the film a job makes, where it makes a range of it.
fn range_length_us(job: &Job, known: &Known) -> Option<u64> {
    let video = known.plans.get(step_of(job))?.video.as_ref()?;
    let range: SegmentRange = serde_json::from_value(job.payload.get("range")?.clone()).ok()?;
    let frames = range.segments().map(|segment| u64::from(video.grid.frames(segment))).sum();
    Some(video.timeline.time_us(frames))
}

fn share(job: &Job) -> f64 {
    if job.state == JobState::Completed { 1.0 } else { job.progress.unwrap_or(0.0).clamp(0.0, 1.0) }
}

fn state(jobs: &[&Job], is_planned: bool) -> StepState {
    let any = |wanted: &[JobState]| jobs.iter().any(|job| wanted.contains(&job.state));
    let all_ended = jobs.iter().all(|job| job.state.is_terminal());
    match () {
        () if jobs.is_empty() && is_planned => StepState::Skipped,
        () if jobs.is_empty() => StepState::Waiting,
        () if any(&[JobState::Failed]) => StepState::Failed,
        () if all_ended && any(&[JobState::Skipped, JobState::Cancelled]) => StepState::Skipped,
        () if all_ended => StepState::Done,
        () if any(&[JobState::Running]) => StepState::Running,
        () if any(&[JobState::Pending, JobState::Parked, JobState::Scheduled]) => StepState::Queued,
        () => StepState::Waiting,
    }
}

fn took(jobs: &[&Job]) -> Option<Duration> {
    let began = jobs.iter().filter_map(|job| job.claimed_at).min()?;
    let ended = jobs.iter().filter_map(|job| job.finished_at).max()?;
    Some(ended.since(began))
}

fn trouble(job: &Job) -> Option<String> {
    let error = job.error.as_ref().filter(|_| !job.state.is_terminal())?;
    Some(format!("attempt {} of {} follows {}", job.attempt + 1, job.max_attempts, error.code))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use telecine_pipeline::{Does, Step};
    use telecine_queue::{Backoff, Fence, JobError, JobId, RunId, Timestamp};

    use super::*;

    fn job(kind: &str, payload: serde_json::Value, state: JobState, progress: Option<f64>) -> Job {
        Job {
            id: JobId(1),
            tenant: String::new(),
            run: Some(RunId::new()),
            step: Some(kind.to_owned()),
            kind: kind.to_owned(),
            lane: "cpu".into(),
            priority: 50,
            state,
            payload,
            run_at: None,
            generation: 1,
            attempt: 1,
            max_attempts: 5,
            lost: 0,
            max_lost: 3,
            backoff: Backoff::default(),
            timeout_ms: None,
            unique_key: None,
            limit_key: None,
            fence: Fence(1),
            worker: None,
            slot: None,
            progress,
            checkpoint: None,
            result: None,
            error: None,
            required: true,
            needs_left: 0,
            created_at: Timestamp::from_ms(0),
            claimed_at: Some(Timestamp::from_ms(1_000)),
            finished_at: state.is_terminal().then(|| Timestamp::from_ms(3_000)),
        }
    }

    fn recipe() -> Recipe {
        let step = |name: &str, does, needs: &[&str]| Step {
            needs: needs.iter().map(|need| (*need).to_owned()).collect(),
            ..Step::new(name, does)
        };
        let steps = vec![
            step("pictures", Does::Pictures(Default::default()), &[]),
            step("mp4", Does::Mp4(Default::default()), &["pictures"]),
        ];
        Recipe::new("test", steps)
    }

    #[test]
    fn before_the_input_is_known_everything_waits_for_that() {
        let seen = steps(&recipe(), &Known::default(), &[job(INGEST, json!({}), JobState::Running, None)]);

        assert_eq!(
            seen.iter().map(|step| step.name.as_str()).collect::<Vec<_>>(),
            [INGEST, "pictures", "mp4"]
        );
        assert_eq!(seen[0].state, StepState::Running);
        assert_eq!(
            (seen[1].state, seen[1].waits_for.as_slice()),
            (StepState::Waiting, [INGEST.to_owned()].as_slice())
        );
    }

    #[test]
    fn a_step_is_as_far_as_its_jobs_are() {
        let known = Known { duration_us: 10_000_000, ..Known::default() };
        let jobs = [
            job(INGEST, json!({}), JobState::Completed, None),
            job("pictures", json!({"step": "pictures"}), JobState::Running, Some(0.25)),
        ];

        let seen = steps(&recipe(), &known, &jobs);

        assert_eq!(seen[0].took, Some(Duration::from_secs(2)));
        assert_eq!(seen[1].done, Done { share: 0.25, media_us: 2_500_000 });
        assert_eq!(seen[2].state, StepState::Skipped, "it was planned, and there is no job for it");
    }

    #[test]
    fn a_job_that_backs_off_says_why() {
        let mut failing = job("pictures", json!({"step": "pictures"}), JobState::Scheduled, None);
        failing.error = Some(JobError::new("storage_full", "no space"));

        let seen = steps(
            &recipe(),
            &Known::default(),
            &[job(INGEST, json!({}), JobState::Completed, None), failing],
        );

        assert_eq!(seen[1].state, StepState::Queued);
        assert_eq!(seen[1].trouble.as_deref(), Some("attempt 2 of 5 follows storage_full"));
    }
}
