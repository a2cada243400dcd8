//! Connections: how long they are waited for, how many there may be, and how they end.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use reqwest::Client;
use telecine_server::Scope;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{PATIENCE, Served, problem, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("connections::a_server_answers_and_stops", a_server_answers_and_stops),
        trial("connections::headers_that_do_not_come_end_the_connection", headers_that_do_not_come),
        trial("connections::a_body_that_stands_still_is_told_so", a_body_that_stands_still),
        trial("connections::a_body_that_drips_has_an_end", a_body_that_drips),
        trial("connections::one_key_has_a_part_of_all_connections", one_key_has_a_part),
        trial("connections::one_address_without_a_key_has_a_part_of_all_connections", one_address_has_a_part),
        trial("connections::headers_that_are_too_large_are_refused", headers_that_are_too_large),
        trial("connections::ten_gigabytes_are_refused_without_being_read", ten_gigabytes),
        trial("connections::a_body_without_a_length_is_bounded_too", a_body_without_a_length),
        trial("connections::half_open_ones_give_way_to_a_client_with_a_request", half_open_ones_give_way),
        trial("connections::one_too_many_is_told_so_and_health_is_told_all_the_same", one_too_many),
        trial("connections::two_thousand_half_open_ones_slow_nobody_down", two_thousand_half_open),
        trial("connections::what_is_no_http_does_no_harm", what_is_no_http),
        trial("connections::a_request_under_way_is_finished_before_the_server_stops", a_request_under_way),
        trial("connections::a_stop_ends_open_streams", a_stop_ends_open_streams),
        trial("connections::a_stop_does_not_wait_for_those_who_say_nothing", a_stop_does_not_wait),
    ]
}

async fn a_server_answers_and_stops() {
    let served = Served::start().await;

    let live = served.get("/health/live").send().await.unwrap();
    let recipes = served.get("/v1/recipes").send().await.unwrap();
    let nothing = served.get("/v1/nothing").send().await.unwrap();
    let not_so = served.post("/v1/recipes").send().await.unwrap();

    assert_eq!(live.status(), 200);
    assert_eq!(live.headers()["x-content-type-options"], "nosniff");
    assert_eq!(recipes.status(), 200);
    assert_eq!(problem(nothing).await["code"], "not_found");
    assert_eq!(problem(not_so).await["code"], "method_not_allowed");
    let address = served.address;
    served.stop().await;
    assert!(TcpStream::connect(address).await.is_err(), "somebody still listens");
}

async fn headers_that_do_not_come() {
    let served = Served::with(|_, options| options.header_within = Duration::from_millis(300)).await;
    let mut silent = connect(&served).await;
    let mut slow = connect(&served).await;
    slow.write_all(b"GET /health/live HTTP/1.1\r\nhost: local").await.unwrap();
    let mut kept = connect(&served).await;
    kept.write_all(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();

    // A byte now and then buys no time.
    let drip = async {
        while slow.write_all(b"h").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };

    tokio::time::timeout(PATIENCE, drip).await.expect("the slow one is cut off");
    assert_eq!(ends(&mut silent).await, "");
    let answered = ends(&mut kept).await;
    assert!(answered.starts_with("HTTP/1.1 200") && answered.matches("HTTP/1.1").count() == 1, "{answered}");
    served.stop().await;
}

async fn a_body_that_stands_still() {
    let served = Served::with(|_, options| options.body_idle = Duration::from_millis(300)).await;
    let mut halfway = connect(&served).await;

    let head = "POST /v1/session HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    halfway.write_all(head.as_bytes()).await.unwrap();

    let answer = ends(&mut halfway).await;
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("request_timeout"), "{answer}");
    served.stop().await;
}

/// The beginning of a request whose body is longer than what is sent of it.
const BEGUN: &str = "POST /v1/session HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 200000\r\n\r\n{";

async fn a_body_that_drips() {
    let served = Served::with(|_, options| options.json_within = Duration::from_millis(500)).await;
    let mut dripping = connect(&served).await;
    dripping.write_all(BEGUN.as_bytes()).await.unwrap();
    let (mut read, mut write) = dripping.split();

    let drip = async {
        while write.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut answer = [0; 12];
    let answered = tokio::time::timeout(PATIENCE, read.read_exact(&mut answer));
    tokio::select! {
        answered = answered => answered.expect("it is not waited for").unwrap(),
        () = drip => panic!("it is cut off without a word"),
    };

    assert_eq!(&answer, b"HTTP/1.1 408");
    drop(dripping);
    served.stop().await;
}

async fn one_key_has_a_part() {
    let served = Served::with(|_, options| {
        options.trust_loopback = false;
        options.max_connections = 16;
    })
    .await;
    let (_, loud) = served.key("loud", &[Scope::Read]).await;
    let (_, quiet) = served.key("quiet", &[Scope::Read]).await;
    let watch = |key: &str| served.get("/v1/events").bearer_auth(key).send();
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(watch(&loud).await.unwrap());
    }

    let fifth = watch(&loud).await.unwrap();

    assert!(streams.iter().all(|stream| stream.status() == 200));
    assert_eq!(fifth.headers()["retry-after"], "1");
    assert_eq!(problem(fifth).await["code"], "rate_limited");
    assert_eq!(watch(&quiet).await.unwrap().status(), 200);
    streams.pop();
    served.until(async || watch(&loud).await.unwrap().status() == 200).await;
    drop(streams);
    served.stop().await;
}

