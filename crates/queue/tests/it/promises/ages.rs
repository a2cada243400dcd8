use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use telecine_queue::{
    Age, Backoff, JobFilter, JobState, Limit, NewJob, NewRun, Outcome, Push, Queue, Timestamp,
};

use crate::ground::{
    Database, Ground, done, eventually, failed, pull, pull_one, push_all, push_one, register, register_for,
    settle, work,
};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// For how long the oldest pending `work` has been so.
async fn waited(queue: &Arc<dyn Queue>) -> Option<Duration> {
    let ages = queue.waiting_ages().await.expect("waiting_ages");
    let age = ages.iter().find(|age| (age.lane.as_str(), age.kind.as_str()) == ("cpu", "work"))?;
    Some(Timestamp::now().since(age.oldest_ready_at))
}

/// It was ready before an hour was let pass, or became so after it.
async fn assert_waited(queue: &Arc<dyn Queue>, an_hour: bool, what: &str) {
    let waited = waited(queue).await.unwrap_or_else(|| panic!("{what}: nothing waits"));
    assert_eq!(waited > HOUR / 2, an_hour, "{what}: {waited:?}");
}

pub(super) async fn a_job_waits_from_when_it_could_be_claimed(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let clear = async || queue.cancel_all(&JobFilter::default()).await.expect("cancel_all");
    assert_eq!(queue.waiting_ages().await.expect("waiting_ages"), []);

    push_one(&queue, work(1)).await;
    assert_waited(&queue, false, "pushed").await;
    ground.let_an_hour_pass();
    push_one(&queue, work(2)).await;
    assert_waited(&queue, true, "the oldest counts").await;
    let claimed = pull(&queue, worker, 2).await.remove(0);
    assert_eq!(waited(&queue).await, None, "what runs does not wait");
    ground.let_an_hour_pass();
    settle(&queue, claimed, Outcome::Release).await;
    assert_waited(&queue, false, "released").await;
    clear().await;

    let later = Timestamp::now().plus(HOUR);
    push_one(&queue, work(3).run_at(later)).await;
    assert_eq!(waited(&queue).await, None, "what is not due does not wait");
    ground.let_an_hour_pass();
    eventually("it is due", || async { (queue.promote().await.expect("promote").jobs == 1).then_some(()) })
        .await;
    assert_waited(&queue, false, "promoted").await;
    clear().await;

    push_one(&queue, work(4).backoff(Backoff { base_ms: 60_000, factor: 1, cap_ms: 60_000 })).await;
    ground.let_an_hour_pass();
    let claimed = pull_one(&queue, worker).await;
    let id = claimed.job.id;
    settle(&queue, claimed, failed("once")).await;
    ground.let_an_hour_pass();
    queue.promote().await.expect("promote");
    assert_waited(&queue, false, "tried again").await;
    queue.cancel(id).await.expect("cancel");
    ground.let_an_hour_pass();
    queue.retry(id).await.expect("retry");
    assert_waited(&queue, false, "started over").await;
    clear().await;

    let silent = register_for(&queue, Duration::ZERO).await;
    push_one(&queue, work(5)).await;
    pull_one(&queue, silent).await;
    ground.let_an_hour_pass();
    eventually("the loss is noticed", || async {
        (queue.reap().await.expect("reap").freed == 1).then_some(())
    })
    .await;
    assert_waited(&queue, false, "freed").await;
    clear().await;

    let run = Push::run(NewRun::new("film"), [work(6), work(7).after(0)]);
    queue.push(vec![run]).await.expect("push");
    let claimed = pull_one(&queue, worker).await;
    ground.let_an_hour_pass();
    assert_eq!(waited(&queue).await, None, "what waits for another job does not wait for a worker");
    settle(&queue, claimed, done()).await;
    assert_waited(&queue, false, "its need was met").await;
    clear().await;

    queue.limit(Limit::new("key").max_running(1)).await.expect("limit");
    push_all(&queue, [work(8).limit_key("key"), work(9).limit_key("key")]).await;
    let claimed = pull_one(&queue, worker).await;
    ground.let_an_hour_pass();
    assert_eq!(waited(&queue).await, None, "what a limit keeps out does not wait for a worker");
    settle(&queue, claimed, done()).await;
    assert_waited(&queue, false, "let in").await;
}

/// Both ends of a line are looked at: what nobody serves gathers at its front, what is served is young.
pub(super) async fn ages_are_told_by_lane_and_kind(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let job = |kind: &str, lane: &str| NewJob::new(kind, json!(null)).lane(lane);
    let many = |kind: &str| vec![job(kind, "cpu"); Age::REACH as usize];
    push_all(&queue, many("front")).await;
    ground.let_an_hour_pass();
    for jobs in [vec![job("between", "cpu")], many("back"), vec![job("other", "net")]] {
        push_all(&queue, jobs).await;
    }

    let ages = queue.waiting_ages().await.expect("waiting_ages");
    let named =
        |ages: &[Age]| ages.iter().map(|age| format!("{} {}", age.lane, age.kind)).collect::<Vec<_>>();
    assert_eq!(named(&ages), ["cpu back", "cpu front", "net other"], "one is out of reach");
    assert!(ages[0].oldest_ready_at.since(ages[1].oldest_ready_at) > HOUR / 2);

    push_one(&queue, job("between", "cpu").priority(51)).await;
    let ages = queue.waiting_ages().await.expect("waiting_ages");
    assert_eq!(
        named(&ages),
        ["cpu back", "cpu between", "cpu front", "net other"],
        "each priority is a line"
    );
    let all = JobFilter { states: vec![JobState::Pending], ..JobFilter::default() };
    queue.cancel_all(&all).await.expect("cancel_all");
    assert_eq!(queue.waiting_ages().await.expect("waiting_ages"), []);
}

impl Ground {
    /// Whatever is written down of live jobs and of history happened an hour earlier.
    fn let_an_hour_pass(&self) {
        let changes = |table: &str, hour: &str| {
            let ready = if table.ends_with("job") {
                format!(", ready_at = ready_at - {hour}")
            } else {
                String::new()
            };
            format!("UPDATE {table} SET created_at = created_at - {hour}, run_at = run_at - {hour}{ready};")
        };
        match self.database {
            Database::Sqlite => {
                let file = rusqlite::Connection::open(self.url.trim_start_matches("sqlite:")).expect("open");
                file.busy_timeout(Duration::from_secs(60)).expect("busy timeout");
                let hour = "3600000";
                file.execute_batch(&(changes("job", hour) + &changes("job_done", hour))).expect("update");
            }
            Database::Postgres | Database::Bouncer => {
                let hour = "INTERVAL '1 hour'";
                self.psql(&(changes("telecine.job", hour) + &changes("telecine.job_done", hour)));
            }
        }
    }
}
