//! `openapi.json` is true: a property tester that we did not write finds nothing else.

use std::process::Command;

use libtest_mimic::Trial;
use serde_json::json;
use telecine_server::Scope;

use crate::clamd_server::ClamdServer;
use crate::support::{Served, clients, trial};

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("description::a_property_tester_finds_no_mismatch_and_no_5xx", nothing_else_is_found)]
}

async fn nothing_else_is_found() {
    let clamd = ClamdServer::start();
    let served = Served::with(|shop, options| {
        shop.scanning.clamd = Some(clamd.by_unix());
        options.trust_loopback = false;
        options.requests_per_second = 100_000;
    })
    .await;
    let (_, key) = served.key("", &[Scope::Read, Scope::Write, Scope::Work, Scope::Admin]).await;
    let request = json!({ "recipe": "image", "input": { "path": served.file("missing.png") } });
    let answer = served.post("/v1/runs").bearer_auth(&key).json(&request).send().await.unwrap();
    assert!(answer.status().as_u16() < 500, "{}", answer.text().await.unwrap());

    let mut tester = Command::new(clients().join("python/bin/schemathesis"));
    tester.args(["--config-file", &format!("{TESTS}/schemathesis.toml"), "run"]);
    tester.arg(served.url("/openapi.json")).args(["-H", &format!("Authorization: Bearer {key}")]);
    tester.args([
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        "4",
        "--seed",
        "1",
        "--no-color",
    ]);
    tester.args(["--generation-database", "none", "--request-timeout", "30"]);
    tester.env("PYTHONPATH", TESTS).env("SCHEMATHESIS_HOOKS", "schemathesis_hooks");
    tester.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(served.folder.path());
    let ran = tokio::task::spawn_blocking(move || tester.output().unwrap()).await.unwrap();

    let told = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{told}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(told.contains("Fuzzing"), "{told}");
    served.stop().await;
}
