//! Figures: that they are there, true, few, and as Prometheus wants them.

use std::io::Write;
use std::process::{Command, Stdio};

use libtest_mimic::Trial;
use serde_json::json;
use telecine_queue::{JobState, NewJob, Pausable};
use telecine_server::Meter;

use crate::operations::body;
use crate::support::{Served, problem, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("metrics::what_happens_is_counted", what_happens_is_counted),
        trial("metrics::promtool_finds_no_fault", promtool_finds_no_fault),
        trial("metrics::alerts_and_dashboard_ask_for_figures_that_there_are", alerts_and_dashboard_fit),
        trial("metrics::invented_kinds_do_not_make_series_without_end", invented_kinds_do_not_make_series),
        trial("metrics::whoever_is_not_let_in_sees_no_figures", whoever_is_not_let_in_sees_no_figures),
    ]
}

async fn scrape(served: &Served) -> String {
    let answer = served.get("/metrics").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    answer.text().await.unwrap()
}

/// The value of the one series with this name and all of these labels.
fn value(figures: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let of_name = figures.lines().filter(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
    });
    let mut found = of_name.filter(|line| labels.iter().all(|label| line.contains(label)));
    found.next().and_then(|line| line.rsplit(' ').next()?.parse().ok())
}

async fn what_happens_is_counted() {
    Meter::install().unwrap();
    let served = Served::start().await;
    // A kind of this test's own: the recorder is everybody's in this process.
    let job = json!({"kind": "counted", "lane": "counting", "payload": {}});
    let asked = json!({"kinds": ["counted"], "lane": "counting"});
    for outcome in [
        json!({"complete": {}}),
        json!({"fail": {"code": "broken", "message": ""}}),
        json!({"fail": {"code": "broken", "message": "", "for_good": true}}),
        json!({"snooze": {"ms": 3_600_000}}),
    ] {
        body(served.post("/v1/jobs").json(&job).send().await.unwrap()).await;
        let claim = body(served.post("/v1/claims").json(&asked).send().await.unwrap()).await;
        let finish = json!({"token": claim["token"], "outcome": outcome});
        let path = format!("/v1/claims/{}/finish", claim["job"]["id"]);
        body(served.post(&path).json(&finish).send().await.unwrap()).await;
    }
    body(served.post("/v1/jobs").json(&job).send().await.unwrap()).await;
    served.queue.pause(&Pausable::Kind("counted".into())).await.unwrap();

    let figures = scrape(&served).await;

    let kind = "kind=\"counted\"";
    assert_eq!(value(&figures, "telecine_queue_claims_total", &[kind, "lane=\"counting\""]), Some(4.0));
    for outcome in ["completed", "retried", "failed", "snoozed"] {
        let outcome = format!("outcome=\"{outcome}\"");
        assert_eq!(
            value(&figures, "telecine_queue_outcomes_total", &[kind, &outcome]),
            Some(1.0),
            "{outcome}"
        );
        assert_eq!(
            value(&figures, "telecine_job_duration_seconds_count", &[kind, &outcome]),
            Some(1.0),
            "{outcome}"
        );
    }
    assert_eq!(value(&figures, "telecine_queue_jobs", &[kind, "state=\"pending\""]), Some(1.0));
    assert_eq!(value(&figures, "telecine_queue_jobs", &[kind, "state=\"scheduled\""]), Some(2.0));
    assert!(
        value(&figures, "telecine_queue_age_seconds", &[kind, "lane=\"counting\""]) >= Some(0.0),
        "{figures}"
    );
    assert_eq!(value(&figures, "telecine_queue_paused", &["scope=\"kind\"", "name=\"counted\""]), Some(1.0));
    assert_eq!(value(&figures, "telecine_database_up", &[]), Some(1.0));
    assert_eq!(value(&figures, "telecine_worker_slots", &["lane=\"cpu\""]), Some(2.0));
    let pushes = value(&figures, "telecine_http_requests_total", &["route=\"/v1/jobs\"", "status=\"201\""]);
    assert!(pushes >= Some(5.0), "{pushes:?}");
    assert!(value(&figures, "telecine_queue_verb_duration_seconds_count", &["verb=\"finish\""]) >= Some(4.0));
    // As an id begins; there are verbs such as `run_steps`, too.
    let ids = figures.lines().filter(|line| line.contains("run_0") || line.contains("/v1/claims/1"));
    assert_eq!(ids.collect::<Vec<_>>(), Vec::<&str>::new(), "no ids in labels");
    served.stop().await;
}

