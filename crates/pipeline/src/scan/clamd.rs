//! clamd, by its INSTREAM command: bytes go out as they come in, in chunks that say how long they are; one line comes back.
//!
//! What clamd leaves unsaid has to be known here: it answers OK of whatever is larger than its `MaxFileSize`, so nothing
//! above [`Clamd::max_bytes`] is sent at all; and it gives up above its `StreamMaxLength` while bytes still come, so that
//! the answer has to be looked for when a write fails.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout_at};

use super::Verdict;
use crate::blobs::hex;
use crate::failure::printable;
use crate::figures;

/// A daemon that is there takes a connection at once.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// An answer is one line with the name of a signature.
const ANSWER_BYTES: usize = 4 << 10;
/// Names that clamd gives to what it did not look into, where it is told to say so (`AlertExceedsMax`, `AlertEncrypted`).
const NOT_LOOKED_INTO: [&str; 2] = ["Heuristics.Limits.Exceeded", "Heuristics.Encrypted"];

/// A clamd, and how much is asked of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clamd {
    pub address: ClamdAddress,
    /// What is larger is not sent.
    pub max_bytes: u64,
    /// From the first byte to the answer.
    pub within: Duration,
}

/// `unix:/run/clamav/clamd.ctl` or `tcp:127.0.0.1:3310`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClamdAddress {
    Unix(PathBuf),
    /// A host and a port.
    Tcp(String),
}

/// What came of a scan, and of which bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    pub verdict: Verdict,
    pub bytes: u64,
    pub sha256: String,
}

/// Nobody said whether it is harmless.
#[derive(Debug, thiserror::Error)]
pub enum NoVerdict {
    #[error("clamd at {address} cannot be reached: {source}")]
    Unreachable { address: ClamdAddress, source: io::Error },
    #[error("clamd at {address} gave no answer in {} s", .within.as_secs_f64())]
    Silent { address: ClamdAddress, within: Duration },
    #[error("clamd at {address} said {answer:?}")]
    Odd { address: ClamdAddress, answer: String },
}

trait Wire: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Wire for T {}

type Connection = Pin<Box<dyn Wire>>;

impl Clamd {
    /// With bounds that every usual configuration of clamd keeps.
    pub fn at(address: ClamdAddress) -> Self {
        Self { address, max_bytes: 25 << 20, within: Duration::from_mins(3) }
    }

    /// Whether it answers.
    pub async fn ping(&self) -> Result<(), NoVerdict> {
        match self.ask(b"zPING\0").await?.as_str() {
            "PONG" => Ok(()),
            other => Err(self.odd(other)),
        }
    }

    /// Of the program and, where there are any, of its official signatures: `ClamAV 1.4.6/27500/Mon Nov 16 09:10:11 2026`.
    pub async fn version(&self) -> Result<String, NoVerdict> {
        self.ask(b"zVERSION\0").await
    }

    /// Begins to send a file. One that is known to be too large is only hashed. An error says that nobody is there to look at
    /// any file; a later one may be this file's doing.
    pub async fn begin(&self, bytes: Option<u64>) -> Result<Sending<'_>, NoVerdict> {
        let mut sending = Sending {
            clamd: self,
            state: State::Settled(self.too_large()),
            hash: Sha256::new(),
            bytes: 0,
            began: Instant::now(),
            until: Instant::now() + self.within,
        };
        if bytes.is_none_or(|bytes| bytes <= self.max_bytes) {
            sending
                .connect()
                .await
                .inspect_err(|_| figures::scanned("unavailable", sending.began.elapsed()))?;
        }
        Ok(sending)
    }

    async fn ask(&self, command: &[u8]) -> Result<String, NoVerdict> {
        let until = Instant::now() + self.within.min(CONNECT_WITHIN);
        let asked = async {
            let mut connection = self.address.connect().await.map_err(|error| self.unreachable(error))?;
            connection.write_all(command).await.map_err(|error| self.unreachable(error))?;
            answer(&mut connection).await.map_err(|error| self.unreachable(error))
        };
        timeout_at(until, asked).await.unwrap_or_else(|_| Err(self.silent()))
    }

    fn too_large(&self) -> Verdict {
        let reason = format!("it is larger than the {} bytes that the scanner looks at", self.max_bytes);
        Verdict::Unscanned { reason }
    }

    fn unreachable(&self, source: io::Error) -> NoVerdict {
        NoVerdict::Unreachable { address: self.address.clone(), source }
    }

    fn silent(&self) -> NoVerdict {
        NoVerdict::Silent { address: self.address.clone(), within: self.within }
    }

    fn odd(&self, answer: &str) -> NoVerdict {
        NoVerdict::Odd { address: self.address.clone(), answer: answer.to_owned() }
    }
}

