use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use telecine_queue::{
    AttemptOutcome, Backoff, Beat, ClaimBeat, Claimed, Finish, JobError, JobState, NewJob, NewRun, NewWorker,
    Outcome, Push, Queue, QueueError, Settled, WorkerId,
};

use crate::ground::{
    Ground, check_invariants, done, eventually, failed, pull, pull_one, push_all, push_one, register,
    register_for, settle, work,
};

/// Pulls a job under a lease that has already run out, and lets others notice.
async fn lose_one(queue: &Arc<dyn Queue>) -> Claimed {
    let silent = register_for(queue, Duration::ZERO).await;
    let claimed = eventually("the job is ready", || async {
        queue.promote().await.expect("promote");
        pull(queue, silent, 1).await.pop()
    })
    .await;
    eventually("the loss is noticed", || async {
        let reaped = queue.reap().await.expect("reap");
        (reaped.freed + reaped.poisoned == 1).then_some(())
    })
    .await;
    claimed
}

fn beat_of(worker: WorkerId, claims: Vec<ClaimBeat>) -> Beat {
    Beat { worker, lease: Duration::from_secs(60), draining: false, claims }
}

fn claim_beat(claimed: &Claimed) -> ClaimBeat {
    ClaimBeat {
        job: claimed.job.id,
        fence: claimed.claim.fence(),
        slot: None,
        progress: None,
        checkpoint: None,
        records: vec![],
        playable: false,
    }
}

pub(super) async fn a_silent_workers_jobs_are_freed(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let healthy = register(&queue).await;
    let kept = push_one(&queue, work(1)).await;
    pull_one(&queue, healthy).await;
    let lost = push_one(&queue, work(2)).await;

    let claimed = lose_one(&queue).await;

    assert_eq!(claimed.job.id, lost);
    let freed = queue.get(lost).await.expect("get").expect("the job");
    assert_eq!((freed.state, freed.attempt, freed.lost), (JobState::Pending, 0, 1));
    assert_eq!(freed.fence, claimed.claim.fence(), "the fence rises with the next claim only");
    let attempts = queue.attempts(lost).await.expect("attempts");
    assert_eq!(attempts.iter().map(|attempt| attempt.outcome).collect::<Vec<_>>(), [AttemptOutcome::Lost]);
    let untouched = queue.get(kept).await.expect("get").expect("the job");
    assert_eq!((untouched.state, untouched.worker), (JobState::Running, Some(healthy)));
    check_invariants(&queue).await;
}

pub(super) async fn a_late_completion_that_nobody_reclaimed_is_accepted(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let id = push_one(&queue, work(1)).await;
    let late = lose_one(&queue).await;
    let worker = late.job.worker;

    assert_eq!(settle(&queue, late, done()).await, Settled::Accepted);

    let job = queue.get(id).await.expect("get").expect("the job");
    assert_eq!((job.state, job.attempt, job.lost, job.worker), (JobState::Completed, 1, 0, worker));
    let attempts = queue.attempts(id).await.expect("attempts");
    assert_eq!(
        attempts.iter().map(|attempt| attempt.outcome).collect::<Vec<_>>(),
        [AttemptOutcome::Completed]
    );
    let idle = register(&queue).await;
    assert!(pull(&queue, idle, 1).await.is_empty());
    check_invariants(&queue).await;
}

/// A database may complete a batch as one set: nothing may be lost in it or slip through.
pub(super) async fn completions_of_one_batch_are_judged_one_by_one(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let late = push_one(&queue, work(0)).await;
    let lost = lose_one(&queue).await;
    // They stand before the lost one, which nobody takes.
    let ids = push_all(&queue, (1..6).map(|n| work(n).priority(60))).await;
    let mut claimed = pull(&queue, worker, 5).await.into_iter().map(|claimed| claimed.claim);
    let mut completes = |result| Finish::new(claimed.next().expect("five"), Outcome::Complete { result });
    let results = [
        json!({ "text": "it's \"quoted\" \u{e9}\u{1f600}\n\\", "n": 1.5e300 }),
        json!("x".repeat(5_000)),
        json!(null),
    ];
    let stored_before = [completes(json!("first"))];
    let cancelled = completes(json!("never"));
    let [quoted, long, null] = results.clone().map(completes);
    assert_eq!(queue.finish(&stored_before).await.expect("finish"), [Settled::Accepted]);
    queue.cancel(ids[1]).await.expect("cancel");

    let batch = [quoted, cancelled, Finish::new(lost.claim, done()), long, null];
    let settled = queue.finish(&batch).await.expect("finish");
    let again = queue.finish(&batch).await.expect("finish");

    let [yes, no] = [Settled::Accepted, Settled::Refused];
    assert_eq!((settled, again), (vec![yes, no, yes, yes, yes], vec![yes, no, yes, yes, yes]));
    for (id, result) in ids[2..].iter().zip(results) {
        let job = queue.get(*id).await.expect("get").expect("the job");
        assert_eq!((job.state, job.result, job.attempt), (JobState::Completed, Some(result), 1));
        assert_eq!((job.worker, queue.attempts(*id).await.expect("attempts").len()), (Some(worker), 1));
    }
    let late = queue.get(late).await.expect("get").expect("the job");
    assert_eq!((late.state, late.attempt, late.lost), (JobState::Completed, 1, 0), "the loss is taken back");
    assert_eq!(queue.get(ids[1]).await.expect("get").expect("the job").state, JobState::Cancelled);
    check_invariants(&queue).await;
}

