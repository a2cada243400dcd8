//! `tus-js-client`, which we did not write, over a line that breaks.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libtest_mimic::Trial;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{id_of, sha256};
use crate::clips;
use crate::support::{Served, clients, trial};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tus_client.cjs");

pub(super) fn trials() -> Vec<Trial> {
    vec![trial(
        "uploads::tus_js_client_is_cut_and_goes_on_and_its_run_succeeds",
        tus_js_client_is_cut_and_goes_on,
    )]
}

async fn tus_js_client_is_cut_and_goes_on() {
    let served = Served::start().await;
    let file = served.file("film.mp4");
    // Large enough not to be in the buffers of the line when it breaks.
    let picture = "testsrc2=size=640x360:rate=25:duration=4,noise=alls=20:allf=t";
    clips::ffmpeg(
        &["-f", "lavfi", "-i", picture, "-c:v", "libx264", "-preset", "ultrafast", "-qp", "1"],
        &file,
    );
    let film = std::fs::read(&file).unwrap();
    assert!(film.len() > 3_000_000, "{}", film.len());
    let line = Line::to(&served, &[1_000_000, 2_000_000]).await;

    let endpoint = format!("http://{}/v1/uploads", line.address);
    let client = tokio::task::spawn_blocking(move || {
        Command::new("node")
            .arg(SCRIPT)
            .arg(clients().join("node/node_modules"))
            .arg(endpoint)
            .arg(file)
            .output()
            .unwrap()
    });
    let client = client.await.unwrap();

    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    let told: Value = serde_json::from_slice(&client.stdout).unwrap();
    assert!(told["resumed"].as_u64() >= Some(2), "{told}");
    let path = format!("/v1/uploads/{}", id_of(told["url"].as_str().unwrap()));
    let document: Value = served.get(&path).send().await.unwrap().json().await.unwrap();
    assert_eq!((&document["state"], &document["sha256"]), (&"complete".into(), &sha256(&film).into()));
    assert_eq!(document["name"], "film.mp4");
    assert!(
        line.carried.load(Ordering::Relaxed) < 2 * film.len() as u64,
        "it went on, and did not begin again"
    );
    let run = json!({"recipe": "thumbnail", "input": {"upload": document["id"]}});
    let run: Value = served.post("/v1/runs").json(&run).send().await.unwrap().json().await.unwrap();
    let now = async || -> Value {
        served
            .get(&format!("/v1/runs/{}", run["id"].as_str().unwrap()))
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap()
    };
    served.until(async || !now().await["finished_at"].is_null()).await;
    let run = now().await;
    assert_eq!(
        (&run["status"], &run["input"]["sha256"]),
        (&"succeeded".into(), &sha256(&film).into()),
        "{run}"
    );
    served.stop().await;
}

/// A way to the server that breaks.
struct Line {
    address: std::net::SocketAddr,
    /// So many bytes went to the server.
    carried: Arc<AtomicU64>,
}

impl Line {
    /// Breaks each time that it has carried so many bytes in all.
    async fn to(served: &Served, breaks: &[u64]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, server) = (listener.local_addr().unwrap(), served.address);
        let carried = Arc::new(AtomicU64::new(0));
        let (counted, breaks) = (Arc::clone(&carried), breaks.to_vec());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server).await.unwrap();
                tokio::spawn(carry(client, server, Arc::clone(&counted), breaks.clone()));
            }
        });
        Self { address, carried }
    }
}

async fn carry(client: TcpStream, server: TcpStream, carried: Arc<AtomicU64>, breaks: Vec<u64>) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let there = async {
        let mut part = vec![0; 16_384];
        while let Ok(read @ 1..) = from_client.read(&mut part).await {
            if to_server.write_all(&part[..read]).await.is_err() {
                return;
            }
            let before = carried.fetch_add(read as u64, Ordering::Relaxed);
            let now = before + read as u64;
            if breaks.iter().any(|at| (before..now).contains(at)) {
                return;
            }
        }
    };
    let back = async { tokio::io::copy(&mut from_server, &mut to_client).await };
    tokio::select! {
        () = there => {}
        _ = back => {}
    }
}
