use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use telecine_queue::{
    AttemptOutcome, JobFilter, JobId, JobState, NewJob, OpenOptions, Settled, WorkerId, open_with,
};

use crate::child::{Process, Role};
use crate::ground::{
    Ground, LEASE, brisk, check_invariants, done, eventually, list_all, push_all, push_one, register, settle,
    wait_for_state, wait_until_none_is_live, work,
};

impl Ground {
    fn log(&self) -> String {
        self.folder.path().join("ran").display().to_string()
    }

    fn worker(&self, slots: u32) -> Process {
        Process::start(&self.worker_role(slots, LEASE))
    }

    fn worker_role(&self, slots: u32, lease: Duration) -> Role {
        let lease_ms = lease.as_millis().try_into().expect("a short lease");
        Role::Worker { url: self.url.clone(), slots, lease_ms, log: self.log() }
    }

    /// How often each job ran, by what the workers wrote down.
    fn runs(&self) -> HashMap<JobId, u32> {
        let mut runs = HashMap::new();
        for line in std::fs::read_to_string(self.log()).unwrap_or_default().lines() {
            let id = line.split(' ').next().and_then(|id| id.parse().ok()).expect("a job id");
            *runs.entry(id).or_default() += 1;
        }
        runs
    }

    fn gate(&self) -> String {
        self.folder.path().join("gate").display().to_string()
    }

    fn open_gate(&self) {
        std::fs::write(self.gate(), "").expect("the folder can be written");
    }

    fn hold(&self) -> NewJob {
        NewJob::new("hold", json!({ "gate": self.gate() }))
    }
}

pub(super) async fn eight_processes_run_twenty_thousand_jobs_exactly_once(ground: Arc<Ground>) {
    const JOBS: u64 = 20_000;
    let queue = ground.open().await;
    for thousand in 0..JOBS / 1_000 {
        push_all(&queue, (0..1_000).map(|n| work(thousand * 1_000 + n))).await;
    }

    // A lease that holds on the busiest machine: this is about claims, and a lost lease would rightly run a job again.
    let role = ground.worker_role(10, Duration::from_secs(60));
    let mut workers: Vec<Process> = (0..8).map(|_| Process::start(&role)).collect();
    let counts = wait_until_none_is_live(&queue).await;
    workers.iter_mut().for_each(Process::drain);

    assert_eq!(telecine_queue::total(&counts, JobState::Completed), JOBS);
    let runs = ground.runs();
    assert_eq!(runs.len() as u64, JOBS, "each ran");
    assert!(runs.values().all(|times| *times == 1), "none ran twice");
    let busy = list_all(&queue, &JobFilter::default()).await;
    assert!(busy.iter().all(|job| (job.attempt, job.lost, job.fence.0) == (1, 0, 1)));
    check_invariants(&queue).await;
}

pub(super) async fn a_killed_workers_jobs_are_claimed_again(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let ids = push_all(&queue, [ground.hold(), ground.hold()]).await;
    let mut victim = ground.worker(2);
    for id in &ids {
        wait_for_state(&queue, *id, JobState::Running).await;
    }
    let survivor = ground.worker(2);
    eventually("the survivor is there", || async {
        (queue.workers().await.expect("workers").len() == 2).then_some(())
    })
    .await;

    let killed_at = std::time::Instant::now();
    victim.kill();
    for id in &ids {
        eventually("the job runs again", || async {
            queue
                .get(*id)
                .await
                .expect("get")
                .filter(|job| job.state == JobState::Running && job.fence.0 == 2)
        })
        .await;
    }
    let within = killed_at.elapsed();
    ground.open_gate();

    for id in ids {
        let job = wait_for_state(&queue, id, JobState::Completed).await;
        assert_eq!((job.attempt, job.lost), (1, 1));
        let told: Vec<_> =
            queue.attempts(id).await.expect("attempts").into_iter().map(|attempt| attempt.outcome).collect();
        assert_eq!(told, [AttemptOutcome::Lost, AttemptOutcome::Completed]);
    }
    // Lease and sweep, and a margin that only a machine under heavy load needs.
    assert!(within < LEASE * 4, "took {within:?} with a lease of {LEASE:?}");
    drop(survivor);
    check_invariants(&queue).await;
}

pub(super) async fn a_stopped_worker_changes_nothing_when_it_wakes_up(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let id = push_one(&queue, ground.hold()).await;
    let mut sleeper = ground.worker(1);
    let asleep = wait_for_state(&queue, id, JobState::Running).await;
    stop_between_transactions(&ground, &sleeper).await;

    // Past the lease another worker takes the job over and finishes it while the first still sleeps.
    let worker = register(&queue).await;
    let taken = eventually("the sleeper's job is taken over", || async {
        queue.reap().await.expect("reap");
        let mut request = crate::ground::pull_request(worker, 1);
        request.kinds = vec!["hold".into()];
        queue.pull(request).await.expect("pull").pop()
    })
    .await;
    assert!(taken.claim.fence() > asleep.fence);
    assert_eq!(settle(&queue, taken, done()).await, Settled::Accepted);
    let finished = queue.get(id).await.expect("get");
    ground.open_gate();
    sleeper.signal(Signal::CONT);
    eventually("the sleeper has noticed and registered again", || async {
        (queue.workers().await.expect("workers").iter().filter(|worker| worker.alive).count() == 2)
            .then_some(())
    })
    .await;
    sleeper.drain();

    assert_eq!(queue.get(id).await.expect("get"), finished, "not one field has changed");
    let told: Vec<_> =
        queue.attempts(id).await.expect("attempts").into_iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(told, [AttemptOutcome::Lost, AttemptOutcome::Completed]);
    check_invariants(&queue).await;
}

