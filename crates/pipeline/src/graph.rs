//! From a recipe and what was planned to jobs: a pure function.
//!
//! The jobs of a step that makes a film have names of their own, so that one of them can be retried alone: `hls` are its
//! ranges, `hls.audio` its sound, `hls.package` what joins them, `hls.playable` what tells that it can be played.
//!
//! **The order of jobs is the order in which a run's own jobs are claimed** (and how far back each stands behind the jobs
//! of other runs, by what those before it cost). The first range and the sound come first: with them the film can be
//! played. What is made beside the film, such as its pictures, stands behind as much of the film as plays while it is
//! made: a poster comes early, and a single slot that makes it keeps no viewer waiting.

mod cost;

pub(crate) use cost::film_bytes;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use telecine_media::{Delivery, Plan, Probe};
use telecine_queue::{Need, Needed, NewJob, OnFailed};

use crate::kinds::{
    CONCLUDE, ENCODE_AUDIO, ENCODE_RANGE, MP4, PACKAGE, PLAYABLE, PUBLISH, REMUX, RangePayload,
};
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
    /// `None` for pictures that FFmpeg does not read.
    pub(crate) probe: Option<&'a Probe>,
    pub(crate) source_bytes: u64,
    /// Whether jobs have to copy what they read to their scratch folders first.
    pub(crate) store_is_remote: bool,
    /// Whether the outputs get keys of the caller's own.
    pub(crate) publishes: bool,
}

/// A job before its place among the others is known.
#[derive(Debug)]
struct Draft {
    job: NewJob,
    /// By their place among the drafts.
    needs: Vec<usize>,
    /// How much longer the film plays once this job and those before it are done.
    plays_us: u64,
    /// Made beside the film: it may stand anywhere.
    is_beside: bool,
}

#[derive(Debug, Default)]
struct Drafts {
    all: Vec<Draft>,
    /// Which of them ends a step.
    last_of_step: BTreeMap<String, usize>,
}

