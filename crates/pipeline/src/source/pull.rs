//! Pulling an input over HTTP: from public addresses, within bounds, and on from where a connection broke.

use std::io::SeekFrom;
use std::path::Path;
use std::time::Duration;

use reqwest::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, LAST_MODIFIED, LOCATION, RANGE,
};
use reqwest::{Method, Response, StatusCode};
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use url::Url;

use crate::blobs::Fetched;
use crate::failure::{Attempted, Failed, scratch_failed};
use crate::input::without_secrets;
use crate::outside::{NotPublic, Outside, OutsideClient, Patience, Refused, root_cause};

/// How long a pull waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullPatience {
    pub connect: Duration,
    /// For the head of an answer.
    pub head: Duration,
    /// Between two parts of the body.
    pub idle: Duration,
    /// For everything.
    pub total: Duration,
    /// Requests in a row that bring nothing.
    pub tries: u32,
}

impl Default for PullPatience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            head: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            total: Duration::from_hours(4),
            tries: 4,
        }
    }
}

/// What a pull may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct PullRules {
    pub(super) limit_bytes: u64,
    pub(super) allow_private: bool,
    pub(super) patience: PullPatience,
}

/// Writes what lies at an address into a file.
pub(super) async fn pull(address: &str, into: &Path, rules: PullRules) -> Attempted<Fetched> {
    let outside = Outside::reaching(rules.allow_private);
    let url = outside.check(address).map_err(|refused| refused_url(address, &refused))?;
    let client = client(&outside, rules.patience)?;
    let file = File::create(into).await.map_err(|error| scratch_failed("no file can be made", &error))?;
    let pulling = Pull { url, client, rules, file, hash: Sha256::new(), bytes: 0, seen: Seen::default() };
    match tokio::time::timeout(rules.patience.total, pulling.until_complete()).await {
        Ok(pulled) => pulled,
        Err(_) => Err(passing(format!("it takes longer than {} s", rules.patience.total.as_secs()))),
    }
}

/// Refuses what can never be pulled.
pub(super) fn check(address: &str, rules: PullRules) -> Attempted<()> {
    let checked = Outside::reaching(rules.allow_private).check(address);
    checked.map(drop).map_err(|refused| refused_url(address, &refused))
}

fn refused_url(address: &str, refused: &Refused) -> Failed {
    let message = format!("{}: {refused}", without_secrets(address));
    match refused {
        Refused::Malformed { .. } => Failed::for_good("input_invalid", message, "correct the URL"),
        Refused::Scheme => Failed::for_good("input_denied", message, "use an http or https URL"),
        Refused::NotPublic(refused) => not_public(refused),
    }
}

fn client(outside: &Outside, patience: PullPatience) -> Attempted<OutsideClient> {
    let patience = Patience { connect: patience.connect, idle: patience.idle };
    let client = outside.client(patience);
    client.map_err(|error| Failed::unexpected(format!("no HTTP client can be made: {error}")))
}

/// What the server has told of the file.
#[derive(Debug, Default)]
struct Seen {
    total_bytes: Option<u64>,
    /// By which the server would notice that it is another file by now; `None` where it cannot go on in the middle.
    validator: Option<String>,
}

struct Pull {
    url: Url,
    client: OutsideClient,
    rules: PullRules,
    file: File,
    hash: Sha256,
    bytes: u64,
    seen: Seen,
}

impl Pull {
    async fn until_complete(mut self) -> Attempted<Fetched> {
        let mut tries_left = self.rules.patience.tries.max(1);
        loop {
            let before = self.bytes;
            match self.go_on().await {
                Ok(()) => break,
                Err(failed) if !failed.retryable => return Err(failed),
                Err(failed) => {
                    tries_left = match self.bytes > before {
                        true => self.rules.patience.tries.max(1),
                        false => tries_left - 1,
                    };
                    if tries_left == 0 {
                        return Err(failed);
                    }
                    tracing::info!(bytes = self.bytes, reason = failed.message, "a pull broke and goes on");
                    tokio::time::sleep(Duration::from_millis(250)).await;
                }
            }
        }
        self.file.flush().await.map_err(unwritten)?;
        Ok(Fetched { bytes: self.bytes, sha256: crate::blobs::hex(&self.hash.finalize()) })
    }

