//! Connections: accepted, bounded, timed, ended.
//!
//! HTTP/1.1 alone: whoever wants more, TLS first of all, has a proxy in front that speaks it.
//!
//! ```text
//!   accept ── crowd: a bound; who waits longest gives way ── header timeout ── router
//!     │         full: a few more, for /health/ alone
//!     │                                                                          │
//!   stop: no more of them ── streams end, requests finish ── the rest is cut after the deadline
//! ```

mod crowd;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use telecine_queue::QueueError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use tower_http::timeout::TimeoutBody;

use crate::api::uploads::keep_uploads;
use crate::app::{App, ServerOptions};
use crate::keys;
use crate::observe::new_request_id;
use crate::problem::{Code, MEDIA_TYPE, Problem};
use crate::share::Share;
use crowd::{Busy, Crowd, Seat};

/// Out of file descriptors, or the like: others have to end first.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// How long a connection that was opened just before the stop may still send its first request.
const LAST_WORD_WITHIN: Duration = Duration::from_secs(1);
/// How long, and for how many bytes, somebody who still sends is listened to after the answer. A socket that is closed
/// with unread bytes in it resets the connection, and the answer is lost on the way.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 1 << 20;
/// Connections beyond all others, for those who look after the process: that it is busy is no reason to restart it.
const SPARE: usize = 32;
/// How many are told at a time that there is no place for them.
const DOORSTEP: usize = 64;
/// Headers up to this many times the allowed size are read, so that the refusal can say what is wrong.
const READ_HEADERS_TIMES: usize = 4;

/// Where a request comes from. Put into each by the listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Of a request on a connection that is for `/health/` alone. Put there by the listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare;

/// Every connection is at a request: one more could only wait.
pub(crate) fn full() -> Problem {
    Problem::new(Code::Busy, "all connections of the server are taken; try again")
        .retry_after(Duration::from_secs(1))
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Somebody else listens there, or nobody may.
    #[error("cannot listen on {address}")]
    Bind { address: SocketAddr, source: io::Error },
    /// Others could reach it, and nobody could get in, or everybody.
    #[error("{address} can be reached from other machines, and there is no key")]
    NoKey { address: SocketAddr },
    #[error("the keys could not be read")]
    Keys(#[from] QueueError),
}

/// The API on a socket.
#[derive(Debug)]
pub struct Server {
    app: Arc<App>,
    address: SocketAddr,
    /// No connection is accepted any more, and each ends with the request it is at.
    closing: CancellationToken,
    /// Whatever still runs is dropped.
    cutting: CancellationToken,
    crowd: Arc<Crowd>,
    spare: Arc<Crowd>,
    tasks: TaskTracker,
}

impl Server {
    /// Listens. Port 0 takes one that is free. Where others can reach it, there has to be a key first.
    pub async fn start(app: &Arc<App>, address: SocketAddr) -> Result<Self, ServeError> {
        if !address.ip().to_canonical().is_loopback() && !keys::is_there_any(app.queue()).await? {
            return Err(ServeError::NoKey { address });
        }
        let server = Self::start_with(app, address, crate::api::router(app)).await?;
        tokio::spawn(keep_uploads(Arc::clone(app)));
        let of_app = Arc::clone(app);
        server.tasks.spawn(async move { of_app.bench.close_when(&of_app.stopping).await });
        Ok(server)
    }

    /// Listens for those who look after a process without an API: `/health/live`, `/health/ready` and `/metrics`, which
    /// need no key here and say nothing of any tenant.
    pub async fn start_watched(app: &Arc<App>, address: SocketAddr) -> Result<Self, ServeError> {
        Self::start_with(app, address, crate::api::watched(app)).await
    }

    async fn start_with(app: &Arc<App>, address: SocketAddr, router: Router) -> Result<Self, ServeError> {
        let listener = bind(address).map_err(|source| ServeError::Bind { address, source })?;
        let address = listener.local_addr().map_err(|source| ServeError::Bind { address, source })?;
        let server = Self {
            app: Arc::clone(app),
            address,
            closing: CancellationToken::new(),
            cutting: CancellationToken::new(),
            crowd: Crowd::of(app.options.max_connections),
            spare: Crowd::of(SPARE),
            tasks: TaskTracker::new(),
        };
        server.tasks.spawn(server.accepting(listener, router));
        Ok(server)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.crowd.here()
    }

    /// Ends streams, finishes requests, and drops what has not ended by the deadline. `false`: something was dropped.
    pub async fn stop(&self, within: Duration) -> bool {
        self.closing.cancel();
        self.app.stop();
        self.tasks.close();
        let ended = async {
            if tokio::time::timeout(LAST_WORD_WITHIN, self.tasks.wait()).await.is_err() {
                self.crowd.send_off_waiting();
                self.spare.send_off_waiting();
                self.tasks.wait().await;
            }
        };
        let in_time = tokio::time::timeout(within, ended).await.is_ok();
        self.cutting.cancel();
        self.tasks.wait().await;
        in_time
    }

    fn accepting(&self, listener: TcpListener, router: Router) -> impl Future<Output = ()> + use<> {
        let speech = speech(&self.app.options);
        let (closing, cutting) = (self.closing.clone(), self.cutting.clone());
        let (crowd, spare, tasks) = (Arc::clone(&self.crowd), Arc::clone(&self.spare), self.tasks.clone());
        let body_idle = self.app.options.body_idle;
        let doorstep = Arc::new(Semaphore::new(DOORSTEP));
        async move {
            while let Some((stream, peer)) = next_of(&listener, &closing).await {
                let seat = crowd.enter().map(|seat| (seat, false));
                let Some((seat, is_spare)) = seat.or_else(|| Some((spare.enter()?, true))) else {
                    // Whoever comes when even the doorstep is full finds the door shut.
                    if let Ok(place) = Arc::clone(&doorstep).try_acquire_owned() {
                        tasks.spawn(async move { (turn_away(stream).await, drop(place)) });
                    }
                    continue;
                };
                prepare(&stream, body_idle);
                let connection = Connection {
                    seat,
                    is_spare,
                    peer,
                    body_idle,
                    router: router.clone(),
                    speech: speech.clone(),
                    closing: closing.clone(),
                    cutting: cutting.clone(),
                };
                tasks.spawn(connection.serve(stream));
            }
        }
    }
}

/// With a backlog that a burst fits into.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};

    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // What an earlier process left in TIME_WAIT does not keep this one from listening.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    TcpListener::from_std(socket.into())
}

