use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use telecine_queue::{
    AttemptOutcome, Backoff, Finish, JobError, JobState, MAX_JSON_BYTES, Outcome, Settled, Timestamp,
};

use crate::ground::{
    Ground, check_invariants, done, eventually, failed, pull, pull_one, push_all, push_one, register,
    register_for, settle, work,
};

/// A backoff short enough to wait out.
fn quick() -> Backoff {
    Backoff { base_ms: 1, factor: 1, cap_ms: 1 }
}

async fn pull_when_due(
    queue: &Arc<dyn telecine_queue::Queue>,
    worker: telecine_queue::WorkerId,
) -> telecine_queue::Claimed {
    eventually("the job is due again", || async {
        queue.promote().await.expect("promote");
        pull(queue, worker, 1).await.pop()
    })
    .await
}

pub(super) async fn failures_count_attempts_and_end_in_failed(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let id = push_one(&queue, work(1).max_attempts(3).backoff(quick())).await;

    for attempt in 1..=3 {
        let claimed = pull_when_due(&queue, worker).await;
        assert_eq!(claimed.job.attempt, attempt);
        settle(&queue, claimed, failed(&format!("failure {attempt}"))).await;
    }

    let job = queue.get(id).await.expect("get").expect("the job");
    assert_eq!((job.state, job.attempt, job.lost), (JobState::Failed, 3, 0));
    assert_eq!(job.error, Some(JobError::new("test_failure", "failure 3")));
    let attempts = queue.attempts(id).await.expect("attempts");
    let told: Vec<_> = attempts.iter().map(|attempt| (attempt.outcome, attempt.error.clone())).collect();
    let expected: Vec<_> = (1..=3)
        .map(|n| (AttemptOutcome::Failed, Some(JobError::new("test_failure", format!("failure {n}")))))
        .collect();
    assert_eq!(told, expected);
    check_invariants(&queue).await;
}

pub(super) async fn a_failure_for_good_is_not_tried_again(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let id = push_one(&queue, work(1)).await;

    let claimed = pull_one(&queue, worker).await;
    settle(&queue, claimed, Outcome::FailForGood { error: JobError::new("input_truncated", "half a file") })
        .await;

    let job = queue.get(id).await.expect("get").expect("the job");
    assert_eq!((job.state, job.attempt), (JobState::Failed, 1));
}

pub(super) async fn a_snooze_costs_no_attempt(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let id = push_one(&queue, work(1).max_attempts(1)).await;

    for _ in 0..5 {
        let claimed = pull_when_due(&queue, worker).await;
        assert_eq!(claimed.job.attempt, 1);
        settle(&queue, claimed, Outcome::Snooze { delay: Duration::from_millis(1) }).await;
    }
    let asleep = queue.get(id).await.expect("get").expect("the job");

    assert_eq!((asleep.attempt, asleep.lost), (0, 0));
    let claimed = pull_when_due(&queue, worker).await;
    settle(&queue, claimed, done()).await;
    assert_eq!(queue.attempts(id).await.expect("attempts").len(), 6);
    check_invariants(&queue).await;
}

pub(super) async fn a_release_costs_no_attempt_and_no_time(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let id = push_one(&queue, work(1)).await;
    let claimed = pull_one(&queue, worker).await;

    settle(&queue, claimed, Outcome::Release).await;

    let again = pull_one(&queue, worker).await;
    assert_eq!((again.job.id, again.job.attempt, again.job.lost), (id, 1, 0));
}

pub(super) async fn an_outcome_sent_twice_counts_once(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    push_all(&queue, (0..3).map(|n| work(n).backoff(Backoff::constant(Duration::from_secs(60))))).await;
    let outcomes = [done(), failed("once"), Outcome::Snooze { delay: Duration::from_secs(60) }];
    let claimed = pull(&queue, worker, 3).await;
    let ids: Vec<_> = claimed.iter().map(|claimed| claimed.job.id).collect();
    let finishes: Vec<_> = claimed
        .into_iter()
        .zip(outcomes)
        .map(|(claimed, outcome)| Finish::new(claimed.claim, outcome))
        .collect();

    for _ in 0..3 {
        assert_eq!(queue.finish(&finishes).await.expect("finish"), [Settled::Accepted; 3]);
    }

    let mut seen = Vec::new();
    for id in ids {
        let job = queue.get(id).await.expect("get").expect("the job");
        seen.push((job.state, job.attempt, queue.attempts(id).await.expect("attempts").len()));
    }
    assert_eq!(seen, [(JobState::Completed, 1, 1), (JobState::Scheduled, 1, 1), (JobState::Scheduled, 0, 1)]);
    check_invariants(&queue).await;
}

