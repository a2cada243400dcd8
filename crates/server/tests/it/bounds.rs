//! What one tenant cannot take from the others, and is not told of the operator.

use libtest_mimic::Trial;
use serde_json::{Value, json};
use telecine_pipeline::Recipes;
use telecine_queue::{NewJob, NewRun, Push};
use telecine_server::Scope;
use telecine_server::keys::{self, NewKey};

use crate::operations::body;
use crate::support::{Served, problem, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("bounds::a_list_of_jobs_is_small_however_large_they_are", a_list_of_jobs_is_small),
        trial("bounds::the_front_of_the_line_is_the_operators", the_front_of_the_line_is_the_operators),
        trial("bounds::lanes_of_our_own_workers_are_not_for_others_jobs", own_lanes_are_not_for_others),
        trial("bounds::a_broken_recipe_tells_nothing_of_its_file", a_broken_recipe_tells_nothing_of_its_file),
        trial("bounds::an_address_inside_is_not_told", an_address_inside_is_not_told),
        trial("bounds::a_remote_worker_that_left_leaves_no_row", a_remote_worker_that_left_leaves_no_row),
        trial("bounds::nobody_is_called_as_all_are", nobody_is_called_as_all_are),
        trial("bounds::what_is_never_sent_cannot_be_asked_for", what_is_never_sent_cannot_be_asked_for),
    ]
}

async fn a_list_of_jobs_is_small() {
    let served = Served::start().await;
    let large = json!({ "text": "x".repeat(200 * 1024) });
    let jobs = (0..40).map(|_| NewJob::new("far_away", large.clone()).lane("elsewhere"));
    let pushed = served.queue.push(vec![Push::run(NewRun::new("large"), jobs)]).await.unwrap();
    let id = pushed[0].jobs[0];

    let listed = served.get("/v1/jobs?limit=500").send().await.unwrap().text().await.unwrap();
    let of_run = format!("/v1/jobs?limit=500&run={}", pushed[0].run.as_ref().unwrap());
    let of_run = served.get(&of_run).send().await.unwrap().text().await.unwrap();
    let one = body(served.get(&format!("/v1/jobs/{id}")).send().await.unwrap()).await;

    for listed in [listed, of_run] {
        assert!(listed.len() < 100 * 1024, "{} bytes", listed.len());
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let jobs = listed["data"].as_array().unwrap();
        assert_eq!((jobs.len(), &jobs[39]["id"]), (40, &json!(id)));
        for left_out in ["payload", "checkpoint", "result"] {
            assert!(jobs[0].get(left_out).is_none(), "{left_out}");
        }
    }
    assert_eq!(one["payload"], large);
    served.stop().await;
}

async fn the_front_of_the_line_is_the_operators() {
    let served = Served::with(|_, options| options.trust_loopback = false).await;
    std::fs::write(served.file("film.mp4"), b"no film").unwrap();
    let (_, writer) = served.key("acme", &[Scope::Read, Scope::Write]).await;
    let (_, admin) = served.key("acme", &[Scope::Admin]).await;
    let run = |priority: u8| {
        let input = json!({ "path": served.file("film.mp4") });
        json!({ "recipe": "web-video", "input": input, "priority": priority, "run_at": "2100-01-01T00:00:00Z" })
    };
    let job = |priority: u8| json!({ "kind": "far_away", "lane": "elsewhere", "priority": priority });
    let post = async |path: &str, key: &str, body: Value| {
        served.post(path).bearer_auth(key).json(&body).send().await.unwrap()
    };

    let made = post("/v1/runs", &writer, run(50)).await;
    assert_eq!(made.status(), 201);
    let id = made.json::<Value>().await.unwrap()["id"].as_str().unwrap().to_owned();
    assert_eq!(post("/v1/jobs", &writer, job(50)).await.status(), 201);
    for (path, too_high) in [("/v1/runs", run(51)), ("/v1/jobs", job(100))] {
        let refused = problem(post(path, &writer, too_high.clone()).await).await;
        assert_eq!(
            (&refused["code"], &refused["errors"][0]["path"]),
            (&json!("forbidden"), &json!("priority"))
        );
        assert_eq!(post(path, &admin, too_high).await.status(), 201, "{path}");
    }
    let moved = async |key: &str, priority: u8| {
        let moved = served.client.patch(served.url(&format!("/v1/runs/{id}"))).bearer_auth(key);
        moved.json(&json!({ "priority": priority })).send().await.unwrap()
    };
    assert_eq!(problem(moved(&writer, 51).await).await["code"], "forbidden");
    assert_eq!(moved(&admin, 51).await.status(), 200);
    assert_eq!(moved(&writer, 50).await.status(), 200);
    served.stop().await;
}