/// `None`: closing. A connection that failed before it was accepted is its own affair.
async fn next_of(listener: &TcpListener, closing: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
    loop {
        let accepted = tokio::select! {
            biased;
            () = closing.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(accepted) => return Some(accepted),
            Err(error) if is_of_the_connection(&error) => {}
            Err(error) => {
                tracing::error!(%error, "no connection could be accepted");
                tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
            }
        }
    }
}

fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Small answers leave at once; a peer that takes nothing for so long, dead or slow on purpose, is given up.
fn prepare(stream: &TcpStream, stall: Duration) {
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(stream).set_tcp_user_timeout(Some(stall));
    #[cfg(not(target_os = "linux"))]
    let _ = stall;
}

fn speech(options: &ServerOptions) -> http1::Builder {
    let read_header_bytes = options.max_header_bytes * READ_HEADERS_TIMES;
    let mut speech = http1::Builder::new();
    speech
        .timer(TokioTimer::new())
        .header_read_timeout(options.header_within)
        .max_header_size(read_header_bytes)
        .max_buf_size(read_header_bytes.max(64 * 1024));
    speech
}

async fn turn_away(mut stream: TcpStream) {
    let id = new_request_id();
    let busy = full().with_request_id(&id).to_bytes();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {}\r\nretry-after: 1\r\n\
         x-request-id: {id}\r\nconnection: close\r\n\r\n",
        busy.len()
    );
    let answer = async {
        // A client takes no answer for what it has not asked.
        let read = stream.read(&mut [0; 1024]).await;
        read.is_ok() && stream.write_all(&[head.as_bytes(), &busy].concat()).await.is_ok()
    };
    if tokio::time::timeout(LINGER, answer).await == Ok(true) {
        linger(stream).await;
    }
}

struct Connection {
    seat: Arc<Seat>,
    is_spare: bool,
    peer: SocketAddr,
    body_idle: Duration,
    router: Router,
    speech: http1::Builder,
    closing: CancellationToken,
    cutting: CancellationToken,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        let Self { seat, is_spare, peer, body_idle, router, speech, closing, cutting } = self;
        let of_requests = Arc::clone(&seat);
        let service = service_fn(move |request: Request<Incoming>| {
            let busy = Seat::busy(&of_requests);
            let mut request = arrived(request, peer, body_idle);
            if is_spare {
                request.extensions_mut().insert(Spare);
            }
            let answer = router.clone().oneshot(request);
            Box::pin(async move {
                // It was its turn to give way in the moment that its request came.
                let Some(busy) = busy else { return Err(SentOff) };
                let Ok::<_, Infallible>(mut response) = answer.await;
                if is_spare {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                let share = response.extensions_mut().remove();
                Ok(response.map(|body| Held { body, _busy: busy, _share: share }))
            }) as Answer
        });
        let mut connection = speech.serve_connection(TokioIo::new(stream), service);
        let mut is_closing = false;
        let is_over = loop {
            tokio::select! {
                // What ended with an error (a timeout, a request that is none) was answered by hyper as far as it can be.
                _ = poll_fn(|context| connection.poll_without_shutdown(context)) => break true,
                () = seat.sent_off() => break false,
                () = cutting.cancelled() => break false,
                () = closing.cancelled(), if !is_closing => {
                    is_closing = true;
                    Pin::new(&mut connection).graceful_shutdown();
                }
            }
        };
        if is_over {
            let stream = connection.into_parts().io.into_inner();
            tokio::select! {
                () = linger(stream) => {}
                () = cutting.cancelled() => {}
            }
        }
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<Held>, SentOff>> + Send>>;

#[derive(Debug, thiserror::Error)]
#[error("the connection gave way to another")]
struct SentOff;

fn arrived(request: Request<Incoming>, peer: SocketAddr, body_idle: Duration) -> Request<Body> {
    let mut request = request.map(|body| Body::new(TimeoutBody::new(body_idle, body)));
    request.extensions_mut().insert(Peer(peer));
    request
}

/// Says that nothing more comes, and waits a little for the other side to say so too.
async fn linger(mut stream: TcpStream) {
    let until_closed = async {
        if stream.shutdown().await.is_err() {
            return;
        }
        let mut unread = [0; 8192];
        let mut bytes = 0;
        while let Ok(read @ 1..) = stream.read(&mut unread).await {
            bytes += read;
            if bytes > LINGER_BYTES {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, until_closed).await;
}

/// A body whose connection counts as busy until all of it was sent; so does its asker's share.
struct Held {
    body: Body,
    _busy: Busy,
    _share: Option<Arc<Share>>,
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
