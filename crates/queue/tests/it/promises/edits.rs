use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use telecine_queue::{
    AttemptOutcome, JobFilter, JobId, JobState, NewJob, NewRun, Push, QueueError, RunState, Settled,
    Timestamp,
};

use crate::ground::{
    Ground, check_invariants, done, failed, list_all, pull, pull_one, push_all, push_one, register, settle,
    work,
};

pub(super) async fn a_cancelled_job_is_terminal_at_once(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let later = Timestamp::now().plus(Duration::from_secs(3_600));
    let push = Push::run(NewRun::new("film"), [work(1), work(2).run_at(later), work(3)]);
    let pushed = queue.push(vec![push]).await.expect("push").remove(0);
    let running = pull_one(&queue, worker).await;

    for id in &pushed.jobs {
        queue.cancel(*id).await.expect("cancel");
        assert_eq!(queue.get(*id).await.expect("get").expect("the job").state, JobState::Cancelled);
    }

    let run = queue.get_run(&pushed.run.expect("a run")).await.expect("get_run").expect("the run");
    assert_eq!(run.state, RunState::Cancelled);
    let attempts = queue.attempts(running.job.id).await.expect("attempts");
    assert_eq!(
        attempts.iter().map(|attempt| attempt.outcome).collect::<Vec<_>>(),
        [AttemptOutcome::Cancelled]
    );
    assert_eq!(settle(&queue, running, done()).await, Settled::Refused);
    assert!(pull(&queue, worker, 5).await.is_empty());
    let again = queue.cancel(pushed.jobs[0]).await;
    assert!(matches!(again, Err(QueueError::WrongState { state: JobState::Cancelled, .. })), "{again:?}");
    let absent = queue.cancel(JobId(i64::MAX)).await;
    assert!(matches!(absent, Err(QueueError::NotFound(_))), "{absent:?}");
    check_invariants(&queue).await;
}

pub(super) async fn cancel_raced_against_finish_has_one_outcome(ground: Arc<Ground>) {
    const RACES: u64 = 100;
    let (queue, other) = (ground.open().await, ground.open().await);
    let worker = register(&queue).await;
    push_all(&queue, (0..RACES).map(work)).await;
    let (mut completed, mut cancelled) = (0, 0);

    for claimed in pull(&queue, worker, RACES as u32).await {
        let id = claimed.job.id;
        let (settled, cancel) = tokio::join!(settle(&queue, claimed, done()), other.cancel(id));
        let state = queue.get(id).await.expect("get").expect("the job").state;
        match (settled, cancel) {
            (Settled::Accepted, Err(QueueError::WrongState { .. })) => {
                assert_eq!(state, JobState::Completed);
                completed += 1;
            }
            (Settled::Refused, Ok(())) => {
                assert_eq!(state, JobState::Cancelled);
                cancelled += 1;
            }
            both => panic!("job {id} is {state} after {both:?}"),
        }
    }

    assert_eq!(completed + cancelled, RACES);
    check_invariants(&queue).await;
}

pub(super) async fn a_retry_starts_a_new_generation(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let id = push_one(&queue, work(1).max_attempts(1)).await;
    let first = pull_one(&queue, worker).await;
    let fence = first.claim.fence();
    settle(&queue, first, failed("first")).await;

    queue.retry(id).await.expect("retry");

    let second = pull_one(&queue, worker).await;
    assert_eq!((second.job.id, second.job.generation, second.job.attempt), (id, 2, 1));
    assert!(second.claim.fence() > fence, "the fence never falls");
    settle(&queue, second, done()).await;
    let told: Vec<_> = queue
        .attempts(id)
        .await
        .expect("attempts")
        .into_iter()
        .map(|attempt| (attempt.generation, attempt.outcome))
        .collect();
    assert_eq!(told, [(1, AttemptOutcome::Failed), (2, AttemptOutcome::Completed)]);
    check_invariants(&queue).await;
}

pub(super) async fn a_running_job_is_neither_retried_nor_deleted(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let id = push_one(&queue, work(1)).await;
    let claimed = pull_one(&queue, worker).await;

    let retried = queue.retry(id).await;
    let deleted = queue.delete(id).await;

    assert!(matches!(retried, Err(QueueError::WrongState { state: JobState::Running, .. })), "{retried:?}");
    assert!(matches!(deleted, Err(QueueError::WrongState { state: JobState::Running, .. })), "{deleted:?}");
    assert_eq!(settle(&queue, claimed, done()).await, Settled::Accepted);
}

pub(super) async fn delete_forgets_a_job(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let ended = push_one(&queue, work(1)).await;
    let claimed = pull_one(&queue, worker).await;
    settle(&queue, claimed, done()).await;
    let push = Push::run(NewRun::new("film"), [work(2)]);
    let pushed = queue.push(vec![push]).await.expect("push").remove(0);

    queue.delete(ended).await.expect("delete");
    queue.delete(pushed.jobs[0]).await.expect("delete");

    assert!(list_all(&queue, &JobFilter::default()).await.is_empty());
    assert!(queue.attempts(ended).await.expect("attempts").is_empty());
    assert!(matches!(queue.delete(ended).await, Err(QueueError::NotFound(_))));
    let run = queue.get_run(&pushed.run.expect("a run")).await.expect("get_run").expect("the run");
    assert_eq!(
        (run.jobs_left, run.state),
        (0, RunState::Succeeded),
        "a run does not wait for a job that is gone"
    );
    check_invariants(&queue).await;
}

pub(super) async fn clear_forgets_what_matches_and_is_not_running(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    push_all(&queue, (0..2_500).map(work)).await;
    push_all(&queue, (0..10).map(|n| NewJob::new("other", json!(n)))).await;
    let mut held = pull(&queue, worker, 2).await;
    settle(&queue, held.pop().expect("two"), done()).await;

    let pending =
        JobFilter { states: vec![JobState::Pending], kind: Some("work".into()), ..JobFilter::default() };
    assert_eq!(queue.clear(&pending).await.expect("clear"), 2_498);
    let left: Vec<_> =
        list_all(&queue, &JobFilter::default()).await.into_iter().map(|job| (job.kind, job.state)).collect();
    assert_eq!(left.iter().filter(|(kind, _)| kind == "other").count(), 10);
    assert_eq!(left.len(), 12);

    assert_eq!(queue.clear(&JobFilter::default()).await.expect("clear"), 11, "all but the running one");
    check_invariants(&queue).await;
}

pub(super) async fn prune_forgets_old_history_only(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let ids = push_all(&queue, (0..3).map(|n| work(n).max_attempts(1))).await;
    let mut claimed = pull(&queue, worker, 2).await;
    settle(&queue, claimed.pop().expect("two"), failed("no")).await;
    settle(&queue, claimed.pop().expect("two"), done()).await;

    assert_eq!(queue.prune(Duration::from_secs(3_600)).await.expect("prune"), 0, "nothing is that old");
    let pruned = crate::ground::eventually("the clock has moved on", || async {
        let pruned = queue.prune(Duration::ZERO).await.expect("prune");
        (pruned > 0).then_some(pruned)
    })
    .await;

    assert!(pruned <= 2);
    crate::ground::eventually("both are forgotten", || async {
        queue.prune(Duration::ZERO).await.expect("prune");
        (list_all(&queue, &JobFilter::default()).await.len() == 1).then_some(())
    })
    .await;
    assert_eq!(queue.get(ids[2]).await.expect("get").expect("the job").state, JobState::Pending);
    assert!(queue.attempts(ids[1]).await.expect("attempts").is_empty());
    check_invariants(&queue).await;
}
