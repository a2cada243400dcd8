//! `telecine demo`: the queue at work, with real worker processes on a real database.
//!
//! Part 1: ten one-second jobs through three slots. Part 2: two workers, one killed with SIGKILL half-way; what it held is
//! freed when its lease runs out, and the other worker runs it again.

mod crew;
mod screen;
mod timeline;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;
use telecine_queue::{
    Attempt, AttemptOutcome, Fence, Job, JobFilter, JobId, JobState, NewJob, OpenOptions, Page, Push, Queue,
    Timestamp, WorkerId,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use self::crew::Crew;
use self::screen::Screen;
use self::timeline::{Row, Timeline};
use crate::human;
use crate::output::{Answer, Output, Paint, say};

const JOBS: usize = 10;
const JOB_MS: u64 = 1_000;
const LOOK_EVERY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(60);
/// The worker dies when a job of its has run this long: late enough to be seen, early enough not to be done.
const KILL_AFTER: Duration = Duration::from_millis(500);

pub(super) async fn run(database: Option<&str>, output: &Output) -> Result<Answer> {
    let folder = tempfile::Builder::new()
        .prefix("telecine-demo-")
        .tempdir()
        .context("cannot make a temporary folder")?;
    let database = match database {
        Some(url) => url.to_owned(),
        None => format!("sqlite:{}", folder.path().join("demo.db").display()),
    };
    let mut crew = Crew::new(&database, folder.path())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let played = tokio::select! {
        played = play(&database, &mut crew, output) => played,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted; the demo's workers were stopped")),
        _ = terminate.recv() => Err(anyhow::anyhow!("terminated; the demo's workers were stopped")),
    };
    if played.is_err() {
        crew.tell_last_words();
    }
    crew.kill_all().await;
    played
}

async fn play(database: &str, crew: &mut Crew, output: &Output) -> Result<Answer> {
    let queue = telecine_queue::open_with(database, &OpenOptions::default())
        .await
        .context("cannot open the demo's database")?;
    let first = three_slots(&queue, crew, output).await?;
    output.print("\n")?;
    let second = killed_half_way(&queue, crew, output).await?;
    queue.close().await;
    Ok(if first == Answer::Yes && second == Answer::Yes { Answer::Yes } else { Answer::No })
}

async fn three_slots(queue: &Arc<dyn Queue>, crew: &mut Crew, output: &Output) -> Result<Answer> {
    heading(output, "1. Ten jobs of one second, one worker with three slots")?;
    start_workers(queue, crew, &[("one", 3)]).await?;
    let jobs = push_ten(queue).await?;
    let rows = watch(queue, &jobs, output, |_| None).await?.rows;
    crew.dismiss_all().await;

    let completed = completed(&rows);
    output.print(&format!(
        "{completed} of {JOBS} completed in {:.1} s on 3 slots\n",
        timeline::took(&rows).as_secs_f64()
    ))?;
    Ok(if completed == JOBS { Answer::Yes } else { Answer::No })
}

async fn killed_half_way(queue: &Arc<dyn Queue>, crew: &mut Crew, output: &Output) -> Result<Answer> {
    heading(output, "2. The same on two workers with two slots each; one is killed (SIGKILL) half-way")?;
    let workers = start_workers(queue, crew, &[("survivor", 2), ("victim", 2)]).await?;
    let victim = workers[1];
    let jobs = push_ten(queue).await?;
    let mut killed_at = None;
    let seen = watch(queue, &jobs, output, |jobs| {
        let due = killed_at.is_none() && is_half_way(jobs, victim);
        if !due {
            return None;
        }
        killed_at = Some(Timestamp::now());
        crew.kill("victim");
        Some(format!("worker {victim} was killed"))
    })
    .await?;
    crew.dismiss_all().await;

    let completed = completed(&seen.rows);
    let lost = timeline::ended(&seen.rows, AttemptOutcome::Lost);
    let took = timeline::took(&seen.rows).as_secs_f64();
    let Some(killed_at) = killed_at else {
        bail!("worker {victim} held no job, so it could not be killed half-way")
    };
    if completed < JOBS {
        output.print(&format!("{} of {JOBS} are missing\n", JOBS - completed))?;
        return Ok(Answer::No);
    }
    let attempts = human::count(lost as u64, "attempt");
    let rerun = timeline::last_rerun(&seen.rows).map_or(Duration::ZERO, |at| at.since(killed_at));
    output.print(&format!(
        "nothing lost: {completed} of {JOBS} completed in {took:.1} s, {attempts} lost with the worker and run again \
         (done {:.1} s after the kill)\n",
        rerun.as_secs_f64()
    ))?;
    Ok(Answer::Yes)
}

fn heading(output: &Output, text: &str) -> Result<()> {
    output.print(&format!("{}\n", output.colour.paint(Paint::Bold, text)))
}

/// Starts the workers and waits until they are registered, so that a race is a fair one.
async fn start_workers(
    queue: &Arc<dyn Queue>,
    crew: &mut Crew,
    wanted: &[(&'static str, u32)],
) -> Result<Vec<WorkerId>> {
    let mut ids = Vec::new();
    let give_up = Instant::now() + PATIENCE;
    for (name, concurrency) in wanted {
        let pid = crew.start(name, *concurrency)?;
        loop {
            let workers = queue.workers().await?;
            if let Some(worker) = workers.iter().find(|worker| worker.alive && worker.pid == pid) {
                ids.push(worker.id);
                break;
            }
            if let Some(status) = crew.has_exited(name)? {
                bail!("the demo's worker did not start ({status})");
            }
            if Instant::now() > give_up {
                bail!("the demo's worker was not registered within {}", human::duration(PATIENCE));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    Ok(ids)
}

async fn push_ten(queue: &Arc<dyn Queue>) -> Result<Vec<JobId>> {
    let jobs = (1..=JOBS).map(|n| NewJob::new("pause", json!({ "ms": JOB_MS, "label": format!("job {n}") })));
    let pushed = queue.push(vec![Push::jobs(jobs)]).await?;
    Ok(pushed.into_iter().flat_map(|pushed| pushed.jobs).collect())
}

fn is_half_way(jobs: &[Job], victim: WorkerId) -> bool {
    let now = Timestamp::now();
    let mut held = jobs.iter().filter(|job| job.state == JobState::Running && job.worker == Some(victim));
    // The second wave: four jobs are done, four run, two wait.
    jobs.iter().filter(|job| job.state == JobState::Completed).count() >= 4
        && held.any(|job| job.claimed_at.is_some_and(|claimed| now.since(claimed) >= KILL_AFTER))
}

fn completed(rows: &[Row]) -> usize {
    rows.iter().filter(|row| row.state == JobState::Completed).count()
}

/// Shows the jobs until all are finished. `act` sees each look at the queue and may tell of something it did.
async fn watch(
    queue: &Arc<dyn Queue>,
    ids: &[JobId],
    output: &Output,
    mut act: impl FnMut(&[Job]) -> Option<String>,
) -> Result<Timeline> {
    let mut screen = Screen::new(output);
    let mut known = HashMap::new();
    let give_up = Instant::now() + PATIENCE;
    loop {
        let jobs = look(queue, ids).await?;
        remember_attempts(queue, &jobs, &mut known).await?;
        let seen = Timeline::new(&jobs, &known, Timestamp::now());
        let done = jobs.len() == ids.len() && jobs.iter().all(|job| job.state.is_terminal());
        screen.show(&seen, act(&jobs))?;
        if done {
            return Ok(seen);
        }
        if Instant::now() > give_up {
            say(format_args!("not everything was done within {}", human::duration(PATIENCE)));
            return Ok(seen);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn look(queue: &Arc<dyn Queue>, ids: &[JobId]) -> Result<Vec<Job>> {
    let filter = JobFilter { kind: Some("pause".into()), ..JobFilter::default() };
    let before = ids.iter().max().map(|last| JobId(last.0 + 1));
    let mut jobs = queue.list(&filter, Page { before, ..Page::first(100) }).await?.data;
    jobs.retain(|job| ids.contains(&job.id));
    jobs.sort_by_key(|job| job.id);
    Ok(jobs)
}

/// The attempts of each job, and the fence and state they were read at: only a change of these can have added one.
type Known = HashMap<JobId, (Fence, JobState, Vec<Attempt>)>;

async fn remember_attempts(queue: &Arc<dyn Queue>, jobs: &[Job], known: &mut Known) -> Result<()> {
    for job in jobs {
        let fresh =
            known.get(&job.id).is_some_and(|(fence, state, _)| (*fence, *state) == (job.fence, job.state));
        if !fresh {
            known.insert(job.id, (job.fence, job.state, queue.attempts(job.id).await?));
        }
    }
    Ok(())
}