/// A process that is stopped in the middle of a commit keeps SQLite's write lock, and nobody can do anything; on Postgres
/// it keeps the locks of its transaction until the server gives it up. That is not the case this test is about.
async fn stop_between_transactions(ground: &Ground, sleeper: &Process) {
    let impatient = OpenOptions { patience: Duration::from_secs(1), ..OpenOptions::default() };
    let probe = open_with(&ground.url, &impatient).await.expect("open");
    eventually("the worker is stopped between two transactions", || async {
        sleeper.signal(Signal::STOP);
        let free = probe.drain(WorkerId(0)).await.is_ok() && !ground.has_open_transaction();
        if !free {
            sleeper.signal(Signal::CONT);
        }
        free.then_some(())
    })
    .await;
}

pub(super) async fn a_job_that_kills_its_workers_does_so_three_times(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let quick = telecine_queue::Backoff { base_ms: 1, factor: 1, cap_ms: 1 };
    let id = push_one(&queue, NewJob::new("abort", json!(null)).backoff(quick)).await;

    // A supervisor that always starts the worker again.
    let poisoned = eventually("the job is given up", || async {
        let mut worker = ground.worker(1);
        let until_it_dies = tokio::task::spawn_blocking(move || worker.wait_code());
        tokio::select! {
            _ = until_it_dies => None,
            job = wait_for_state(&queue, id, JobState::Failed) => Some(job),
        }
    });
    let poisoned = poisoned.await;

    assert_eq!(poisoned.error.expect("an error").code, "poison");
    assert_eq!(ground.runs()[&id], 3);
    check_invariants(&queue).await;
}

pub(super) async fn a_pusher_killed_at_any_moment_loses_nothing_it_was_told(ground: Arc<Ground>) {
    const JOBS: u64 = 400;
    let queue = ground.open().await;
    let mut accepted = HashMap::new();

    for kills in [3, 17, 40, 81] {
        let role = Role::Pusher { url: ground.url.clone(), from: 0, to: JOBS };
        let told = Process::start(&role).kill_after_lines(kills);
        note(&mut accepted, told);
    }
    let role = Role::Pusher { url: ground.url.clone(), from: 0, to: JOBS };
    note(&mut accepted, Process::start(&role).output());

    let stored = list_all(&queue, &JobFilter::default()).await;
    assert_eq!((accepted.len() as u64, stored.len() as u64), (JOBS, JOBS), "each key made one job");
    for (n, id) in accepted {
        let job = queue.get(id).await.expect("get").expect("an accepted job is there");
        assert_eq!(job.payload, json!({ "n": n }));
    }
    check_invariants(&queue).await;
}

/// What a pusher was told must be the same every time: the n-th line is the job of key n.
fn note(accepted: &mut HashMap<u64, JobId>, told: Vec<String>) {
    for (n, line) in told.into_iter().enumerate() {
        // The line that the kill cut in two tells nothing.
        let Ok(id) = line.parse() else { continue };
        let known = *accepted.entry(n as u64).or_insert(id);
        assert!(known == id || known.to_string().starts_with(&line) || line.starts_with(&known.to_string()));
    }
}

pub(super) async fn restarts_half_way_lose_nothing(ground: Arc<Ground>) {
    const JOBS: u64 = 3_000;
    let queue = ground.open().await;
    let role = Role::Pusher { url: ground.url.clone(), from: 0, to: JOBS };
    let pusher = tokio::task::spawn_blocking(move || Process::start(&role).output());

    // Two processes on one database, one pushing, one running, and the runner dies again and again.
    let mut restarts = 0;
    loop {
        let mut worker = ground.worker(4);
        let target = (restarts + 1) * JOBS / 6;
        eventually("some more jobs are done", || async {
            let counts = queue.counts().await.expect("counts");
            (telecine_queue::total(&counts, JobState::Completed) >= target.min(JOBS)).then_some(())
        })
        .await;
        worker.kill();
        restarts += 1;
        if target >= JOBS {
            break;
        }
    }
    let accepted = pusher.await.expect("the pusher ends");

    assert_eq!(accepted.len() as u64, JOBS);
    let jobs = list_all(&queue, &JobFilter::default()).await;
    assert!(jobs.iter().all(|job| job.state == JobState::Completed));
    let runs = ground.runs();
    let again: u32 =
        jobs.iter().map(|job| runs.get(&job.id).copied().unwrap_or(0)).filter(|times| *times > 1).count()
            as u32;
    assert!(jobs.iter().all(|job| runs.contains_key(&job.id)), "each ran");
    assert!(again <= 4 * restarts as u32 + 512, "only what the kills interrupted ran again: {again}");
    check_invariants(&queue).await;
}