async fn one_address_has_a_part() {
    let served = Served::with(|_, options| {
        options.trust_loopback = false;
        options.max_connections = 16;
    })
    .await;
    let (_, key) = served.key("acme", &[Scope::Read]).await;
    let mut begun = Vec::new();
    for _ in 0..10 {
        let mut stream = connect(&served).await;
        stream.write_all(BEGUN.as_bytes()).await.unwrap();
        begun.push(stream);
    }

    let keyless = async || served.get("/v1/recipes").send().await.unwrap();
    served.until(async || keyless().await.status() == 429).await;

    assert_eq!(served.get("/v1/recipes").bearer_auth(key).send().await.unwrap().status(), 200);
    assert_eq!(served.get("/health/live").send().await.unwrap().status(), 200);
    drop(begun);
    served.until(async || keyless().await.status() == 401).await;
    served.stop().await;
}

async fn headers_that_are_too_large() {
    let served = Served::start().await;

    let large = served.get("/health/live").header("x-large", "a".repeat(17 * 1024)).send().await.unwrap();
    let long = served.get(&format!("/health/live?{}", "a".repeat(17 * 1024))).send().await.unwrap();
    let fits = served.get("/health/live").header("x-large", "a".repeat(15 * 1024)).send().await.unwrap();
    let mut endless = connect(&served).await;
    endless.write_all(b"GET /health/live HTTP/1.1\r\n").await.unwrap();
    let mut sent = 0;
    while endless
        .write_all(&b"x-a: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(16))
        .await
        .is_ok()
    {
        sent += 1024;
        assert!(sent < 64 << 20, "it takes headers without end");
    }

    assert_eq!(problem(large).await["code"], "headers_too_large");
    assert_eq!(problem(long).await["code"], "headers_too_large");
    assert_eq!(fits.status(), 200);
    served.stop().await;
}

async fn ten_gigabytes() {
    let served = Served::start().await;
    let mut loud = connect(&served).await;
    let head = "POST /v1/session HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 10737418240\r\n\r\n";

    loud.write_all(head.as_bytes()).await.unwrap();
    let (mut read, mut write) = loud.split();
    let mut answer = Vec::new();
    let mut sent = 0_u64;
    let send = async {
        let block = vec![b' '; 64 * 1024];
        while write.write_all(&block).await.is_ok() {
            sent += block.len() as u64;
            assert!(sent < 1 << 30, "it is being read");
        }
    };
    let (_, _) = tokio::join!(read.read_to_end(&mut answer), send);

    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("\"too_large\""), "{answer}");
    // What the sockets of both sides hold, and what is listened to so that the answer arrives.
    assert!(sent < 32 << 20, "{sent} bytes were taken");
    served.stop().await;
}

async fn a_body_without_a_length() {
    let served = Served::start().await;
    let blocks = futures_util::stream::iter((0..100).map(|_| Ok::<_, std::io::Error>(vec![b' '; 10_000])));

    let refused = served
        .post("/v1/session")
        .header("content-type", "application/json")
        .body(reqwest::Body::wrap_stream(blocks))
        .send()
        .await
        .unwrap();

    assert_eq!(problem(refused).await["code"], "too_large");
    served.stop().await;
}

async fn half_open_ones_give_way() {
    let served = Served::with(|_, options| {
        options.max_connections = 64;
        options.header_within = PATIENCE;
    })
    .await;
    let mut half_open = half_open(&served, 200).await;
    served.until(async || served.server.connections() == 64).await;

    let began = Instant::now();
    for _ in 0..20 {
        let answer = one_shot().get(served.url("/health/live")).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }

    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    assert!(served.server.connections() <= 64, "{}", served.server.connections());
    for gave_way in half_open.iter_mut().take(136) {
        ends(gave_way).await;
    }
    drop(half_open);
    served.stop().await;
}

async fn one_too_many() {
    let served = Served::with(|_, options| options.max_connections = 2).await;
    let streams =
        [served.get("/v1/events").send().await.unwrap(), served.get("/v1/events").send().await.unwrap()];

    let refused = one_shot().get(served.url("/v1/recipes")).send().await.unwrap();
    let live = one_shot().get(served.url("/health/live")).send().await.unwrap();

    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    let refused = problem(refused).await;
    assert_eq!(refused["code"], "busy");
    assert!(refused["request_id"].as_str().unwrap().starts_with("req_"), "{refused}");
    assert_eq!((live.status().as_u16(), &live.headers()["connection"]), (200, &"close".parse().unwrap()));
    drop(streams);
    served.until(async || served.server.connections() < 2).await;
    assert_eq!(served.get("/health/live").send().await.unwrap().status(), 200);
    served.stop().await;
}

