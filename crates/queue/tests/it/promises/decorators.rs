use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use telecine_queue::testing::{Faults, faulty};
use telecine_queue::{
    Failure, Job, JobContext, JobFilter, JobId, JobState, Kind, Kinds, QueueError, WorkerOptions, total,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::ground::{
    Ground, brisk, check_invariants, list_all, pull, push_all, push_one, register, start,
    wait_until_none_is_live, work,
};

/// A lease that holds on a busy machine; stranded jobs come back after it.
fn patient() -> WorkerOptions {
    WorkerOptions { lease: Duration::from_secs(4), ..brisk(10) }
}

struct Count(Arc<Mutex<HashMap<JobId, u32>>>);

#[async_trait::async_trait]
impl Kind for Count {
    fn name(&self) -> &'static str {
        "work"
    }

    async fn run(&self, job: &Job, _: &JobContext) -> Result<Value, Failure> {
        *self.0.lock().expect("no panic").entry(job.id).or_default() += 1;
        Ok(Value::Null)
    }
}

pub(super) async fn a_worker_that_loses_every_third_answer_runs_each_job_once(ground: Arc<Ground>) {
    const JOBS: u64 = 300;
    let queue = ground.open().await;
    let faults = Faults::new()
        .lose_answer("finish", 3)
        .lose_answer("pull", 3)
        .lose_answer("beat", 3)
        .refuse("promote", 4)
        .refuse("tick", 4);
    let ran = Arc::new(Mutex::new(HashMap::new()));
    let ids = push_all(&queue, (0..JOBS).map(work)).await;
    let worker =
        start(&faulty(Arc::clone(&queue), &faults), Kinds::new().with(Count(Arc::clone(&ran))), patient())
            .await;

    let counts = wait_until_none_is_live(&queue).await;
    worker.drain();
    let report = worker.finished().await;

    assert_eq!((total(&counts, JobState::Completed), report.completed, report.refused), (JOBS, JOBS, 0));
    let ran = ran.lock().expect("no panic").clone();
    assert!(ids.iter().all(|id| ran.get(id) == Some(&1)), "none was run twice for want of an answer");
    let jobs = list_all(&queue, &JobFilter::default()).await;
    assert!(jobs.iter().all(|job| (job.attempt, job.lost) == (1, 0)), "nor was one charged for it");
    assert!(["finish", "pull", "beat"].iter().all(|verb| faults.injected(verb) > 1), "{faults:?}");
    check_invariants(&queue).await;
}

pub(super) async fn a_fault_is_before_or_after_the_call(ground: Arc<Ground>) {
    let queue = ground.open().await;

    let before = faulty(Arc::clone(&queue), &Faults::new().refuse("push", 2));
    push_one(&before, work(1)).await;
    let refused = before.push(vec![work(2).into()]).await;
    let after = faulty(Arc::clone(&queue), &Faults::new().lose_answer("push", 1));
    let lost = after.push(vec![work(3).into()]).await;

    assert!(matches!(
        (&refused, &lost),
        (Err(QueueError::Unavailable { .. }), Err(QueueError::Unavailable { .. }))
    ));
    let mut stored: Vec<u64> = list_all(&queue, &JobFilter::default())
        .await
        .iter()
        .filter_map(|job| job.payload["n"].as_u64())
        .collect();
    stored.sort_unstable();
    assert_eq!(stored, [1, 3]);
}

/// Writes down the spans that began, and the verbs that ended with how many items.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<String>>>, Arc<AtomicU64>);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("telecine_queue")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.0.lock().expect("no panic").push(span.metadata().name().to_owned());
        Id::from_u64(self.1.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut said = Said(String::new());
        event.record(&mut said);
        self.0.lock().expect("no panic").push(said.0);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Said(String);

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "verb" || field.name() == "items" {
            self.0 += &format!("{}={value:?} ", field.name());
        }
    }
}

pub(super) async fn every_verb_is_a_span_with_its_figures(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let listener = Listener::default();

    let listening = tracing::subscriber::set_default(listener.clone());
    push_all(&queue, [work(1), work(2)]).await;
    pull(&queue, worker, 2).await;
    drop(listening);

    let heard = listener.0.lock().expect("no panic").clone();
    let expected = ["queue.push", "verb=\"push\" items=1 ", "queue.pull", "verb=\"pull\" items=1 "];
    assert_eq!(heard.iter().filter(|line| expected.contains(&line.as_str())).count(), 4, "{heard:?}");
}
