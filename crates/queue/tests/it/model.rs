//! Random verbs against a database and against a model of forty lines: they must agree after every step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use telecine_queue::{
    Backoff, Claimed, Finish, JobFilter, JobId, JobState, NewJob, NewRun, Outcome, Push, Queue, QueueError,
    Settled, WorkerId,
};

use crate::ground::{
    Database, Ground, check_invariants, done, eventually, failed, pull, register, register_for, run, work,
};
use crate::postgres_server::PostgresServer;

const CASES: u32 = 48;
const MAX_ATTEMPTS: u32 = 2;
const MAX_LOST: u32 = 2;

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    let on = |database: Database| {
        let server = server.clone();
        Trial::test(format!("{}::model::random_verbs_agree_with_the_model", database.name()), move || {
            random_verbs_agree_with_the_model(&Ground::new(database, &server));
            Ok(())
        })
    };
    Database::ALL.map(on).into()
}

#[derive(Clone, Debug)]
enum Verb {
    Push {
        priorities: Vec<u8>,
    },
    /// A chain in which each job needs the one before it.
    PushChain {
        length: usize,
    },
    Pull {
        slots: u32,
    },
    Complete {
        claim: usize,
    },
    Fail {
        claim: usize,
    },
    FailForGood {
        claim: usize,
    },
    Snooze {
        claim: usize,
    },
    Release {
        claim: usize,
    },
    /// An outcome that was sent before, sent again.
    Repeat {
        finish: usize,
    },
    Cancel {
        job: usize,
    },
    Retry {
        job: usize,
    },
    Delete {
        job: usize,
    },
    /// A worker pulls and dies.
    Lose,
}

fn verbs() -> impl Strategy<Value = Vec<Verb>> {
    let index = 0..64_usize;
    let verb = prop_oneof![
        3 => vec(prop_oneof![Just(10_u8), Just(50), Just(90)], 1..4).prop_map(|priorities| Verb::Push { priorities }),
        2 => (2..5_usize).prop_map(|length| Verb::PushChain { length }),
        5 => (1..4_u32).prop_map(|slots| Verb::Pull { slots }),
        5 => index.clone().prop_map(|claim| Verb::Complete { claim }),
        3 => index.clone().prop_map(|claim| Verb::Fail { claim }),
        1 => index.clone().prop_map(|claim| Verb::FailForGood { claim }),
        1 => index.clone().prop_map(|claim| Verb::Snooze { claim }),
        2 => index.clone().prop_map(|claim| Verb::Release { claim }),
        2 => index.clone().prop_map(|finish| Verb::Repeat { finish }),
        2 => index.clone().prop_map(|job| Verb::Cancel { job }),
        2 => index.clone().prop_map(|job| Verb::Retry { job }),
        1 => index.prop_map(|job| Verb::Delete { job }),
        2 => Just(Verb::Lose),
    ];
    vec(verb, 1..40)
}

fn random_verbs_agree_with_the_model(ground: &Ground) {
    // PROPTEST_CASES asks for more of them.
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { Config::default().cases } else { CASES };
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let agreed = runner.run(&verbs(), |verbs| {
        let mut outcome = Ok(());
        run(async { outcome = play(ground, verbs).await }).expect("the runtime starts");
        outcome
    });
    if let Err(counterexample) = agreed {
        panic!("{counterexample}");
    }
}

async fn play(ground: &Ground, verbs: Vec<Verb>) -> Result<(), TestCaseError> {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let mut world =
        World { queue: Arc::clone(&queue), worker, model: Model::default(), held: vec![], sent: vec![] };
    let agreed = world.follow(verbs).await;
    // Whatever came of it: the next case, or the next smaller one, starts on a clean table.
    for job in crate::ground::list_all(&queue, &JobFilter::default()).await {
        let _ = queue.cancel(job.id).await;
    }
    queue.clear(&JobFilter::default()).await.expect("clear");
    queue.close().await;
    agreed
}

/// What the model knows of a job.
#[derive(Clone, Debug, PartialEq)]
struct ModelJob {
    state: JobState,
    priority: u8,
    attempt: u32,
    lost: u32,
    generation: u32,
    /// Rises with each claim; names the claim that may settle the job.
    claims: u32,
    needs: Option<JobId>,
}

#[derive(Default)]
struct Model {
    jobs: BTreeMap<JobId, ModelJob>,
}

impl Model {
    fn add(&mut self, id: JobId, priority: u8, needs: Option<JobId>) {
        let state = if needs.is_some() { JobState::Waiting } else { JobState::Pending };
        let job = ModelJob { state, priority, attempt: 0, lost: 0, generation: 1, claims: 0, needs };
        self.jobs.insert(id, job);
    }

    fn end(&mut self, id: JobId, state: JobState) {
        self.job(id).state = state;
        for dependent in self.needing(id) {
            if self.jobs[&dependent].state == JobState::Waiting {
                if state == JobState::Completed {
                    self.job(dependent).state = JobState::Pending;
                } else {
                    self.end(dependent, JobState::Skipped);
                }
            }
        }
    }

