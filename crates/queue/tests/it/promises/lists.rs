use std::sync::Arc;

use serde_json::json;
use telecine_queue::{JobFilter, JobState, NewJob, NewRun, Page, Push, TenantPolicy};

use crate::ground::{
    Ground, check_invariants, done, failed, list_all, pull, pull_one, push_all, push_one, register, settle,
    work,
};

pub(super) async fn a_list_spans_live_jobs_and_history(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let mut ids = push_all(&queue, (0..10).map(work)).await;
    for _ in 0..4 {
        let claimed = pull_one(&queue, worker).await;
        settle(&queue, claimed, done()).await;
    }

    let (mut seen, mut page) = (Vec::new(), Page::first(3));
    loop {
        let listed = queue.list(&JobFilter::default(), page).await.expect("list");
        assert!(listed.data.len() <= 3);
        seen.extend(listed.data.into_iter().map(|job| job.id));
        let Some(cursor) = listed.next_cursor else { break };
        page.before = Some(cursor);
    }

    ids.reverse();
    assert_eq!(seen, ids, "newest first, each once");
}

pub(super) async fn filters_narrow_a_list(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let done_id = push_one(&queue, work(1)).await;
    let claimed = pull_one(&queue, worker).await;
    settle(&queue, claimed, done()).await;
    let other = push_one(&queue, NewJob::new("other", json!(null)).lane("net")).await;
    let theirs = queue.push(vec![Push::from(work(3)).tenant("them")]).await.expect("push")[0].jobs[0];
    let of_run = queue.push(vec![Push::run(NewRun::new("film"), [work(4)])]).await.expect("push").remove(0);
    let ids = async |filter: JobFilter| -> Vec<_> {
        list_all(&queue, &filter).await.into_iter().map(|job| job.id).collect()
    };

    let all = JobFilter::default;
    assert_eq!(ids(JobFilter { states: vec![JobState::Completed], ..all() }).await, [done_id]);
    assert_eq!(ids(JobFilter { kind: Some("other".into()), ..all() }).await, [other]);
    assert_eq!(ids(JobFilter { lane: Some("net".into()), ..all() }).await, [other]);
    assert_eq!(ids(JobFilter { tenant: Some("them".into()), ..all() }).await, [theirs]);
    assert_eq!(ids(JobFilter { run: of_run.run.clone(), ..all() }).await, of_run.jobs);
    let none = JobFilter { states: vec![JobState::Failed, JobState::Running], ..all() };
    assert!(ids(none).await.is_empty());
}

pub(super) async fn what_waits_of_a_tenant_is_counted(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let push = async |tenant: &str, jobs: Vec<NewJob>| {
        let pushes = jobs.into_iter().map(|job| Push::from(job).tenant(tenant)).collect();
        queue.push(pushes).await.expect("push")
    };
    // One of them may run, so that the others are parked.
    queue.tenant(TenantPolicy { max_running: Some(1), ..TenantPolicy::new("us") }).await.expect("tenant");
    push("us", (0..5).map(work).collect()).await;
    push("us", vec![NewJob::new("other", json!(null))]).await;
    push("them", (0..3).map(work).collect()).await;
    push("", (0..4).map(work).collect()).await;
    let waiting = async |tenant: &str, except: &str, at_most: u64| {
        queue.waiting(tenant, except, at_most).await.expect("waiting")
    };

    assert_eq!(waiting("us", "none", 100).await, 6);
    assert_eq!(waiting("us", "none", 2).await, 2);
    assert_eq!((waiting("us", "other", 100).await, waiting("us", "work", 100).await), (5, 1));
    assert_eq!((waiting("them", "none", 100).await, waiting("nobody", "none", 100).await), (3, 0));
    queue.waiting("", "none", 100).await.expect_err("what is nobody's is not told apart");
    pull(&queue, worker, 100).await;
    assert_eq!(waiting("them", "none", 100).await, 0);
    assert_eq!(waiting("us", "none", 100).await, 5, "what runs does not wait");
}

pub(super) async fn a_brief_list_leaves_out_what_may_be_large(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let large = |n: u64| NewJob::new("work", json!({ "n": n }));
    let pushed = queue.push(vec![Push::run(NewRun::new("film"), [large(1), large(2)])]).await.expect("push");
    let claimed = pull_one(&queue, worker).await;
    settle(&queue, claimed, telecine_queue::Outcome::Complete { result: json!({ "made": 1 }) }).await;

    for filter in [JobFilter::default(), JobFilter { run: pushed[0].run.clone(), ..JobFilter::default() }] {
        let whole = queue.list(&filter, Page::first(10)).await.expect("list").data;
        let brief = Page { brief: true, ..Page::first(10) };
        let brief = queue.list(&filter, brief).await.expect("list").data;

        assert!(whole.iter().all(|job| job.payload["n"].is_u64()));
        assert!(whole.iter().any(|job| job.result.is_some()));
        let strip = |job: telecine_queue::Job| telecine_queue::Job {
            payload: json!(null),
            checkpoint: None,
            result: None,
            ..job
        };
        assert_eq!(brief, whole.into_iter().map(strip).collect::<Vec<_>>());
    }
}

pub(super) async fn counts_agree_with_the_rows(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    push_all(&queue, (0..20).map(|n| work(n).max_attempts(1))).await;
    push_all(&queue, (0..5).map(|n| NewJob::new("other", json!(n)).lane("net"))).await;
    let mut claimed = pull(&queue, worker, 6).await;
    settle(&queue, claimed.pop().expect("six"), done()).await;
    settle(&queue, claimed.pop().expect("six"), failed("no")).await;
    settle(&queue, claimed.pop().expect("six"), telecine_queue::Outcome::Release).await;
    queue.cancel(claimed.pop().expect("six").job.id).await.expect("cancel");

    let counts = queue.counts().await.expect("counts");

    let of = |state| telecine_queue::total(&counts, state);
    assert_eq!((of(JobState::Pending), of(JobState::Running), of(JobState::Completed)), (15 + 5, 2, 1));
    assert_eq!((of(JobState::Failed), of(JobState::Cancelled)), (1, 1));
    check_invariants(&queue).await;
}
