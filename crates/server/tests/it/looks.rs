//! What can be looked at: a run's log, what a run would do, and the recipes there are.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use serde_json::{Value, json};
use telecine_media::{Confinement, Program, Toolbox};
use telecine_pipeline::records::{FailureRecord, read_all};
use telecine_server::Scope;

use crate::clips;
use crate::files::film;
use crate::runs::{create, ended, thumbnail};
use crate::support::{Served, problem, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("looks::a_log_has_every_job_with_its_programs", a_log_has_every_job_with_its_programs),
        trial("looks::a_log_tells_why_a_program_failed", a_log_tells_why_a_program_failed),
        trial("looks::a_plan_tells_what_a_run_would_do", a_plan_tells_what_a_run_would_do),
        trial("looks::plans_take_turns", plans_take_turns),
        trial("looks::recipes_tell_what_a_run_may_set", recipes_tell_what_a_run_may_set),
    ]
}

async fn log(served: &Served, run: &Value) -> Value {
    let path = format!("/v1/runs/{}/log", run["id"].as_str().unwrap());
    let response = served.get(&path).send().await.unwrap();
    assert_eq!(response.status(), 200);
    response.json().await.unwrap()
}

fn job<'a>(log: &'a Value, kind: &str) -> &'a Value {
    let jobs = log["jobs"].as_array().unwrap();
    jobs.iter().find(|job| job["kind"] == kind).unwrap_or_else(|| panic!("{kind}: {log:#}"))
}

