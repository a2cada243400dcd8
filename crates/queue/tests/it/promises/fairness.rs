use std::sync::Arc;

use telecine_queue::{JobId, Limit, NewRun, Push, Queue, QueueError, TenantPolicy, WorkerId};

use crate::ground::{Ground, check_invariants, pull, pull_one, push_all, register, work};

async fn push_for(queue: &Arc<dyn Queue>, tenant: &str, jobs: u64) -> Vec<JobId> {
    queue.push(vec![Push::jobs((0..jobs).map(work)).tenant(tenant)]).await.expect("push").remove(0).jobs
}

/// The tenants of the next jobs, in the order of the claim.
async fn next_tenants(queue: &Arc<dyn Queue>, worker: WorkerId, jobs: u32) -> Vec<String> {
    pull(queue, worker, jobs).await.into_iter().map(|claimed| claimed.job.tenant).collect()
}

pub(super) async fn a_flood_of_one_tenant_hardly_delays_another(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    for _ in 0..10 {
        push_for(&queue, "flood", 1_000).await;
    }

    let single = push_for(&queue, "single", 1).await[0];

    // The flood stands a second of work apart per job, and pushing it took some seconds on a busy machine.
    let next = pull(&queue, worker, 60).await;
    let place = next.iter().position(|claimed| claimed.job.id == single).expect("among the next");
    let took = claimed_span_s(&next);
    assert!(place as u64 <= took + 2, "behind {place} jobs of a flood of 10,000 that took {took} s to push");
    check_invariants(&queue).await;
}

/// How long the pushes took, in whole seconds begun.
fn claimed_span_s(claimed: &[telecine_queue::Claimed]) -> u64 {
    let created = claimed.iter().map(|claimed| claimed.job.created_at);
    let (first, last) = (created.clone().min().expect("one"), created.max().expect("one"));
    last.since(first).as_secs() + 1
}

pub(super) async fn tenants_with_a_backlog_take_turns(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    push_for(&queue, "a", 20).await;
    push_for(&queue, "b", 5).await;
    push_for(&queue, "b", 5).await;

    let order = next_tenants(&queue, worker, 20).await;

    let of_b = order.iter().filter(|tenant| *tenant == "b").count();
    assert!((8..=10).contains(&of_b), "{order:?}");
    check_invariants(&queue).await;
}

pub(super) async fn a_heavier_tenant_is_served_faster(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    queue.tenant(TenantPolicy { name: "gold".into(), weight: 4.0 }).await.expect("tenant");
    assert_eq!(queue.tenants().await.expect("tenants").len(), 1);
    push_for(&queue, "plain", 40).await;
    push_for(&queue, "gold", 40).await;

    let order = next_tenants(&queue, worker, 20).await;

    let gold = order.iter().filter(|tenant| *tenant == "gold").count();
    assert!((13..=17).contains(&gold), "{order:?}");
    let bad = TenantPolicy { name: "gold".into(), weight: 0.0 };
    assert!(matches!(queue.tenant(bad).await, Err(QueueError::Invalid { .. })));
    check_invariants(&queue).await;
}

pub(super) async fn a_tenant_that_has_caught_up_starts_anew(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    push_for(&queue, "a", 50).await;
    assert_eq!(pull(&queue, worker, 50).await.len(), 50);

    let late = push_for(&queue, "a", 1).await[0];
    push_for(&queue, "b", 1).await;

    assert_eq!(pull_one(&queue, worker).await.job.id, late, "what it ran is not held against it");
    check_invariants(&queue).await;
}

pub(super) async fn the_nameless_tenant_is_served_in_the_order_of_its_pushes(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;

    let mut ids = push_all(&queue, (0..10).map(work)).await;
    ids.extend(push_all(&queue, (0..10).map(work)).await);

    let order: Vec<JobId> =
        pull(&queue, worker, 20).await.into_iter().map(|claimed| claimed.job.id).collect();
    assert_eq!(order, ids);
    check_invariants(&queue).await;
}

pub(super) async fn parked_jobs_of_tenants_take_turns_too(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    queue.limit(Limit::new("key").max_running(1)).await.expect("limit");
    for (tenant, jobs) in [("flood", 30), ("single", 1)] {
        let jobs = (0..jobs).map(|n| work(n).limit_key("key"));
        queue.push(vec![Push::run(NewRun::new("a run"), jobs).tenant(tenant)]).await.expect("push");
    }

    let mut order = Vec::new();
    for _ in 0..4 {
        let claimed = pull_one(&queue, worker).await;
        order.push(claimed.job.tenant.clone());
        crate::ground::settle(&queue, claimed, crate::ground::done()).await;
    }

    assert!(order.contains(&"single".to_owned()), "{order:?}");
    check_invariants(&queue).await;
}