    fn restart(&mut self, id: JobId, state: JobState) {
        let job = self.job(id);
        (job.state, job.attempt, job.lost, job.generation) = (state, 0, 0, job.generation + 1);
        for dependent in self.needing(id) {
            if self.jobs[&dependent].state.is_terminal() {
                self.restart(dependent, JobState::Waiting);
            }
        }
    }

    fn needing(&self, id: JobId) -> Vec<JobId> {
        self.jobs.iter().filter(|(_, job)| job.needs == Some(id)).map(|(dependent, _)| *dependent).collect()
    }

    fn job(&mut self, id: JobId) -> &mut ModelJob {
        self.jobs.get_mut(&id).expect("the model knows it")
    }
}

struct World {
    queue: Arc<dyn Queue>,
    worker: WorkerId,
    model: Model,
    /// Claims and which claim of their job they are.
    held: Vec<(Claimed, u32)>,
    sent: Vec<(Finish, Settled)>,
}

fn new(n: u64) -> NewJob {
    NewJob { max_lost: MAX_LOST as u16, ..work(n) }
        .max_attempts(MAX_ATTEMPTS as u16)
        .backoff(Backoff::constant(Duration::from_secs(3_600)))
}

impl World {
    async fn follow(&mut self, verbs: Vec<Verb>) -> Result<(), TestCaseError> {
        for verb in verbs {
            self.step(&verb).await?;
            self.compare(&verb).await?;
        }
        check_invariants(&self.queue).await;
        Ok(())
    }

    async fn step(&mut self, verb: &Verb) -> Result<(), TestCaseError> {
        match verb {
            Verb::Push { priorities } => {
                let jobs = priorities.iter().map(|priority| new(0).priority(*priority));
                let pushed = self.queue.push(vec![Push::jobs(jobs)]).await.expect("push").remove(0);
                for (id, priority) in pushed.jobs.into_iter().zip(priorities) {
                    self.model.add(id, *priority, None);
                }
            }
            Verb::PushChain { length } => {
                let jobs = (0..*length).map(|nth| if nth == 0 { new(0) } else { new(0).after(nth - 1) });
                let pushed = self
                    .queue
                    .push(vec![Push::run(NewRun::new("chain"), jobs)])
                    .await
                    .expect("push")
                    .remove(0);
                for (nth, id) in pushed.jobs.iter().enumerate() {
                    self.model.add(*id, 50, nth.checked_sub(1).map(|before| pushed.jobs[before]));
                }
            }
            Verb::Pull { slots } => {
                let claimed = pull(&self.queue, self.worker, *slots).await;
                self.claim(claimed, *slots as usize)?;
            }
            Verb::Complete { claim } => self.settle(*claim, done()).await?,
            Verb::Fail { claim } => self.settle(*claim, failed("no")).await?,
            Verb::FailForGood { claim } => {
                let error = telecine_queue::JobError::new("bad", "input");
                self.settle(*claim, Outcome::FailForGood { error }).await?;
            }
            Verb::Snooze { claim } => {
                self.settle(*claim, Outcome::Snooze { delay: Duration::from_secs(3_600) }).await?;
            }
            Verb::Release { claim } => self.settle(*claim, Outcome::Release).await?,
            Verb::Repeat { finish } => self.repeat(*finish).await?,
            Verb::Cancel { job } => {
                if let Some(id) = self.pick(*job) {
                    let live = !self.model.jobs[&id].state.is_terminal();
                    prop_assert_eq!(self.queue.cancel(id).await.is_ok(), live);
                    if live {
                        self.model.job(id).claims += 1;
                        self.model.end(id, JobState::Cancelled);
                    }
                }
            }
            Verb::Retry { job } => {
                if let Some(id) = self.pick(*job) {
                    let ended = self.model.jobs[&id].state.is_terminal();
                    prop_assert_eq!(self.queue.retry(id).await.is_ok(), ended);
                    if ended {
                        self.model.restart(id, JobState::Pending);
                    }
                }
            }
            Verb::Delete { job } => self.delete(*job).await?,
            Verb::Lose => self.lose().await?,
        }
        Ok(())
    }

    fn pick(&self, nth: usize) -> Option<JobId> {
        let ids: Vec<JobId> = self.model.jobs.keys().copied().collect();
        (!ids.is_empty()).then(|| ids[nth % ids.len()])
    }

