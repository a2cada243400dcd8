//! What operators see and steer: jobs, workers, lanes, limits.

use libtest_mimic::Trial;
use serde_json::{Value, json};
use telecine_queue::{NewJob, Push};
use telecine_server::Scope;

use crate::support::{Served, problem, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("operations::jobs_are_listed_by_what_is_asked_for_page_by_page", jobs_are_listed_page_by_page),
        trial("operations::a_job_of_another_tenant_is_as_one_that_does_not_exist", foreign_jobs_do_not_exist),
        trial("operations::each_address_asks_for_its_scope", each_address_asks_for_its_scope),
        trial("operations::a_pushed_job_is_stored_once_per_key", a_pushed_job_is_stored_once_per_key),
        trial("operations::our_own_kinds_cannot_be_pushed", our_own_kinds_cannot_be_pushed),
        trial("operations::a_worker_that_is_drained_leaves", a_worker_that_is_drained_leaves),
        trial("operations::a_paused_lane_says_so_and_keeps_its_jobs", a_paused_lane_keeps_its_jobs),
        trial("operations::every_list_says_whether_it_goes_on", every_list_says_whether_it_goes_on),
        trial("operations::limits_are_set_seen_and_taken_away", limits_are_set_seen_and_taken_away),
    ]
}

pub(crate) async fn body(response: reqwest::Response) -> Value {
    let status = response.status();
    let text = response.text().await.unwrap();
    assert!(status.is_success(), "{status} {text}");
    serde_json::from_str(&text).unwrap()
}

async fn jobs_are_listed_page_by_page() {
    let served = Served::start().await;
    let jobs = (0..5).map(|n| NewJob::new("far_away", json!({ "n": n })).lane("elsewhere"));
    let pushed = served.queue.push(vec![Push::jobs(jobs)]).await.unwrap();
    let oldest = pushed[0].jobs[0].0.cast_unsigned();
    served.queue.push(vec![NewJob::new("other", json!({})).lane("elsewhere").into()]).await.unwrap();

    let first = body(served.get("/v1/jobs?kind=far_away&state=pending&limit=3").send().await.unwrap()).await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let rest = served.get(&format!("/v1/jobs?kind=far_away&limit=3&cursor={cursor}"));
    let rest = body(rest.send().await.unwrap()).await;
    let wrong = [
        "state=lost",
        "limit=0",
        "limit=501",
        "cursor=x",
        "cursor=-1",
        "cursor=01",
        "run=run_1",
        "colour=red",
        "limit=1&limit=2",
    ];

    let numbers = |page: &Value| -> Vec<u64> {
        let ids = page["data"].as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap());
        ids.map(|id| id - oldest).collect()
    };
    assert_eq!(numbers(&first), [4, 3, 2]);
    assert_eq!(numbers(&rest), [1, 0]);
    assert_eq!(rest["next_cursor"], Value::Null);
    assert_eq!(first["data"][0]["state"], "pending");
    for query in wrong {
        let refused = problem(served.get(&format!("/v1/jobs?{query}")).send().await.unwrap()).await;
        assert_eq!(refused["code"], "invalid_request", "{query}");
    }
    served.stop().await;
}

async fn foreign_jobs_do_not_exist() {
    let served = Served::start().await;
    let push = |tenant: &str| Push::from(NewJob::new("far_away", json!({})).lane("elsewhere")).tenant(tenant);
    let pushed = served.queue.push(vec![push("other"), push("")]).await.unwrap();
    let (theirs, ours) = (pushed[0].jobs[0], pushed[1].jobs[0]);

    let listed = body(served.get("/v1/jobs").send().await.unwrap()).await;
    let own = body(served.get(&format!("/v1/jobs/{ours}")).send().await.unwrap()).await;
    let mut foreign = problem(served.get(&format!("/v1/jobs/{theirs}")).send().await.unwrap()).await;
    let mut missing = problem(served.get("/v1/jobs/999999").send().await.unwrap()).await;

    let ids: Vec<_> = listed["data"].as_array().unwrap().iter().map(|job| job["id"].clone()).collect();
    assert_eq!(ids, [json!(ours)]);
    assert_eq!((&own["id"], &own["attempts"]), (&json!(ours), &json!([])));
    for answer in [&mut foreign, &mut missing] {
        answer.as_object_mut().unwrap().remove("request_id");
    }
    assert_eq!(foreign, missing);
    for id in ["x", "0x1", "-1", "99999999999999999999"] {
        let nothing = problem(served.get(&format!("/v1/jobs/{id}")).send().await.unwrap()).await;
        assert_eq!(nothing["code"], "not_found", "{id}");
    }
    served.stop().await;
}

