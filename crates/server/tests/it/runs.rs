//! Runs over HTTP: made once, shown, listed, steered, forgotten.

use std::collections::BTreeSet;

use libtest_mimic::Trial;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use telecine_pipeline::{Input, Recipes, RunMeta, Submission, submit};
use telecine_queue::testing::{Faults, faulty};
use telecine_queue::{Pausable, RunFilter, RunId, RunPage, RunState};
use telecine_server::Scope;

use crate::clips;
use crate::support::{Served, problem, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("runs::a_run_is_made_shown_and_ends", a_run_is_made_shown_and_ends),
        trial("runs::outputs_have_the_keys_that_were_asked_for", outputs_have_the_keys_that_were_asked_for),
        trial("runs::a_key_gives_one_run", a_key_gives_one_run),
        trial("runs::a_lost_answer_costs_nothing", a_lost_answer_costs_nothing),
        trial("runs::a_client_that_left_finds_its_run", a_client_that_left_finds_its_run),
        trial("runs::what_is_wrong_is_said_with_its_place", what_is_wrong_is_said_with_its_place),
        trial("runs::another_tenants_run_is_not_there", another_tenants_run_is_not_there),
        trial("runs::lists_go_by_filters_and_pages", lists_go_by_filters_and_pages),
        trial("runs::a_run_is_cancelled_once", a_run_is_cancelled_once),
        trial("runs::what_failed_is_retried", what_failed_is_retried),
        trial("runs::a_run_moves_in_the_line", a_run_moves_in_the_line),
        trial("runs::a_forgotten_run_is_gone", a_forgotten_run_is_gone),
    ]
}

/// A film that is there, and a body that asks for one picture of it.
pub(crate) fn thumbnail(served: &Served) -> Value {
    let film = served.file("film.mp4");
    clips::film(2, &film);
    json!({ "recipe": "thumbnail", "input": { "path": film } })
}

/// Runs that are made stay where they are.
pub(crate) async fn hold(served: &Served) {
    served.queue.pause(&Pausable::Kind("ingest".into())).await.unwrap();
}

pub(crate) async fn create(served: &Served, body: &Value) -> Value {
    let response = served.post("/v1/runs").json(body).send().await.unwrap();
    let status = response.status();
    let run: Value = response.json().await.unwrap();
    assert_eq!(status, 201, "{run}");
    run
}

pub(crate) async fn get(served: &Served, run: &Value) -> Value {
    let path = format!("/v1/runs/{}", run["id"].as_str().unwrap());
    let response = served.get(&path).send().await.unwrap();
    assert_eq!(response.status(), 200);
    response.json().await.unwrap()
}

/// The run when it has ended.
pub(crate) async fn ended(served: &Served, run: &Value) -> Value {
    served.until(async || !get(served, run).await["finished_at"].is_null()).await;
    get(served, run).await
}

async fn keyed(served: &Served, key: &str, body: &Value) -> Response {
    served.post("/v1/runs").header("Idempotency-Key", key).json(body).send().await.unwrap()
}

async fn run_count(served: &Served) -> usize {
    let listed = served.queue.list_runs(&RunFilter::default(), RunPage::first(1_000)).await.unwrap();
    listed.data.len()
}

async fn a_run_is_made_shown_and_ends() {
    let served = Served::start().await;
    let mut body = thumbnail(&served);
    body["external_id"] = json!("vid-42");
    body["priority"] = json!(70);
    body["metadata"] = json!({ "user": "ä", "n": [1, 2.5, null] });
    body["webhook"] = json!({ "url": "https://hooks.example/telecine" });
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    let response =
        served.post("/v1/runs").header("traceparent", traceparent).json(&body).send().await.unwrap();

    assert_eq!(response.status(), 201);
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    let run: Value = response.json().await.unwrap();
    assert_eq!(location, format!("/v1/runs/{}", run["id"].as_str().unwrap()));
    assert_eq!((&run["object"], &run["recipe"]["name"]), (&json!("run"), &json!("thumbnail")));
    assert_eq!((&run["external_id"], &run["priority"]), (&json!("vid-42"), &json!(70)));
    assert_eq!(run["metadata"], body["metadata"]);
    let ended = ended(&served, &run).await;
    assert_eq!((&ended["status"], &ended["progress"]), (&json!("succeeded"), &json!(100.0)), "{ended:#}");
    assert_eq!(ended["outputs"][0]["name"], "poster");
    assert_eq!(ended["outputs"][0]["step"], "pictures");
    assert_eq!(ended["error"], Value::Null);
    // What others will need of the request.
    let id: RunId = run["id"].as_str().unwrap().parse().unwrap();
    let meta = RunMeta::of(&served.queue.get_run(&id).await.unwrap().unwrap()).unwrap();
    assert_eq!(meta.webhook.unwrap().url, "https://hooks.example/telecine");
    assert_eq!(meta.traceparent.as_deref(), Some(traceparent));
    served.stop().await;
}

