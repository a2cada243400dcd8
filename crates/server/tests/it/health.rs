//! Whether a process says truly that it can work.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use serde_json::{Value, json};
use telecine_media::{Confinement, Program, Toolbox};
use telecine_queue::testing::{Faults, faulty};

use crate::operations::body;
use crate::support::{Served, problem, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("health::a_process_that_can_work_is_ready", a_process_that_can_work_is_ready),
        trial("health::each_part_that_is_missing_is_named", each_part_that_is_missing_is_named),
        trial("health::a_store_that_goes_away_and_comes_back_is_noticed", a_store_that_goes_away_is_noticed),
        trial("health::a_database_that_fails_is_named_without_its_address", a_failing_database_is_named),
        trial("health::asking_often_asks_the_database_seldom", asking_often_asks_the_database_seldom),
    ]
}

fn names(checks: &Value) -> Vec<&str> {
    checks.as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect()
}

async fn a_process_that_can_work_is_ready() {
    let served = Served::start().await;

    let ready = body(served.get("/health/ready").send().await.unwrap()).await;

    assert_eq!(ready["status"], "ok");
    assert_eq!(names(&ready["checks"]), ["database", "store", "scratch", "tools"]);
    assert!(ready["checks"].as_array().unwrap().iter().all(|check| check["ok"] == true), "{ready}");
    assert!(ready["checks"][2]["free_bytes"].as_u64().unwrap() > 0);
    served.stop().await;
}

async fn each_part_that_is_missing_is_named() {
    let served = Served::with(|shop, _| {
        shop.toolbox = Toolbox::from_path(Confinement::launcher()).without(Program::Ffprobe);
    })
    .await;
    // Files cannot be made in what is no folder, even by root.
    let store = served.folder.path().join("store");
    std::fs::remove_dir_all(&store).unwrap();
    std::fs::write(&store, "").unwrap();
    let scratch = served.shop.scratch.root().to_owned();
    std::fs::remove_dir_all(&scratch).unwrap();
    std::fs::write(&scratch, "").unwrap();

    let refused = served.get("/health/ready").send().await.unwrap();
    assert_eq!(refused.status(), 503);
    let refused = problem(refused).await;

    let paths: Vec<_> = refused["errors"].as_array().unwrap().iter().map(|error| &error["path"]).collect();
    assert_eq!(paths, ["store", "scratch", "tools"]);
    let text = refused.to_string();
    assert!(!text.contains(served.folder.path().to_str().unwrap()), "no paths: {text}");
    served.stop().await;
}

async fn a_store_that_goes_away_is_noticed() {
    let served = Served::start().await;
    let (store, aside) = (served.folder.path().join("store"), served.folder.path().join("aside"));
    std::fs::rename(&store, &aside).unwrap();
    let status = async || served.get("/health/ready").send().await.unwrap().status().as_u16();

    served.until(async || status().await == 503).await;
    std::fs::rename(&aside, &store).unwrap();
    std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o700)).unwrap();
    served.until(async || status().await == 200).await;

    served.stop().await;
}

async fn a_failing_database_is_named() {
    let faults = Faults::new().refuse("entry", 1);
    let served = Served::with(|shop, _| shop.queue = faulty(shop.queue.clone(), &faults)).await;
    let began = Instant::now();

    let refused = problem(served.get("/health/ready").send().await.unwrap()).await;
    let live = served.get("/health/live").send().await.unwrap();

    assert_eq!(
        refused["errors"],
        json!([{"path": "database", "code": "unavailable", "message": "the database does not answer"}])
    );
    assert_eq!(live.status(), 200);
    assert!(began.elapsed() < Duration::from_secs(60));
    served.stop().await;
}

async fn asking_often_asks_the_database_seldom() {
    let faults = Faults::new().refuse("entry", 1);
    let served = Served::with(|shop, _| shop.queue = faulty(shop.queue.clone(), &faults)).await;
    let began = Instant::now();

    let asked = (0..200).map(|_| served.get("/health/ready").send());
    let statuses = futures_util::future::join_all(asked).await;

    assert!(statuses.into_iter().all(|answer| answer.unwrap().status() == 503));
    // One look per second and a half, and one more at the start.
    let most = 2 + began.elapsed().as_millis() as u64 / 1_500;
    let looks = faults.injected("entry");
    assert!((1..=most).contains(&looks), "{looks} looks, at most {most}");
    served.stop().await;
}
