use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use telecine_queue::{
    Failure, Job, JobContext, JobFilter, JobState, Kind, Kinds, Missed, NewRun, NewSchedule, Push, Queue,
    QueueError, Timestamp, WorkerOptions, total,
};

use super::processes::clock_shim;
use crate::child::{Process, Role};
use crate::ground::{Ground, LEASE, brisk, check_invariants, eventually, list_all, start, work};

/// The instants that were pushed for, sorted.
async fn ticks(queue: &Arc<dyn Queue>) -> Vec<i64> {
    let jobs = list_all(queue, &JobFilter::default()).await;
    let mut ticks: Vec<i64> = jobs.iter().map(|job| job.run_at.expect("a tick").as_ms()).collect();
    ticks.sort_unstable();
    ticks
}

/// One of the processes has a clock that jumps. On Postgres the database's counts; on SQLite a fast clock is early, and
/// then the others wait.
pub(super) async fn a_schedule_ticks_once_over_five_processes_and_a_clock_jump(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let shim = clock_shim(&ground);
    let shift = ground.folder.path().join("shift").display().to_string();
    std::fs::write(&shift, "0").expect("write");
    let role = Role::Worker {
        url: ground.url.clone(),
        slots: 2,
        lease_ms: LEASE.as_millis() as u64,
        log: ground.folder.path().join("ran").display().to_string(),
    };
    let mut workers: Vec<Process> = (0..4).map(|_| Process::start(&role)).collect();
    workers.push(Process::start_with(&role, &[("LD_PRELOAD", &shim), ("CLOCK_SHIFT_FILE", &shift)]));
    eventually("all five are there", || async {
        (queue.workers().await.expect("workers").len() == 5).then_some(())
    })
    .await;

    queue.schedule(NewSchedule::new("each second", "* * * * * *", work(1))).await.expect("schedule");
    for (seconds, more) in [("0", 3), ("4", 5), ("-4", 3), ("0", 3)] {
        std::fs::write(&shift, seconds).expect("write");
        let before = ticks(&queue).await.len();
        eventually("it goes on ticking", || async {
            (ticks(&queue).await.len() >= before + more).then_some(())
        })
        .await;
    }
    assert!(queue.unschedule("each second").await.expect("unschedule"));
    workers.iter_mut().for_each(Process::drain);

    let ticks = ticks(&queue).await;
    let apart: Vec<i64> = ticks.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(ticks.len() >= 14 && apart.iter().all(|ms| *ms == 1_000), "each second once: {apart:?}");
    check_invariants(&queue).await;
}

pub(super) async fn missed_ticks_follow_their_policy(ground: Arc<Ground>) {
    let queue = ground.open().await;
    // Half an hour from now, so that the last tick of the past is not on time by chance.
    let cron = format!("{} * * * *", (Timestamp::now().as_ms() / 60_000 + 30) % 60);
    let policies =
        [("skip", Missed::Skip, 0), ("once", Missed::Once, 1), ("all", Missed::All { at_most: 3 }, 3)];
    for (name, missed, _) in policies {
        let push = work(1).lane(name);
        queue.schedule(NewSchedule::new(name, &cron, push).missed(missed)).await.expect("schedule");
    }
    let before = queue.schedules().await.expect("schedules");
    assert_eq!(queue.tick().await.expect("tick").pushed, 0, "nothing is due");

    ground.rewind_schedules(5);
    let ticked = queue.tick().await.expect("tick");

    assert_eq!(ticked.pushed, 4);
    let within = ticked.next_in.expect("a next tick");
    assert!(within > Duration::from_secs(25 * 60) && within < Duration::from_secs(35 * 60), "{within:?}");
    for (name, _, expected) in policies {
        let of_lane = JobFilter { lane: Some(name.into()), ..JobFilter::default() };
        let mut jobs = list_all(&queue, &of_lane).await;
        jobs.reverse();
        let next_at = before.iter().find(|schedule| schedule.name == name).expect("it").next_at.as_ms();
        let expected: Vec<i64> = (1..=expected).rev().map(|hours| next_at - hours * 3_600_000).collect();
        let pushed: Vec<i64> = jobs.iter().map(|job| job.run_at.expect("a tick").as_ms()).collect();
        assert_eq!(pushed, expected, "{name}");
        assert!(jobs.iter().all(|job| job.state == JobState::Pending));
    }
    let after = queue.schedules().await.expect("schedules");
    assert!(before.iter().zip(&after).all(|(one, other)| one.next_at == other.next_at));
    assert_eq!(queue.tick().await.expect("tick").pushed, 0, "once is enough");
    check_invariants(&queue).await;
}

