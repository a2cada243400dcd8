//! Webhooks over HTTP: endpoints with secrets that are shown once, the log of deliveries, replay.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use libtest_mimic::Trial;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use telecine_connect::{WebhookOptions, Webhooks};
use telecine_queue::{Kinds, Relay, RelayOptions, Runtime, WorkerOptions};
use telecine_server::Scope;

use crate::runs::{create, ended};
use crate::support::{Served, problem, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("webhooks::a_secret_is_shown_to_whoever_makes_it_and_never_again", a_secret_is_shown_once),
        trial("webhooks::a_run_is_told_and_found_in_the_log", a_run_is_told_and_found_in_the_log),
        trial("webhooks::what_cannot_be_an_endpoint_is_refused_with_its_place", wrong_endpoints_are_refused),
        trial("webhooks::another_tenants_webhooks_are_not_there", another_tenants_webhooks_are_not_there),
        trial("webhooks::inner_addresses_are_refused", inner_addresses_are_refused),
        trial("webhooks::looking_needs_read_and_changing_needs_write", scopes_are_required),
    ]
}

/// The bodies of all requests, each of which is taken.
fn receiver() -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&told);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            if let Some(body) = read(&stream) {
                seen.lock().unwrap().push(body);
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
            }
        }
    });
    (url, told)
}

fn read(stream: &TcpStream) -> Option<Value> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if line.trim_end().is_empty() {
            break;
        }
        if let Some(told) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = told.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

/// What a worker of the binary does beside its media.
async fn telling(served: &Served) -> (Runtime, Relay) {
    let options = WebhookOptions { allow_private_urls: true, ..WebhookOptions::default() };
    let webhooks = Webhooks::new(Arc::clone(&served.queue), options);
    let relay = webhooks.start_relay(RelayOptions::default()).await.unwrap();
    let kinds = Kinds::new().with(webhooks.kind());
    let worker = Runtime::start(Arc::clone(&served.queue), kinds, WorkerOptions::default()).await.unwrap();
    (worker, relay)
}

async fn answer(request: RequestBuilder, status: u16) -> Value {
    let response = request.send().await.unwrap();
    let (found, text) = (response.status().as_u16(), response.text().await.unwrap());
    assert_eq!(found, status, "{text}");
    serde_json::from_str(&text).unwrap_or_default()
}

fn of(webhook: &Value) -> String {
    format!("/v1/webhooks/{}", webhook["id"].as_str().unwrap())
}

async fn a_secret_is_shown_once() {
    let served = Served::start().await;
    let asked = json!({"url": "https://a.example/hook?token=x", "events": ["run.*"], "description": "ours"});

    let made = answer(served.post("/v1/webhooks").json(&asked), 201).await;
    let path = of(&made);
    let shown = answer(served.get(&path), 200).await;
    let listed = answer(served.get("/v1/webhooks"), 200).await;
    let change = json!({"enabled": false, "events": ["run.failed"]});
    let changed = answer(served.client.patch(served.url(&path)).json(&change), 200).await;
    let enabled = json!({"enabled": true, "events": null});
    let enabled = answer(served.client.patch(served.url(&path)).json(&enabled), 200).await;
    let rotated = answer(served.post(&format!("{path}/rotate")), 200).await;
    let of_runs = answer(served.post("/v1/webhooks/secret"), 200).await;
    let again = answer(served.post("/v1/webhooks/secret"), 200).await;

    let secret = |answer: &Value| answer["secret"].as_str().unwrap().to_owned();
    assert!(secret(&made).starts_with("whsec_") && secret(&made) != secret(&rotated));
    assert_eq!(
        (&made["url"], &made["events"], &made["enabled"]),
        (&asked["url"], &asked["events"], &json!(true))
    );
    for answer in [&shown, &listed, &changed, &enabled] {
        assert!(!answer.to_string().contains("whsec_"), "{answer}");
    }
    assert_eq!((&listed["data"], &listed["next_cursor"]), (&json!([shown]), &Value::Null));
    assert_eq!((&changed["enabled"], &changed["events"]), (&json!(false), &json!(["run.failed"])));
    assert!(changed["disabled_at"].is_string() && changed["disabled_reason"].is_string());
    assert_eq!((&enabled["enabled"], &enabled["events"]), (&json!(true), &json!(["run.failed"])));
    assert!(rotated["previous_secret_until"].is_string());
    assert_eq!(of_runs["previous_secret_until"], Value::Null);
    assert!(again["previous_secret_until"].is_string() && secret(&again) != secret(&of_runs));
    answer(served.client.delete(served.url(&path)), 204).await;
    let gone = problem(served.get(&path).send().await.unwrap()).await;
    assert_eq!(gone["code"], "not_found");
    served.stop().await;
}