/// A file on its way to clamd. Dropped half-way, it leaves nothing behind.
pub struct Sending<'a> {
    clamd: &'a Clamd,
    state: State,
    hash: Sha256,
    bytes: u64,
    began: Instant,
    until: Instant,
}

enum State {
    Open(Connection),
    /// It was said before the end; the rest is only hashed.
    Settled(Verdict),
}

impl Sending<'_> {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sends a part, no longer than 4 GiB.
    pub async fn push(&mut self, part: &[u8]) -> Result<(), NoVerdict> {
        self.hash.update(part);
        self.bytes += part.len() as u64;
        if self.bytes > self.clamd.max_bytes {
            self.state = State::Settled(self.clamd.too_large());
        }
        // A chunk without a length is the end.
        if part.is_empty() {
            return Ok(());
        }
        let pushed = self.push_chunk(part).await;
        self.told(pushed)
    }

    /// Says that this was all, and waits for the answer.
    pub async fn end(mut self) -> Result<Scanned, NoVerdict> {
        let ended = self.push_chunk(&[]).await;
        self.told(ended)?;
        let answered = match self.answered().await {
            Ok(Verdict::Clean) => self.hung_up().await.map(|()| Verdict::Clean),
            other => other,
        };
        let verdict = self.told(answered)?;
        figures::scanned(verdict.status(), self.began.elapsed());
        Ok(Scanned { verdict, bytes: self.bytes, sha256: hex(&self.hash.finalize()) })
    }

    async fn connect(&mut self) -> Result<(), NoVerdict> {
        let clamd = self.clamd;
        // One that hangs takes connections all the same, and a file would be waited for until its time is over.
        clamd.ping().await?;
        let connecting = async {
            let mut connection = clamd.address.connect().await?;
            connection.write_all(b"zINSTREAM\0").await?;
            Ok(connection)
        };
        let until = self.until.min(Instant::now() + CONNECT_WITHIN);
        let connected = timeout_at(until, connecting).await.map_err(|_| clamd.silent())?;
        self.state = State::Open(connected.map_err(|error| clamd.unreachable(error))?);
        Ok(())
    }

    async fn push_chunk(&mut self, chunk: &[u8]) -> Result<(), NoVerdict> {
        let State::Open(connection) = &mut self.state else { return Ok(()) };
        let length = u32::try_from(chunk.len())
            .map_err(|error| self.clamd.unreachable(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        let sending = async {
            connection.write_all(&length.to_be_bytes()).await?;
            connection.write_all(chunk).await?;
            connection.flush().await
        };
        match timeout_at(self.until, sending).await.map_err(|_| self.clamd.silent())? {
            Ok(()) => Ok(()),
            // It may have said why before it hung up. What it has not read it cannot have found clean.
            Err(broken) => match self.answered().await {
                Ok(Verdict::Clean) => Err(self.clamd.odd("OK, before it had the whole file")),
                Ok(verdict) => {
                    self.state = State::Settled(verdict);
                    Ok(())
                }
                Err(NoVerdict::Unreachable { .. }) => Err(self.clamd.unreachable(broken)),
                Err(other) => Err(other),
            },
        }
    }

    async fn answered(&mut self) -> Result<Verdict, NoVerdict> {
        let clamd = self.clamd;
        let connection = match &mut self.state {
            State::Settled(verdict) => return Ok(verdict.clone()),
            State::Open(connection) => connection,
        };
        let said = timeout_at(self.until, answer(connection)).await.map_err(|_| clamd.silent())?;
        let said = said.map_err(|error| clamd.unreachable(error))?;
        verdict_of(&said).ok_or_else(|| clamd.odd(&said))
    }

    /// Returns when the connection ends as it should. Whoever says more, or leaves bytes of the file unread, which resets the
    /// connection, has not looked at all of it.
    async fn hung_up(&mut self) -> Result<(), NoVerdict> {
        let (clamd, mut more) = (self.clamd, [0]);
        let State::Open(connection) = &mut self.state else { return Ok(()) };
        let read = timeout_at(self.until, connection.read(&mut more)).await.map_err(|_| clamd.silent())?;
        match read.map_err(|error| clamd.unreachable(error))? {
            0 => Ok(()),
            _ => Err(clamd.odd("OK, and more")),
        }
    }

    fn told<T>(&self, outcome: Result<T, NoVerdict>) -> Result<T, NoVerdict> {
        outcome.inspect_err(|_| figures::scanned("unavailable", self.began.elapsed()))
    }
}

/// One answer, up to its NUL. What ends before it is an error: whoever hangs up in the middle has said nothing.
async fn answer(connection: &mut Connection) -> io::Result<String> {
    let mut said = Vec::new();
    while !said.ends_with(&[0]) {
        // Nothing is read behind it: a daemon that hangs up on bytes that it did not take resets the connection.
        if said.len() > ANSWER_BYTES || connection.read_buf(&mut said).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    said.pop();
    if said.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it gave two answers"));
    }
    Ok(printable(&String::from_utf8_lossy(&said)).trim().to_owned())
}

/// `None` for what is no verdict.
fn verdict_of(said: &str) -> Option<Verdict> {
    if said == "stream: OK" {
        return Some(Verdict::Clean);
    }
    if said.contains("size limit exceeded") {
        let reason = "it is larger than what clamd takes (its StreamMaxLength)".to_owned();
        return Some(Verdict::Unscanned { reason });
    }
    let signature = said.strip_prefix("stream: ")?.strip_suffix(" FOUND")?;
    if NOT_LOOKED_INTO.iter().any(|name| signature.starts_with(name)) {
        return Some(Verdict::Unscanned { reason: format!("clamd did not look at all of it: {signature}") });
    }
    Some(Verdict::Infected { signature: signature.to_owned() })
}

impl ClamdAddress {
    async fn connect(&self) -> io::Result<Connection> {
        match self {
            Self::Unix(path) => Ok(Box::pin(UnixStream::connect(path).await?)),
            Self::Tcp(host) => Ok(Box::pin(TcpStream::connect(host).await?)),
        }
    }
}

impl FromStr for ClamdAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let has_port = |host: &str| {
            let parts = host.rsplit_once(':');
            parts.is_some_and(|(name, port)| !name.is_empty() && port.parse().is_ok_and(|port: u16| port > 0))
        };
        match text.split_once(':') {
            Some(("unix", path)) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(("tcp", host)) if has_port(host) => Ok(Self::Tcp(host.to_owned())),
            _ => Err("must be unix:/PATH or tcp:HOST:PORT, such as unix:/run/clamav/clamd.ctl"),
        }
    }
}

