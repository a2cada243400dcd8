//! Workers in other languages: what they are told, and what becomes of their jobs when they die.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::{Value, json};
use telecine_queue::{AttemptOutcome, JobId, JobState, NewJob, Timestamp};
use telecine_server::{Scope, keys};

use crate::operations::body;
use crate::support::{PATIENCE, Served, problem, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("claims::a_job_is_claimed_beaten_and_finished", a_job_is_claimed_beaten_and_finished),
        trial("claims::a_claim_waits_for_a_job_to_come", a_claim_waits_for_a_job_to_come),
        trial("claims::only_an_operator_claims", only_an_operator_claims),
        trial("claims::an_empty_wait_leaves_nothing_behind", an_empty_wait_leaves_nothing_behind),
        trial("claims::a_revoked_key_waits_no_longer", a_revoked_key_waits_no_longer),
        trial("claims::every_outcome_means_what_it_says", every_outcome_means_what_it_says),
        trial("claims::a_silent_claim_is_lost_to_another", a_silent_claim_is_lost_to_another),
        trial("claims::a_late_beat_goes_on_if_nobody_took_the_job", a_late_beat_goes_on),
        trial("claims::a_cancelled_job_tells_its_worker", a_cancelled_job_tells_its_worker),
        trial("claims::a_token_is_good_for_its_own_job_only", a_token_is_good_for_its_own_job_only),
        trial("claims::another_server_on_the_database_takes_the_beat", another_server_takes_the_beat),
        trial("claims::a_drained_remote_worker_is_told", a_drained_remote_worker_is_told),
        trial(
            "claims::a_python_worker_is_killed_and_another_finishes",
            python_is_killed_and_another_finishes,
        ),
    ]
}

async fn push(served: &Served, kind: &str) -> JobId {
    let pushed =
        served.queue.push(vec![NewJob::new(kind, json!({"n": 1})).lane("remote").into()]).await.unwrap();
    pushed[0].jobs[0]
}

async fn claim(served: &Served, kind: &str, lease_ms: u64) -> Value {
    let asked = json!({"kinds": [kind], "wait_ms": 60_000, "lease_ms": lease_ms, "name": "test"});
    let answer = served.post("/v1/claims").json(&asked).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    body(answer).await
}

async fn beat(served: &Served, claim: &Value, more: Value) -> reqwest::Response {
    let mut asked = json!({ "token": claim["token"] });
    asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    served.post(&format!("/v1/claims/{}/beat", claim["job"]["id"])).json(&asked).send().await.unwrap()
}

async fn finish(served: &Served, claim: &Value, outcome: Value) -> reqwest::Response {
    let asked = json!({"token": claim["token"], "outcome": outcome});
    served.post(&format!("/v1/claims/{}/finish", claim["job"]["id"])).json(&asked).send().await.unwrap()
}

async fn state(served: &Served, id: JobId) -> JobState {
    served.queue.get(id).await.unwrap().unwrap().state
}

async fn remote_rows(served: &Served) -> usize {
    let workers = served.queue.workers().await.unwrap();
    workers.iter().filter(|worker| worker.host == "remote" && worker.alive).count()
}

async fn a_job_is_claimed_beaten_and_finished() {
    let served = Served::start().await;
    let id = push(&served, "far_away").await;

    let claimed = claim(&served, "far_away", 30_000).await;
    let beaten =
        body(beat(&served, &claimed, json!({"progress": 0.25, "checkpoint": {"at": 3}})).await).await;
    let running = served.queue.get(id).await.unwrap().unwrap();
    let rows_while_running = remote_rows(&served).await;
    let finished = body(finish(&served, &claimed, json!({"complete": {"result": {"ok": true}}})).await).await;
    let again = body(finish(&served, &claimed, json!({"complete": {"result": {"ok": true}}})).await).await;

    assert_eq!((&claimed["job"]["id"], &claimed["job"]["payload"]), (&json!(id), &json!({"n": 1})));
    assert_eq!((&claimed["lease_ms"], &claimed["beat_within_ms"]), (&json!(30_000), &json!(10_000)));
    assert_eq!(beaten, json!({"lease_ms": 30_000, "beat_within_ms": 10_000, "drain": false}));
    assert_eq!((running.progress, running.checkpoint), (Some(0.25), Some(json!({"at": 3}))));
    assert_eq!(rows_while_running, 1);
    assert_eq!(finished, json!({"job": id, "fence": claimed["fence"], "settled": true}));
    assert_eq!(again, finished);
    let job = served.queue.get(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.result), (JobState::Completed, Some(json!({"ok": true}))));
    assert_eq!(remote_rows(&served).await, 0);
    served.stop().await;
}

