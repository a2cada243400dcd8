//! Runs as a whole: how they are found, steered, watched and forgotten.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use telecine_queue::{
    Beat, ClaimBeat, Claimed, Failure, Finish, Job, JobContext, Kind, Kinds, NewJob, NewRecord, NewRun,
    Outcome, Push, Pushed, Queue, Run, RunId, Settled, WorkerId, WorkerOptions,
};

use crate::ground::{
    Ground, brisk, check_invariants, done, pull_one, register, settle, start, wait_until_none_is_live, work,
};

async fn push_run(queue: &Arc<dyn Queue>, jobs: impl IntoIterator<Item = NewJob>) -> Pushed {
    queue.push(vec![Push::run(NewRun::new("film"), jobs)]).await.expect("push").remove(0)
}

fn run_of(pushed: &Pushed) -> &RunId {
    pushed.run.as_ref().expect("a run")
}

async fn get_run(queue: &Arc<dyn Queue>, id: &RunId) -> Run {
    queue.get_run(id).await.expect("get_run").expect("the run")
}

async fn told(queue: &Arc<dyn Queue>, run: &RunId) -> Vec<String> {
    let events = queue.events(run, 0, 1_000).await.expect("events");
    assert!(events.iter().zip(1..).all(|(event, seq)| event.seq == seq), "{events:?}");
    events.into_iter().map(|event| event.name).collect()
}

/// A beat that says that the run of a claim can be played.
pub(super) fn playable(worker: WorkerId, claimed: &Claimed) -> Beat {
    let claim = ClaimBeat {
        job: claimed.job.id,
        fence: claimed.claim.fence(),
        slot: None,
        progress: None,
        checkpoint: None,
        records: vec![],
        playable: true,
    };
    Beat { worker, lease: Duration::from_secs(60), draining: false, claims: vec![claim] }
}

pub(super) async fn a_run_is_playable_once_and_stays_so(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let mut pulse = queue.pulse().await.expect("pulse");
    let pushed = push_run(&queue, [work(0), work(1)]).await;
    let run = run_of(&pushed);
    let (first, second) = (pull_one(&queue, worker).await, pull_one(&queue, worker).await);
    assert_eq!(get_run(&queue, run).await.playable_at, None);

    pulse.beat(&playable(worker, &first)).await.expect("beat");
    let since = get_run(&queue, run).await.playable_at;
    pulse.beat(&playable(worker, &first)).await.expect("beat");
    let finish = |claimed: Claimed| [Finish::new(claimed.claim, done()).playable(true)];
    assert_eq!(queue.finish(&finish(second)).await.expect("finish"), [Settled::Accepted]);
    settle(&queue, first, done()).await;
    queue.retry(pushed.jobs[0]).await.expect("retry");
    let again = pull_one(&queue, worker).await;
    assert_eq!(queue.finish(&finish(again)).await.expect("finish"), [Settled::Accepted]);

    assert!(since.is_some());
    assert_eq!(get_run(&queue, run).await.playable_at, since);
    let story =
        ["run.created", "run.started", "run.playable", "run.succeeded", "run.retried", "run.succeeded"];
    assert_eq!(told(&queue, run).await, story);

    let late = push_run(&queue, [work(2), work(3)]).await;
    let claimed = pull_one(&queue, worker).await;
    let release = Finish::new(claimed.claim, Outcome::Release).playable(true);
    queue.finish(&[release]).await.expect("finish");
    assert!(get_run(&queue, run_of(&late)).await.playable_at.is_some(), "a finish says it as well as a beat");
    assert_eq!(told(&queue, run_of(&late)).await, ["run.created", "run.started", "run.playable"]);
    check_invariants(&queue).await;
}

pub(super) async fn only_a_claim_that_holds_makes_a_run_playable(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let mut pulse = queue.pulse().await.expect("pulse");
    let pushed = push_run(&queue, [work(0), work(1)]).await;
    let claimed = pull_one(&queue, worker).await;
    queue.cancel(claimed.job.id).await.expect("cancel");

    let reply = pulse.beat(&playable(worker, &claimed)).await.expect("beat");
    let id = claimed.job.id;
    let finish = Finish::new(claimed.claim, done()).playable(true);
    let settled = queue.finish(&[finish]).await.expect("finish");

    assert_eq!((reply.refused, settled), (vec![id], vec![Settled::Refused]));
    assert_eq!(get_run(&queue, run_of(&pushed)).await.playable_at, None);
    assert_eq!(told(&queue, run_of(&pushed)).await, ["run.created", "run.started"]);
}

/// `work`: records a segment, says that the run can be played, and looks.
struct Play(Arc<dyn Queue>);

#[async_trait::async_trait]
impl Kind for Play {
    fn name(&self) -> &'static str {
        "work"
    }

    async fn run(&self, job: &Job, context: &JobContext) -> Result<Value, Failure> {
        let run = job.run.as_ref().ok_or_else(|| Failure::for_good("no_run", "it belongs to a run"))?;
        context.record(NewRecord::new("segment", "0", json!(null)));
        context.playable();
        context.flushed().await?;
        let seen = self.0.get_run(run).await.map_err(|error| Failure::retry("get_run", error))?;
        Ok(json!(seen.is_some_and(|run| run.playable_at.is_some())))
    }
}

pub(super) async fn a_kind_makes_its_run_playable_at_once(ground: Arc<Ground>) {
    let (queue, other) = (ground.open().await, ground.open().await);
    let options =
        WorkerOptions { lease: Duration::from_secs(600), beat_every: Duration::from_secs(200), ..brisk(1) };
    let worker = start(&queue, Kinds::new().with(Play(Arc::clone(&other))), options).await;

    let pushed = push_run(&queue, [work(0)]).await;
    wait_until_none_is_live(&queue).await;

    let job = queue.get(pushed.jobs[0]).await.expect("get").expect("the job");
    assert_eq!(job.result, Some(json!(true)));
    assert_eq!(
        told(&queue, run_of(&pushed)).await,
        ["run.created", "run.started", "run.playable", "run.succeeded"]
    );
    worker.drain();
    worker.finished().await;
}
