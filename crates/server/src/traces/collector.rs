//! The way to the collector: our own HTTP client, on the runtime of the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use reqwest::Client;
use telecine_queue::async_trait;
use tokio::runtime::Handle;

/// How long one batch may take; until then the next ones wait, and what does not fit is dropped.
const WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Collector {
    client: Client,
    /// Batches are sent by a thread that has no runtime of its own.
    runtime: Handle,
    /// So that a collector that is away is told of once and not every few seconds.
    is_away: AtomicBool,
}

impl Collector {
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        // Whoever was first has installed the same one, or another that does as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().timeout(WITHIN).redirect(reqwest::redirect::Policy::none()).build()?;
        Ok(Self { client, runtime: Handle::current(), is_away: AtomicBool::new(false) })
    }

    fn note(&self, sent: &Result<Response<Bytes>, HttpError>) {
        let problem = match sent {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            Err(error) => Some(error.to_string()),
        };
        let was_away = self.is_away.swap(problem.is_some(), Ordering::Relaxed);
        match problem {
            Some(problem) if !was_away => {
                tracing::warn!(problem, "the collector takes no traces; they are dropped")
            }
            None if was_away => tracing::info!("the collector takes traces again"),
            Some(_) | None => {}
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sending = self.runtime.spawn(async move { send(&client, request).await });
        let sent = match sending.await {
            Ok(sent) => sent,
            Err(error) => Err(HttpError::from(error)),
        };
        self.note(&sent);
        sent
    }
}

async fn send(client: &Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let mut answer = client.execute(request.try_into()?).await?;
    let status = answer.status();
    let headers = std::mem::take(answer.headers_mut());
    let mut response = Response::new(answer.bytes().await?);
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    Ok(response)
}