async fn outputs_have_the_keys_that_were_asked_for() {
    let served = Served::start().await;
    let mut body = thumbnail(&served);
    body["publish_to"] = json!("u42/{media}/m7");
    let (_, acme) = served.key("acme", &[Scope::Read, Scope::Write]).await;

    let run = create(&served, &body).await;
    let run = ended(&served, &run).await;
    let of_tenant = served.post("/v1/runs").bearer_auth(&acme).json(&body).send().await.unwrap();
    let of_tenant: Value = of_tenant.json().await.unwrap();
    let of_tenant = format!("/v1/runs/{}", of_tenant["id"].as_str().unwrap());
    let looked = async || -> Value {
        served.get(&of_tenant).bearer_auth(&acme).send().await.unwrap().json().await.unwrap()
    };
    served.until(async || looked().await["status"] == "succeeded").await;

    assert_eq!(run["publish_to"], body["publish_to"]);
    let (key, tenants) =
        ("_published/u42/videos/m7/pictures.jpg", "_published/acme/u42/videos/m7/pictures.jpg");
    assert_eq!((&run["outputs"][0]["published"], &run["status"]), (&json!(key), &json!("succeeded")));
    assert_eq!(run["outputs"][0]["files"][0]["published"], key);
    assert_eq!(looked().await["outputs"][0]["published"], tenants);
    assert!(served.shop.blobs.exists(key).await.unwrap() && served.shop.blobs.exists(tenants).await.unwrap());
    let path = format!("/v1/runs/{}?outputs=true", run["id"].as_str().unwrap());
    let deleted = served.client.delete(served.url(&path)).send().await.unwrap();
    assert_eq!(deleted.status(), 204);
    assert_eq!(served.shop.blobs.list("_published").await.unwrap(), [tenants]);
    served.stop().await;
}

async fn a_key_gives_one_run() {
    let served = Served::start().await;
    hold(&served).await;
    let body = thumbnail(&served);

    let first = keyed(&served, "order 7/a", &body).await;
    assert_eq!(first.status(), 201);
    let first: Value = first.json().await.unwrap();
    let id = first["id"].as_str().unwrap();
    served
        .client
        .patch(served.url(&format!("/v1/runs/{id}")))
        .json(&json!({ "priority": 90 }))
        .send()
        .await
        .unwrap();
    // The same request in other words, from another trace, and what it names is gone by now.
    std::fs::remove_file(served.file("film.mp4")).unwrap();
    let mut same = body.clone();
    same["priority"] = json!(50);
    same["metadata"] = json!({});
    same["external_id"] = Value::Null;
    let again = served
        .post("/v1/runs")
        .header("Idempotency-Key", "order 7/a")
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .json(&same)
        .send()
        .await
        .unwrap();

    assert_eq!(again.status(), 200);
    let again: Value = again.json().await.unwrap();
    assert_eq!(again["id"], first["id"]);
    assert_eq!(again["priority"], 90, "the run as it is now");
    let mut other = body.clone();
    other["priority"] = json!(51);
    let refused = keyed(&served, "order 7/a", &other).await;
    assert_eq!(refused.status(), 409);
    assert_eq!(problem(refused).await["code"], "key_reused");
    for wrong in ["", &"k".repeat(201)] {
        let refused = keyed(&served, wrong, &body).await;
        assert_eq!(refused.status(), 400);
        assert_eq!(problem(refused).await["errors"][0]["path"], "Idempotency-Key");
    }
    assert_eq!(run_count(&served).await, 1);

    // Many at once: one of them makes it.
    let body = thumbnail(&served);
    let racing = (0..20).map(|_| keyed(&served, "race", &body));
    let answers = futures_util::future::join_all(racing).await;
    assert_eq!(answers.iter().filter(|answer| answer.status() == 201).count(), 1);
    let mut ids = BTreeSet::new();
    for answer in answers {
        assert!(answer.status().is_success());
        ids.insert(answer.json::<Value>().await.unwrap()["id"].to_string());
    }
    assert_eq!((ids.len(), run_count(&served).await), (1, 2));
    served.stop().await;
}