pub(super) async fn a_schedule_is_kept_replaced_and_removed(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let push = Push::run(NewRun::new("nightly"), [work(1), work(2)]).tenant("acme");
    let nightly = NewSchedule::new("nightly", "0 3 * * *", push.clone());

    queue.schedule(nightly.clone()).await.expect("schedule");
    ground.rewind_schedules(24);
    queue.schedule(nightly.clone().missed(Missed::Once)).await.expect("schedule");
    assert_eq!(queue.tick().await.expect("tick").pushed, 1, "replacing it with the same times loses no tick");

    let kept = queue.schedules().await.expect("schedules").remove(0);
    assert_eq!((kept.name.as_str(), kept.missed, &kept.push), ("nightly", Missed::Once, &push));
    assert!(kept.last_at.is_some_and(|at| at < kept.next_at));
    let jobs = list_all(&queue, &JobFilter { tenant: Some("acme".into()), ..JobFilter::default() }).await;
    assert!(jobs.len() == 2 && jobs.iter().all(|job| job.run.is_some() && job.run_at == kept.last_at));
    queue.schedule(NewSchedule { cron: "30 4 * * *".into(), ..nightly.clone() }).await.expect("schedule");
    let moved = queue.schedules().await.expect("schedules").remove(0);
    assert!(moved.next_at.to_string().ends_with("T04:30:00Z"), "{moved:?}");
    assert!(queue.unschedule("nightly").await.expect("unschedule"));
    assert!(!queue.unschedule("nightly").await.expect("unschedule"));
    assert_eq!(queue.tick().await.expect("tick").next_in, None);
    assert_eq!(queue.promote().await.expect("promote").next_in, None, "nothing is scheduled: nap on");

    let keyed = push.clone().idempotency_key("once");
    for bad in [
        NewSchedule { cron: "soon".into(), ..nightly.clone() },
        NewSchedule { name: String::new(), ..nightly.clone() },
        NewSchedule { missed: Missed::All { at_most: u32::MAX }, ..nightly.clone() },
        NewSchedule { push: keyed, ..nightly.clone() },
        NewSchedule { push: Push::jobs([]), ..nightly },
    ] {
        let refused = queue.schedule(bad).await;
        assert!(matches!(refused, Err(QueueError::Invalid { .. })), "{refused:?}");
    }
    check_invariants(&queue).await;
}

struct Work;

#[async_trait::async_trait]
impl Kind for Work {
    fn name(&self) -> &'static str {
        "work"
    }

    async fn run(&self, _: &Job, _: &JobContext) -> Result<serde_json::Value, Failure> {
        Ok(json!(null))
    }
}

/// Its polls and sweeps are an hour apart: it hears of the schedule, and naps until the ticks.
pub(super) async fn an_idle_worker_keeps_schedules_of_another_process(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let hour = Duration::from_secs(3_600);
    let idle = WorkerOptions { poll_every: hour, sweep_every: hour, ..brisk(1) };
    let worker = start(&queue, Kinds::new().with(Work), idle).await;
    let other = ground.open().await;

    let each_second = NewSchedule::new("each second", "* * * * * *", work(1));
    eventually("it hears of it", || async {
        // Again and again, for the first may come before LISTEN does.
        other.schedule(each_second.clone()).await.expect("schedule");
        let counts = other.counts().await.expect("counts");
        (total(&counts, JobState::Completed) >= 1).then_some(())
    })
    .await;
    eventually("and goes on", || async {
        let counts = other.counts().await.expect("counts");
        (total(&counts, JobState::Completed) >= 3).then_some(())
    })
    .await;

    worker.drain();
    worker.finished().await;
}
