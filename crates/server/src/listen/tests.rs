//! What no route of the API does on purpose: panic, and stream without an end.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::routing::get;
use futures_util::{StreamExt, stream};
use telecine_media::{Confinement, Toolbox};
use telecine_pipeline::{Blobs, Recipes, Scratch, Workshop};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

async fn served(folder: &tempfile::TempDir) -> Server {
    let database = format!("sqlite:{}", folder.path().join("queue.db").display());
    let queue = telecine_queue::open(&database).await.unwrap();
    let blobs = Blobs::in_folder(&folder.path().join("store")).unwrap();
    let scratch = Scratch::open(&folder.path().join("scratch")).unwrap();
    let shop = Workshop::new(queue, Toolbox::from_path(Confinement::None), blobs, scratch);
    let app = App::new(Arc::new(shop), Recipes::load(None).unwrap(), ServerOptions::default());
    let routes = Router::new()
        .route("/panic", get(async || -> &'static str { panic!("the number of the beast") }))
        .route("/until_stopped", get(until_stopped))
        .route("/endless", get(async || Body::from_stream(stream::pending::<Result<Bytes, Infallible>>())));
    let router = crate::api::layered(routes, &app);
    Server::start_with(&app, "127.0.0.1:0".parse().unwrap(), router).await.unwrap()
}

/// As streams of events do.
async fn until_stopped(State(app): State<Arc<App>>) -> Body {
    let stopping = app.stopping.clone();
    let first = stream::once(async { Ok::<_, Infallible>("first ") });
    let last = stream::once(async move {
        stopping.cancelled().await;
        Ok("last")
    });
    Body::from_stream(first.chain(last))
}

async fn ask(server: &Server, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nx-request-id: mine\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn read_to(stream: &mut TcpStream, expected: &str) -> String {
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(expected) {
        let mut more = [0; 1024];
        let count = stream.read(&mut more).await.unwrap();
        assert!(count > 0, "it ended before {expected:?}: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&more[..count]);
    }
    String::from_utf8_lossy(&read).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_answered_as_a_problem_that_tells_nothing_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = served(&folder).await;
    let mut stream = ask(&server, "/panic").await;

    let answer = read_to(&mut stream, "}").await;

    assert!(answer.starts_with("HTTP/1.1 500") && answer.contains(r#""code":"internal""#), "{answer}");
    assert!(answer.contains(r#""request_id":"mine""#) && !answer.contains("beast"), "{answer}");
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    assert!(read_to(&mut stream, "}").await.starts_with("HTTP/1.1 404"), "the connection goes on");
    assert!(server.stop(Duration::from_secs(60)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_lets_streams_say_their_last_word() {
    let folder = tempfile::tempdir().unwrap();
    let server = served(&folder).await;
    let mut stream = ask(&server, "/until_stopped").await;
    read_to(&mut stream, "first").await;

    let in_time = tokio::spawn(async move { server.stop(Duration::from_secs(60)).await });

    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("last") && rest.ends_with("0\r\n\r\n"), "{rest}");
    assert!(in_time.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_end_by_the_deadline_is_cut_off_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = served(&folder).await;
    let mut stream = ask(&server, "/endless").await;
    read_to(&mut stream, "\r\n\r\n").await;

    let in_time = server.stop(Duration::from_millis(200)).await;

    assert!(!in_time);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty(), "{rest:?}");
}
