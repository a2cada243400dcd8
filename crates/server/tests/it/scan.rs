//! `POST /v1/scan`, and what else of the API a virus scanner has a say in, with a real clamd.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use reqwest::{Body, RequestBuilder};
use serde_json::{Value, json};
use telecine_pipeline::{Clamd, ClamdAddress, ScanPolicy};
use telecine_server::Scope;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::clamd_server::{ClamdServer, FOUND, STREAM_MB, clamd, eicar};
use crate::clips;
use crate::operations::body;
use crate::runs::{create, ended};
use crate::support::{Served, problem, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("scan::a_file_is_clean_infected_or_unscanned", a_file_is_clean_infected_or_unscanned),
        trial("scan::a_scanner_that_is_away_is_said_to_be", a_scanner_that_is_away_is_said_to_be),
        trial("scan::slots_sizes_and_times_are_bounded", slots_sizes_and_times_are_bounded),
        trial("scan::one_tenant_leaves_a_slot_to_others", one_tenant_leaves_a_slot_to_others),
        trial("scan::a_process_that_needs_a_scanner_is_ready_with_it", ready_with_its_scanner),
        trial("scan::an_infected_upload_makes_no_run_and_is_served_nowhere", an_infected_upload_makes_no_run),
        trial("scan::synchronous_work_is_scanned_too", synchronous_work_is_scanned_too),
    ]
}

async fn scanned_by(clamd: Clamd) -> Served {
    Served::with(move |shop, options| {
        shop.scanning.clamd = Some(clamd);
        shop.scanning.scan = ScanPolicy::Required;
        options.scan.slots = 2;
        options.scan.max_bytes = (STREAM_MB + 1) << 20;
    })
    .await
}

fn send(served: &Served, file: impl Into<Body>) -> RequestBuilder {
    served.post("/v1/scan").header("Content-Type", "application/octet-stream").body(file)
}

async fn a_file_is_clean_infected_or_unscanned() {
    let server = ClamdServer::start();
    // Both what is known to be too large and what only clamd knows to be.
    let unaware = Clamd { max_bytes: 64 << 20, ..server.by_unix() };
    for clamd in [server.by_unix(), server.by_tcp(), unaware] {
        let served = scanned_by(clamd).await;
        let large = vec![0_u8; (STREAM_MB << 20) as usize + 1];

        let clean = body(send(&served, "harmless").send().await.unwrap()).await;
        let empty = body(send(&served, "").send().await.unwrap()).await;
        let infected = body(send(&served, eicar()).send().await.unwrap()).await;
        let unscanned = body(send(&served, large.clone()).send().await.unwrap()).await;
        let form = format!(
            "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n{}\r\n--XX--\r\n",
            String::from_utf8(eicar()).unwrap()
        );
        let by_form = served.post("/v1/scan").header("Content-Type", "multipart/form-data; boundary=XX");
        let by_form = body(by_form.body(form).send().await.unwrap()).await;

        assert_eq!((&clean["status"], &clean["bytes"]), (&json!("clean"), &json!(8)));
        assert_eq!((&empty["status"], &empty["bytes"]), (&json!("clean"), &json!(0)));
        assert_eq!(empty["sha256"], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        for infected in [infected, by_form] {
            assert_eq!((&infected["status"], &infected["signature"]), (&json!("infected"), &json!(FOUND)));
            assert_eq!(
                infected["sha256"],
                "275a021bbfb6489e54d471899f7db9d1663fc695ec2fe2a2c4538aabf651fd0f"
            );
        }
        assert_eq!((&unscanned["status"], &unscanned["bytes"]), (&json!("unscanned"), &json!(large.len())));
        assert!(unscanned["reason"].as_str().unwrap().contains("larger"), "{unscanned}");
        assert!(served.shop.blobs.list("_quarantine").await.unwrap().is_empty(), "nothing is kept");
        served.stop().await;
    }
}

async fn a_scanner_that_is_away_is_said_to_be() {
    let mut server = ClamdServer::stopped("");
    let served = scanned_by(server.by_unix()).await;

    let refused = problem(send(&served, "x").send().await.unwrap()).await;
    server.go();
    let clean = body(send(&served, "x").send().await.unwrap()).await;
    server.stop();
    let again = problem(send(&served, "x").send().await.unwrap()).await;

    assert_eq!((&refused["status"], &refused["code"]), (&json!(503), &json!("scan_unavailable")));
    assert!(!refused.to_string().contains("clamd.ctl"), "where it is, is nobody's business: {refused}");
    assert_eq!(clean["status"], "clean");
    assert_eq!(again["code"], "scan_unavailable");
    served.stop().await;
}

/// Says nothing to whoever comes, for as long as it lives.
struct Stalling {
    address: ClamdAddress,
    visitors: Arc<AtomicUsize>,
    taking: tokio::task::JoinHandle<()>,
}

impl Stalling {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = ClamdAddress::Tcp(listener.local_addr().unwrap().to_string());
        let visitors = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&visitors);
        let taking = tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                held.push(stream);
                counted.store(held.len(), Ordering::SeqCst);
            }
        });
        Self { address, visitors, taking }
    }
}