pub(super) async fn ten_processes_may_start_at_once(ground: Arc<Ground>) {
    let role = Role::Pusher { url: ground.url.clone(), from: 0, to: 1 };

    let started: Vec<Process> = (0..10).map(|_| Process::start(&role)).collect();
    let told: Vec<Vec<String>> = started.into_iter().map(Process::output).collect();

    assert!(told.iter().all(|lines| lines.len() == 1 && *lines == told[0]), "{told:?}");
    let queue = ground.open().await;
    assert_eq!(list_all(&queue, &JobFilter::default()).await.len(), 1);
}

/// The worker's wall clock runs an hour fast, then an hour slow: leases do not care.
pub(super) async fn a_jump_of_the_clock_changes_no_lease(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let shim = clock_shim(&ground);
    let shift = ground.folder.path().join("shift").display().to_string();
    std::fs::write(&shift, "0").expect("write");
    let id = push_one(&queue, ground.hold()).await;
    let mut jumper = Process::start_with(
        &ground.worker_role(1, LEASE),
        &[("LD_PRELOAD", &shim), ("CLOCK_SHIFT_FILE", &shift)],
    );
    let before = wait_for_state(&queue, id, JobState::Running).await;
    let steady = crate::ground::start(&queue, telecine_queue::Kinds::new().with(Idle), brisk(1)).await;

    for seconds in ["3600", "-3600", "0"] {
        let seen = beats_of(&queue, &before).await;
        std::fs::write(&shift, seconds).expect("write");
        eventually("it beats on under the new clock", || async {
            (beats_of(&queue, &before).await != seen).then_some(())
        })
        .await;
        let job = queue.get(id).await.expect("get").expect("the job");
        assert_eq!(
            (job.state, job.fence, job.lost),
            (JobState::Running, before.fence, 0),
            "shifted by {seconds} s"
        );
    }
    ground.open_gate();

    wait_for_state(&queue, id, JobState::Completed).await;
    steady.drain();
    steady.finished().await;
    jumper.drain();
}

/// A reaper whose wall clock runs two hours fast takes no attempt back that is within its time.
pub(super) async fn a_jump_of_the_clock_changes_no_deadline(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let shim = clock_shim(&ground);
    let shift = ground.folder.path().join("shift").display().to_string();
    std::fs::write(&shift, "7200").expect("write");
    let id = push_one(&queue, NewJob { timeout_ms: Some(3_600_000), ..work(1) }).await;
    let worker = register(&queue).await;
    let claimed = crate::ground::pull_one(&queue, worker).await;

    let mut fast = Process::start_with(
        &ground.worker_role(1, LEASE),
        &[("LD_PRELOAD", &shim), ("CLOCK_SHIFT_FILE", &shift)],
    );
    // It has swept at least once when it has run a job of its own.
    let probe = push_one(&queue, work(2)).await;
    wait_for_state(&queue, probe, JobState::Completed).await;
    let swept =
        push_one(&queue, work(3).run_at(telecine_queue::Timestamp::now().plus(Duration::from_millis(300))))
            .await;
    wait_for_state(&queue, swept, JobState::Completed).await;
    fast.drain();

    let job = queue.get(id).await.expect("get").expect("the job");
    assert_eq!((job.state, job.fence, job.attempt), (JobState::Running, claimed.claim.fence(), 1));
    assert_eq!(settle(&queue, claimed, done()).await, Settled::Accepted);
    check_invariants(&queue).await;
}

async fn beats_of(
    queue: &Arc<dyn telecine_queue::Queue>,
    job: &telecine_queue::Job,
) -> telecine_queue::Timestamp {
    let workers = queue.workers().await.expect("workers");
    workers.iter().find(|worker| Some(worker.id) == job.worker).expect("the worker is listed").seen_at
}

/// A kind for a worker that only sweeps.
struct Idle;

#[async_trait::async_trait]
impl telecine_queue::Kind for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }

    async fn run(
        &self,
        _: &telecine_queue::Job,
        _: &telecine_queue::JobContext,
    ) -> Result<serde_json::Value, telecine_queue::Failure> {
        Ok(serde_json::Value::Null)
    }
}

/// A library that shifts CLOCK_REALTIME by the seconds written in a file.
pub(super) fn clock_shim(ground: &Ground) -> String {
    const SOURCE: &str = include_str!("../clock_shim.c");
    let (source, shim) = (ground.folder.path().join("shim.c"), ground.folder.path().join("shim.so"));
    std::fs::write(&source, SOURCE).expect("write");
    let built = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&shim, &source])
        .arg("-ldl")
        .status()
        .expect("a C compiler, which Rust needs as its linker anyway");
    assert!(built.success());
    shim.display().to_string()
}
