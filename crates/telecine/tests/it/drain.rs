//! Workers that are asked to leave while they are busy, again and again: nothing is lost, nothing is done twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use telecine_queue::{
    AttemptOutcome, Job, JobFilter, JobState, NewJob, Page, Queue, RunFilter, RunPage, RunState,
};

use crate::clips::film;
use crate::postgres_server::PostgresServer;
use crate::telecine::Place;
use crate::worker::Worker;

const PATIENCE: Duration = Duration::from_secs(300);
/// Shorter than some of the jobs, so that there are such as are given back.
const DRAIN_MS: &str = "1500";

#[test]
fn workers_that_leave_while_busy_lose_and_repeat_nothing_on_sqlite() {
    let place = Place::new();
    let database = format!("sqlite:{}", place.path("queue.db").display());

    leave_as_soon_as_busy(&place, &database);
}

#[test]
fn workers_that_leave_while_busy_lose_and_repeat_nothing_on_postgres() {
    let postgres = PostgresServer::start();
    let place = Place::new();

    leave_as_soon_as_busy(&place, &postgres.new_database());
    postgres.stop();
}

#[test]
#[ignore = "it takes two minutes: make drain-soak"]
fn two_minutes_of_restarts_lose_and_repeat_nothing_on_sqlite() {
    let place = Place::new();
    let database = format!("sqlite:{}", place.path("queue.db").display());

    leave_every_ten_seconds(&place, &database);
}

#[test]
#[ignore = "it takes two minutes: make drain-soak"]
fn two_minutes_of_restarts_lose_and_repeat_nothing_on_postgres() {
    let postgres = PostgresServer::start();
    let place = Place::new();

    leave_every_ten_seconds(&place, &postgres.new_database());
    postgres.stop();
}

fn leave_as_soon_as_busy(place: &Place, database: &str) {
    let mut crew = Crew::hire(place, database);
    crew.push(120);

    for round in 0..6 {
        crew.until_busy(round % 2);
        crew.replace(round % 2);
    }

    let report = crew.settle();
    println!("{report}");
}

/// As an impatient deployment does it, for two minutes.
fn leave_every_ten_seconds(place: &Place, database: &str) {
    const EVERY: Duration = Duration::from_secs(10);
    let mut crew = Crew::hire(place, database);
    let began = Instant::now();
    // Each has its ten seconds; they take turns.
    let mut due = [began + EVERY, began + EVERY / 2];
    while began.elapsed() < Duration::from_secs(120) {
        crew.keep_busy();
        let next = usize::from(due[1] < due[0]);
        if Instant::now() < due[next] {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        crew.until_busy(next);
        crew.replace(next);
        due[next] += EVERY;
    }

    let report = crew.settle();
    println!("{database}: {report}");
}

/// Two workers on one database, and what those before them said at their ends.
struct Crew<'a> {
    place: &'a Place,
    database: String,
    runtime: tokio::runtime::Runtime,
    queue: Arc<dyn Queue>,
    workers: [Worker; 2],
    ends: Vec<End>,
}

/// What a worker says when it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    completed: u64,
    failed: u64,
    given_back: u64,
}