async fn own_lanes_are_not_for_others() {
    let served = Served::with(|_, options| options.trust_loopback = false).await;
    let (_, writer) = served.key("acme", &[Scope::Write]).await;
    let (_, admin) = served.key("", &[Scope::Admin]).await;
    let push = async |key: &str, job: Value| {
        served.post("/v1/jobs").bearer_auth(key).json(&job).send().await.unwrap()
    };

    for lane in ["cpu", "io", "net", "scan"] {
        let job = json!({ "kind": "far_away", "lane": lane });
        let refused = problem(push(&writer, job.clone()).await).await;
        assert_eq!((&refused["code"], &refused["errors"][0]["path"]), (&json!("forbidden"), &json!("lane")));
        assert_eq!(push(&admin, job).await.status(), 201, "{lane}");
    }
    let pushed = body(push(&writer, json!({ "kind": "unheard_of" })).await).await;
    let claimed = served.post("/v1/claims").bearer_auth(&admin).json(&json!({ "kinds": ["unheard_of"] }));
    let claimed = body(claimed.send().await.unwrap()).await;

    assert_eq!(pushed["lane"], "remote");
    assert_eq!(claimed["job"]["id"], pushed["id"]);
    served.stop().await;
}

async fn a_broken_recipe_tells_nothing_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("broken.toml"), "[steps.film]\nkind = \"hsl\"\n").unwrap();
    let recipes = Recipes::load(Some(folder.path())).unwrap();
    let served = Served::with_recipes(recipes).await;
    std::fs::write(served.file("film.mp4"), b"no film").unwrap();
    let request = json!({ "recipe": "broken", "input": { "path": served.file("film.mp4") } });

    let run = served.post("/v1/runs").json(&request).send().await.unwrap();
    let plan = served.post("/v1/plan").json(&request).send().await.unwrap();
    let transcode = served.post("/v1/transcode?recipe=broken").body("no film").send().await.unwrap();

    for refused in [run, plan, transcode] {
        let refused = problem(refused).await;
        let text = refused.to_string();
        assert_eq!(refused["errors"][0]["code"], "invalid_recipe", "{text}");
        assert!(text.contains("hsl"), "it says what is wrong: {text}");
        assert!(!text.contains(".toml") && !text.contains("kind = "), "and not where: {text}");
    }
    served.stop().await;
}

async fn an_address_inside_is_not_told() {
    let served = Served::start().await;
    let request = json!({ "recipe": "web-video", "input": { "url": "http://localhost:1/film.mp4" } });

    let made = body(served.post("/v1/runs").json(&request).send().await.unwrap()).await;
    let path = format!("/v1/runs/{}", made["id"].as_str().unwrap());
    let look = async || served.get(&path).send().await.unwrap().text().await.unwrap();
    served.until(async || look().await.contains("\"failed\"")).await;
    let told = look().await;

    assert!(told.contains("not at a public address"), "{told}");
    assert!(!told.contains("127.0.0.1") && !told.contains("::1"), "{told}");
    served.stop().await;
}

async fn a_remote_worker_that_left_leaves_no_row() {
    let served = Served::start().await;
    let rows = async || {
        let workers = body(served.get("/v1/workers").send().await.unwrap()).await;
        workers["data"].as_array().unwrap().iter().filter(|worker| worker["host"] == "remote").count()
    };
    let job = NewJob::new("far_away", json!({})).lane("elsewhere");
    served.queue.push(vec![job.into()]).await.unwrap();

    let asked = json!({ "kinds": ["far_away"], "lane": "elsewhere" });
    let claimed = body(served.post("/v1/claims").json(&asked).send().await.unwrap()).await;
    let rows_of_the_living = rows().await;
    let outcome = json!({ "token": claimed["token"], "outcome": { "complete": {} } });
    let finish = format!("/v1/claims/{}/finish", claimed["job"]["id"]);
    body(served.post(&finish).json(&outcome).send().await.unwrap()).await;

    assert_eq!((rows_of_the_living, rows().await), (1, 0));
    served.stop().await;
}

async fn nobody_is_called_as_all_are() {
    let served = Served::start().await;
    let new = NewKey { name: String::new(), tenant: "*".into(), scopes: [Scope::Read].into() };

    let refused = keys::make(served.queue.as_ref(), new).await;

    assert!(refused.unwrap_err().to_string().contains('*'));
    served.stop().await;
}

async fn what_is_never_sent_cannot_be_asked_for() {
    let served = Served::start().await;
    let endpoint = json!({ "url": "https://app.example/hook", "events": ["run.failed", "run.progress"] });

    let refused = problem(served.post("/v1/webhooks").json(&endpoint).send().await.unwrap()).await;

    assert_eq!(
        (&refused["code"], &refused["errors"][0]["path"]),
        (&json!("unprocessable"), &json!("events"))
    );
    assert!(refused["detail"].as_str().unwrap().contains("run.progress"), "{refused}");
    served.stop().await;
}
