//! Endpoints are made, changed, tried, deleted; or stand in the configuration.

use libtest_mimic::Trial;
use telecine_connect::webhooks::{
    ConfiguredEndpoint, DeliveryFilter, DeliveryStatus, EndpointChange, ManagedBy, Secret,
};

use crate::postgres_server::PostgresServer;
use crate::receiver::{Receiver, respond};
use crate::stage::{On, Stage, promises};

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    promises!(
        "endpoints",
        server,
        [
            a_ping_is_sent_once_and_also_to_a_disabled_endpoint,
            what_is_on_its_way_to_a_deleted_endpoint_is_skipped,
            changes_of_two_at_once_are_both_kept,
            the_configuration_is_followed,
            the_log_is_found_by_endpoint_run_and_status,
        ]
    )
}

async fn a_ping_is_sent_once_and_also_to_a_disabled_endpoint(on: On) {
    let receiver = Receiver::start(|_, _, stream| respond(stream, 500, &[], ""));
    let stage = Stage::open(&on).await;
    let endpoint = stage.endpoint("acme", &receiver.url(), &[]).await;
    let disable = EndpointChange { enabled: Some(false), ..EndpointChange::default() };
    stage.webhooks.change_endpoint("acme", &endpoint.id, &disable).await.unwrap();

    let ping = stage.webhooks.ping("acme", &endpoint.id).await.unwrap();
    let told = stage.ended("acme", 1).await.remove(0);

    assert_eq!((&told.id, told.event.as_str(), told.run_id), (&ping.id, "ping", None));
    assert_eq!((told.status, told.attempt), (DeliveryStatus::Failed, 1));
    let seen = receiver.seen();
    assert_eq!((seen.len(), seen[0].event().as_str()), (1, "ping"));
    stage.close().await;
}

async fn what_is_on_its_way_to_a_deleted_endpoint_is_skipped(on: On) {
    let receiver = Receiver::taking();
    let mut stage = Stage::idle(&on, |_| ()).await;
    let endpoint = stage.endpoint("", &receiver.url(), &["run.created"]).await;
    stage.run("").await;
    stage.start_relay().await;
    stage.until(async || stage.jobs().await.len() == 1).await;

    stage.webhooks.delete_endpoint("", &endpoint.id).await.unwrap();
    stage.start_worker().await;
    let skipped = stage.ended("", 1).await.remove(0);

    assert_eq!(skipped.status, DeliveryStatus::Skipped);
    assert_eq!(skipped.reason.as_deref(), Some("the endpoint was deleted"));
    assert_eq!(receiver.count(), 0);
    assert_eq!(stage.webhooks.endpoints("").await.unwrap(), []);
    assert!(stage.queue.limits().await.unwrap().is_empty(), "its limit goes with it");
    stage.close().await;
}

async fn changes_of_two_at_once_are_both_kept(on: On) {
    let stage = Stage::idle(&on, |_| ()).await;
    let endpoint = stage.endpoint("", "https://a.example/hook", &[]).await;
    let (id, hooks) = (&endpoint.id, &stage.webhooks);
    let disable = EndpointChange { enabled: Some(false), ..EndpointChange::default() };
    let describe = EndpointChange { description: Some("ours".into()), ..EndpointChange::default() };

    let (first, second, rotated) = tokio::join!(
        hooks.change_endpoint("", id, &disable),
        hooks.change_endpoint("", id, &describe),
        hooks.rotate_endpoint("", id),
    );

    let (_, _, rotated) = (first.unwrap(), second.unwrap(), rotated.unwrap());
    let now = hooks.endpoint("", id).await.unwrap().unwrap();
    assert!(now.disabled.is_some());
    assert_eq!((now.description.as_str(), &now.secrets), ("ours", &rotated.secrets));
    assert_eq!(now.secrets.previous.unwrap().secret, endpoint.secrets.current);
    stage.close().await;
}

async fn the_configuration_is_followed(on: On) {
    let (stage, receiver) = (Stage::open(&on).await, Receiver::taking());
    let secret = Secret::generate().unwrap();
    let ours = stage.endpoint("", "http://127.0.0.1:9/api", &["asset.none"]).await;
    let configured = |url: &str, description: &str| ConfiguredEndpoint {
        url: url.to_owned(),
        secret: secret.clone(),
        previous_secret: None,
        events: vec!["run.succeeded".to_owned().try_into().unwrap()],
        tenant: String::new(),
        description: description.to_owned(),
    };
    let (kept, dropped) = (receiver.url(), "http://127.0.0.1:9/dropped");

    // Two processes read it at the same time; then it is changed, and read again.
    let first = [configured(&kept, "first"), configured(dropped, "")];
    let (one, other) = tokio::join!(stage.webhooks.adopt(&first), stage.webhooks.adopt(&first));
    one.unwrap();
    other.unwrap();
    assert_eq!(stage.webhooks.endpoints("").await.unwrap().len(), 3);
    stage.webhooks.adopt(&[configured(&kept, "second")]).await.unwrap();
    stage.run("").await;
    stage.until(async || receiver.count() == 1).await;

    let now = stage.webhooks.endpoints("").await.unwrap();
    assert_eq!(now.len(), 2);
    let adopted = now.iter().find(|it| it.managed_by == ManagedBy::Configuration).unwrap();
    assert_eq!((adopted.description.as_str(), adopted.secret()), ("second", &secret));
    assert!(now.contains(&ours), "what was made over the API is not the configuration's");
    assert!(stage.webhooks.rotate_endpoint("", &adopted.id).await.is_err());
    assert!(stage.webhooks.delete_endpoint("", &adopted.id).await.is_err());
    stage.webhooks.adopt(&[]).await.unwrap();
    assert_eq!(stage.webhooks.endpoints("").await.unwrap(), [ours]);
    stage.close().await;
}

async fn the_log_is_found_by_endpoint_run_and_status(on: On) {
    let (well, ill) = (Receiver::taking(), Receiver::start(|_, _, stream| respond(stream, 400, &[], "")));
    let stage = Stage::with(&on, |options| options.max_attempts = 1).await;
    let one = stage.endpoint("", &well.url(), &[]).await;
    stage.endpoint("", &ill.url(), &[]).await;
    let runs = [stage.run("").await, stage.run("").await];
    stage.ended("", 2 * 3 * 2).await;

    let count = async |filter: DeliveryFilter| {
        stage.webhooks.deliveries("", &filter, None, 100).await.unwrap().data.len()
    };

    let all = DeliveryFilter::default();
    assert_eq!(count(DeliveryFilter { endpoint: Some(one.id.clone()), ..all.clone() }).await, 6);
    assert_eq!(count(DeliveryFilter { run: Some(runs[0].clone()), ..all.clone() }).await, 6);
    assert_eq!(count(DeliveryFilter { status: Some(DeliveryStatus::Failed), ..all.clone() }).await, 6);
    assert_eq!(count(DeliveryFilter { status: Some(DeliveryStatus::Pending), ..all.clone() }).await, 0);
    let both = DeliveryFilter {
        endpoint: Some(one.id),
        run: Some(runs[1].clone()),
        status: Some(DeliveryStatus::Delivered),
    };
    assert_eq!(count(both).await, 3);
    // Page by page it is the same list.
    let (mut ids, mut before) = (Vec::new(), None);
    loop {
        let page = stage.webhooks.deliveries("", &all, before, 5).await.unwrap();
        ids.extend(page.data.into_iter().map(|it| it.id));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    let whole: Vec<String> = stage.deliveries("").await.into_iter().map(|it| it.id).collect();
    assert_eq!(ids, whole);
    stage.close().await;
}