async fn a_claim_waits_for_a_job_to_come() {
    let served = Served::start().await;
    // Not ready yet: whoever asks now has to wait for it.
    let due = Timestamp::now().plus(Duration::from_millis(1_500));
    let job = NewJob::new("far_away", json!({})).lane("remote").run_at(due);
    let id = served.queue.push(vec![job.into()]).await.unwrap()[0].jobs[0];

    let claimed = claim(&served, "far_away", 30_000).await;

    let job = served.queue.get(id).await.unwrap().unwrap();
    assert_eq!(claimed["job"]["id"], json!(id));
    assert!(job.claimed_at >= Some(due), "{:?} {due}", job.claimed_at);
    finish(&served, &claimed, json!({"release": {}})).await;
    served.stop().await;
}

async fn only_an_operator_claims() {
    let served = Served::with(|_, options| options.trust_loopback = false).await;
    push(&served, "far_away").await;
    let asks = async |tenant: &str, scopes: &[Scope]| {
        let (_, key) = served.key(tenant, scopes).await;
        let asked = json!({"kinds": ["far_away"]});
        served.post("/v1/claims").bearer_auth(key).json(&asked).send().await.unwrap()
    };

    let nobody = served.post("/v1/claims").json(&json!({"kinds": ["far_away"]})).send().await.unwrap();
    let reader = asks("", &[Scope::Read, Scope::Write]).await;
    let of_tenant = asks("acme", &[Scope::Work]).await;
    let operator = asks("", &[Scope::Work]).await;

    assert_eq!(problem(nobody).await["code"], "unauthorized");
    assert_eq!(problem(reader).await["code"], "forbidden");
    assert_eq!(problem(of_tenant).await["code"], "forbidden");
    let claimed = body(operator).await;
    // A token is of no use to another tenant, whatever its key allows.
    let (_, other) = served.key("acme", &[Scope::Admin]).await;
    let path = format!("/v1/claims/{}/beat", claimed["job"]["id"]);
    let stolen = served.post(&path).bearer_auth(other).json(&json!({"token": claimed["token"]}));
    assert_eq!(problem(stolen.send().await.unwrap()).await["code"], "claim_lost");
    served.stop().await;
}

async fn an_empty_wait_leaves_nothing_behind() {
    let served = Served::start().await;
    push(&served, "far_away").await;
    served.queue.pause(&telecine_queue::Pausable::Kind("far_away".into())).await.unwrap();

    for kind in ["far_away", "unheard_of"] {
        let asked = json!({"kinds": [kind], "wait_ms": 50});
        let answer = served.post("/v1/claims").json(&asked).send().await.unwrap();
        assert_eq!(answer.status(), 204, "{kind}");
        assert_eq!(answer.bytes().await.unwrap().len(), 0);
    }

    assert_eq!(remote_rows(&served).await, 0);
    served.stop().await;
}

async fn a_revoked_key_waits_no_longer() {
    let served = Served::with(|_, options| options.trust_loopback = false).await;
    let (key, text) = served.key("", &[Scope::Work]).await;
    let asked = json!({"kinds": ["far_away"], "wait_ms": 30_000});
    let waiting = tokio::spawn(served.post("/v1/claims").bearer_auth(&text).json(&asked).send());
    served.until(async || served.server.connections() > 0).await;

    keys::revoke(served.queue.as_ref(), &key.id).await.unwrap().unwrap();

    let answer = waiting.await.unwrap().unwrap();
    assert_eq!(problem(answer).await["code"], "unauthorized");
    served.stop().await;
}