impl Graph<'_> {
    /// Jobs in the order in which they should run. Each stands behind those that it needs.
    pub(crate) fn jobs(&self) -> Vec<NewJob> {
        let mut drafts = Drafts::default();
        for step in self.recipe.enabled_steps().filter(|step| !self.left_out.contains(&step.name)) {
            let last = match &step.does {
                Does::Hls(_) => self.draft_film(step, PACKAGE, "package", &mut drafts),
                Does::Mp4(_) if self.recipe.segments_for(step).is_none() => {
                    self.draft_film(step, MP4, "join", &mut drafts)
                }
                _ => self.draft_alone(step, &mut drafts),
            };
            drafts.last_of_step.insert(step.name.clone(), last);
        }
        let (mut jobs, last_of_step) = drafts.arranged();
        if self.publishes {
            let scratch_bytes = if self.store_is_remote { self.source_bytes } else { 0 };
            let job = NewJob { scratch_bytes, ..publish(self.priority) };
            jobs.push(self.behind_all(job, &last_of_step));
        }
        jobs.push(self.conclude(&last_of_step));
        jobs
    }

    /// Says which job ends it: the one that joins what the others make.
    fn draft_film(&self, step: &Step, kind: &str, part: &str, drafts: &mut Drafts) -> usize {
        let before = drafts.ends_of(&step.needs);
        let plan = self.plans.get(&step.name);
        let makers = plan.map_or_else(Vec::new, |plan| self.makers(step, plan));
        let openers = opening(&makers);
        let mut made = Vec::with_capacity(makers.len());
        for (nth, (job, plays_us)) in makers.into_iter().enumerate() {
            made.push(drafts.add(Draft { job, needs: before.clone(), plays_us, is_beside: false }));
            if kind == PACKAGE && nth + 1 == openers {
                let job = self.job(step, PLAYABLE, &part_of(step, "playable"), json!({ "step": step.name }));
                drafts.add(Draft { job: job.optional(), needs: made.clone(), plays_us: 0, is_beside: false });
            }
        }
        let job = self.joining(step, kind, &part_of(step, part), plan);
        drafts.add(Draft { job, needs: [before, made].concat(), plays_us: 0, is_beside: false })
    }

    fn draft_alone(&self, step: &Step, drafts: &mut Drafts) -> usize {
        let needs = drafts.ends_of(&step.needs);
        let job = match self.recipe.segments_for(step) {
            Some(film) => self.joining(step, MP4, &step.name, self.plans.get(&film.name)),
            None => {
                let job = self.job(step, step.does.kind(), &step.name, json!({ "step": step.name }));
                NewJob { cost_ms: milliseconds(self.cost_alone(step)), ..job }
            }
        };
        drafts.add(Draft { job, is_beside: needs.is_empty(), needs, plays_us: 0 })
    }

    /// The jobs that make the segments of a film, and how much longer it plays with each.
    fn makers(&self, step: &Step, plan: &Plan) -> Vec<(NewJob, u64)> {
        match &plan.video {
            Some(video) if video.delivery == Delivery::Copy => {
                let duration_us = video.timeline.time_us(video.timeline.frames);
                let job = self.job(step, REMUX, &step.name, json!({ "step": step.name }));
                let scratch_bytes = job.scratch_bytes + self.source_bytes;
                vec![(
                    NewJob { cost_ms: milliseconds(cost::copy_ms(duration_us)), scratch_bytes, ..job },
                    duration_us,
                )]
            }
            _ => self.encoders(step, plan),
        }
    }

    /// The first range and the sound come first: only with both can the film be played.
    pub(crate) fn encoders(&self, step: &Step, plan: &Plan) -> Vec<(NewJob, u64)> {
        let video = plan.video.iter();
        let ranges = video.flat_map(|video| video.ranges.iter().map(move |range| (video, *range)));
        let mut jobs: Vec<(NewJob, u64)> = ranges
            .map(|(video, range)| {
                let payload = RangePayload { step: step.name.clone(), range };
                let payload = serde_json::to_value(payload).expect("a payload is plain data");
                let job = self.job(step, ENCODE_RANGE, &step.name, payload);
                let scratch_bytes = job.scratch_bytes + cost::range_bytes(video, range);
                let cost_ms = milliseconds(cost::range_ms(video, range));
                (NewJob { cost_ms, scratch_bytes, ..job }, cost::length_us(video, range))
            })
            .collect();
        if let Some(sound) = &plan.sound {
            let job = self.job(step, ENCODE_AUDIO, &part_of(step, "audio"), json!({ "step": step.name }));
            let scratch_bytes = job.scratch_bytes + cost::sound_bytes(plan);
            let job =
                NewJob { cost_ms: milliseconds(cost::sound_ms(sound.duration_us)), scratch_bytes, ..job };
            let plays_us =
                jobs.first_mut().map_or(sound.duration_us, |(_, plays_us)| std::mem::take(plays_us));
            jobs.insert(jobs.len().min(1), (job, plays_us));
        }
        jobs
    }

    /// Reads every segment of a film, checks it and writes what names or holds them.
    fn joining(&self, step: &Step, kind: &str, name: &str, plan: Option<&Plan>) -> NewJob {
        let job = self.job(step, kind, name, json!({ "step": step.name }));
        let makes_file = kind == MP4;
        let bytes = plan.map_or(0, |plan| cost::film_bytes(plan, makes_file, self.source_bytes));
        let fetched = if self.store_is_remote { bytes } else { 0 };
        let scratch_bytes = job.scratch_bytes + fetched + if makes_file { bytes } else { 0 };
        NewJob { cost_ms: milliseconds(cost::verify_ms(self.duration_us())), scratch_bytes, ..job }
    }

    fn cost_alone(&self, step: &Step) -> u64 {
        match &step.does {
            Does::Pictures(spec) => cost::pictures_ms(spec, self.probe),
            Does::Audio(spec) => cost::audio_ms(spec, self.duration_us()),
            Does::Hls(_) | Does::Mp4(_) | Does::Image(_) | Does::Exec(_) => cost::UNKNOWN_MS,
        }
    }

    /// Behind all steps: also when one has failed that the recipe can do without.
    fn conclude(&self, last_of_step: &BTreeMap<String, usize>) -> NewJob {
        let job =
            NewJob::new(CONCLUDE, json!({})).lane("io").step(CONCLUDE).priority(self.priority).optional();
        self.behind_all(NewJob { max_lost: MAX_LOST, ..job }, last_of_step)
    }

    fn behind_all(&self, job: NewJob, last_of_step: &BTreeMap<String, usize>) -> NewJob {
        last_of_step.iter().fold(job, |job, (name, nth)| {
            let is_required = self.recipe.step(name).is_some_and(|step| step.required);
            let on_failed = if is_required { OnFailed::Skip } else { OnFailed::RunAnyway };
            job.needing(Need { on: Needed::Nth(*nth), on_failed })
        })
    }

    fn duration_us(&self) -> u64 {
        self.probe.and_then(|probe| probe.duration_us).unwrap_or(0)
    }

    fn job(&self, step: &Step, kind: &str, name: &str, payload: Value) -> NewJob {
        let lane = step.lane.as_deref().or(crate::kinds::lane_of(kind)).unwrap_or("cpu");
        let priority = step.priority.unwrap_or(self.priority);
        let job = NewJob::new(kind, payload).lane(lane).step(name).priority(priority);
        let scratch_bytes = if self.store_is_remote { self.source_bytes } else { 0 };
        let max_attempts = step.attempts.unwrap_or(job.max_attempts);
        NewJob { scratch_bytes, required: step.required, max_attempts, max_lost: MAX_LOST, ..job }
    }
}