/// Both servers are asked in turn, so that whatever else the machine does strikes both.
async fn two_thousand_half_open() {
    raise_file_limit();
    let patient = |_: &mut _, options: &mut telecine_server::ServerOptions| options.header_within = PATIENCE;
    let (quiet, crowded) = (Served::with(patient).await, Served::with(patient).await);
    let half_open = half_open(&crowded, 2_000).await;
    crowded.until(async || crowded.server.connections() >= 2_000).await;

    let client = one_shot();
    let (mut without, mut beside) = (Vec::new(), Vec::new());
    for round in 0..440 {
        let took = [timed(&client, &quiet).await, timed(&client, &crowded).await];
        // The first ones warm up.
        if round >= 40 {
            without.push(took[0]);
            beside.push(took[1]);
        }
    }

    assert!(crowded.server.connections() >= 2_000, "{}", crowded.server.connections());
    let (without, beside) = (p99(without), p99(beside));
    println!("p99 without {without:?}, beside 2,000 half-open connections {beside:?}");
    // Below a few milliseconds it is the scheduler that is measured.
    assert!(beside <= without.max(Duration::from_millis(4)) * 2, "{beside:?} against {without:?}");
    drop(half_open);
    quiet.stop().await;
    crowded.stop().await;
}

async fn what_is_no_http() {
    let served = Served::start().await;
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc",
        b"GET /\x00 HTTP/1.1\r\nhost: a\r\n\r\n",
        b"POST /v1/session HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let mut stream = connect(&served).await;
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = ends(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{bytes:?}: {answer}");
    }

    assert_eq!(served.get("/health/live").send().await.unwrap().status(), 200);
    served.stop().await;
}

async fn a_request_under_way() {
    let served = Served::start().await;
    let mut halfway = connect(&served).await;
    let body = r#"{"key": "none"}"#;
    let head = format!(
        "POST /v1/session HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        body.len()
    );
    halfway.write_all(head.as_bytes()).await.unwrap();
    // The handler has asked for the body, so the request is under way.
    let mut invited = [0; 25];
    halfway.read_exact(&mut invited).await.unwrap();
    assert_eq!(&invited, b"HTTP/1.1 100 Continue\r\n\r\n");

    let address = served.address;
    let stopped = tokio::spawn(served.stop());
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(address).await.is_ok() {
        assert!(Instant::now() < deadline, "it still accepts");
    }
    assert!(!stopped.is_finished(), "it did not wait");
    halfway.write_all(body.as_bytes()).await.unwrap();

    let answer = ends(&mut halfway).await;
    assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("connection: close"), "{answer}");
    stopped.await.unwrap();
}

async fn a_stop_ends_open_streams() {
    let served = Served::start().await;
    let stream = served.get("/v1/events").send().await.unwrap();
    assert_eq!(
        (stream.status().as_u16(), &stream.headers()["content-type"]),
        (200, &"text/event-stream".parse().unwrap())
    );

    let rest = tokio::spawn(stream.bytes());
    served.stop().await;

    // Ended, not broken off: the last chunk has come.
    assert!(rest.await.unwrap().is_ok());
}

async fn a_stop_does_not_wait() {
    let served = Served::with(|_, options| options.header_within = PATIENCE).await;
    let half_open = half_open(&served, 20).await;
    let kept = served.get("/health/live").send().await.unwrap();
    assert_eq!(kept.bytes().await.unwrap(), r#"{"status":"ok"}"#);
    served.until(async || served.server.connections() >= 21).await;

    let began = Instant::now();
    served.stop().await;

    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    drop(half_open);
}

async fn connect(served: &Served) -> TcpStream {
    TcpStream::connect(served.address).await.unwrap()
}

/// Connections that have sent the beginning of a request.
async fn half_open(served: &Served, count: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut stream = connect(served).await;
        stream.write_all(b"GET /health/live HT").await.unwrap();
        streams.push(stream);
    }
    streams
}

/// Everything that comes until the other side closes.
async fn ends(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await;
    // A reset is an end, too.
    let _ = end.expect("the server closes it");
    String::from_utf8_lossy(&read).into_owned()
}

/// A new connection for each request.
fn one_shot() -> Client {
    crate::support::client_with(|client| client.pool_max_idle_per_host(0))
}

async fn timed(client: &Client, served: &Served) -> Duration {
    let began = Instant::now();
    let answer = client.get(served.url("/health/live")).send().await.unwrap();
    assert_eq!(answer.bytes().await.unwrap(), r#"{"status":"ok"}"#);
    began.elapsed()
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() * 99 / 100]
}

fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}
