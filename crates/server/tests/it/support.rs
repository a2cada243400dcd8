//! A server to call: a database, a store, a worker with all kinds of the pipeline, and the API on a socket.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use reqwest::{Client, ClientBuilder, RequestBuilder, Response};
use serde_json::Value;
use telecine_media::{Confinement, Toolbox};
use telecine_pipeline::{Blobs, Recipes, Scratch, Workshop, kinds};
use telecine_queue::{Queue, Runtime, Slots, WorkerOptions};
use telecine_server::keys::{self, Key, NewKey};
use telecine_server::{App, Scope, Server, ServerOptions};

/// Enough for a busy machine; nothing is expected to take as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Served {
    /// As `http://127.0.0.1:PORT`.
    pub(crate) base: String,
    pub(crate) address: SocketAddr,
    pub(crate) app: Arc<App>,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) shop: Arc<Workshop>,
    pub(crate) client: Client,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) server: Server,
    worker: Runtime,
}

impl Served {
    pub(crate) async fn start() -> Self {
        Self::with(|_, _| {}).await
    }

    /// With what the test wants otherwise in the workshop and the options.
    pub(crate) async fn with(arrange: impl FnOnce(&mut Workshop, &mut ServerOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = format!("sqlite:{}", folder.path().join("queue.db").display());
        Self::arranged(&database, folder, Recipes::load(None).unwrap(), arrange).await
    }

    /// With recipes of an operator's own.
    pub(crate) async fn with_recipes(recipes: Recipes) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = format!("sqlite:{}", folder.path().join("queue.db").display());
        Self::arranged(&database, folder, recipes, |_, _| {}).await
    }

    /// Another one on a database that is there.
    pub(crate) async fn on(database: &str) -> Self {
        let recipes = Recipes::load(None).unwrap();
        Self::arranged(database, tempfile::tempdir().unwrap(), recipes, |_, _| {}).await
    }

    async fn arranged(
        database: &str,
        folder: tempfile::TempDir,
        recipes: Recipes,
        arrange: impl FnOnce(&mut Workshop, &mut ServerOptions),
    ) -> Self {
        let queue = telecine_queue::open(database).await.unwrap();
        let blobs = Blobs::in_folder(&folder.path().join("store")).unwrap();
        let scratch = Scratch::open(&folder.path().join("scratch")).unwrap();
        let toolbox = Toolbox::from_path(Confinement::launcher());
        let mut shop = Workshop::new(Arc::clone(&queue), toolbox, blobs, scratch);
        shop.input_folders.push(folder.path().canonicalize().unwrap());
        let mut options = ServerOptions::default();
        arrange(&mut shop, &mut options);
        let shop = Arc::new(shop);
        let app = App::new(Arc::clone(&shop), recipes, options);
        let worker = Runtime::start(Arc::clone(&queue), kinds::all(&shop), patient_worker()).await.unwrap();
        let server = Server::start(&app, "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = server.address();
        Self {
            base: format!("http://{address}"),
            address,
            app,
            queue,
            shop,
            client: client(),
            folder,
            server,
            worker,
        }
    }

    /// The address of a path such as `/v1/runs`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(self.url(path))
    }

    pub(crate) fn post(&self, path: &str) -> RequestBuilder {
        self.client.post(self.url(path))
    }

    /// A new key, and the text to send.
    pub(crate) async fn key(&self, tenant: &str, scopes: &[Scope]) -> (Key, String) {
        let new =
            NewKey { name: "test".into(), tenant: tenant.into(), scopes: scopes.iter().copied().collect() };
        keys::make(self.queue.as_ref(), new).await.unwrap()
    }

    /// Where a file of that name may be put as an input.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until something holds.
    pub(crate) async fn until(&self, mut holds: impl AsyncFnMut() -> bool) {
        let mut wakes = self.queue.wakes();
        let deadline = Instant::now() + PATIENCE;
        while !holds().await {
            assert!(Instant::now() < deadline, "it never came");
            // A wake-up or a moment: not everything that is waited for is of the queue.
            let _ = tokio::time::timeout(Duration::from_millis(20), wakes.changed()).await;
        }
    }

    /// Ends all of it; nothing may be left that has to be cut off.
    pub(crate) async fn stop(self) {
        assert!(self.server.stop(PATIENCE).await, "a request did not end");
        self.worker.stop_now();
        self.worker.finished().await;
        self.queue.close().await;
    }
}

/// Short leases, so that what a test kills is taken up while it waits.
fn patient_worker() -> WorkerOptions {
    WorkerOptions {
        slots: Slots::Each(2),
        lease: Duration::from_secs(3),
        beat_every: Duration::from_millis(300),
        sweep_every: Duration::from_millis(500),
        poll_every: Duration::from_millis(200),
        ..WorkerOptions::default()
    }
}

/// The folder of the clients that others wrote.
pub(crate) fn clients() -> PathBuf {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/fetch-clients");
    let fetched = std::process::Command::new(script).output().unwrap();
    assert!(fetched.status.success(), "next: {script}\n{}", String::from_utf8_lossy(&fetched.stderr));
    PathBuf::from(String::from_utf8(fetched.stdout).unwrap().trim())
}

pub(crate) fn client() -> Client {
    client_with(|client| client)
}

pub(crate) fn client_with(arrange: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client {
    // Another test may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    arrange(Client::builder().timeout(PATIENCE).no_proxy()).build().unwrap()
}

/// The body of an answer that must be a problem, with what every problem has.
pub(crate) async fn problem(response: Response) -> Value {
    let status = response.status().as_u16();
    let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let (kind, id) = (header("content-type"), header("x-request-id"));
    assert_eq!(kind.as_deref(), Some("application/problem+json"), "{status}");
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["status"], status, "{body}");
    assert_eq!(body["request_id"].as_str(), id.as_deref(), "{body}");
    let code = body["code"].as_str().unwrap();
    assert_eq!(body["type"], format!("/docs/errors#{code}"), "{body}");
    assert!(!body["detail"].as_str().unwrap().is_empty(), "{body}");
    body
}

/// A promise as a trial, on a runtime of its own.
pub(crate) fn trial<F: Future<Output = ()>>(
    name: impl Into<String>,
    promise: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(promise());
        Ok(())
    })
}