async fn promtool_finds_no_fault() {
    Meter::install().unwrap();
    let served = Served::start().await;
    served.get("/v1/jobs").send().await.unwrap();

    let figures = scrape(&served).await;

    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(figures.as_bytes()).unwrap();
    let checked = promtool.wait_with_output().unwrap();
    assert!(checked.status.success(), "{}\n{figures}", String::from_utf8_lossy(&checked.stderr));
    served.stop().await;
}

/// Names of figures in a text, without what histograms add to them.
fn figures_in(text: &str) -> std::collections::BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit()));
    let figures = words.filter(|word| word.starts_with("telecine_"));
    figures.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
}

async fn alerts_and_dashboard_fit() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let known = figures_in(include_str!("../../src/meter/figures.rs"));

    let rules =
        Command::new("promtool").args(["check", "rules"]).arg(docs.join("alerts.yml")).output().unwrap();
    let dashboard = std::fs::read_to_string(docs.join("grafana-dashboard.json")).unwrap();
    let alerts = std::fs::read_to_string(docs.join("alerts.yml")).unwrap();
    let described = std::fs::read_to_string(docs.join("observability.md")).unwrap();

    assert!(rules.status.success(), "{}", String::from_utf8_lossy(&rules.stderr));
    serde_json::from_str::<serde_json::Value>(&dashboard).unwrap();
    let shown = figures_in(&dashboard);
    for (name, used) in [("alerts", &figures_in(&alerts)), ("dashboard", &shown)] {
        assert!(used.is_subset(&known), "{name} asks for {:?}", used.difference(&known).collect::<Vec<_>>());
    }
    let unseen: Vec<_> = known.difference(&shown).filter(|name| *name != "telecine_build_info").collect();
    assert_eq!(unseen, Vec::<&String>::new(), "every figure is on the dashboard");
    assert_eq!(figures_in(&described), known, "every figure is described");
}

async fn invented_kinds_do_not_make_series() {
    Meter::install().unwrap();
    let served = Served::start().await;
    let jobs = (0..500).map(|n| NewJob::new(format!("invented_{n}"), json!({})).lane("nowhere").into());
    served.queue.push(jobs.collect()).await.unwrap();

    let figures = scrape(&served).await;

    let counted = figures.lines().filter(|line| line.starts_with("telecine_queue_jobs{"));
    let invented = counted.filter(|line| line.contains("kind=\"invented_")).count();
    let other = value(&figures, "telecine_queue_jobs", &["kind=\"other\"", "state=\"pending\""]);
    assert!(invented <= 200, "{invented}");
    assert_eq!(other.map(|other| other as usize), Some(500 - invented));
    let counts = served.queue.counts().await.unwrap();
    assert_eq!(telecine_queue::total(&counts, JobState::Pending), 500);
    served.stop().await;
}

async fn whoever_is_not_let_in_sees_no_figures() {
    Meter::install().unwrap();
    let closed = Served::with(|_, options| options.trust_loopback = false).await;
    let open =
        Served::with(|_, options| (options.trust_loopback, options.metrics_public) = (false, true)).await;

    let refused = closed.get("/metrics").send().await.unwrap();
    let shown = scrape(&open).await;

    assert_eq!(problem(refused).await["code"], "unauthorized");
    assert!(shown.contains("telecine_build_info"));
    assert_eq!(closed.get("/health/ready").send().await.unwrap().status(), 200);
    closed.stop().await;
    open.stop().await;
}