impl<'a> Crew<'a> {
    /// With two films to make, by real encoders.
    fn hire(place: &'a Place, database: &str) -> Self {
        place.write(
            "telecine.toml",
            &format!("input_folders = [{:?}]\nstore = \"store\"\nscratch = \"scratch\"", place.path("")),
        );
        film(4, &place.path("film.mp4"));
        for recipe in ["mp4", "web-video"] {
            let submitted = place.run(&["submit", "film.mp4", "--recipe", recipe, "--database", database]);
            assert_eq!(submitted.code, Some(0), "{submitted:?}");
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let queue = runtime.block_on(telecine_queue::open(database)).unwrap();
        let workers = [start(place, database), start(place, database)];
        Self { place, database: database.to_owned(), runtime, queue, workers, ends: Vec::new() }
    }

    /// Jobs from a moment to longer than a drain.
    fn push(&self, jobs: u64) {
        let job = |number: u64| NewJob::new("pause", json!({ "ms": 50 + number * 37 % 2_500 }));
        let pushes = (0..jobs).map(|number| job(number).into()).collect();
        self.runtime.block_on(self.queue.push(pushes)).unwrap();
    }

    fn keep_busy(&self) {
        let counts = self.runtime.block_on(self.queue.counts()).unwrap();
        let waiting: u64 =
            counts.iter().filter(|count| count.state == JobState::Pending).map(|count| count.jobs).sum();
        if waiting < 50 {
            self.push(100);
        }
    }

    fn until_busy(&self, nth: usize) {
        let until = Instant::now() + PATIENCE;
        loop {
            let workers = self.runtime.block_on(self.queue.workers()).unwrap();
            let this = workers.iter().find(|worker| worker.alive && worker.pid == self.workers[nth].id());
            if this.is_some_and(|worker| worker.running > 1) {
                return;
            }
            assert!(Instant::now() < until, "it has nothing to do: {workers:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks a worker to leave, waits until it has, and starts another.
    fn replace(&mut self, nth: usize) {
        self.workers[nth].signal(Signal::TERM);
        let next = start(self.place, &self.database);
        self.see_off(nth, next);
    }

    fn see_off(&mut self, nth: usize, next: Worker) {
        let (code, said) = std::mem::replace(&mut self.workers[nth], next).ends();
        assert_eq!(code, Some(0), "{said}");
        self.ends.push(End::read(&said));
    }

    /// Waits until all is done, and says what it came to.
    fn settle(self) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let counts = self.runtime.block_on(self.queue.counts()).unwrap();
            if counts.iter().all(|count| count.state.is_terminal() || count.jobs == 0) {
                break;
            }
            assert!(Instant::now() < until, "jobs are left: {counts:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        let jobs = self.runtime.block_on(all_jobs(&*self.queue));
        let runs =
            self.runtime.block_on(self.queue.list_runs(&RunFilter::default(), RunPage::first(10))).unwrap();
        let mut released = 0;
        for job in &jobs {
            assert_eq!((job.state, job.lost), (JobState::Completed, 0), "{job:?}");
            let attempts = self.runtime.block_on(self.queue.attempts(job.id)).unwrap();
            let count = |outcome| attempts.iter().filter(|attempt| attempt.outcome == outcome).count();
            assert_eq!(count(AttemptOutcome::Completed), 1, "done once: {attempts:?}");
            released += count(AttemptOutcome::Released);
            assert_eq!(count(AttemptOutcome::Released) + 1, attempts.len(), "{attempts:?}");
        }
        assert!(runs.data.iter().all(|run| run.state == RunState::Succeeded), "{runs:?}");
        assert_eq!(runs.data.len(), 2);
        let Self { workers, mut ends, runtime, queue, .. } = self;
        for worker in workers {
            worker.signal(Signal::TERM);
            let (code, said) = worker.ends();
            assert_eq!(code, Some(0), "{said}");
            ends.push(End::read(&said));
        }
        runtime.block_on(queue.close());
        // What the workers say they did is what was done: none was done and not stored, or stored twice.
        let sum = |part: fn(&End) -> u64| ends.iter().map(part).sum::<u64>();
        assert_eq!(sum(|end| end.completed), jobs.len() as u64, "{ends:?}");
        assert_eq!((sum(|end| end.failed), sum(|end| end.given_back)), (0, released as u64), "{ends:?}");
        format!(
            "{} jobs by {} workers, all of which left with 0; {released} given back",
            jobs.len(),
            ends.len()
        )
    }
}

impl End {
    /// Of `stopped: 12 completed, 0 failed, 1 given back`.
    fn read(said: &str) -> Self {
        let line =
            said.lines().find(|line| line.starts_with("stopped: ")).unwrap_or_else(|| panic!("{said}"));
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [completed, failed, given_back] = numbers[..] else { panic!("{line}") };
        Self { completed, failed, given_back }
    }
}

fn start(place: &Place, database: &str) -> Worker {
    let arguments = ["--database", database, "--slots", "cpu=3,io=2,net=1"];
    Worker::start_with(place, &arguments, &[("TELECINE_DRAIN_MS", DRAIN_MS)])
}

async fn all_jobs(queue: &dyn Queue) -> Vec<Job> {
    let (mut jobs, mut page) = (Vec::new(), Page::first(Page::MAX_LIMIT));
    loop {
        let listed = queue.list(&JobFilter::default(), page).await.unwrap();
        jobs.extend(listed.data);
        match listed.next_cursor {
            Some(before) => page.before = Some(before),
            None => return jobs,
        }
    }
}