/// The commit is there, the answer is not: as when the process is killed in between.
async fn a_lost_answer_costs_nothing() {
    let faults = Faults::new().lose_answer("push", 1);
    let served = Served::with(|shop, _| shop.queue = faulty(shop.queue.clone(), &faults)).await;
    hold(&served).await;
    let body = thumbnail(&served);

    let lost = keyed(&served, "k", &body).await;
    let again = keyed(&served, "k", &body).await;

    assert_eq!(lost.status(), 503);
    assert!(lost.headers().contains_key("retry-after"));
    assert_eq!(problem(lost).await["code"], "unavailable");
    assert_eq!(faults.injected("push"), 1);
    assert_eq!(again.status(), 200);
    assert_eq!(run_count(&served).await, 1);
    served.stop().await;
}

async fn a_client_that_left_finds_its_run() {
    use tokio::io::AsyncWriteExt;

    let served = Served::start().await;
    hold(&served).await;
    let body = thumbnail(&served);
    let text = body.to_string();

    let mut socket = tokio::net::TcpStream::connect(served.address).await.unwrap();
    let request = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\nidempotency-key: left\r\ncontent-length: {}\r\n\r\n{text}",
        served.address,
        text.len()
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    served.until(async || run_count(&served).await == 1).await;
    drop(socket);

    let again = keyed(&served, "left", &body).await;
    assert_eq!(again.status(), 200);
    assert_eq!(run_count(&served).await, 1);
    served.stop().await;
}