pub(super) async fn a_late_failure_that_nobody_reclaimed_counts_as_a_failure(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let id = push_one(&queue, work(1)).await;
    let late = lose_one(&queue).await;

    assert_eq!(settle(&queue, late, failed("late")).await, Settled::Accepted);

    let job = queue.get(id).await.expect("get").expect("the job");
    assert_eq!((job.state, job.attempt, job.lost), (JobState::Scheduled, 1, 0));
    let attempts = queue.attempts(id).await.expect("attempts");
    assert_eq!(attempts.iter().map(|attempt| attempt.outcome).collect::<Vec<_>>(), [AttemptOutcome::Failed]);
    check_invariants(&queue).await;
}

pub(super) async fn losses_count_apart_and_end_in_poison(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let quick = Backoff { base_ms: 1, factor: 1, cap_ms: 1 };
    let id = push_one(&queue, NewJob { max_lost: 3, ..work(1) }.max_attempts(1).backoff(quick)).await;

    let mut claims = Vec::new();
    for lost in 1..=3 {
        claims.push(lose_one(&queue).await);
        let job = queue.get(id).await.expect("get").expect("the job");
        assert_eq!((job.attempt, job.lost), (0, lost), "a loss is not a failure");
    }

    let job = queue.get(id).await.expect("get").expect("the job");
    assert_eq!((job.state, job.error.map(|error| error.code)), (JobState::Failed, Some("poison".into())));
    for claim in claims {
        assert_eq!(
            settle(&queue, claim, done()).await,
            Settled::Refused,
            "a terminal state does not change by itself"
        );
    }
    let attempts = queue.attempts(id).await.expect("attempts");
    assert_eq!(attempts.iter().filter(|attempt| attempt.outcome == AttemptOutcome::Lost).count(), 3);
    assert_eq!(attempts.len(), 3);
    check_invariants(&queue).await;
}

pub(super) async fn a_job_that_gets_further_each_time_is_no_poison(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let id = push_one(&queue, NewJob { max_lost: 3, ..work(1) }).await;
    let lost = async || queue.get(id).await.expect("get").expect("the job").lost;

    for segment in 1..=5 {
        lose_after_saving(&queue, segment).await;
        assert_eq!(lost().await, 1, "what was saved before is behind it");
    }
    lose_after_saving(&queue, 5).await;

    assert_eq!(lost().await, 2, "the same checkpoint again is no progress");
}

/// A claim knows how often its job was lost before it; what it saved since has made that void.
pub(super) async fn losses_that_a_checkpoint_forgave_do_not_come_back(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let mut pulse = queue.pulse().await.expect("pulse");
    let error = JobError::new("test_failure", "no");
    for (n, outcome, in_run) in [
        (1, Outcome::Release, false),
        (2, Outcome::Snooze { delay: Duration::from_secs(60) }, false),
        (3, Outcome::Fail { error: error.clone() }, true),
        (4, Outcome::FailForGood { error }, false),
        (5, done(), false),
        (6, done(), true),
    ] {
        let push = match in_run {
            true => Push::run(NewRun::new("film"), [work(n)]),
            false => work(n).into(),
        };
        let id = queue.push(vec![push]).await.expect("push")[0].jobs[0];
        let lost = async || queue.get(id).await.expect("get").expect("the job").lost;
        for late in [false, true] {
            // Once lost, then claimed by a worker that gets further, and that may be given up before it says so.
            lose_one(&queue).await;
            let lease = if late { Duration::ZERO } else { Duration::from_secs(60) };
            let worker = register_for(&queue, lease).await;
            let claimed = pull_one(&queue, worker).await;
            assert_eq!(claimed.job.lost, 1, "{outcome:?}");
            let news =
                ClaimBeat { checkpoint: Some(json!({ "segment": n, "late": late })), ..claim_beat(&claimed) };
            let beat = Beat { lease: Duration::from_millis(500), ..beat_of(worker, vec![news]) };
            pulse.beat(&beat).await.expect("the beat comes before the sweep");
            assert_eq!(lost().await, 0);
            if late {
                eventually("the loss is noticed", || async {
                    (queue.reap().await.expect("reap").freed == 1).then_some(())
                })
                .await;
                assert_eq!(lost().await, 1);
            }
            assert_eq!(settle(&queue, claimed, outcome.clone()).await, Settled::Accepted);
            assert_eq!(lost().await, 0, "{outcome:?}, late: {late}");
            let job = queue.get(id).await.expect("get").expect("the job");
            if !late {
                // Back to the start for the second time around.
                if !job.state.is_terminal() {
                    queue.cancel(id).await.expect("cancel");
                }
                queue.retry(id).await.expect("retry");
            } else if !job.state.is_terminal() {
                queue.cancel(id).await.expect("cancel");
            }
        }
    }
    check_invariants(&queue).await;
}