/// Publishes what a run has made, or borrowed.
pub(crate) fn publish(priority: u8) -> NewJob {
    let lane = crate::kinds::lane_of(PUBLISH).unwrap_or("net");
    let job = NewJob::new(PUBLISH, json!({})).lane(lane).step(PUBLISH).priority(priority);
    NewJob { max_lost: MAX_LOST, ..job }
}

/// How many of a film's jobs must be done before it can be played: the first range and the sound, or the copy.
pub(crate) fn opening(makers: &[(NewJob, u64)]) -> usize {
    let has_sound_beside = makers.get(1).is_some_and(|(job, _)| job.kind == ENCODE_AUDIO);
    if has_sound_beside { 2 } else { makers.len().min(1) }
}

/// `hls.package`: the name of jobs that do a part of a step.
fn part_of(step: &Step, part: &str) -> String {
    format!("{}.{part}", step.name)
}

fn milliseconds(ms: u64) -> u32 {
    u32::try_from(ms).unwrap_or(u32::MAX)
}

impl Drafts {
    fn add(&mut self, draft: Draft) -> usize {
        self.all.push(draft);
        self.all.len() - 1
    }

    /// The jobs that end these steps. What was left out is waited for by nobody.
    fn ends_of(&self, steps: &[String]) -> Vec<usize> {
        steps.iter().filter_map(|name| self.last_of_step.get(name).copied()).collect()
    }

    /// The jobs in their order, and by step which of them ends it.
    fn arranged(self) -> (Vec<NewJob>, BTreeMap<String, usize>) {
        let order = self.order();
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(nth, draft)| place[*draft] = nth);
        let last_of_step = self.last_of_step.into_iter().map(|(step, last)| (step, place[last])).collect();
        let mut drafts: Vec<Option<Draft>> = self.all.into_iter().map(Some).collect();
        let in_order = order.into_iter().filter_map(|draft| drafts[draft].take());
        let jobs = in_order
            .map(|draft| draft.needs.iter().fold(draft.job, |job, needed| job.after(place[*needed])))
            .collect();
        (jobs, last_of_step)
    }

    /// What is made beside a film goes in where the film before it plays for as long as all of that takes.
    fn order(&self) -> Vec<usize> {
        let plays = |draft: &usize| self.all[*draft].plays_us;
        let (beside, mut order): (Vec<usize>, Vec<usize>) =
            (0..self.all.len()).partition(|draft| self.all[*draft].is_beside);
        let Some(last_of_film) = order.iter().rposition(|draft| plays(draft) > 0) else {
            return (0..self.all.len()).collect();
        };
        let mut last_of_film = order[last_of_film];
        let mut takes_us = 0;
        for draft in beside {
            takes_us += u64::from(self.all[draft].job.cost_ms) * 1_000;
            let mut played_us = 0;
            let is_covered = |other: &usize| {
                played_us += plays(other);
                played_us >= takes_us
            };
            let covered = order.iter().position(is_covered);
            let behind = covered.or_else(|| order.iter().position(|other| *other == last_of_film));
            let mut place = behind.map_or(order.len(), |behind| behind + 1);
            // Whoever tells that the film can be played costs nothing and is waited for.
            place += order[place..].iter().take_while(|other| self.all[**other].job.kind == PLAYABLE).count();
            order.insert(place, draft);
            if covered.is_none() {
                last_of_film = draft;
            }
        }
        order
    }
}
