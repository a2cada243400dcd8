//! Nobody is delayed by another's endpoint, sees another's deliveries, or is told of another's runs; and nobody's
//! address leads inside.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use libtest_mimic::Trial;
use telecine_connect::webhooks::{DeliveryFilter, DeliveryStatus, NewEndpoint};
use telecine_queue::AttemptOutcome;

use crate::postgres_server::PostgresServer;
use crate::receiver::{Receiver, hang, respond};
use crate::stage::{On, Stage, promises};

const RUNS: usize = 12;

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    promises!(
        "isolation",
        server,
        [
            a_dead_endpoint_delays_no_other,
            a_dead_address_of_a_run_delays_no_other,
            many_dead_endpoints_hold_few_slots,
            events_of_a_run_come_in_order,
            an_event_that_cannot_be_told_does_not_hold_up_those_after_it,
            a_tenant_hears_of_its_own_runs_alone,
            inner_addresses_are_never_told,
        ]
    )
}

/// How many requests hang, and how many did at once.
#[derive(Default)]
struct Hanging {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Hanging {
    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

fn dead() -> (Receiver, Arc<Hanging>) {
    let hanging = Arc::new(Hanging::default());
    let counted = Arc::clone(&hanging);
    let receiver = Receiver::start(move |_, _, stream| {
        counted.most.fetch_max(counted.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        hang(stream);
        counted.now.fetch_sub(1, Ordering::SeqCst);
    });
    (receiver, hanging)
}

async fn a_dead_endpoint_delays_no_other(on: On) {
    // The dead one would hold every slot, were it let: it keeps each request for longer than the test takes.
    let stage = Stage::with(&on, |options| options.answer_within = Duration::from_secs(600)).await;
    let ((dead, hanging), healthy) = (dead(), Receiver::taking());
    stage.endpoint("", &dead.url(), &[]).await;
    let well = stage.endpoint("", &healthy.url(), &[]).await;

    for _ in 0..RUNS {
        stage.run("").await;
    }
    let of_well = DeliveryFilter { endpoint: Some(well.id.clone()), ..DeliveryFilter::default() };
    stage
        .until(async || {
            let told = stage.webhooks.deliveries("", &of_well, None, 1_000).await.unwrap().data;
            told.iter().filter(|it| it.status == DeliveryStatus::Delivered).count() == RUNS * 3
        })
        .await;

    // All of it, while the dead one has not let go of a single request.
    assert_eq!(healthy.seen().iter().map(|it| it.id().to_owned()).collect::<BTreeSet<_>>().len(), RUNS * 3);
    let all = stage.deliveries("").await;
    let of_dead: Vec<_> = all.iter().filter(|it| it.endpoint.as_ref() != Some(&well.id)).collect();
    assert!(!of_dead.is_empty() && of_dead.iter().all(|it| it.status == DeliveryStatus::Pending));
    assert!((1..=4).contains(&hanging.most()), "{} at once", hanging.most());
    stage.close().await;
}

/// More dead endpoints than slots. Each is found out once; from then on they share two slots.
async fn many_dead_endpoints_hold_few_slots(on: On) {
    const DEAD: usize = 12;
    let stage = Stage::with(&on, |options| {
        options.answer_within = Duration::from_secs(600);
        options.max_attempts = 1;
    })
    .await;
    // First they break connections off, then they keep them.
    let (hangs, hanging) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (keeps, kept) = (Arc::clone(&hangs), Arc::clone(&hanging));
    let dead = Receiver::start(move |_, _, stream| {
        if keeps.load(Ordering::SeqCst) {
            kept.fetch_add(1, Ordering::SeqCst);
            hang(stream);
        }
    });
    for n in 0..DEAD {
        stage.endpoint("", &format!("{}/{n}", dead.url()), &["run.succeeded"]).await;
    }
    stage.run("").await;
    stage.ended("", DEAD).await;
    hangs.store(true, Ordering::SeqCst);

    let healthy = Receiver::taking();
    stage.endpoint("", &healthy.url(), &["run.succeeded"]).await;
    for _ in 0..RUNS {
        stage.run("").await;
    }
    stage.until(async || healthy.count() == RUNS && hanging.load(Ordering::SeqCst) > 0).await;

    assert!(hanging.load(Ordering::SeqCst) <= 2, "{hanging:?} slots are held");
    stage.close().await;
}

async fn a_dead_address_of_a_run_delays_no_other(on: On) {
    let stage = Stage::with(&on, |options| options.answer_within = Duration::from_secs(600)).await;
    let ((dead, hanging), healthy) = (dead(), Receiver::taking());

    for _ in 0..RUNS {
        stage.run_telling("", Some(&dead.url())).await;
    }
    let mut runs = BTreeSet::new();
    for _ in 0..RUNS {
        runs.insert(stage.run_telling("", Some(&healthy.url())).await.to_string());
    }
    stage.until(async || healthy.count() >= RUNS * 3).await;

    let told: BTreeSet<String> = healthy.seen().iter().map(|it| it.run()).collect();
    assert_eq!(told, runs);
    assert!((1..=4).contains(&hanging.most()), "{} at once", hanging.most());
    stage.close().await;
}

async fn events_of_a_run_come_in_order(on: On) {
    // The first is answered when the test says so: those after it could all overtake it.
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let (answers, runtime) = (Arc::clone(&gate), tokio::runtime::Handle::current());
    let receiver = Receiver::start(move |_, received, stream| {
        if received.seq() == 1 {
            drop(runtime.block_on(answers.acquire()));
        }
        respond(stream, 200, &[], "");
    });
    let mut stage = Stage::with(&on, |options| options.in_flight = 8).await;
    stage.start_worker().await;
    stage.endpoint("", &receiver.url(), &[]).await;

    stage.run("").await;
    stage
        .until(async || {
            let second = stage.deliveries("").await.into_iter().find(|it| it.seq == Some(2));
            let Some(second) = second else { return false };
            let second = stage.webhooks.delivery("", second.id.parse().unwrap()).await.unwrap();
            let stepped_aside =
                second.attempts.unwrap().iter().any(|it| it.outcome == AttemptOutcome::Snoozed);
            stepped_aside && receiver.count() > 0
        })
        .await;
    let while_it_waits: Vec<u64> = receiver.seen().iter().map(|it| it.seq()).collect();
    gate.add_permits(1);
    stage.ended("", 3).await;

    assert_eq!(while_it_waits, [1]);
    assert_eq!(receiver.seen().iter().map(|it| it.seq()).collect::<Vec<_>>(), [1, 2, 3]);
    stage.close().await;
}

async fn an_event_that_cannot_be_told_does_not_hold_up_those_after_it(on: On) {
    let receiver = Receiver::start(|_, received, stream| match received.seq() {
        1 => respond(stream, 500, &[], ""),
        _ => respond(stream, 200, &[], ""),
    });
    let stage = Stage::with(&on, |options| {
        options.backoff = telecine_queue::Backoff::constant(Duration::from_secs(3_600));
    })
    .await;
    stage.endpoint("", &receiver.url(), &[]).await;

    stage.run("").await;
    stage.until(async || receiver.seen().iter().any(|it| it.seq() == 3)).await;

    let seqs: Vec<u64> = receiver.seen().iter().map(|it| it.seq()).collect();
    assert_eq!(seqs, [1, 2, 3]);
    let first = stage.deliveries("").await.into_iter().find(|it| it.seq == Some(1)).unwrap();
    assert_eq!(first.status, DeliveryStatus::Retrying);
    assert!(first.next_try_at.is_some());
    stage.close().await;
}

async fn a_tenant_hears_of_its_own_runs_alone(on: On) {
    let (stage, acme, globex) = (Stage::open(&on).await, Receiver::taking(), Receiver::taking());
    let of_acme = stage.endpoint("acme", &acme.url(), &[]).await;
    stage.endpoint("globex", &globex.url(), &[]).await;

    let run = stage.run("acme").await;
    let told = stage.ended("acme", 3).await;
    stage.run("").await;
    stage
        .until(async || stage.queue.outbox_take("webhooks", 1, Duration::ZERO).await.unwrap().is_empty())
        .await;

    assert_eq!((acme.count(), globex.count()), (3, 0));
    assert!(told.iter().all(|it| it.run_id.as_ref() == Some(&run)));
    assert!(stage.deliveries("globex").await.is_empty() && stage.deliveries("").await.is_empty());
    assert_eq!(stage.webhooks.endpoint("globex", &of_acme.id).await.unwrap(), None);
    assert_eq!(stage.webhooks.endpoints("").await.unwrap(), []);
    assert!(stage.webhooks.delivery("globex", told[0].id.parse().unwrap()).await.is_err());
    assert!(stage.webhooks.ping("globex", &of_acme.id).await.is_err());
    assert!(stage.webhooks.rotate_endpoint("globex", &of_acme.id).await.is_err());
    assert!(stage.webhooks.delete_endpoint("globex", &of_acme.id).await.is_err());
    stage.close().await;
}

async fn inner_addresses_are_never_told(on: On) {
    let canary = Receiver::taking();
    let stage = Stage::with(&on, |options| {
        options.allow_private_urls = false;
        options.max_attempts = 2;
    })
    .await;
    let new = |url: String| NewEndpoint { url, events: Vec::new(), description: String::new() };
    let port = canary.port();
    // A name is looked up when it is told.
    stage.endpoint("", &format!("http://localhost:{port}/"), &["run.succeeded"]).await;

    for host in ["127.0.0.1", "2130706433", "0x7f.1", "0177.1", "[::1]", "[::ffff:127.0.0.1]", "0"] {
        let refused = stage.webhooks.add_endpoint("", new(format!("http://{host}:{port}/"))).await;
        assert!(refused.is_err(), "{host}");
        // A run that was submitted otherwise gets no further.
        stage.run_telling("", Some(&format!("http://{host}:{port}/"))).await;
    }
    stage.run("").await;
    let told = stage.ended("", 7 * 3 + 8).await;

    assert!(told.iter().all(|it| it.status == DeliveryStatus::Failed), "{told:#?}");
    assert!(
        told.iter().any(|it| it.reason.as_ref().unwrap().contains("localhost is not at a public address"))
    );
    assert_eq!(canary.count(), 0);
    stage.close().await;
}