async fn what_is_wrong_is_said_with_its_place() {
    let served = Served::start().await;
    hold(&served).await;
    let right = thumbnail(&served);
    let with = |path: &str, value: Value| {
        let mut body = right.clone();
        *body.pointer_mut(path).unwrap_or_else(|| panic!("{path}")) = value;
        body
    };
    let plus = |key: &str, value: Value| {
        let mut body = right.clone();
        body[key] = value;
        body
    };
    let input = |value: Value| with("/input", value);
    let film = served.file("film.mp4");
    let malformed = [
        (json!([]), ""),
        (json!({ "recipe": "thumbnail" }), ""),
        (plus("recipies", json!(1)), "recipies"),
        (with("/recipe", json!("")), "recipe"),
        (with("/recipe", json!(7)), "recipe"),
        (input(json!({})), "input"),
        (input(json!({ "url": "https://a.example/f", "path": film })), "input"),
        (input(json!({ "uri": "https://a.example/f" })), "input"),
        (input(json!({ "url": "ftp://a.example/f" })), "input.url"),
        (input(json!({ "url": null })), "input.url"),
        (input(json!({ "s3": "bucket/key" })), "input.s3"),
        (input(json!({ "path": "film.mp4" })), "input.path"),
        (input(json!({ "path": "/tmp/a\u{0}b" })), "input.path"),
        (input(json!({ "upload": "../../x" })), "input.upload"),
        (plus("priority", json!(101)), "priority"),
        (plus("priority", json!(-1)), "priority"),
        (plus("priority", json!(1.5)), "priority"),
        (plus("run_at", json!("tomorrow")), "run_at"),
        (plus("external_id", json!("")), "external_id"),
        (plus("external_id", json!("a\u{0}")), "external_id"),
        (plus("publish_to", json!("")), "publish_to"),
        (plus("publish_to", json!("u42/../m7")), "publish_to"),
        (plus("publish_to", json!("/u42")), "publish_to"),
        (plus("publish_to", json!("a".repeat(513))), "publish_to"),
        (plus("publish_to", json!(7)), "publish_to"),
        (plus("params", json!([])), "params"),
        (plus("params", json!({ "pictures": 1 })), "params.pictures"),
        (plus("metadata", json!("text")), "metadata"),
        (plus("webhook", json!({ "url": "hooks.example" })), "webhook.url"),
        (plus("webhook", json!({ "url": "https://h.example", "secret": "s" })), "webhook.secret"),
    ];
    let impossible = [
        (with("/recipe", json!("thumbnial")), "recipe", "unknown_recipe"),
        (plus("params", json!({ "hls": {} })), "params.hls", "invalid"),
        (plus("params", json!({ "pictures": { "postr": {} } })), "params.pictures.postr", "invalid"),
        (plus("params", json!({ "pictures": { "enabled": false } })), "params.pictures.enabled", "invalid"),
        (input(json!({ "path": "/etc/passwd" })), "input.path", "input_denied"),
        (input(json!({ "path": served.file("none.mp4") })), "input.path", "input_not_found"),
        (input(json!({ "url": "http://127.0.0.1/f" })), "input.url", "input_denied"),
        (input(json!({ "url": "http://0x7f.1/f" })), "input.url", "input_denied"),
        (input(json!({ "url": "http://169.254.169.254/latest" })), "input.url", "input_denied"),
        (input(json!({ "url": "https://a.example:99999/" })), "input.url", "input_invalid"),
        (input(json!({ "s3": "s3://bucket/key" })), "input.s3", "input_denied"),
        (input(json!({ "upload": "nobody-sent-it" })), "input.upload", "input_not_found"),
        (plus("metadata", json!({ "long": "x".repeat(4_096) })), "metadata", "too_large"),
        (plus("metadata", json!({ "nul": "\u{0}" })), "metadata", "invalid"),
        (plus("external_id", json!("ä".repeat(150))), "external_id", "invalid"),
        (plus("webhook", json!({ "url": "https://[::x]/" })), "webhook.url", "invalid"),
    ];

    for (body, path) in malformed {
        let response = served.post("/v1/runs").json(&body).send().await.unwrap();
        assert_eq!(response.status(), 400, "{body}");
        let told = problem(response).await;
        assert_eq!(
            (&told["code"], &told["errors"][0]["path"]),
            (&json!("invalid_request"), &json!(path)),
            "{body}: {told}"
        );
    }
    for (body, path, code) in impossible {
        let response = served.post("/v1/runs").json(&body).send().await.unwrap();
        assert_eq!(response.status(), 422, "{body}");
        let told = problem(response).await;
        let first = &told["errors"][0];
        assert_eq!((&first["path"], &first["code"]), (&json!(path), &json!(code)), "{body}: {told}");
    }
    // All that is wrong at once, and what was probably meant.
    let mut body = with("/recipe", json!("web-vidoe"));
    body["input"] = json!({ "path": "/etc/passwd" });
    let told = problem(served.post("/v1/runs").json(&body).send().await.unwrap()).await;
    let paths: Vec<_> =
        told["errors"].as_array().unwrap().iter().map(|error| error["path"].clone()).collect();
    assert_eq!(paths, ["recipe", "input.path"], "{told}");
    assert!(told["detail"].as_str().unwrap().contains("did you mean `web-video`?"), "{told}");

    let torn = served.post("/v1/runs").header("content-type", "application/json").body("{\"recipe\":").send();
    assert_eq!(torn.await.unwrap().status(), 400);
    let form = served.post("/v1/runs").body("recipe=x").send().await.unwrap();
    assert_eq!(
        (form.status().as_u16(), problem(form).await["code"].clone()),
        (415, json!("unsupported_media_type"))
    );
    let deep = "[".repeat(10_000);
    let deep =
        served.post("/v1/runs").header("content-type", "application/json").body(deep).send().await.unwrap();
    assert_eq!(deep.status(), 400);
    assert_eq!(run_count(&served).await, 0);
    served.stop().await;
}

/// Every address of a run, with a body that is right.
fn addresses(id: &str) -> Vec<(Method, String, Option<Value>)> {
    let at = |rest: &str| format!("/v1/runs/{id}{rest}");
    vec![
        (Method::GET, at(""), None),
        (Method::PATCH, at(""), Some(json!({ "priority": 1 }))),
        (Method::DELETE, at("?outputs=true"), None),
        (Method::POST, at("/cancel"), None),
        (Method::POST, at("/retry"), Some(json!({}))),
        (Method::GET, at("/events"), None),
        (Method::GET, at("/log"), None),
        (Method::GET, at("/files/pictures/poster.jpg"), None),
        (Method::GET, at("/files/hls/master.m3u8"), None),
        (Method::POST, at("/playback"), Some(json!({}))),
    ]
}