async fn each_address_asks_for_its_scope() {
    let served = Served::with(|_, options| options.trust_loopback = false).await;
    let (_, reader) = served.key("acme", &[Scope::Read]).await;
    let (_, everything_else) = served.key("acme", &[Scope::Read, Scope::Write, Scope::Work]).await;
    let (_, admin) = served.key("", &[Scope::Admin]).await;
    let ask = async |method: &str, path: &str, key: &str| {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let asked = served.client.request(method, served.url(path)).bearer_auth(key);
        asked.json(&json!({"max_running": 1})).send().await.unwrap().status().as_u16()
    };

    for path in ["/v1/jobs", "/v1/jobs?state=failed"] {
        assert_eq!(ask("GET", path, &reader).await, 200, "{path}");
    }
    for (method, path) in [
        ("GET", "/v1/workers"),
        ("POST", "/v1/workers/1/drain"),
        ("GET", "/v1/lanes"),
        ("POST", "/v1/lanes/elsewhere/pause"),
        ("POST", "/v1/lanes/elsewhere/resume"),
        ("GET", "/v1/limits"),
        ("PUT", "/v1/limits/x"),
        ("DELETE", "/v1/limits/x"),
        ("GET", "/metrics"),
    ] {
        assert_eq!(ask(method, path, &everything_else).await, 403, "{method} {path}");
        assert!(![401, 403].contains(&ask(method, path, &admin).await), "{method} {path}");
    }
    let pushed = served.post("/v1/jobs").bearer_auth(&reader).json(&json!({"kind": "far_away"})).send();
    assert_eq!(problem(pushed.await.unwrap()).await["code"], "forbidden");
    let limited = json!({"kind": "far_away", "limit_key": "everybodys"});
    let limited = served.post("/v1/jobs").bearer_auth(&everything_else).json(&limited).send();
    assert_eq!(problem(limited.await.unwrap()).await["code"], "forbidden", "limits are everybody's");
    served.stop().await;
}

async fn a_pushed_job_is_stored_once_per_key() {
    let served = Served::start().await;
    let push = |key: &str, n: u32| {
        let job = json!({"kind": "far_away", "lane": "elsewhere", "payload": {"n": n}, "priority": 7});
        served.post("/v1/jobs").header("idempotency-key", key).json(&job).send()
    };

    let first = push("a", 1).await.unwrap();
    let again = push("a", 1).await.unwrap();
    let other = push("a", 2).await.unwrap();

    assert_eq!((first.status().as_u16(), again.status().as_u16()), (201, 200));
    let (first, again) = (body(first).await, body(again).await);
    assert_eq!(first, again);
    assert_eq!((&first["state"], &first["priority"]), (&json!("pending"), &json!(7)));
    assert_eq!(problem(other).await["code"], "key_reused");
    served.stop().await;
}

async fn our_own_kinds_cannot_be_pushed() {
    let served = Served::start().await;

    for (kinds, code) in
        [(["ingest", "sweep", "deliver_webhook"], "unprocessable"), (["", "a\u{7}", "ü"], "invalid_request")]
    {
        for kind in kinds {
            let refused = served.post("/v1/jobs").json(&json!({ "kind": kind })).send().await.unwrap();
            let refused = problem(refused).await;
            assert_eq!((&refused["code"], &refused["errors"][0]["path"]), (&json!(code), &json!("kind")));
        }
    }
    let unknown =
        served.post("/v1/jobs").json(&json!({"kind": "k", "state": "running"})).send().await.unwrap();
    assert_eq!(problem(unknown).await["code"], "invalid_request");
    assert_eq!(body(served.get("/v1/jobs").send().await.unwrap()).await["data"], json!([]));
    served.stop().await;
}

