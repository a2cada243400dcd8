//! The scheme's own library, by those who wrote the scheme, takes what is sent, and nothing else.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::receiver::{Received, Receiver};
use crate::stage::{On, Stage, block_on};

/// Reads cases from stdin, each a secret, headers and a body; answers which of them verify.
const VERIFY: &str = r#"
import json, sys
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

def verifies(case):
    try:
        Webhook(case["secret"]).verify(case["body"], case["headers"])
        return True
    except WebhookVerificationError:
        return False

print(json.dumps([verifies(case) for case in json.load(sys.stdin)]))
"#;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, promise: fn()| {
        Trial::test(format!("signatures::{name}"), move || {
            promise();
            Ok(())
        })
    };
    vec![
        trial("the_official_library_takes_what_is_sent_and_nothing_else", || {
            block_on(the_official_library_takes_what_is_sent_and_nothing_else());
        }),
        trial("a_run_is_signed_with_the_secret_of_its_tenant", || {
            block_on(a_run_is_signed_with_the_secret_of_its_tenant());
        }),
    ]
}

async fn the_official_library_takes_what_is_sent_and_nothing_else() {
    let (stage, receiver) = (Stage::open(&On::Sqlite).await, Receiver::taking());
    let first = stage.endpoint("", &receiver.url(), &["run.succeeded"]).await;
    stage.run("").await;
    stage.until(async || receiver.count() == 1).await;
    let rotated = stage.webhooks.rotate_endpoint("", &first.id).await.unwrap();
    stage.run("").await;
    stage.until(async || receiver.count() == 2).await;
    stage.close().await;
    let (before, during) = (receiver.seen().remove(0), receiver.seen().remove(1));
    let (old, new) = (first.secret().reveal(), rotated.secret().reveal());

    let tampered = Received { body: before.body.replace("succeeded", "failed"), ..before.clone() };
    let mut renamed = before.clone();
    for (name, value) in &mut renamed.headers {
        if name == "webhook-id" {
            value.push('0');
        }
    }
    let mut late = before.clone();
    for (name, value) in &mut late.headers {
        if name == "webhook-timestamp" {
            *value = (value.parse::<i64>().unwrap() - 1).to_string();
        }
    }
    let verified = verify(&[
        case(&old, &before),
        // While it is being rotated, both secrets do.
        case(&old, &during),
        case(&new, &during),
        case(&new, &before),
        case(&old, &tampered),
        case(&old, &renamed),
        case(&old, &late),
    ]);

    assert_eq!(verified, [true, true, true, false, false, false, false]);
    assert_eq!(before.header("webhook-signature").split(' ').count(), 1);
    assert_eq!(during.header("webhook-signature").split(' ').count(), 2);
}

async fn a_run_is_signed_with_the_secret_of_its_tenant() {
    let (stage, receiver) = (Stage::open(&On::Sqlite).await, Receiver::taking());
    let shown = stage.webhooks.rotate_tenant_secret("acme").await.unwrap();
    let others = stage.webhooks.rotate_tenant_secret("globex").await.unwrap();

    stage.run_telling("acme", Some(&receiver.url())).await;
    stage.until(async || receiver.count() == 3).await;
    let next = stage.webhooks.rotate_tenant_secret("acme").await.unwrap();
    stage.run_telling("acme", Some(&receiver.url())).await;
    stage.until(async || receiver.count() == 6).await;
    // One whose secret nobody has asked for yet is signed all the same.
    stage.run_telling("initech", Some(&receiver.url())).await;
    stage.until(async || receiver.count() == 9).await;
    stage.close().await;

    let seen = receiver.seen();
    let (shown, next, others) = (shown.current.reveal(), next.current.reveal(), others.current.reveal());
    let verified = verify(&[
        case(&shown, &seen[2]),
        case(&others, &seen[2]),
        case(&next, &seen[2]),
        case(&shown, &seen[5]),
        case(&next, &seen[5]),
        case(&next, &seen[8]),
    ]);
    assert_eq!(verified, [true, false, false, true, true, false]);
    assert!(!seen[8].header("webhook-signature").is_empty());
}

fn case(secret: &str, received: &Received) -> Value {
    let headers: serde_json::Map<String, Value> =
        received.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    json!({ "secret": secret, "headers": headers, "body": received.body })
}

fn verify(cases: &[Value]) -> Vec<bool> {
    let mut python = Command::new(library())
        .args(["-c", VERIFY])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    serde_json::to_writer(python.stdin.take().unwrap(), cases).unwrap();
    let answer = python.wait_with_output().unwrap();
    assert!(answer.status.success(), "the library could not be asked");
    serde_json::from_slice(&answer.stdout).unwrap()
}

/// The interpreter that has the library: of the clients that others wrote, in the tools folder.
fn library() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"))).unwrap();
    let tools = cache.join("telecine-tools");
    let installed = std::fs::read_dir(&tools).into_iter().flatten().flatten();
    let has_library = |python: &PathBuf| {
        let mut import = Command::new(python);
        import.args(["-c", "import standardwebhooks"]).stderr(Stdio::null());
        python.exists() && import.status().is_ok_and(|status| status.success())
    };
    let mut pythons = installed
        .filter(|folder| folder.file_name().to_string_lossy().starts_with("clients-"))
        .map(|folder| folder.path().join("python/bin/python"));
    let found = pythons.find(has_library);
    found.unwrap_or_else(|| {
        panic!(
            "the Standard Webhooks library is not installed in {}\nnext: scripts/fetch-clients",
            tools.display()
        )
    })
}
