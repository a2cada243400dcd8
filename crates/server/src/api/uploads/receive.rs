//! From the body of a request into a file, a part at a time.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use tower_http::timeout::TimeoutError;

use super::headers::Checksum;
use super::stage::write_at;
use crate::problem::{Code, Problem};

/// So much of what has arrived already is written at once.
const BATCH_BYTES: usize = 1 << 20;

/// Why a body did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the client was silent for too long")]
    Silent,
    #[error("the client went away, or what it sent is not HTTP")]
    Gone,
    /// Of a form: what should be a part's headers does not end.
    #[error("the headers of a part are too long")]
    Unending,
}

impl From<Broken> for Problem {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Silent => Self::new(Code::RequestTimeout, "no more of the body came"),
            Broken::Gone => Self::new(Code::InvalidRequest, "the body ended before its end"),
            Broken::Unending => Self::invalid("", "the headers of a part are too long"),
        }
    }
}

/// The bytes of a body as they arrive. The listener does not wait for a client that is silent.
pub(crate) fn arriving(body: Body) -> BoxStream<'static, Result<Bytes, Broken>> {
    let parts = body.into_data_stream().map(|part| part.map_err(|error| Broken::by(&error)));
    // After an error there is nothing that could be asked for.
    let mut is_over = false;
    parts.take_while(move |part| std::future::ready(!std::mem::replace(&mut is_over, part.is_err()))).boxed()
}

impl Broken {
    fn by(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        if causes.any(|cause| cause.is::<TimeoutError>()) { Self::Silent } else { Self::Gone }
    }
}

/// What arrived together, and how the body ended if it did.
pub(super) async fn batch(
    parts: &mut BoxStream<'static, Result<Bytes, Broken>>,
) -> (Vec<Bytes>, Option<Result<(), Broken>>) {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let mut next = parts.next().await;
    loop {
        match next {
            Some(Ok(part)) => {
                bytes += part.len();
                batch.push(part);
            }
            Some(Err(broken)) => return (batch, Some(Err(broken))),
            None => return (batch, Some(Ok(()))),
        }
        if bytes >= BATCH_BYTES {
            return (batch, None);
        }
        match parts.next().now_or_never() {
            Some(ready) => next = ready,
            None => return (batch, None),
        }
    }
}

/// What the bytes of a file are for, as they arrive.
pub(crate) trait Destination: Send {
    /// How many it has.
    fn bytes(&self) -> u64;

    fn take(&mut self, parts: Vec<Bytes>) -> impl Future<Output = Result<(), Problem>> + Send;
}

impl Destination for Sink {
    fn bytes(&self) -> u64 {
        self.at
    }

    async fn take(&mut self, parts: Vec<Bytes>) -> Result<(), Problem> {
        self.write(parts).await.map_err(|error| unwritable(&error))
    }
}

/// A file that is written to from a place on.
#[derive(Debug)]
pub(crate) struct Sink {
    file: Arc<File>,
    at: u64,
    checksum: Option<Checksum>,
}

impl Sink {
    pub(crate) fn new(file: Arc<File>) -> Self {
        Self { file, at: 0, checksum: None }
    }

    pub(super) fn from(file: Arc<File>, at: u64, checksum: Option<Checksum>) -> Self {
        Self { file, at, checksum }
    }

    /// How much there is, what was there before included.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    pub(crate) async fn write(&mut self, parts: Vec<Bytes>) -> io::Result<()> {
        let (file, at, mut checksum) = (Arc::clone(&self.file), self.at, self.checksum.take());
        let written = tokio::task::spawn_blocking(move || {
            if let Some(checksum) = &mut checksum {
                parts.iter().for_each(|part| checksum.update(part));
            }
            write_at(&file, at, &parts).map(|at| (at, checksum))
        });
        (self.at, self.checksum) = written.await.map_err(io::Error::other)??;
        Ok(())
    }

    /// Whether the bytes written were those that the checksum is of; true without one.
    pub(super) fn holds(self) -> bool {
        self.checksum.is_none_or(Checksum::holds)
    }
}

/// What the disk refuses.
pub(crate) fn unwritable(error: &io::Error) -> Problem {
    use io::ErrorKind::{FileTooLarge, Interrupted, QuotaExceeded, StorageFull};
    match error.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => {
            tracing::warn!(%error, "there is no room for an upload");
            Problem::new(Code::StorageFull, "there is no room for it at the moment; try again later")
        }
        // Only a server that stops breaks off in the middle.
        Interrupted => {
            Problem::new(Code::Unavailable, "the server stops; ask again").retry_after(Duration::from_secs(1))
        }
        _ => {
            tracing::error!(%error, "an upload cannot be read or written");
            Problem::new(Code::Unavailable, "the folder of uploads cannot be used; see the server's log")
                .retry_after(Duration::from_secs(5))
        }
    }
}

/// Where waiting for the disk is allowed.
pub(crate) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await.map_err(io::Error::other);
    done.and_then(|done| done).map_err(|error| unwritable(&error))
}