async fn a_worker_that_is_drained_leaves() {
    let served = Served::start().await;
    let workers = body(served.get("/v1/workers").send().await.unwrap()).await;
    let worker = &workers["data"][0];

    let drained = served.post(&format!("/v1/workers/{}/drain", worker["id"])).send().await.unwrap();

    assert_eq!(worker["alive"], true);
    assert_eq!(body(drained).await["draining"], true);
    served
        .until(async || {
            !body(served.get("/v1/workers").send().await.unwrap()).await["data"][0]["alive"]
                .as_bool()
                .unwrap_or(false)
        })
        .await;
    let nobody = served.post("/v1/workers/999999/drain").send().await.unwrap();
    assert_eq!(problem(nobody).await["code"], "not_found");
    served.stop().await;
}

async fn a_paused_lane_keeps_its_jobs() {
    let served = Served::start().await;
    let lane = async |name: &str| {
        let lanes = body(served.get("/v1/lanes").send().await.unwrap()).await;
        lanes["data"].as_array().unwrap().iter().find(|lane| lane["name"] == name).cloned()
    };
    served.queue.push(vec![NewJob::new("far_away", json!({})).lane("elsewhere").into()]).await.unwrap();

    let paused = body(served.post("/v1/lanes/elsewhere/pause").send().await.unwrap()).await;
    let again = body(served.post("/v1/lanes/elsewhere/pause").send().await.unwrap()).await;
    let seen = lane("elsewhere").await.unwrap();
    let resumed = body(served.post("/v1/lanes/elsewhere/resume").send().await.unwrap()).await;

    let expected =
        json!({"name": "elsewhere", "slots": 0, "busy": 0, "depth": 1, "later": 0, "paused": true});
    assert_eq!((&paused, &again, &seen), (&expected, &expected, &expected));
    assert_eq!(resumed["paused"], false);
    assert_eq!(lane("cpu").await.unwrap()["slots"], 2);
    served.stop().await;
}

async fn every_list_says_whether_it_goes_on() {
    let served = Served::start().await;

    for path in ["/v1/workers", "/v1/lanes", "/v1/limits", "/v1/recipes", "/v1/jobs", "/v1/runs"] {
        let listed = body(served.get(path).send().await.unwrap()).await;
        assert_eq!(listed.get("next_cursor"), Some(&Value::Null), "{path}");
    }
    served.stop().await;
}

async fn limits_are_set_seen_and_taken_away() {
    let served = Served::start().await;
    let put = |bounds: Value| served.client.put(served.url("/v1/limits/provider:x")).json(&bounds).send();
    let listed = async || body(served.get("/v1/limits").send().await.unwrap()).await["data"].clone();

    let set = body(put(json!({"max_running": 4, "per_minute": 0.5})).await.unwrap()).await;
    let seen = listed().await;
    let deleted = served.client.delete(served.url("/v1/limits/provider:x")).send().await.unwrap();
    let again = served.client.delete(served.url("/v1/limits/provider:x")).send().await.unwrap();
    let unbounded = put(json!({})).await.unwrap();

    assert_eq!(
        (&set["max_running"], &set["per_minute"], &set["parked"]),
        (&json!(4), &json!(0.5), &json!(0))
    );
    assert_eq!(seen, json!([set]));
    assert_eq!(deleted.status(), 204);
    assert_eq!(problem(again).await["code"], "not_found");
    assert_eq!((unbounded.status().as_u16(), listed().await), (204, json!([])));
    for wrong in [json!({"per_minute": 0}), json!({"max_running": -1}), json!({"max_runing": 1}), json!([])] {
        assert_eq!(problem(put(wrong.clone()).await.unwrap()).await["code"], "invalid_request", "{wrong}");
    }
    served.stop().await;
}