/// Loses a worker right after its claim has saved a checkpoint.
async fn lose_after_saving(queue: &Arc<dyn Queue>, segment: u32) {
    let mut pulse = queue.pulse().await.expect("pulse");
    let silent = register_for(queue, Duration::ZERO).await;
    let claimed = eventually("the job is ready", || async {
        queue.promote().await.expect("promote");
        pull(queue, silent, 1).await.pop()
    })
    .await;
    let news = ClaimBeat { checkpoint: Some(json!({ "segment": segment })), ..claim_beat(&claimed) };
    // As long as a beat itself may take, and no longer.
    let beat = Beat { lease: Duration::from_millis(500), ..beat_of(silent, vec![news]) };
    pulse.beat(&beat).await.expect("the beat comes before the sweep");
    eventually("the loss is noticed", || async {
        (queue.reap().await.expect("reap").freed == 1).then_some(())
    })
    .await;
}

pub(super) async fn a_beat_keeps_a_worker_alive_and_refuses_what_it_lost(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let mut pulse = queue.pulse().await.expect("pulse");
    let worker = register_for(&queue, Duration::ZERO).await;
    pulse.beat(&beat_of(worker, vec![])).await.expect("the beat comes before the sweep");
    assert_eq!(queue.reap().await.expect("reap").workers, 0);
    push_one(&queue, work(1)).await;
    push_one(&queue, work(2)).await;
    let (kept, cancelled) = (pull_one(&queue, worker).await, pull_one(&queue, worker).await);
    queue.cancel(cancelled.job.id).await.expect("cancel");

    let reply =
        pulse.beat(&beat_of(worker, vec![claim_beat(&kept), claim_beat(&cancelled)])).await.expect("beat");

    assert_eq!(reply.refused, [cancelled.job.id]);
    queue.deregister(worker).await.expect("deregister");
    let gone = pulse.beat(&beat_of(worker, vec![])).await;
    assert!(matches!(gone, Err(QueueError::WorkerGone)), "{gone:?}");
}

pub(super) async fn a_worker_without_a_process_is_forgotten_when_it_leaves(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let mut pulse = queue.pulse().await.expect("pulse");
    let here = register(&queue).await;
    let row = NewWorker {
        name: "far".into(),
        host: "remote".into(),
        pid: 0,
        slots: [("cpu".into(), 1)].into(),
        kinds: vec!["work".into()],
        lease: Duration::from_secs(30),
        holding: Vec::new(),
    };
    let far = queue.register(row).await.expect("register");

    queue.deregister(far).await.expect("deregister");
    queue.deregister(far).await.expect("again");
    queue.deregister(here).await.expect("deregister");

    let listed = queue.workers().await.expect("workers");
    let listed: Vec<_> = listed.into_iter().map(|worker| (worker.id, worker.alive)).collect();
    assert_eq!(listed, [(here, false)], "one with a process is shown for a while");
    let gone = pulse.beat(&beat_of(far, vec![])).await;
    assert!(matches!(gone, Err(QueueError::WorkerGone)), "{gone:?}");
}

pub(super) async fn progress_and_checkpoint_reach_the_next_claim(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let mut pulse = queue.pulse().await.expect("pulse");
    let worker = register(&queue).await;
    let id = push_one(&queue, work(1)).await;
    let first = pull_one(&queue, worker).await;
    let mut news = claim_beat(&first);
    (news.slot, news.progress, news.checkpoint) = (Some(2), Some(0.25), Some(json!({"segments": [1, 2]})));
    pulse.beat(&beat_of(worker, vec![news])).await.expect("beat");
    pulse
        .beat(&beat_of(worker, vec![claim_beat(&first)]))
        .await
        .expect("a beat without news keeps the old ones");
    let running = queue.get(id).await.expect("get").expect("the job");
    assert_eq!((running.progress, running.slot), (Some(0.25), Some(2)));

    settle(&queue, first, telecine_queue::Outcome::Release).await;
    let second = pull_one(&queue, worker).await;

    assert_eq!(second.job.checkpoint, Some(json!({"segments": [1, 2]})));
    assert_eq!(second.job.progress, None);
}