impl fmt::Display for ClamdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host) => write!(f, "tcp:{host}"),
        }
    }
}

impl fmt::Debug for Sending<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending")
            .field("clamd", self.clamd)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_ok_is_clean() {
        let status = |said: &str| verdict_of(said).map(|verdict| verdict.status());

        assert_eq!(status("stream: OK"), Some("clean"));
        assert_eq!(status("stream: Win.Test.EICAR_HDB-1 FOUND"), Some("infected"));
        assert_eq!(status("INSTREAM size limit exceeded. ERROR"), Some("unscanned"));
        assert_eq!(status("stream: Heuristics.Limits.Exceeded.MaxFileSize FOUND"), Some("unscanned"));
        assert_eq!(status("stream: Heuristics.Encrypted.Zip FOUND"), Some("unscanned"));
        assert_eq!(status("stream: Heuristics.Broken.Media.JPEG FOUND"), Some("infected"));
        for odd in
            ["", "OK", "UNKNOWN COMMAND", "stream: Can't allocate memory ERROR", "COMMAND READ TIMED OUT"]
        {
            assert_eq!(status(odd), None, "{odd}");
        }
    }

    #[test]
    fn an_address_is_a_socket_or_a_host_with_a_port() {
        for text in ["unix:/run/clamav/clamd.ctl", "tcp:127.0.0.1:3310", "tcp:[::1]:3310", "tcp:clamd:3310"] {
            assert_eq!(text.parse::<ClamdAddress>().map(|address| address.to_string()), Ok(text.to_owned()));
        }
        for text in
            ["", "/run/clamd.ctl", "unix:clamd.ctl", "tcp:clamd", "tcp::3310", "tcp:a:0", "http://a:1"]
        {
            assert!(text.parse::<ClamdAddress>().is_err(), "{text}");
        }
    }
}