async fn a_run_is_told_and_found_in_the_log() {
    let served = Served::with(|shop, _| shop.allow_private_urls = true).await;
    let (worker, relay) = telling(&served).await;
    let ((url, told), (own_url, of_run)) = (receiver(), receiver());
    let asked = json!({"url": url, "events": ["run.failed"]});
    let endpoint = answer(served.post("/v1/webhooks").json(&asked), 201).await;
    std::fs::write(served.file("film.mp4"), "no film at all").unwrap();

    let asked = json!({
        "recipe": "thumbnail", "input": {"path": served.file("film.mp4")}, "webhook": {"url": own_url},
    });
    let run = create(&served, &asked).await;
    let failed = ended(&served, &run).await;
    let id = run["id"].as_str().unwrap();
    let log = format!("/v1/webhooks/deliveries?run={id}");
    served
        .until(async || {
            let log = answer(served.get(&format!("{log}&status=delivered")), 200).await;
            log["data"].as_array().unwrap().len() == 4
        })
        .await;
    let ping = answer(served.post(&format!("{}/test", of(&endpoint))), 202).await;
    served.until(async || told.lock().unwrap().len() == 2).await;

    // The same document as everywhere.
    let body = told.lock().unwrap()[0].clone();
    assert_eq!((&body["type"], &body["data"]["run"]), (&json!("run.failed"), &failed));
    assert_eq!(told.lock().unwrap()[1]["type"], "ping");
    let events: Vec<Value> = of_run.lock().unwrap().iter().map(|body| body["type"].clone()).collect();
    assert_eq!(events, ["run.created", "run.started", "run.failed"]);
    let by_endpoint = format!("{log}&endpoint={}", endpoint["id"].as_str().unwrap());
    let of_endpoint = answer(served.get(&by_endpoint), 200).await;
    let delivery = &of_endpoint["data"][0];
    assert_eq!(of_endpoint["data"].as_array().unwrap().len(), 1);
    assert_eq!((&delivery["run_id"], &delivery["event_id"]), (&json!(id), &body["data"]["id"]));
    assert_eq!((&delivery["last_try"]["status"], &delivery["attempt"]), (&json!(204), &json!(1)));
    let path = format!("/v1/webhooks/deliveries/{}", delivery["id"].as_str().unwrap());
    let whole = answer(served.get(&path), 200).await;
    assert_eq!(whole["attempts"][0]["response"]["status"], 204, "{whole:#}");
    assert_eq!(ping["status"], "pending");

    let replayed = answer(served.post(&format!("{path}/replay")), 202).await;
    served.until(async || told.lock().unwrap().len() == 3).await;
    assert_eq!(replayed["id"], delivery["id"]);
    assert_eq!(told.lock().unwrap()[2], body);
    relay.stop().await;
    worker.stop_now();
    worker.finished().await;
    served.stop().await;
}

async fn wrong_endpoints_are_refused() {
    let served = Served::start().await;
    let made = answer(served.post("/v1/webhooks").json(&json!({"url": "https://a.example/"})), 201).await;

    for (body, code, place) in [
        (json!({}), "invalid_request", ""),
        (json!({"url": "ftp://a.example/"}), "invalid_request", "url"),
        (json!({"url": "https://"}), "invalid_request", "url"),
        (json!({"url": "https://a b.example/"}), "invalid_request", "url"),
        (json!({"url": format!("https://a.example/{}", "x".repeat(2_048))}), "invalid_request", "url"),
        (json!({"url": "https://[::1"}), "unprocessable", "url"),
        (json!({"url": "https://user:pass@a.example/"}), "unprocessable", "url"),
        (json!({"url": "https://a.example/", "events": ["Run Created"]}), "invalid_request", "events[0]"),
        (
            json!({"url": "https://a.example/", "events": vec!["run.created"; 51]}),
            "invalid_request",
            "events",
        ),
        (json!({"url": "https://a.example/", "description": "a\0b"}), "invalid_request", "description"),
        (json!({"url": "https://a.example/", "secret": "whsec_x"}), "invalid_request", "secret"),
        (json!({"url": 7}), "invalid_request", "url"),
    ] {
        let refused = problem(served.post("/v1/webhooks").json(&body).send().await.unwrap()).await;
        assert_eq!(refused["code"], code, "{body}: {refused}");
        assert_eq!(refused["errors"][0]["path"], place, "{body}: {refused}");
    }
    for path in [
        "/v1/webhooks/we_1",
        "/v1/webhooks/x%2Fy",
        "/v1/webhooks/deliveries/dlv_1",
        "/v1/webhooks/deliveries/1",
    ] {
        let missing = problem(served.get(path).send().await.unwrap()).await;
        assert_eq!(missing["code"], "not_found", "{path}");
    }
    for query in
        ["status=lost", "endpoint=we_1", "run=run_1", "cursor=x", "limit=0", "limit=201", "colour=red"]
    {
        let path = format!("/v1/webhooks/deliveries?{query}");
        let refused = problem(served.get(&path).send().await.unwrap()).await;
        assert_eq!(refused["code"], "invalid_request", "{query}");
    }
    // A delivery that is on its way cannot be replayed.
    let ping = answer(served.post(&format!("{}/test", of(&made))), 202).await;
    let path = format!("/v1/webhooks/deliveries/{}/replay", ping["id"].as_str().unwrap());
    let refused = problem(served.post(&path).send().await.unwrap()).await;
    assert_eq!(refused["code"], "conflict");
    served.stop().await;
}