async fn slots_sizes_and_times_are_bounded() {
    let silent = Stalling::start().await;
    let clamd = Clamd { within: Duration::from_secs(3), ..clamd(silent.address.clone()) };
    let served = scanned_by(clamd).await;
    let began = Instant::now();

    // Two wait for a scanner that says nothing, a third finds no slot.
    let (first, second, third) = tokio::join!(send(&served, "x").send(), send(&served, "x").send(), async {
        served.until(async || silent.visitors.load(Ordering::SeqCst) == 2).await;
        send(&served, "x").send().await
    });

    for (answer, code) in [(first, "scan_unavailable"), (second, "scan_unavailable"), (third, "busy")] {
        assert_eq!(problem(answer.unwrap()).await["code"], code);
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());

    silent.taking.abort();
    served.stop().await;

    let server = ClamdServer::start();
    let served = scanned_by(Clamd { within: Duration::from_secs(3), ..server.by_tcp() }).await;
    let large = vec![0_u8; (STREAM_MB as usize + 2) << 20];
    let large = problem(send(&served, large).send().await.unwrap()).await;
    assert_eq!((&large["status"], &large["code"]), (&json!(413), &json!("too_large")));

    // A client that does not send its file: the scanner is not waited for, nor kept.
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let head = format!(
        "POST /v1/scan HTTP/1.1\r\nHost: {}\r\nContent-Type: application/octet-stream\r\nContent-Length: 9\r\n\
         Connection: close\r\n\r\nab",
        served.address
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 504") && answer.contains("timeout"), "{answer}");
    served.stop().await;
}

async fn one_tenant_leaves_a_slot_to_others() {
    let silent = Stalling::start().await;
    let clamd = Clamd { within: Duration::from_secs(3), ..clamd(silent.address.clone()) };
    let served = scanned_by(clamd).await;
    let ((_, loud), (_, quiet)) =
        (served.key("loud", &[Scope::Write]).await, served.key("quiet", &[Scope::Write]).await);
    let ask = |key: &str| send(&served, "x").bearer_auth(key).send();

    let (first, second, other) = tokio::join!(
        ask(&loud),
        async {
            served.until(async || silent.visitors.load(Ordering::SeqCst) == 1).await;
            ask(&loud).await
        },
        async {
            served.until(async || silent.visitors.load(Ordering::SeqCst) == 1).await;
            ask(&quiet).await
        }
    );

    for (answer, code) in [(first, "scan_unavailable"), (second, "busy"), (other, "scan_unavailable")] {
        assert_eq!(problem(answer.unwrap()).await["code"], code);
    }
    silent.taking.abort();
    served.stop().await;
}

async fn ready_with_its_scanner() {
    let mut server = ClamdServer::start();
    let served = scanned_by(server.by_unix()).await;
    let ready = async || served.get("/health/ready").send().await.unwrap();

    let up = body(ready().await).await;
    server.stop();
    served.until(async || ready().await.status() == 503).await;
    let down = problem(ready().await).await;
    server.go();
    served.until(async || ready().await.status() == 200).await;

    let named = |checks: &Value| checks.as_array().unwrap().iter().any(|check| check["name"] == "clamd");
    assert!(named(&up["checks"]), "{up}");
    assert_eq!(down["errors"][0]["path"], "clamd", "{down}");
    served.stop().await;

    let silent = Stalling::start().await;
    let served = scanned_by(clamd(silent.address.clone())).await;
    let began = Instant::now();
    let stalled = problem(served.get("/health/ready").send().await.unwrap()).await;
    assert_eq!(stalled["errors"][0]["path"], "clamd");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    silent.taking.abort();
    served.stop().await;
}

async fn an_infected_upload_makes_no_run() {
    let server = ClamdServer::start();
    let served = scanned_by(server.by_unix()).await;
    let uploaded = served.post("/v1/uploads").header("Content-Type", "image/png").body(eicar());
    let uploaded = body(uploaded.send().await.unwrap()).await;
    let wanted = json!({ "recipe": "image", "input": { "upload": uploaded["id"] } });

    let run = create(&served, &wanted).await;
    let run = ended(&served, &run).await;
    let again = problem(served.post("/v1/runs").json(&wanted).send().await.unwrap()).await;
    let looked = problem(served.post("/v1/plan").json(&wanted).send().await.unwrap()).await;

    assert_eq!((&run["error"]["code"], &run["input"]["scan"]), (&json!("infected"), &json!("infected")));
    assert_eq!((&again["status"], &again["errors"][0]["code"]), (&json!(422), &json!("infected")), "{again}");
    assert_eq!(looked["status"], 422, "{looked}");
    let id = run["id"].as_str().unwrap();
    let kept = served.shop.blobs.list("_quarantine").await.unwrap();
    assert_eq!(kept.len(), 2, "{kept:?}");
    for name in
        ["source", "image/source", &format!("_quarantine/_/{id}"), &format!("../../_quarantine/_/{id}")]
    {
        let asked = served.get(&format!("/v1/runs/{id}/files/{name}")).send().await.unwrap();
        assert_eq!(asked.status(), 404, "{name}");
    }
    served.stop().await;
}

async fn synchronous_work_is_scanned_too() {
    let mut server = ClamdServer::start();
    let served = scanned_by(server.by_unix()).await;
    let film = served.file("film.mp4");
    clips::film(2, &film);
    let film = std::fs::read(film).unwrap();
    let infected = [film.clone(), eicar()].concat();
    let ask = async |file: Vec<u8>| {
        let asked = served.post("/v1/transcode?recipe=thumbnail").header("Content-Type", "video/mp4");
        asked.body(file).send().await.unwrap()
    };

    let made = ask(film.clone()).await.status();
    let refused = problem(ask(infected).await).await;
    server.stop();
    let away = problem(ask(film).await).await;

    assert_eq!(made, 200);
    assert_eq!((&refused["status"], &refused["errors"][0]["code"]), (&json!(422), &json!("infected")));
    assert_eq!((&away["status"], &away["code"]), (&json!(503), &json!("scan_unavailable")));
    served.stop().await;
}
