//! What an endpoint answers decides.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::json;
use telecine_connect::webhooks::{DeliveryStatus, EndpointChange};
use telecine_queue::{Backoff, JobState};

use crate::postgres_server::PostgresServer;
use crate::receiver::{Receiver, respond};
use crate::stage::{On, Stage, promises};

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    promises!(
        "answers",
        server,
        [
            a_run_is_told_of_from_beginning_to_end,
            what_fails_is_sent_again_as_it_was,
            what_was_never_taken_fails_and_can_be_replayed,
            a_reset_is_a_failure_that_is_tried_again,
            a_silent_endpoint_is_left,
            gone_disables,
            more_time_is_given_to_whoever_asks_for_it,
            a_redirect_is_a_failure_and_not_followed,
            an_endless_answer_is_cut,
        ]
    )
}

async fn a_run_is_told_of_from_beginning_to_end(on: On) {
    let (stage, receiver) = (Stage::open(&on).await, Receiver::taking());
    let endpoint = stage.endpoint("", &receiver.url(), &[]).await;

    let run = stage.run("").await;
    let told = stage.ended("", 3).await;

    let seen = receiver.seen();
    let events: Vec<String> = seen.iter().map(|it| it.event()).collect();
    assert_eq!(events, ["run.created", "run.started", "run.succeeded"]);
    for (received, seq) in seen.iter().zip(1..) {
        let body = received.json();
        let ulid = run.as_str().trim_start_matches("run_");
        assert_eq!(received.id(), format!("evt_{ulid}_{seq}"));
        assert_eq!((received.method.as_str(), received.path.as_str()), ("POST", "/hook"));
        assert_eq!(received.header("content-type"), "application/json");
        assert_eq!(received.header("traceparent"), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        assert_eq!(body["data"]["id"], received.id());
        assert_eq!((&body["data"]["run_id"], &body["data"]["seq"]), (&json!(run), &json!(seq)));
        assert_eq!(body["data"]["details"]["generation"], 1);
        let document = &body["data"]["run"];
        assert_eq!((&document["object"], &document["external_id"]), (&json!("run"), &json!("vid-42")));
        assert_eq!((&document["metadata"]["user"], &document["id"]), (&json!(7), &json!(run)));
    }
    assert_eq!(seen[2].json()["data"]["run"]["status"], "succeeded");
    for delivery in told {
        assert_eq!((delivery.status, delivery.attempt), (DeliveryStatus::Delivered, 1));
        assert_eq!(delivery.endpoint.as_ref(), Some(&endpoint.id));
        let last = delivery.last_try.unwrap();
        assert_eq!((last.status, last.answer.as_deref()), (Some(200), Some("thanks")));
    }
    stage.close().await;
}

async fn what_fails_is_sent_again_as_it_was(on: On) {
    let receiver = Receiver::start(|nth, _, stream| match nth {
        0..4 => respond(stream, 500, &[], "not today"),
        _ => respond(stream, 204, &[], ""),
    });
    let stage = Stage::open(&on).await;
    stage.endpoint("", &receiver.url(), &["run.succeeded"]).await;

    stage.run("").await;
    let told = stage.ended("", 1).await.remove(0);

    let seen = receiver.seen();
    assert_eq!(seen.len(), 5);
    assert!(seen.iter().all(|it| (it.id(), &it.body) == (seen[0].id(), &seen[0].body)));
    assert_eq!((told.status, told.attempt), (DeliveryStatus::Delivered, 5));
    let told = stage.webhooks.delivery("", told.id.parse().unwrap()).await.unwrap();
    let attempts = told.attempts.unwrap();
    let answers: Vec<_> = attempts
        .iter()
        .map(|it| it.response.as_ref().map(|tried| (tried.status, tried.answer.clone(), tried.attempt)))
        .collect();
    let failed = |attempt| Some((Some(500), Some("not today".to_owned()), attempt));
    assert_eq!(
        answers,
        [failed(1), failed(2), failed(3), failed(4), Some((Some(204), Some(String::new()), 5))]
    );
    assert_eq!(attempts[0].code.as_deref(), Some("http_500"));
    stage.close().await;
}

async fn what_was_never_taken_fails_and_can_be_replayed(on: On) {
    let receiver = Receiver::start(|nth, _, stream| match nth {
        0..3 => respond(stream, 404, &[], ""),
        _ => respond(stream, 200, &[], ""),
    });
    let stage = Stage::with(&on, |options| options.max_attempts = 3).await;
    stage.endpoint("", &receiver.url(), &["run.succeeded"]).await;

    stage.run("").await;
    let failed = stage.ended("", 1).await.remove(0);
    let id = failed.id.parse().unwrap();
    let replayed = stage.webhooks.replay("", id).await.unwrap();
    let delivered = stage.ended("", 1).await.remove(0);

    assert_eq!((failed.status, failed.attempt), (DeliveryStatus::Failed, 3));
    assert!(failed.reason.unwrap().contains("404"));
    assert_eq!(replayed.id, failed.id);
    assert_eq!(delivered.status, DeliveryStatus::Delivered);
    let seen = receiver.seen();
    assert!(seen.iter().all(|it| (it.id(), &it.body) == (seen[0].id(), &seen[0].body)));
    assert_eq!(seen.len(), 4);
    let foreign = stage.webhooks.replay("other", id).await.unwrap_err();
    assert_eq!(foreign.to_string(), "there is no such delivery");
    stage.close().await;
}

async fn a_reset_is_a_failure_that_is_tried_again(on: On) {
    let receiver = Receiver::start(|nth, _, stream| match nth {
        // Closing with the answer unsent is what a crashed receiver looks like.
        0..2 => {}
        _ => respond(stream, 200, &[], ""),
    });
    let stage = Stage::open(&on).await;
    stage.endpoint("", &receiver.url(), &["run.succeeded"]).await;

    stage.run("").await;
    let told = stage.ended("", 1).await.remove(0);

    assert_eq!((told.status, told.attempt), (DeliveryStatus::Delivered, 3));
    let told = stage.webhooks.delivery("", told.id.parse().unwrap()).await.unwrap();
    assert_eq!(told.attempts.unwrap()[0].code.as_deref(), Some("no_answer"));
    stage.close().await;
}

async fn a_silent_endpoint_is_left(on: On) {
    let receiver = Receiver::hanging();
    let stage = Stage::with(&on, |options| {
        options.answer_within = Duration::from_millis(300);
        options.max_attempts = 2;
    })
    .await;
    stage.endpoint("", &receiver.url(), &["run.succeeded"]).await;

    stage.run("").await;
    let told = stage.ended("", 1).await.remove(0);

    assert_eq!((told.status, told.attempt, receiver.count()), (DeliveryStatus::Failed, 2, 2));
    let last = told.last_try.unwrap();
    assert_eq!((last.status, last.error.as_deref()), (None, Some("no answer came within 300 ms")));
    stage.close().await;
}

async fn gone_disables(on: On) {
    let receiver = Receiver::start(|_, _, stream| respond(stream, 410, &[], ""));
    let stage = Stage::open(&on).await;
    let endpoint = stage.endpoint("", &receiver.url(), &["run.succeeded"]).await;

    stage.run("").await;
    let told = stage.ended("", 1).await.remove(0);
    let disabled = stage.webhooks.endpoint("", &endpoint.id).await.unwrap().unwrap();
    // What is on its way to it is skipped; nothing new is made.
    let again = stage.webhooks.replay("", told.id.parse().unwrap()).await.unwrap();
    let skipped = stage.ended("", 1).await.remove(0);
    stage.run("").await;
    stage
        .until(async || stage.queue.outbox_take("webhooks", 1, Duration::ZERO).await.unwrap().is_empty())
        .await;

    assert_eq!((told.status, told.attempt), (DeliveryStatus::Failed, 1));
    assert!(disabled.disabled.unwrap().reason.contains("410"));
    assert_eq!(again.id, skipped.id);
    assert_eq!(skipped.status, DeliveryStatus::Skipped);
    assert_eq!(skipped.reason.as_deref(), Some("the endpoint is disabled"));
    assert_eq!((receiver.count(), stage.deliveries("").await.len()), (1, 1));
    let enable = EndpointChange { enabled: Some(true), ..EndpointChange::default() };
    assert_eq!(stage.webhooks.change_endpoint("", &endpoint.id, &enable).await.unwrap().disabled, None);
    stage.close().await;
}

async fn more_time_is_given_to_whoever_asks_for_it(on: On) {
    let receiver = Receiver::start(|nth, _, stream| match nth {
        0 => respond(stream, 429, &[("Retry-After", "2")], "slow down"),
        1 => respond(stream, 503, &[("Retry-After", "3")], ""),
        _ => respond(stream, 200, &[], ""),
    });
    let stage = Stage::with(&on, |options| options.max_attempts = 1).await;
    stage.endpoint("", &receiver.url(), &["run.succeeded"]).await;

    stage.run("").await;
    let told = stage.ended("", 1).await.remove(0);

    // It was not sooner than told, and cost none of its one attempt.
    assert_eq!((told.status, told.attempt), (DeliveryStatus::Delivered, 1));
    let seen = receiver.seen();
    assert_eq!(seen.len(), 3);
    assert!(seen[1].at - seen[0].at >= Duration::from_secs(2), "{:?}", seen[1].at - seen[0].at);
    assert!(seen[2].at - seen[1].at >= Duration::from_secs(3), "{:?}", seen[2].at - seen[1].at);
    assert_eq!((seen[0].id(), &seen[0].body), (seen[2].id(), &seen[2].body));
    stage.close().await;
}

async fn a_redirect_is_a_failure_and_not_followed(on: On) {
    let canary = Receiver::taking();
    let targets = [canary.url(), "http://169.254.169.254/latest/meta-data".to_owned()];
    let receiver = Receiver::start(move |nth, _, stream| {
        respond(stream, [301, 307][nth % 2], &[("Location", &targets[nth % 2])], "");
    });
    let stage = Stage::with(&on, |options| options.max_attempts = 2).await;
    stage.endpoint("", &receiver.url(), &["run.succeeded"]).await;

    stage.run("").await;
    let told = stage.ended("", 1).await.remove(0);

    assert_eq!((told.status, told.attempt, receiver.count()), (DeliveryStatus::Failed, 2, 2));
    assert_eq!(stage.jobs().await[0].error.as_ref().unwrap().code, "redirected");
    assert_eq!(canary.count(), 0);
    stage.close().await;
}

async fn an_endless_answer_is_cut(on: On) {
    static SENT: AtomicUsize = AtomicUsize::new(0);
    let receiver = Receiver::start(|_, _, stream| {
        use std::io::Write;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while stream.write_all(&[b"1000\r\n", &[b'x'; 0x1000][..], b"\r\n"].concat()).is_ok() {
            SENT.fetch_add(0x1000, Ordering::SeqCst);
        }
    });
    let stage = Stage::with(&on, |options| options.backoff = Backoff::default()).await;
    stage.endpoint("", &receiver.url(), &["run.succeeded"]).await;

    stage.run("").await;
    let told = stage.ended("", 1).await.remove(0);

    assert_eq!(told.status, DeliveryStatus::Delivered);
    assert_eq!(told.last_try.unwrap().answer.unwrap(), "x".repeat(1_024));
    assert!(SENT.load(Ordering::SeqCst) < 64 << 20, "the connection was closed");
    assert_eq!(stage.jobs().await[0].state, JobState::Completed);
    stage.close().await;
}