pub(super) async fn a_worker_that_comes_back_goes_on_with_what_nobody_took(ground: Arc<Ground>) {
    let queue = ground.open().await;
    push_one(&queue, work(1)).await;
    push_one(&queue, work(2)).await;
    let untaken = lose_one(&queue).await;
    let other = register(&queue).await;
    // The freed job stands before the second one: take it, lose the second, give the first back to nobody.
    let taken_again = pull_one(&queue, other).await;
    assert_eq!(taken_again.job.id, untaken.job.id);
    let held = lose_one(&queue).await;

    let back = queue
        .register(NewWorker {
            name: "back".into(),
            host: "here".into(),
            pid: 1,
            slots: [("cpu".into(), 2)].into(),
            kinds: vec!["work".into()],
            lease: Duration::from_secs(60),
            holding: vec![(untaken.job.id, untaken.claim.fence()), (held.job.id, held.claim.fence())],
        })
        .await
        .expect("register");

    let adopted = queue.get(held.job.id).await.expect("get").expect("the job");
    assert_eq!((adopted.state, adopted.worker), (JobState::Running, Some(back)));
    assert_eq!((adopted.attempt, adopted.lost), (1, 0), "it was not lost after all");
    let others = queue.get(untaken.job.id).await.expect("get").expect("the job");
    assert_eq!(others.worker, Some(other), "what somebody took stays taken");
    assert_eq!(settle(&queue, held, done()).await, Settled::Accepted);
    assert_eq!(settle(&queue, untaken, done()).await, Settled::Refused);
    check_invariants(&queue).await;
}

pub(super) async fn an_attempt_past_its_deadline_is_taken_back(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let id = push_one(&queue, NewJob { timeout_ms: Some(1), ..work(1) }).await;
    let claimed = pull_one(&queue, worker).await;
    ground.rewind_deadline(id);

    let reaped = queue.reap().await.expect("reap");

    assert_eq!((reaped.overdue, reaped.workers), (1, 0));
    let job = queue.get(id).await.expect("get").expect("the job");
    assert_eq!((job.state, job.attempt), (JobState::Scheduled, 1));
    assert_eq!(job.error.map(|error| error.code), Some("timeout".into()));
    let told = queue.attempts(id).await.expect("attempts").pop().expect("one attempt");
    assert_eq!(told.outcome, AttemptOutcome::Overdue);
    assert_eq!(settle(&queue, claimed, done()).await, Settled::Refused, "the attempt is over");
    check_invariants(&queue).await;
}

/// The pull was committed, but the worker never heard of it.
pub(super) async fn a_claim_whose_answer_never_arrived_goes_back(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let mut pulse = queue.pulse().await.expect("pulse");
    let worker = register(&queue).await;
    let stranded = push_one(&queue, work(1)).await;
    let unheard = pull_one(&queue, worker).await;
    push_one(&queue, work(2)).await;
    let held = pull_one(&queue, worker).await;

    let young = pulse.beat(&beat_of(worker, vec![claim_beat(&held)])).await.expect("beat");
    assert!(young.refused.is_empty());
    let running = queue.get(stranded).await.expect("get").expect("the job");
    assert_eq!(running.state, JobState::Running, "it may still be on its way");
    let pulse = tokio::sync::Mutex::new(pulse);
    let job = eventually("the stranded job goes back", || async {
        let beat = Beat { lease: Duration::from_millis(500), ..beat_of(worker, vec![claim_beat(&held)]) };
        pulse.lock().await.beat(&beat).await.expect("beat");
        queue.get(stranded).await.expect("get").filter(|job| job.state == JobState::Pending)
    })
    .await;

    assert_eq!((job.attempt, job.lost), (0, 0));
    assert_eq!(settle(&queue, unheard, done()).await, Settled::Refused, "given back is given back");
    let kept = queue.get(held.job.id).await.expect("get").expect("the job");
    assert_eq!((kept.state, kept.fence), (JobState::Running, held.claim.fence()));
    check_invariants(&queue).await;
}

pub(super) async fn a_claim_of_an_old_generation_is_over(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let id = push_one(&queue, NewJob { max_lost: 1, ..work(1) }).await;
    let poisoned = lose_one(&queue).await;
    queue.retry(id).await.expect("retry");

    assert_eq!(settle(&queue, poisoned, done()).await, Settled::Refused);

    let job = queue.get(id).await.expect("get").expect("the job");
    assert_eq!((job.state, job.generation), (JobState::Pending, 2));
}
