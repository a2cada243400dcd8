//! From a recipe and what was planned to jobs: a pure function.
//!
//! The jobs of a step that makes a film have names of their own, so that one of them can be retried alone: `hls` are its
//! ranges, `hls.audio` its sound, `hls.package` what joins them.

use std::collections::BTreeMap;

use serde_json::json;
use telecine_media::{Delivery, Plan, SegmentRange};
use telecine_queue::{Need, Needed, NewJob, OnFailed};

use crate::kinds::{CONCLUDE, ENCODE_AUDIO, ENCODE_RANGE, MP4, PACKAGE, PLAYABLE, REMUX, RangePayload};
use crate::recipe::{Does, Recipe, Step};

/// Workers that may die under a job without its getting any further. Strangers' files are read by programs that are
/// confined and bounded, so a worker that dies was most likely killed from outside; and all that it ran is suspected.
pub(crate) const MAX_LOST: u16 = 12;

/// What the input and its recipe come to.
#[derive(Debug)]
pub(crate) struct Graph<'a> {
    pub(crate) recipe: &'a Recipe,
    /// Of the steps that make a film, by name.
    pub(crate) plans: &'a BTreeMap<String, Plan>,
    /// Steps that this input cannot give and that the recipe can do without.
    pub(crate) left_out: &'a [String],
    pub(crate) priority: u8,
    pub(crate) duration_us: u64,
    /// What a job that reads the source has to copy to its scratch folder first.
    pub(crate) source_copy_bytes: u64,
}

/// Jobs in the order in which they should run, and by step which of them ends it.
#[derive(Debug, Default)]
struct Jobs {
    jobs: Vec<NewJob>,
    last_of_step: BTreeMap<String, usize>,
}