    /// What was pulled must be what was ready, and nothing better may have been left.
    fn claim(&mut self, claimed: Vec<Claimed>, slots: usize) -> Result<(), TestCaseError> {
        let ready: Vec<u8> = self
            .model
            .jobs
            .values()
            .filter(|job| job.state == JobState::Pending)
            .map(|job| job.priority)
            .collect();
        prop_assert_eq!(claimed.len(), ready.len().min(slots));
        for claimed in claimed {
            let job = self.model.job(claimed.job.id);
            prop_assert_eq!(job.state, JobState::Pending);
            (job.state, job.attempt, job.claims) = (JobState::Running, job.attempt + 1, job.claims + 1);
            prop_assert_eq!((claimed.job.attempt, claimed.job.generation), (job.attempt, job.generation));
            let (priority, claims) = (job.priority, job.claims);
            let left =
                self.model.jobs.values().filter(|job| job.state == JobState::Pending).map(|job| job.priority);
            prop_assert!(left.max().is_none_or(|best| best <= priority), "a better job was left");
            self.held.push((claimed, claims));
        }
        Ok(())
    }

    async fn settle(&mut self, nth: usize, outcome: Outcome) -> Result<(), TestCaseError> {
        if self.held.is_empty() {
            return Ok(());
        }
        let (claimed, claim) = self.held.swap_remove(nth % self.held.len());
        let id = claimed.job.id;
        let finish = Finish::new(claimed.claim, outcome.clone());
        let settled = self.queue.finish(std::slice::from_ref(&finish)).await.expect("finish")[0];
        let owns =
            self.model.jobs.get(&id).is_some_and(|job| job.state == JobState::Running && job.claims == claim);
        prop_assert_eq!(settled == Settled::Accepted, owns);
        if owns {
            self.apply(id, &outcome);
        }
        self.sent.push((finish, settled));
        Ok(())
    }

    fn apply(&mut self, id: JobId, outcome: &Outcome) {
        let job = self.model.job(id);
        match outcome {
            Outcome::Complete { .. } => self.model.end(id, JobState::Completed),
            Outcome::Fail { .. } if job.attempt < MAX_ATTEMPTS => job.state = JobState::Scheduled,
            Outcome::Fail { .. } | Outcome::FailForGood { .. } => self.model.end(id, JobState::Failed),
            Outcome::Snooze { .. } => (job.state, job.attempt) = (JobState::Scheduled, job.attempt - 1),
            Outcome::Release => (job.state, job.attempt) = (JobState::Pending, job.attempt - 1),
        }
    }

    async fn repeat(&mut self, nth: usize) -> Result<(), TestCaseError> {
        if self.sent.is_empty() {
            return Ok(());
        }
        let nth = nth % self.sent.len();
        let (finish, before) = &self.sent[nth];
        let again = self.queue.finish(std::slice::from_ref(finish)).await.expect("finish")[0];
        if self.model.jobs.contains_key(&finish.job()) {
            prop_assert_eq!(again, *before, "the same answer as the first time");
        } else {
            prop_assert_eq!(again, Settled::Refused, "of a deleted job nothing is known");
        }
        Ok(())
    }

    async fn delete(&mut self, nth: usize) -> Result<(), TestCaseError> {
        let Some(id) = self.pick(nth) else { return Ok(()) };
        let state = self.model.jobs[&id].state;
        let is_needed = self
            .model
            .needing(id)
            .iter()
            .any(|dependent| self.model.jobs[dependent].state == JobState::Waiting);
        let deleted = self.queue.delete(id).await;
        let refused = state == JobState::Running || (is_needed && !state.is_terminal());
        match deleted {
            Ok(()) => prop_assert!(!refused),
            Err(QueueError::WrongState { .. }) => prop_assert!(refused),
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
        if !refused {
            for dependent in self.model.needing(id) {
                self.model.job(dependent).needs = None;
            }
            self.model.jobs.remove(&id);
        }
        Ok(())
    }

    async fn lose(&mut self) -> Result<(), TestCaseError> {
        let silent = register_for(&self.queue, Duration::ZERO).await;
        let before = self.held.len();
        let claimed = pull(&self.queue, silent, 1).await;
        self.claim(claimed, 1)?;
        // A lost claim may still come back, if nobody claims the job first: the model does not follow that.
        for (claimed, _) in self.held.split_off(before) {
            let id = claimed.job.id;
            eventually("the silent worker's job is freed", || async {
                self.queue.reap().await.expect("reap");
                let job = self.queue.get(id).await.expect("get").expect("it is known");
                (job.state != JobState::Running).then_some(())
            })
            .await;
            let job = self.model.job(id);
            (job.attempt, job.lost) = (job.attempt - 1, job.lost + 1);
            if job.lost >= MAX_LOST {
                self.model.end(id, JobState::Failed);
            } else {
                job.state = JobState::Pending;
            }
        }
        Ok(())
    }

    async fn compare(&self, verb: &Verb) -> Result<(), TestCaseError> {
        let listed = crate::ground::list_all(&self.queue, &JobFilter::default()).await;
        let found: BTreeMap<JobId, _> =
            listed.iter().map(|job| (job.id, (job.state, job.attempt, job.lost, job.generation))).collect();
        let told: BTreeMap<JobId, _> = self
            .model
            .jobs
            .iter()
            .map(|(id, job)| (*id, (job.state, job.attempt, job.lost, job.generation)))
            .collect();
        prop_assert_eq!(found, told, "after {:?}", verb);
        Ok(())
    }
}