/// The answer was lost, the job went on to its next attempt, and only then is the finish repeated.
pub(super) async fn an_old_outcome_of_a_job_that_went_on_is_still_known(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let id = push_one(&queue, work(1)).await;
    let first = pull_one(&queue, worker).await;
    let release = Finish::new(first.claim, Outcome::Release);
    queue.finish(std::slice::from_ref(&release)).await.expect("finish");
    let second = pull_one(&queue, worker).await;

    let repeated = queue.finish(std::slice::from_ref(&release)).await.expect("finish");

    assert_eq!(repeated, [Settled::Accepted]);
    let job = queue.get(id).await.expect("get").expect("the job");
    assert_eq!((job.state, job.fence), (JobState::Running, second.claim.fence()));
    settle(&queue, second, done()).await;
    assert_eq!(queue.finish(&[release]).await.expect("finish"), [Settled::Accepted]);
    check_invariants(&queue).await;
}

pub(super) async fn a_stale_claim_cannot_finish(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let silent = crate::ground::register_for(&queue, Duration::ZERO).await;
    let id = push_one(&queue, work(1)).await;
    let stale = pull_one(&queue, silent).await;
    eventually("the silent worker's job is freed", || async {
        (queue.reap().await.expect("reap").freed == 1).then_some(())
    })
    .await;
    let worker = register(&queue).await;
    let current = pull_one(&queue, worker).await;

    let refused = settle(&queue, stale, failed("from the grave")).await;
    let running = queue.get(id).await.expect("get").expect("the job");
    let accepted = settle(&queue, current, done()).await;

    assert_eq!((refused, accepted), (Settled::Refused, Settled::Accepted));
    assert_eq!((running.state, running.worker), (JobState::Running, Some(worker)));
    let job = queue.get(id).await.expect("get").expect("the job");
    assert_eq!((job.state, job.error, job.worker), (JobState::Completed, None, Some(worker)));
    check_invariants(&queue).await;
}

pub(super) async fn a_batch_settles_each_claim_on_its_own(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let ids = push_all(&queue, (0..4).map(|n| work(n).max_attempts(1))).await;
    let mut claimed = pull(&queue, worker, 4).await.into_iter();
    queue.cancel(ids[1]).await.expect("cancel");
    let mut next = |outcome| Finish::new(claimed.next().expect("four").claim, outcome);

    let batch = [next(done()), next(done()), next(failed("no")), next(Outcome::Release)];
    let settled = queue.finish(&batch).await.expect("finish");

    assert_eq!(settled, [Settled::Accepted, Settled::Refused, Settled::Accepted, Settled::Accepted]);
    let mut states = Vec::new();
    for id in ids {
        states.push(queue.get(id).await.expect("get").expect("the job").state);
    }
    assert_eq!(states, [JobState::Completed, JobState::Cancelled, JobState::Failed, JobState::Pending]);
    check_invariants(&queue).await;
}

pub(super) async fn two_claims_of_one_job_in_one_batch_are_told_apart(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let id = push_one(&queue, work(1)).await;
    let stale = pull_one(&queue, worker).await;
    queue.cancel(id).await.expect("cancel");
    queue.retry(id).await.expect("retry");
    let current = pull_one(&queue, worker).await;

    let batch = [Finish::new(stale.claim, failed("old")), Finish::new(current.claim, done())];
    let settled = queue.finish(&batch).await.expect("finish");

    assert_eq!(settled, [Settled::Refused, Settled::Accepted]);
    assert_eq!(queue.get(id).await.expect("get").expect("the job").state, JobState::Completed);
    check_invariants(&queue).await;
}

pub(super) async fn a_result_too_large_fails_the_job_and_not_the_worker(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let id = push_one(&queue, work(1)).await;
    let claimed = pull_one(&queue, worker).await;

    let settled =
        settle(&queue, claimed, Outcome::Complete { result: json!("x".repeat(MAX_JSON_BYTES)) }).await;

    assert_eq!(settled, Settled::Accepted);
    let job = queue.get(id).await.expect("get").expect("the job");
    assert_eq!(job.error.map(|error| error.code), Some("result_not_storable".into()));
}

pub(super) async fn an_outcome_of_a_deleted_job_is_refused(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let id = push_one(&queue, work(1)).await;
    let claimed = pull_one(&queue, worker).await;
    queue.cancel(id).await.expect("cancel");
    queue.delete(id).await.expect("delete");

    assert_eq!(settle(&queue, claimed, done()).await, Settled::Refused);
    assert_eq!(queue.get(id).await.expect("get"), None);
}

pub(super) async fn a_job_that_goes_back_at_once_keeps_its_time(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let at = Timestamp::from_ms(Timestamp::now().as_ms() - 1_000);
    let id = push_one(&queue, work(1).run_at(at)).await;

    let claimed = pull_one(&queue, worker).await;
    settle(&queue, claimed, Outcome::Release).await;

    let job = queue.get(id).await.expect("get").expect("the job");
    assert_eq!((job.state, job.run_at), (JobState::Pending, Some(at)));
    let silent = register_for(&queue, Duration::ZERO).await;
    pull_one(&queue, silent).await;
    eventually("the loss is noticed", || async {
        (queue.reap().await.expect("reap").freed == 1).then_some(())
    })
    .await;
    assert_eq!(queue.get(id).await.expect("get").expect("the job").run_at, Some(at));
}