impl Graph<'_> {
    pub(crate) fn jobs(&self) -> Vec<NewJob> {
        let mut made = Jobs::default();
        for step in self.recipe.enabled_steps().filter(|step| !self.left_out.contains(&step.name)) {
            let last = match &step.does {
                Does::Hls(_) => {
                    let producers = self.film(step, &mut made);
                    self.joined(step, PACKAGE, "package", producers, &mut made)
                }
                Does::Mp4(_) if self.recipe.segments_for(step).is_some() => {
                    self.joined(step, MP4, "", Vec::new(), &mut made)
                }
                Does::Mp4(_) => {
                    let producers = self.film(step, &mut made);
                    self.joined(step, MP4, "join", producers, &mut made)
                }
                Does::Pictures(_) | Does::Image(_) | Does::Audio(_) | Does::Exec(_) => {
                    self.joined(step, step.does.kind(), "", Vec::new(), &mut made)
                }
            };
            made.last_of_step.insert(step.name.clone(), last);
        }
        let conclude = self.conclude(&made);
        made.jobs.push(conclude);
        made.jobs
    }

    /// The jobs that make the segments of a film; says which they are.
    fn film(&self, step: &Step, made: &mut Jobs) -> Vec<usize> {
        let Some(plan) = self.plans.get(&step.name) else { return Vec::new() };
        let first = made.jobs.len();
        let jobs = match &plan.video {
            Some(video) if video.delivery == Delivery::Copy => vec![self.remux(step)],
            _ => self.encoders(step, plan),
        };
        let count = jobs.len();
        made.jobs.extend(jobs.into_iter().map(|job| self.after_needs(step, job, made)).collect::<Vec<_>>());
        (first..first + count).collect()
    }

    fn remux(&self, step: &Step) -> NewJob {
        let payload = json!({ "step": step.name });
        self.job(step, REMUX, &step.name, payload, self.duration_us / 100_000)
    }

    /// The first range and the sound come first: with them the film can be played.
    pub(crate) fn encoders(&self, step: &Step, plan: &Plan) -> Vec<NewJob> {
        let ranges = plan.video.as_ref().map_or(&[][..], |video| &video.ranges);
        let mut jobs: Vec<NewJob> = ranges.iter().map(|range| self.range(step, plan, *range)).collect();
        if plan.sound.is_some() {
            let payload = json!({ "step": step.name });
            let sound = self.job(
                step,
                ENCODE_AUDIO,
                &format!("{}.audio", step.name),
                payload,
                self.duration_us / 30_000,
            );
            jobs.insert(jobs.len().min(1), sound);
        }
        jobs
    }

    fn range(&self, step: &Step, plan: &Plan, range: SegmentRange) -> NewJob {
        let (length_us, kbits) = plan.video.as_ref().map_or((0, 0), |video| {
            let frames: u64 = range.segments().map(|segment| u64::from(video.grid.frames(segment))).sum();
            (video.timeline.time_us(frames), video.rungs.iter().map(|rung| u64::from(rung.max_kbits)).sum())
        });
        let payload = RangePayload { step: step.name.clone(), range };
        let payload = serde_json::to_value(payload).expect("a payload is plain data");
        let job = self.job(step, ENCODE_RANGE, &step.name, payload, length_us / 1_000);
        let segments_bytes = length_us / 1_000 * kbits / 8;
        NewJob { scratch_bytes: self.source_copy_bytes + segments_bytes, ..job }
    }

    /// The job that ends a step: after its producers and the steps that it needs.
    fn joined(&self, step: &Step, kind: &str, part: &str, producers: Vec<usize>, made: &mut Jobs) -> usize {
        let name = if part.is_empty() { step.name.clone() } else { format!("{}.{part}", step.name) };
        let job = self.job(step, kind, &name, json!({ "step": step.name }), self.duration_us / 50_000);
        let job = producers.iter().fold(job, |job, producer| job.after(*producer));
        let job = self.after_needs(step, job, made);
        made.jobs.push(job);
        self.playable(step, kind, &producers, made);
        made.jobs.iter().rposition(|job| job.kind == kind).expect("it was pushed")
    }

    /// Tells that a film can be played as soon as its first range and its sound are there.
    fn playable(&self, step: &Step, kind: &str, producers: &[usize], made: &mut Jobs) {
        let first: Vec<usize> = producers.iter().copied().take(2).collect();
        if kind != PACKAGE || first.is_empty() {
            return;
        }
        let name = format!("{}.playable", step.name);
        let job = self.job(step, PLAYABLE, &name, json!({ "step": step.name }), 0).optional();
        made.jobs.push(first.into_iter().fold(job, NewJob::after));
    }

    /// Behind all steps: also when one has failed that the recipe can do without.
    fn conclude(&self, made: &Jobs) -> NewJob {
        let job =
            NewJob::new(CONCLUDE, json!({})).lane("io").step(CONCLUDE).priority(self.priority).optional();
        let job = NewJob { max_lost: MAX_LOST, ..job };
        made.last_of_step.iter().fold(job, |job, (name, nth)| {
            let is_required = self.recipe.step(name).is_some_and(|step| step.required);
            let on_failed = if is_required { OnFailed::Skip } else { OnFailed::RunAnyway };
            job.needing(Need { on: Needed::Nth(*nth), on_failed })
        })
    }

    fn after_needs(&self, step: &Step, job: NewJob, made: &Jobs) -> NewJob {
        let needed = step.needs.iter().filter_map(|name| made.last_of_step.get(name));
        needed.fold(job, |job, nth| job.after(*nth))
    }

    fn job(&self, step: &Step, kind: &str, name: &str, payload: serde_json::Value, cost_ms: u64) -> NewJob {
        let lane = step.lane.as_deref().or(crate::kinds::lane_of(kind)).unwrap_or("cpu");
        let job =
            NewJob::new(kind, payload).lane(lane).step(name).priority(step.priority.unwrap_or(self.priority));
        let job = NewJob {
            cost_ms: u32::try_from(cost_ms).unwrap_or(u32::MAX),
            scratch_bytes: self.source_copy_bytes,
            required: step.required,
            max_lost: MAX_LOST,
            ..job
        };
        step.attempts.map_or(job.clone(), |attempts| job.max_attempts(attempts))
    }
}