    /// One request, for all that is missing.
    async fn go_on(&mut self) -> Attempted<()> {
        let request = self.client.request(Method::GET, self.url.clone());
        let request = request.map_err(|refused| refused_url(self.url.as_str(), &refused))?;
        let mut request = request.header(ACCEPT_ENCODING, "identity");
        let resumes = self.bytes > 0 && self.seen.validator.is_some();
        if let (true, Some(validator)) = (resumes, &self.seen.validator) {
            request = request.header(RANGE, format!("bytes={}-", self.bytes)).header(IF_RANGE, validator);
        }
        let answered = tokio::time::timeout(self.rules.patience.head, request.send()).await;
        let answered = answered.map_err(|_| passing("the server does not answer".to_owned()))?;
        let response = answered.map_err(|error| broken(&error))?;
        match response.status() {
            StatusCode::OK => self.start_over(response.headers(), response.content_length()).await?,
            StatusCode::PARTIAL_CONTENT if resumes && self.continues(response.headers()) => (),
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                self.seen.validator = None;
                return Err(passing("the server cannot go on where it stopped".to_owned()));
            }
            _ => return Err(self.refused(&response)),
        }
        self.read(response).await
    }

    /// The whole file comes, for the first time or again.
    async fn start_over(&mut self, headers: &HeaderMap, total_bytes: Option<u64>) -> Attempted<()> {
        self.file.flush().await.map_err(unwritten)?;
        self.file.set_len(0).await.map_err(unwritten)?;
        self.file.seek(SeekFrom::Start(0)).await.map_err(unwritten)?;
        (self.hash, self.bytes) = (Sha256::new(), 0);
        self.seen = Seen { total_bytes, validator: validator(headers) };
        self.require_within(total_bytes.unwrap_or(0))
    }

    fn continues(&self, headers: &HeaderMap) -> bool {
        let range = headers.get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
        let Some((range, total)) = range.and_then(|it| it.strip_prefix("bytes ")?.split_once('/')) else {
            return false;
        };
        let starts_here = range.split_once('-').and_then(|(from, _)| from.parse().ok()) == Some(self.bytes);
        let same_total = self.seen.total_bytes.is_none_or(|known| total.parse() == Ok(known));
        starts_here && same_total
    }

    async fn read(&mut self, mut response: Response) -> Attempted<()> {
        while let Some(part) = response.chunk().await.map_err(|error| broken(&error))? {
            self.require_within(self.bytes + part.len() as u64)?;
            self.hash.update(&part);
            self.file.write_all(&part).await.map_err(unwritten)?;
            self.bytes += part.len() as u64;
        }
        match self.seen.total_bytes {
            Some(total) if total != self.bytes => {
                Err(passing(format!("{} of {total} bytes came", self.bytes)))
            }
            _ => Ok(()),
        }
    }

    fn require_within(&self, bytes: u64) -> Attempted<()> {
        if bytes <= self.rules.limit_bytes {
            return Ok(());
        }
        let message = format!("the file has more than the {} bytes that are allowed", self.rules.limit_bytes);
        Err(Failed::for_good("limit_size", message, "raise max_input_mb, or send a smaller file"))
    }

    fn refused(&self, response: &Response) -> Failed {
        let (status, shown) = (response.status(), without_secrets(self.url.as_str()));
        let message = format!("{shown} answers {status}");
        if status.is_redirection() {
            let to = response.headers().get(LOCATION).map(|to| String::from_utf8_lossy(to.as_bytes()));
            let to = to.map(|to| without_secrets(&to)).unwrap_or_else(|| "nowhere".to_owned());
            let message = format!("{shown} redirects to {to}, and redirects are not followed");
            return Failed::for_good("input_redirected", message, "submit the address that it redirects to");
        }
        match status.as_u16() {
            404 | 410 => Failed::for_good("input_not_found", message, "check the URL"),
            401 | 403 => Failed::for_good("input_denied", message, "sign the URL, or make the file public"),
            408 | 425 | 429 | 500.. => passing(message),
            _ => Failed::for_good("input_unreadable", message, "check that the URL gives the file itself"),
        }
    }
}

/// Weak tags promise no equal bytes; a date is better than nothing.
fn validator(headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    if text(ACCEPT_RANGES).is_some_and(|units| units == "none") {
        return None;
    }
    text(ETAG).filter(|tag| !tag.starts_with("W/")).or_else(|| text(LAST_MODIFIED))
}

fn broken(error: &reqwest::Error) -> Failed {
    if let Some(refused) = NotPublic::behind(error) {
        return not_public(refused);
    }
    passing(root_cause(error))
}

fn passing(message: String) -> Failed {
    Failed::for_now("input_unavailable", message, "check the server; the job tries again by itself")
}

fn not_public(refused: &NotPublic) -> Failed {
    Failed::for_good("input_denied", refused.to_string(), "inputs are pulled from public addresses alone")
}

fn unwritten(error: std::io::Error) -> Failed {
    scratch_failed("the input cannot be written", &error)
}
