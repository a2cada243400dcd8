use std::sync::Arc;

use serde_json::json;
use telecine_queue::{JobFilter, JobState, MAX_JSON_BYTES, NewJob, NewRun, Push, QueueError, RunState};

use crate::ground::{
    Ground, check_invariants, done, failed, list_all, pull, pull_one, push_one, register, settle, work,
};

pub(super) async fn a_push_is_all_or_nothing(ground: Arc<Ground>) {
    let queue = ground.open().await;
    queue.push(vec![Push::from(work(1)).idempotency_key("taken")]).await.expect("push");

    let refused = queue.push(vec![work(2).into(), Push::from(work(3)).idempotency_key("taken")]).await;

    assert!(matches!(refused, Err(QueueError::KeyReused { .. })), "{refused:?}");
    assert_eq!(list_all(&queue, &JobFilter::default()).await.len(), 1);
    check_invariants(&queue).await;
}

pub(super) async fn fifty_pushes_with_one_key_make_one_run(ground: Arc<Ground>) {
    let handles = [ground.open().await, ground.open().await];
    let push = Push::run(NewRun::new("film"), [work(1), work(2)]).idempotency_key("upload-42");

    let pushes = (0..50).map(|n: usize| {
        let (queue, push) = (Arc::clone(&handles[n % 2]), push.clone());
        tokio::spawn(async move { queue.push(vec![push]).await.expect("push").remove(0) })
    });
    let mut made = Vec::new();
    for push in pushes.collect::<Vec<_>>() {
        made.push(push.await.expect("no panic"));
    }

    assert_eq!(made.iter().filter(|pushed| !pushed.replayed).count(), 1, "one push made the run");
    assert!(made.iter().all(|pushed| pushed.run == made[0].run && pushed.jobs == made[0].jobs));
    assert_eq!(list_all(&handles[0], &JobFilter::default()).await.len(), 2);
    check_invariants(&handles[0]).await;
}

pub(super) async fn a_key_with_another_body_is_refused(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let first = queue.push(vec![Push::from(work(1)).idempotency_key("k")]).await.expect("push");

    let same = queue.push(vec![Push::from(work(1)).idempotency_key("k")]).await.expect("push");
    let other = queue.push(vec![Push::from(work(2)).idempotency_key("k")]).await;

    assert_eq!(same[0].jobs, first[0].jobs);
    assert!(matches!(other, Err(QueueError::KeyReused { key }) if key == "k"));
}

pub(super) async fn a_key_may_stand_for_a_request_whose_run_would_be_another_by_now(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let request = json!({"recipe": "film"});
    let push = |number, request: &serde_json::Value| {
        let push = Push::run(NewRun::new("film"), [work(number)]).tenant("a").idempotency_key("k");
        vec![Push { keyed_by: Some(request.clone()), ..push }]
    };
    assert_eq!(queue.known_push("a", "k", &request).await.expect("known_push"), None);

    let first = queue.push(push(1, &request)).await.expect("push").remove(0);
    let again = queue.push(push(2, &request)).await.expect("push").remove(0);
    let known = queue.known_push("a", "k", &request).await.expect("known_push").expect("it is known");
    let other = queue.push(push(1, &json!({"recipe": "image"}))).await;

    assert_eq!((&again.run, &known.run), (&first.run, &first.run));
    assert_eq!(known, again);
    assert!(matches!(other, Err(QueueError::KeyReused { .. })), "{other:?}");
    let other = queue.known_push("a", "k", &json!({"recipe": "image"})).await;
    assert!(matches!(other, Err(QueueError::KeyReused { .. })), "{other:?}");
    assert_eq!(queue.known_push("b", "k", &request).await.expect("known_push"), None);
}

pub(super) async fn a_key_of_one_tenant_means_nothing_to_another(ground: Arc<Ground>) {
    let queue = ground.open().await;

    let ours = queue.push(vec![Push::from(work(1)).tenant("a").idempotency_key("k")]).await.expect("push");
    let theirs = queue.push(vec![Push::from(work(2)).tenant("b").idempotency_key("k")]).await.expect("push");

    assert_ne!(ours[0].jobs, theirs[0].jobs);
}

pub(super) async fn a_unique_key_returns_the_job_that_holds_it(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let first = push_one(&queue, work(1).unique_key("dispatch:7")).await;

    let while_pending = push_one(&queue, work(2).unique_key("dispatch:7")).await;
    let claimed = pull_one(&queue, worker).await;
    settle(&queue, claimed, done()).await;
    let after_completion = push_one(&queue, work(3).unique_key("dispatch:7")).await;
    let of_another_kind = push_one(&queue, NewJob::new("other", json!(null)).unique_key("dispatch:7")).await;

    assert_eq!((while_pending, after_completion), (first, first));
    assert_ne!(of_another_kind, first);
    check_invariants(&queue).await;
}