async fn another_tenants_webhooks_are_not_there() {
    let served = Served::with(|_, options| options.trust_loopback = false).await;
    let (_, ours) = served.key("acme", &[Scope::Read, Scope::Write]).await;
    let (_, theirs) = served.key("globex", &[Scope::Read, Scope::Write]).await;
    let new = served.post("/v1/webhooks").json(&json!({"url": "https://a.example/"})).bearer_auth(&ours);
    let made = answer(new, 201).await;
    let path = of(&made);
    let ping = answer(served.post(&format!("{path}/test")).bearer_auth(&ours), 202).await;
    let delivery = format!("/v1/webhooks/deliveries/{}", ping["id"].as_str().unwrap());
    let unknown = "/v1/webhooks/we_01J9ZC8E4QWX5T0N1V2B3M4K6P";
    let unknown_delivery = "/v1/webhooks/deliveries/dlv_999999";

    let endpoint_calls = [
        (Method::GET, ""),
        (Method::PATCH, ""),
        (Method::DELETE, ""),
        (Method::POST, "/rotate"),
        (Method::POST, "/test"),
    ];
    let delivery_calls = [(Method::GET, ""), (Method::POST, "/replay")];
    let calls = endpoint_calls.map(|call| (call, path.as_str(), unknown)).into_iter();
    let calls = calls.chain(delivery_calls.map(|call| (call, delivery.as_str(), unknown_delivery)));
    for ((method, action), foreign, missing) in calls {
        let ask = async |path: &str| {
            let request = served.client.request(method.clone(), served.url(&format!("{path}{action}")));
            let request = if method == Method::PATCH { request.json(&json!({})) } else { request };
            let mut told = problem(request.bearer_auth(&theirs).send().await.unwrap()).await;
            told.as_object_mut().unwrap().remove("request_id");
            told
        };
        let foreign = ask(foreign).await;
        assert_eq!(foreign, ask(missing).await, "{method} {action}");
        assert_eq!(foreign["code"], "not_found");
    }

    for path in ["/v1/webhooks", "/v1/webhooks/deliveries"] {
        assert_eq!(answer(served.get(path).bearer_auth(&theirs), 200).await["data"], json!([]));
        let own = answer(served.get(path).bearer_auth(&ours), 200).await;
        assert_eq!(own["data"].as_array().unwrap().len(), 1);
    }
    served.stop().await;
}

async fn inner_addresses_are_refused() {
    let served = Served::start().await;
    std::fs::write(served.file("film.mp4"), "no film at all").unwrap();

    for host in
        ["127.0.0.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:10.0.0.1]", "169.254.169.254", "100.64.0.1"]
    {
        let url = format!("http://{host}/hook");
        let refused = served.post("/v1/webhooks").json(&json!({"url": url})).send().await.unwrap();
        let refused = problem(refused).await;
        assert_eq!(
            (&refused["code"], &refused["errors"][0]["path"]),
            (&json!("unprocessable"), &json!("url"))
        );
        let run = json!({
            "recipe": "thumbnail", "input": {"path": served.file("film.mp4")}, "webhook": {"url": url},
        });
        let refused = problem(served.post("/v1/runs").json(&run).send().await.unwrap()).await;
        assert_eq!(refused["code"], "unprocessable", "{refused}");
        assert_eq!(refused["errors"][0]["path"], "webhook.url", "{refused}");
    }
    served.stop().await;
}

async fn scopes_are_required() {
    let served = Served::with(|_, options| options.trust_loopback = false).await;
    let (_, reader) = served.key("acme", &[Scope::Read]).await;
    let (_, writer) = served.key("acme", &[Scope::Write]).await;
    let endpoint = json!({"url": "https://a.example/"});

    let looks = served.get("/v1/webhooks").bearer_auth(&writer).send().await.unwrap();
    let makes = served.post("/v1/webhooks").json(&endpoint).bearer_auth(&reader).send().await.unwrap();
    let rotates = served.post("/v1/webhooks/secret").bearer_auth(&reader).send().await.unwrap();

    for refused in [looks, makes, rotates] {
        assert_eq!(problem(refused).await["code"], "forbidden");
    }
    assert_eq!(answer(served.get("/v1/webhooks").bearer_auth(&reader), 200).await["data"], json!([]));
    served.stop().await;
}