async fn every_outcome_means_what_it_says() {
    let served = Served::start().await;
    let outcomes = [
        (json!({"complete": {}}), JobState::Completed, 1),
        (json!({"fail": {"code": "broken", "message": "it broke"}}), JobState::Scheduled, 1),
        (json!({"fail": {"code": "broken", "message": "it broke", "for_good": true}}), JobState::Failed, 1),
        (json!({"snooze": {"ms": 3_600_000}}), JobState::Scheduled, 0),
        (json!({"release": {}}), JobState::Pending, 0),
    ];
    for (at, (outcome, expected, attempts)) in outcomes.into_iter().enumerate() {
        let kind = format!("far_away_{at}");
        let id = push(&served, &kind).await;
        let claimed = claim(&served, &kind, 30_000).await;

        let first = body(finish(&served, &claimed, outcome.clone()).await).await;
        let again = body(finish(&served, &claimed, outcome.clone()).await).await;

        let job = served.queue.get(id).await.unwrap().unwrap();
        assert_eq!((job.state, job.attempt), (expected, attempts), "{outcome}");
        assert_eq!(first, again, "{outcome}");
    }
    let claimed = {
        push(&served, "far_away").await;
        claim(&served, "far_away", 30_000).await
    };
    let wrong = [
        json!("complete"),
        json!({"complete": {}, "release": {}}),
        json!({"explode": {}}),
        json!({"fail": {"code": "Not a word", "message": ""}}),
        json!({"fail": {"code": "x"}}),
        json!({"snooze": {"ms": -1}}),
        json!({"release": {"now": true}}),
    ];
    for outcome in wrong {
        let refused = problem(finish(&served, &claimed, outcome.clone()).await).await;
        assert_eq!(refused["code"], "invalid_request", "{outcome}");
    }
    body(finish(&served, &claimed, json!({"complete": {}})).await).await;
    served.stop().await;
}

async fn a_silent_claim_is_lost_to_another() {
    let served = Served::start().await;
    let id = push(&served, "far_away").await;
    let silent = claim(&served, "far_away", 500).await;

    let other = claim(&served, "far_away", 30_000).await;

    assert_eq!(other["job"]["id"], json!(id));
    assert!(other["fence"].as_i64() > silent["fence"].as_i64());
    let beaten = problem(beat(&served, &silent, json!({"progress": 0.9})).await).await;
    let finished = problem(finish(&served, &silent, json!({"complete": {"result": "stale"}})).await).await;
    assert_eq!((&beaten["code"], &beaten["status"]), (&json!("claim_lost"), &json!(409)));
    assert_eq!(finished["code"], "claim_lost");
    body(finish(&served, &other, json!({"complete": {"result": "true"}})).await).await;
    let job = served.queue.get(id).await.unwrap().unwrap();
    assert_eq!((job.result, job.progress), (Some(json!("true")), None));
    let late = problem(finish(&served, &silent, json!({"complete": {"result": "stale"}})).await).await;
    assert_eq!(late["code"], "claim_lost");
    served.stop().await;
}

async fn a_late_beat_goes_on() {
    let served = Served::start().await;
    let id = push(&served, "far_away").await;
    let late = claim(&served, "far_away", 500).await;
    served.until(async || state(&served, id).await == JobState::Pending).await;

    body(beat(&served, &late, json!({"progress": 0.5})).await).await;

    let job = served.queue.get(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.attempt, job.lost, job.progress), (JobState::Running, 1, 0, Some(0.5)));
    // Silent again, and given up again; what it finishes counts all the same while nobody took the job.
    served.until(async || state(&served, id).await == JobState::Pending).await;
    body(finish(&served, &late, json!({"complete": {"result": 1}})).await).await;
    assert_eq!(state(&served, id).await, JobState::Completed);
    served.stop().await;
}

async fn a_cancelled_job_tells_its_worker() {
    let served = Served::start().await;
    let id = push(&served, "far_away").await;
    let claimed = claim(&served, "far_away", 30_000).await;
    served.queue.cancel(id).await.unwrap();

    let beaten = problem(beat(&served, &claimed, json!({})).await).await;
    let finished = problem(finish(&served, &claimed, json!({"complete": {}})).await).await;

    assert_eq!((&beaten["code"], &beaten["status"]), (&json!("cancelled"), &json!(410)));
    assert_eq!(finished["code"], "cancelled");
    assert_eq!(state(&served, id).await, JobState::Cancelled);
    served.stop().await;
}