pub(super) async fn a_unique_key_is_free_again_after_a_failure(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let first = push_one(&queue, work(1).unique_key("k").max_attempts(1)).await;
    let claimed = pull_one(&queue, worker).await;
    settle(&queue, claimed, failed("no")).await;

    let second = push_one(&queue, work(1).unique_key("k")).await;

    assert_ne!(first, second);
    let retried = queue.retry(first).await;
    assert!(matches!(retried, Err(QueueError::WrongState { .. })), "its key is taken: {retried:?}");
    check_invariants(&queue).await;
}

pub(super) async fn a_run_ends_with_its_last_job(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let push = Push::run(NewRun::new("film"), [work(1), work(2).max_attempts(1)]);
    let id = queue.push(vec![push]).await.expect("push")[0].run.clone().expect("a run");
    let state = async |expected: RunState, left: u32| {
        let run = queue.get_run(&id).await.expect("get_run").expect("the run");
        assert_eq!((run.state, run.jobs_left), (expected, left));
    };

    state(RunState::Queued, 2).await;
    let mut claimed = pull(&queue, worker, 2).await;
    state(RunState::Running, 2).await;
    let (second, first) = (claimed.pop().expect("two"), claimed.pop().expect("two"));
    let second_id = second.job.id;
    settle(&queue, first, done()).await;
    state(RunState::Running, 1).await;
    settle(&queue, second, failed("no")).await;
    state(RunState::Failed, 0).await;

    queue.retry(second_id).await.expect("retry");
    state(RunState::Running, 1).await;
    let again = pull_one(&queue, worker).await;
    settle(&queue, again, done()).await;
    state(RunState::Succeeded, 0).await;
    let run = queue.get_run(&id).await.expect("get_run").expect("the run");
    assert_eq!(run.generation, 2);
}

pub(super) async fn a_runs_later_jobs_stand_further_back_in_the_line(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let hour = |n| NewJob { cost_ms: 3_600_000, ..work(n) };
    let film =
        queue.push(vec![Push::run(NewRun::new("film"), [hour(1), hour(2), hour(3)])]).await.expect("push");
    let clip = push_one(&queue, work(9)).await;

    let order: Vec<_> = pull(&queue, worker, 4).await.into_iter().map(|claimed| claimed.job.id).collect();

    let film = &film[0].jobs;
    assert_eq!(order, [film[0], clip, film[1], film[2]], "the clip waits for one range, not for the film");
}

pub(super) async fn bad_pushes_are_refused_with_a_reason(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let huge = "x".repeat(MAX_JSON_BYTES);
    let bad = [
        (Push::jobs([]), "at least one job"),
        (NewJob::new("", json!(null)).into(), "kind"),
        (NewJob::new("new\nline", json!(null)).into(), "control characters"),
        (NewJob::new("k".repeat(201), json!(null)).into(), "200 bytes"),
        (NewJob::new("big", json!(huge)).into(), "store it as a blob"),
        (NewJob::new("nul", json!("a\0b")).into(), "NUL"),
        (NewJob::new("nul", json!({"a\0b": 1})).into(), "NUL"),
        (NewJob::new("deep", (0..110).fold(json!(1), |inner, _| json!([inner]))).into(), "nested deeper"),
        (work(1).priority(101).into(), "priority 101"),
        (work(1).max_attempts(0).into(), "max_attempts"),
        (Push::from(work(1)).idempotency_key(""), "idempotency key"),
        (Push::from(work(1)).tenant("t\0"), "tenant"),
    ];

    for (push, expected) in bad {
        let error = queue.push(vec![push]).await.expect_err(expected);
        assert!(matches!(error, QueueError::Invalid { .. }), "{error:?}");
        assert!(error.to_string().contains(expected), "`{error}` should say `{expected}`");
    }
    assert!(list_all(&queue, &JobFilter::default()).await.is_empty());
}

pub(super) async fn text_that_looks_like_sql_is_only_text(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let odd = "x'; DROP TABLE job; -- \" \\ \\u0000 $1 ?1 ü 🎞";
    let push = Push::from(NewJob::new(odd, json!({ odd: odd })).lane(odd)).tenant(odd).idempotency_key(odd);

    let id = queue.push(vec![push]).await.expect("push")[0].jobs[0];

    let job = queue.get(id).await.expect("get").expect("the job");
    assert_eq!((job.kind.as_str(), job.lane.as_str(), job.tenant.as_str()), (odd, odd, odd));
    assert_eq!(job.payload, json!({ odd: odd }));
    assert_eq!(job.state, JobState::Pending);
    check_invariants(&queue).await;
}

pub(super) async fn a_run_with_nothing_left_to_do_has_ended(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let twin = push_one(&queue, work(1).unique_key("k")).await;

    let push = Push::run(NewRun::new("film"), [work(1).unique_key("k")]);
    let pushed = queue.push(vec![push]).await.expect("push").remove(0);

    assert_eq!(pushed.jobs, [twin]);
    let run = queue.get_run(&pushed.run.expect("a run")).await.expect("get_run").expect("the run");
    assert_eq!((run.state, run.jobs_total), (RunState::Succeeded, 0));
}