async fn another_tenants_run_is_not_there() {
    let served = Served::start().await;
    hold(&served).await;
    thumbnail(&served);
    let recipe = Recipes::built_in().get("thumbnail").unwrap().clone();
    let theirs = Submission {
        tenant: "others".into(),
        idempotency_key: Some("k".into()),
        ..Submission::new(recipe, Input::Path(served.file("film.mp4")))
    };
    let theirs = submit(&*served.queue, theirs).await.unwrap().run;
    let unknown = RunId::new();

    for id in [theirs.as_str(), unknown.as_str(), "run_x", "1", "%00", "run_01J9ZC8E4QWX5T0N1V2B3M4K6P%2F.."]
    {
        for (method, path, body) in addresses(id) {
            let mut request = served.client.request(method.clone(), served.url(&path));
            if let Some(body) = body {
                request = request.json(&body);
            }
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 404, "{method} {path}");
            let mut told = problem(response).await;
            told["request_id"].take();
            let same = json!({
                "type": "/docs/errors#not_found", "title": "Not Found", "status": 404, "code": "not_found",
                "detail": "there is no such run", "request_id": null,
            });
            assert_eq!(told, same, "{method} {path}");
        }
    }
    let listed: Value = served.get("/v1/runs").send().await.unwrap().json().await.unwrap();
    assert_eq!(listed, json!({ "data": [], "next_cursor": null }));
    let untouched = served.queue.get_run(&theirs).await.unwrap().unwrap();
    assert_eq!((untouched.state, untouched.priority), (RunState::Queued, None));
    // Their key means nothing to others.
    let ours = keyed(&served, "k", &thumbnail(&served)).await;
    assert_eq!(ours.status(), 201);
    served.stop().await;
}

async fn lists_go_by_filters_and_pages() {
    let served = Served::start().await;
    hold(&served).await;
    let mut body = thumbnail(&served);
    let mut made = Vec::new();
    for n in 0..5 {
        body["external_id"] = json!(format!("ext-{}", n % 2));
        made.push(create(&served, &body).await["id"].clone());
    }
    body["recipe"] = json!("mp4");
    made.push(create(&served, &body).await["id"].clone());
    let cancelled = made[2].as_str().unwrap().to_owned();
    served.post(&format!("/v1/runs/{cancelled}/cancel")).send().await.unwrap();
    made.reverse();
    let list = async |query: &str| -> Value {
        let response = served.get(&format!("/v1/runs{query}")).send().await.unwrap();
        assert_eq!(response.status(), 200, "{query}");
        response.json().await.unwrap()
    };
    let ids = |listed: &Value| -> Vec<Value> {
        listed["data"].as_array().unwrap().iter().map(|run| run["id"].clone()).collect()
    };

    let all = list("").await;
    assert_eq!((ids(&all), &all["next_cursor"]), (made.clone(), &Value::Null));
    let of_list = &all["data"][0];
    assert_eq!((&of_list["object"], &of_list["status"]), (&json!("run"), &json!("queued")));
    assert_eq!(of_list["recipe"]["name"], "mp4");
    assert!(of_list.get("steps").is_none() && of_list.get("outputs").is_none());
    // Page by page, each once.
    let (mut paged, mut query) = (Vec::new(), "?limit=4".to_owned());
    loop {
        let page = list(&query).await;
        paged.extend(ids(&page));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        query = format!("?limit=4&cursor={cursor}");
    }
    assert_eq!(paged, made);
    assert_eq!(ids(&list("?status=cancelled").await), [json!(cancelled)]);
    assert_eq!(ids(&list("?recipe=mp4").await), made[..1]);
    assert_eq!(ids(&list("?external_id=ext-1&recipe=thumbnail").await), [made[2].clone(), made[4].clone()]);
    assert_eq!(ids(&list("?external_id=none").await), Vec::<Value>::new());
    for (query, path) in [
        ("?limit=0", "limit"),
        ("?limit=201", "limit"),
        ("?limit=x", "limit"),
        ("?status=done", "status"),
        ("?cursor=7", "cursor"),
        ("?colour=red", "colour"),
        ("?external_id=%00", "external_id"),
    ] {
        let response = served.get(&format!("/v1/runs{query}")).send().await.unwrap();
        assert_eq!(response.status(), 400, "{query}");
        assert_eq!(problem(response).await["errors"][0]["path"], path, "{query}");
    }
    served.stop().await;
}

async fn a_run_is_cancelled_once() {
    let served = Served::start().await;
    hold(&served).await;
    let run = create(&served, &thumbnail(&served)).await;
    let cancel = format!("/v1/runs/{}/cancel", run["id"].as_str().unwrap());

    let first = served.post(&cancel).send().await.unwrap();
    let second = served.post(&cancel).send().await.unwrap();

    assert_eq!(first.status(), 200);
    assert_eq!(first.json::<Value>().await.unwrap()["status"], "cancelled");
    assert_eq!(second.status(), 409);
    assert_eq!(problem(second).await["code"], "conflict");
    assert_eq!(get(&served, &run).await["status"], "cancelled");
    served.stop().await;
}