async fn a_token_is_good_for_its_own_job_only() {
    let served = Served::start().await;
    let (one, other) = (push(&served, "far_away").await, push(&served, "far_away").await);
    let claimed = claim(&served, "far_away", 30_000).await;
    assert_eq!(claimed["job"]["id"], json!(one));
    let forged = format!("{}x", claimed["token"].as_str().unwrap());

    for (job, token) in
        [(other, claimed["token"].as_str().unwrap()), (one, &forged), (one, "ct_e30.e30"), (one, "")]
    {
        for (verb, body) in [
            ("beat", json!({ "token": token })),
            ("finish", json!({"token": token, "outcome": {"complete": {}}})),
        ] {
            let refused = served.post(&format!("/v1/claims/{job}/{verb}")).json(&body).send().await.unwrap();
            assert_eq!(problem(refused).await["code"], "claim_lost", "{verb} {token}");
        }
    }
    assert_eq!(
        (state(&served, one).await, state(&served, other).await),
        (JobState::Running, JobState::Pending)
    );
    finish(&served, &claimed, json!({"release": {}})).await;
    served.stop().await;
}

async fn another_server_takes_the_beat() {
    let served = Served::start().await;
    let id = push(&served, "far_away").await;
    let claimed = claim(&served, "far_away", 30_000).await;
    // With a handle of its own on the database: nothing is shared with the first but what is stored.
    let database = format!("sqlite:{}", served.folder.path().join("queue.db").display());
    let other = Served::on(&database).await;

    body(beat(&other, &claimed, json!({"progress": 0.5})).await).await;
    let finished = body(finish(&other, &claimed, json!({"complete": {}})).await).await;
    let again = body(finish(&served, &claimed, json!({"complete": {}})).await).await;

    assert_eq!(finished, again);
    assert_eq!(state(&served, id).await, JobState::Completed);
    other.stop().await;
    served.stop().await;
}

async fn a_drained_remote_worker_is_told() {
    let served = Served::start().await;
    push(&served, "far_away").await;
    let claimed = claim(&served, "far_away", 30_000).await;
    let workers = served.queue.workers().await.unwrap();
    let row = workers.iter().find(|worker| worker.host == "remote").unwrap();

    let drained = served.post(&format!("/v1/workers/{}/drain", row.id)).send().await.unwrap();

    assert_eq!(drained.status(), 200);
    assert_eq!(body(beat(&served, &claimed, json!({})).await).await["drain"], true);
    body(finish(&served, &claimed, json!({"complete": {}})).await).await;
    served.stop().await;
}

/// The worker of `examples/`, as a user would start it.
fn python(served: &Served, idle_ms: &str) -> Child {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/remote-worker.py");
    Command::new("python3")
        .arg(script)
        .env("TELECINE_URL", &served.base)
        .env("IDLE_MS", idle_ms)
        .env("LEASE_MS", "1000")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line
}

async fn python_is_killed_and_another_finishes() {
    let served = Served::start().await;
    let text = "one two three\n".repeat(40);
    let job = json!({"kind": "word_count", "payload": {"text": text, "ms_per_line": 100}});
    let job = body(served.post("/v1/jobs").json(&job).send().await.unwrap()).await;
    let id = JobId(job["id"].as_i64().unwrap());
    let mut first = python(&served, "60000");
    let said = tokio::task::block_in_place(|| first_line(&mut first));
    let saved = async || served.queue.get(id).await.unwrap().unwrap().checkpoint.is_some();
    served.until(async || saved().await).await;

    first.kill().unwrap();
    first.wait().unwrap();
    let left = served.queue.get(id).await.unwrap().unwrap();
    let mut second = python(&served, "5000");
    served.until(async || state(&served, id).await.is_terminal()).await;

    assert_eq!(said, format!("job {id} attempt 1\n"));
    assert_eq!(left.state, JobState::Running, "it was killed in the middle");
    let job = served.queue.get(id).await.unwrap().unwrap();
    assert_eq!(
        (job.state, job.result),
        (JobState::Completed, Some(json!({"words": 120}))),
        "each line counted once"
    );
    let attempts = served.queue.attempts(id).await.unwrap();
    let outcomes: Vec<_> = attempts.iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(outcomes, [AttemptOutcome::Lost, AttemptOutcome::Completed]);
    // It leaves by itself when there is nothing to do.
    let ended = tokio::task::spawn_blocking(move || second.wait().unwrap());
    assert!(tokio::time::timeout(PATIENCE, ended).await.unwrap().unwrap().success());
    served.until(async || remote_rows(&served).await == 0).await;
    served.stop().await;
}