fn words(tool: &Value) -> Vec<&str> {
    tool["argv"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect()
}

async fn a_log_has_every_job_with_its_programs() {
    let served = Served::start().await;
    let run = create(&served, &film(&served, 3)).await;
    assert_eq!(ended(&served, &run).await["status"], "succeeded");

    let log = log(&served, &run).await;

    assert_eq!(log["run_id"], run["id"]);
    let ingest = job(&log, "ingest");
    assert_eq!(
        (&ingest["state"], &ingest["attempts"][0]["outcome"]),
        (&json!("completed"), &json!("completed"))
    );
    assert!(ingest["attempts"][0]["worker"].is_i64() && ingest["attempts"][0]["started_at"].is_string());
    assert!(ingest["probe"]["streams"].is_array() || ingest["probe"].is_object(), "{ingest:#}");
    let probing = words(&ingest["tools"][0]);
    assert!(probing[0].ends_with("ffprobe") && probing.len() > 3, "{probing:?}");
    let encoding = job(&log, "encode_range");
    assert!(encoding["probe"].is_null());
    let tools = encoding["tools"].as_array().unwrap();
    assert!(tools.iter().all(|tool| tool["exit_code"] == 0 && tool["wall_ms"].is_u64()), "{tools:#?}");
    let encoder = tools.iter().map(words).find(|words| words.contains(&"libx264")).unwrap();
    assert!(encoder[0].ends_with("ffmpeg"), "{encoder:?}");
    assert!(encoder.iter().any(|word| word.contains("{scratch}")), "{encoder:?}");
    assert!(encoding["tools_total"].as_u64().unwrap() >= tools.len() as u64);
    assert_eq!(job(&log, "package")["step"], "hls.package");
    // Where things lie on this machine is nobody's business, but for the input that the caller named.
    let private = served.folder.path().canonicalize().unwrap();
    for place in ["scratch", "store"] {
        let place = private.join(place);
        assert!(!log.to_string().contains(place.to_str().unwrap()), "{place:?}");
    }
    served.stop().await;
}

async fn a_log_tells_why_a_program_failed() {
    let broken = tempfile::tempdir().unwrap();
    let ffmpeg = broken.path().join("ffmpeg");
    std::fs::write(&ffmpeg, "#!/bin/sh\ncase \"$*\" in *-version*|*-encoders*|*-decoders*|*-filters*|*-muxers*|*-demuxers*|*-protocols*|*-bsfs*) exec ffmpeg \"$@\";; esac\necho 'it went wrong here' >&2\nexit 69\n").unwrap();
    std::fs::set_permissions(&ffmpeg, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let served = Served::with(|shop, _| {
        shop.toolbox = Toolbox::from_path(Confinement::None).with(Program::Ffmpeg, &ffmpeg);
    })
    .await;
    let mut body = thumbnail(&served);
    body["params"] = json!({});
    let run = create(&served, &body).await;

    // It is retried for a while; the first failure is told of at once.
    let failed = async || {
        let log = log(&served, &run).await;
        let jobs = log["jobs"].as_array().unwrap().clone();
        jobs.into_iter().find(|job| {
            job["attempts"].as_array().unwrap().iter().any(|attempt| attempt["outcome"] == "failed")
        })
    };
    served.until(async || failed().await.is_some()).await;
    let job = failed().await.unwrap();

    let tools = job["tools"].as_array().unwrap();
    let tool = tools.iter().find(|tool| tool["exit_code"] == 69).unwrap_or_else(|| panic!("{job:#}"));
    assert!(tool["stderr_tail"].as_str().unwrap().contains("it went wrong here"), "{tool:#}");
    assert!(job["stderr_tail"].as_str().unwrap().contains("it went wrong here"), "{job:#}");
    let id = run["id"].as_str().unwrap().parse().unwrap();
    let kept = read_all::<FailureRecord>(&*served.queue, &id).await.unwrap();
    assert_eq!((kept[0].1.exit_code, kept[0].1.signal), (Some(69), None), "{kept:?}");
    let attempt = &job["attempts"][0];
    assert!(!attempt["error"]["code"].as_str().unwrap().is_empty(), "{attempt:#}");
    served.stop().await;
}

async fn a_plan_tells_what_a_run_would_do() {
    let served = Served::start().await;
    let body = film(&served, 3);
    let plan = async |body: &Value| served.post("/v1/plan").json(body).send().await.unwrap();

    let response = plan(&body).await;

    assert_eq!(response.status(), 200);
    let planned: Value = response.json().await.unwrap();
    let hls = planned["steps"].as_array().unwrap().iter().find(|step| step["name"] == "hls").unwrap();
    let rungs: Vec<&Value> =
        hls["plan"]["video"]["rungs"].as_array().unwrap().iter().map(|rung| &rung["name"]).collect();
    assert_eq!(rungs, ["180p", "120p"]);
    let decisions = hls["plan"]["decisions"].as_array().unwrap();
    assert!(decisions.iter().all(|decision| !decision["reason"].as_str().unwrap().is_empty()));
    assert!(planned["probe"]["duration_us"].as_u64().unwrap() >= 2_900_000, "{}", planned["probe"]);
    assert!(
        planned["estimate"]["cpu_ms"].as_u64().unwrap() > 0
            && planned["estimate"]["film_bytes"].as_u64().unwrap() > 0
    );
    let commands = planned["commands"].as_array().unwrap();
    assert!(words(&commands[0]).iter().any(|word| word.contains("{source}")), "{commands:#?}");
    assert!(words(&commands[1]).contains(&"libx264"), "{commands:#?}");
    assert!(planned["jobs"].as_array().unwrap().iter().any(|jobs| jobs["kind"] == "encode_range"));
    let branches: Value =
        plan(&json!({ "recipe": "optimize", "input": body["input"] })).await.json().await.unwrap();
    let left_out = branches["steps"].as_array().unwrap().iter().filter(|step| step["left_out"].is_string());
    let left_out: Vec<&Value> = left_out.map(|step| &step["name"]).collect();
    assert_eq!((left_out, &branches["warnings"]), (vec![&json!("image"), &json!("thumb")], &json!([])));
    // Nothing came of it.
    let runs: Value = served.get("/v1/runs").send().await.unwrap().json().await.unwrap();
    assert_eq!(runs["data"], json!([]));

    let sound = served.file("sound.mp4");
    clips::ffmpeg(&["-f", "lavfi", "-i", "sine=frequency=440:duration=1", "-f", "mp3"], &sound);
    let text = served.file("notes.mp4");
    std::fs::write(&text, "these are no pictures").unwrap();
    for (wrong, path, status) in [
        (json!({ "recipe": "web-vidoe", "input": body["input"] }), "recipe", 422),
        (json!({ "recipe": "web-video", "input": { "path": text } }), "input.path", 422),
        (json!({ "recipe": "web-video", "input": { "path": "/etc/passwd" } }), "input.path", 422),
        (json!({ "recipe": "web-video", "input": { "url": "http://127.0.0.1/" } }), "input.url", 422),
        (json!({ "recipe": "web-video", "input": { "upload": "none" } }), "input.upload", 422),
        (json!({ "recipe": "image", "input": body["input"] }), "input.path", 422),
        (json!({ "recipe": "optimize", "input": { "path": sound } }), "input.path", 422),
        (
            json!({ "recipe": "web-video", "input": body["input"], "params": { "hls": { "crf": 99 } } }),
            "params.hls.crf",
            422,
        ),
        (json!({ "recipe": "web-video", "input": body["input"], "priority": 1 }), "priority", 400),
    ] {
        let refused = plan(&wrong).await;
        assert_eq!(refused.status(), status, "{wrong}");
        assert_eq!(problem(refused).await["errors"][0]["path"], path, "{wrong}");
    }
    served.stop().await;
}

async fn plans_take_turns() {
    let served = Served::start().await;
    let film = served.file("film.mp4");
    clips::film(1, &film);
    let body = json!({ "recipe": "thumbnail", "input": { "path": film } });

    let asking = (0..8).map(|_| served.post("/v1/plan").json(&body).send());
    let began = Instant::now();
    let answers = futures_util::future::join_all(asking).await;

    // On a machine that is slow enough some are sent away, with a word on when to come back; nothing else happens.
    for answer in answers {
        let answer = answer.unwrap();
        match answer.status().as_u16() {
            200 => {}
            503 => {
                assert!(
                    answer.headers().contains_key("retry-after") && began.elapsed() > Duration::from_secs(9)
                );
                assert_eq!(problem(answer).await["code"], "busy");
            }
            other => panic!("{other}"),
        }
    }
    served.stop().await;
}

async fn recipes_tell_what_a_run_may_set() {
    let served = Served::with(|_, options| options.trust_loopback = false).await;
    let (_, reader) = served.key("films", &[Scope::Read]).await;
    let get = async |path: &str| served.get(path).bearer_auth(&reader).send().await.unwrap();

    let listed: Value = get("/v1/recipes").await.json().await.unwrap();

    let names: Vec<&Value> =
        listed["data"].as_array().unwrap().iter().map(|recipe| &recipe["name"]).collect();
    assert_eq!(names, ["audio", "image", "mp4", "optimize", "thumbnail", "vertical", "web-video"]);
    let web: Value = get("/v1/recipes/web-video").await.json().await.unwrap();
    assert_eq!(&web, listed["data"].as_array().unwrap().last().unwrap());
    assert_eq!(
        (&web["origin"], &web["is_valid"], &web["errors"]),
        (&json!("built_in"), &json!(true), &json!([]))
    );
    assert!(web["description"].as_str().unwrap().len() > 10);
    let step = web["steps"].as_array().unwrap().iter().find(|step| step["name"] == "mp4").unwrap();
    assert_eq!(
        (&step["needs"], &step["enabled"], &step["kind"]),
        (&json!(["hls"]), &json!(false), &json!("mp4"))
    );
    let params = web["params"].as_array().unwrap();
    assert!(
        params.contains(&json!({ "path": "mp4.enabled", "type": "boolean", "default": false })),
        "{params:#?}"
    );
    let optimize: Value = get("/v1/recipes/optimize").await.json().await.unwrap();
    let takes = |recipe: &Value, step: usize| recipe["steps"][step]["for"].clone();
    assert_eq!((takes(&optimize, 0), takes(&web, 0)), (json!(["image"]), json!([])));
    let unknown = get("/v1/recipes/web-vidoe").await;
    assert_eq!(
        (unknown.status().as_u16(), problem(unknown).await["detail"].clone()),
        (404, json!("there is no such recipe"))
    );
    served.stop().await;
}