async fn what_failed_is_retried() {
    let served = Served::start().await;
    let mut body = thumbnail(&served);
    std::fs::write(served.file("film.mp4"), "no film at all").unwrap();
    body["external_id"] = json!("broken");
    let run = create(&served, &body).await;
    let failed = ended(&served, &run).await;
    assert_eq!(failed["status"], "failed");
    assert_eq!((&failed["error"]["step"], &failed["error"]["retryable"]), (&json!("ingest"), &json!(false)));
    let path = format!("/v1/runs/{}/retry", run["id"].as_str().unwrap());
    let retry = async |body: Value| served.post(&path).json(&body).send().await.unwrap();

    let unknown = retry(json!({ "steps": ["hls"] })).await;
    assert_eq!(unknown.status(), 422);
    assert_eq!(problem(unknown).await["errors"][0]["path"], "steps");
    clips::film(2, &served.file("film.mp4"));
    let again = retry(json!({ "steps": [] })).await;

    assert_eq!(again.status(), 200);
    assert!(again.json::<Value>().await.unwrap()["finished_at"].is_null());
    assert_eq!(ended(&served, &run).await["status"], "succeeded");
    let nothing = retry(json!({})).await;
    assert_eq!(nothing.status(), 409);
    let by_name = retry(json!({ "steps": ["pictures"] })).await;
    assert_eq!(by_name.status(), 200);
    assert_eq!(ended(&served, &run).await["status"], "succeeded");
    served.stop().await;
}

async fn a_run_moves_in_the_line() {
    let served = Served::start().await;
    hold(&served).await;
    let run = create(&served, &thumbnail(&served)).await;
    let path = format!("/v1/runs/{}", run["id"].as_str().unwrap());
    let patch = async |body: Value| served.client.patch(served.url(&path)).json(&body).send().await.unwrap();

    let moved = patch(json!({ "priority": 90 })).await;

    assert_eq!(moved.status(), 200);
    assert_eq!(moved.json::<Value>().await.unwrap()["priority"], 90);
    for wrong in [json!({ "priority": 101 }), json!({}), json!({ "status": "succeeded" })] {
        assert_eq!(patch(wrong).await.status(), 400);
    }
    served.post(&format!("{path}/cancel")).send().await.unwrap();
    assert_eq!(patch(json!({ "priority": 1 })).await.status(), 409);
    served.stop().await;
}

async fn a_forgotten_run_is_gone() {
    let served = Served::start().await;
    let body = thumbnail(&served);
    let keyed_run: Value = keyed(&served, "k", &body).await.json().await.unwrap();
    let delete = async |run: &Value, query: &str| {
        let path = format!("/v1/runs/{}{query}", run["id"].as_str().unwrap());
        served.client.delete(served.url(&path)).send().await.unwrap()
    };
    hold(&served).await;
    let waiting = create(&served, &body).await;
    let refused = delete(&waiting, "").await;
    assert_eq!((refused.status().as_u16(), problem(refused).await["code"].clone()), (409, json!("conflict")));
    served.queue.resume(&Pausable::Kind("ingest".into())).await.unwrap();

    let (owner, borrower) = (ended(&served, &keyed_run).await, ended(&served, &waiting).await);
    assert_eq!((&owner["status"], &borrower["status"]), (&json!("succeeded"), &json!("succeeded")));
    let key = owner["outputs"][0]["uri"].as_str().unwrap().to_owned();

    // Both share the outputs, or not, as they came: whoever goes first leaves the other whole.
    assert_eq!(delete(&keyed_run, "?outputs=true").await.status(), 204);
    assert_eq!(
        served.get(&format!("/v1/runs/{}", keyed_run["id"].as_str().unwrap())).send().await.unwrap().status(),
        404
    );
    assert_eq!(delete(&keyed_run, "").await.status(), 404);
    let listed: Value = served.get("/v1/runs").send().await.unwrap().json().await.unwrap();
    let ids: Vec<&Value> = listed["data"].as_array().unwrap().iter().map(|run| &run["id"]).collect();
    assert_eq!(ids, [&waiting["id"]]);
    let kept = borrower["outputs"][0]["uri"].as_str().unwrap();
    assert!(served.shop.blobs.exists(kept).await.unwrap());
    // Without `outputs` what was published stays.
    assert_eq!(delete(&waiting, "").await.status(), 204);
    assert!(served.shop.blobs.exists(kept).await.unwrap());
    if key != kept {
        assert!(!served.shop.blobs.exists(&key).await.unwrap());
    }
    served.stop().await;
}
