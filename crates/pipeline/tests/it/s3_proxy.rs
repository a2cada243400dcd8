//! Lies between us and a real S3 server, passes requests on, and does something bad to chosen ones.
//!
//! Each request has connections of its own, on both sides, so that one can be cut without touching another.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server never sees it; this is the answer.
    Refuse { status: u16, code: &'static str },
    /// It is passed on later.
    Slow(Duration),
    /// The connection is cut before the server has all of it.
    CutRequest,
    /// The server does it, and its answer is lost.
    LoseAnswer,
    /// The server does it, and half of its answer comes.
    CutAnswer,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Counted from 0.
    pub(crate) number: usize,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) fault: Option<Fault>,
}

type Rule = dyn Fn(&Asked) -> Option<Fault> + Send + Sync;

pub(crate) struct S3Proxy {
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl S3Proxy {
    /// Asks the rule about every request.
    pub(crate) async fn before(
        server: u16,
        rule: impl Fn(&Asked) -> Option<Fault> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asked, rule): (Arc<Mutex<Vec<Asked>>>, Arc<Rule>) = (Arc::default(), Arc::new(rule));
        let all = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (asked, rule) = (Arc::clone(&all), Arc::clone(&rule));
                // Whoever is cut off, on either side, has seen what was meant.
                tokio::spawn(async move { pass_on(client, server, &asked, &*rule).await.ok() });
            }
        });
        Self { port, asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// How often each fault happened to requests of such a method.
    pub(crate) fn happened(&self, is_meant: impl Fn(&Asked) -> bool) -> usize {
        self.asked().iter().filter(|asked| asked.fault.is_some() && is_meant(asked)).count()
    }
}

async fn pass_on(
    client: TcpStream,
    server: u16,
    all: &Mutex<Vec<Asked>>,
    rule: &Rule,
) -> std::io::Result<()> {
    let mut client = BufReader::new(client);
    let Some((head, length)) = read_head(&mut client).await? else { return Ok(()) };
    let mut words = head.split(' ').map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let fault = {
        let mut all = all.lock().unwrap();
        let mut asked = Asked { number: all.len(), method, target, fault: None };
        asked.fault = rule(&asked);
        all.push(asked.clone());
        asked.fault
    };
    match fault {
        Some(Fault::Refuse { status, code }) => {
            tokio::io::copy(&mut (&mut client).take(length), &mut tokio::io::sink()).await?;
            return refuse(client.into_inner(), status, code).await;
        }
        Some(Fault::CutRequest) => {
            let half = length / 2;
            tokio::io::copy(&mut (&mut client).take(half), &mut tokio::io::sink()).await?;
            return Ok(());
        }
        Some(Fault::Slow(by)) => tokio::time::sleep(by).await,
        Some(Fault::LoseAnswer | Fault::CutAnswer) | None => {}
    }
    let mut upstream = TcpStream::connect(("127.0.0.1", server)).await?;
    upstream.write_all(head.as_bytes()).await?;
    tokio::io::copy(&mut (&mut client).take(length), &mut upstream).await?;
    match fault {
        Some(Fault::LoseAnswer) => {
            tokio::io::copy(&mut upstream, &mut tokio::io::sink()).await?;
        }
        Some(Fault::CutAnswer) => {
            let mut answer = Vec::new();
            upstream.read_to_end(&mut answer).await?;
            client.get_mut().write_all(&answer[..answer.len() / 2]).await?;
        }
        _ => {
            tokio::io::copy(&mut upstream, client.get_mut()).await?;
        }
    }
    Ok(())
}

/// The head, with a connection that ends with the answer, and how long the body is.
async fn read_head(client: &mut BufReader<TcpStream>) -> std::io::Result<Option<(String, u64)>> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if client.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let lower = line.to_ascii_lowercase();
        if let Some(said) = lower.strip_prefix("content-length:") {
            length = said.trim().parse().unwrap();
        }
        if line == "\r\n" {
            return Ok(Some((head + "connection: close\r\n\r\n", length)));
        }
        if !lower.starts_with("connection:") {
            head += &line;
        }
    }
}

async fn refuse(mut client: TcpStream, status: u16, code: &str) -> std::io::Result<()> {
    let body = format!(
        "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>as the test wants it</Message></Error>"
    );
    let head = format!(
        "HTTP/1.1 {status} {code}\r\ncontent-type: application/xml\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    client.write_all((head + &body).as_bytes()).await?;
    client.shutdown().await
}
