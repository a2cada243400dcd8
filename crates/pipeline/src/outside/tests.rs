//! No request leaves for an address that is not allowed: shown with servers that count who comes.
//!
//! Nothing here connects to anything but loopback. Where a public address is needed, the test takes 127.0.0.2 for one.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::*;

const PATIENCE: Patience = Patience { connect: Duration::from_secs(5), idle: Duration::from_secs(5) };

/// Gives each lookup the next answer, the last one for ever.
#[derive(Debug)]
struct Scripted {
    answers: Mutex<Vec<Vec<&'static str>>>,
    asked: AtomicUsize,
}

impl Scripted {
    fn answering(answers: &[&[&'static str]]) -> Arc<Self> {
        let answers = answers.iter().map(|answer| answer.to_vec()).collect();
        Arc::new(Self { answers: Mutex::new(answers), asked: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl Lookup for Scripted {
    async fn addresses(&self, _: &str) -> io::Result<Vec<SocketAddr>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
        Ok(answer.into_iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0)).collect())
    }
}

/// Counts who connects, and answers everybody the same.
struct Canary {
    at: SocketAddr,
    visits: Arc<AtomicUsize>,
}

impl Canary {
    fn at(address: &str, answer: &'static str) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let (at, visits) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&visits);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                counted.fetch_add(1, Ordering::SeqCst);
                let _ = stream.read(&mut [0; 4_096]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { at, visits }
    }

    fn visits(&self) -> usize {
        self.visits.load(Ordering::SeqCst)
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

fn public_with(lookup: Arc<Scripted>) -> Outside {
    Outside { is_allowed: is_public, lookup }
}

/// For tests that need somebody public to talk to.
fn second_loopback_is_public(address: IpAddr) -> bool {
    address == IpAddr::from([127, 0, 0, 2])
}

async fn get(outside: &Outside, url: &str) -> Result<reqwest::Response, NotPublic> {
    let client = outside.client(PATIENCE).unwrap();
    let request = match client.request(Method::GET, Url::parse(url).unwrap()) {
        Ok(request) => request,
        Err(Refused::NotPublic(refused)) => return Err(refused),
        Err(other) => panic!("{url}: {other}"),
    };
    request.send().await.map_err(|error| NotPublic::behind(&error).cloned().expect("refused, not failed"))
}

#[tokio::test]
async fn no_spelling_of_an_inner_address_is_connected_to() {
    let canary = Canary::at("0.0.0.0:0", OK);
    let port = canary.at.port();
    let outside = Outside::reaching(false);
    let hosts = [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.",
        "%31%32%37.0.0.1",
        "①②⑦.0.0.1",
        "0",
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "172.31.255.255",
        "192.168.1.1",
        "[::]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fd12:3456::1]",
        "[fe80::1]",
    ];

    for host in hosts {
        let url = format!("http://{host}:{port}/");
        assert!(matches!(outside.check(&url), Err(Refused::NotPublic(_))), "{url}");
        assert!(get(&outside, &url).await.is_err(), "{url}");
    }

    assert_eq!(canary.visits(), 0);
}

#[tokio::test]
async fn a_name_with_an_inner_address_is_not_connected_to() {
    let canary = Canary::at("0.0.0.0:0", OK);
    let port = canary.at.port();
    let inner: [&[&'static str]; 14] = [
        &["127.0.0.1"],
        &["0.0.0.0"],
        &["10.0.0.7"],
        &["172.16.0.1"],
        &["192.168.0.1"],
        &["169.254.169.254"],
        &["100.64.0.1"],
        &["::1"],
        &["::ffff:127.0.0.1"],
        &["::127.0.0.1"],
        &["64:ff9b::7f00:1"],
        &["2002:7f00:1::"],
        &["fd00::1"],
        // One public address beside it does not help.
        &["1.1.1.1", "127.0.0.1"],
    ];

    for answer in inner {
        let outside = public_with(Scripted::answering(&[answer]));
        let url = format!("http://rebound.example:{port}/");

        assert!(outside.check(&url).is_ok(), "a name is not looked up before it is needed");
        let refused = get(&outside, &url).await.unwrap_err();

        let last: IpAddr = answer[answer.len() - 1].parse().unwrap();
        assert_eq!((refused.host.as_str(), refused.address), ("rebound.example", last));
    }
    assert_eq!(canary.visits(), 0);
}

#[tokio::test]
async fn names_of_this_machine_are_not_connected_to() {
    let canary = Canary::at("0.0.0.0:0", OK);
    let outside = Outside::reaching(false);

    for host in ["localhost", "LOCALHOST"] {
        let refused = get(&outside, &format!("http://{host}:{}/", canary.at.port())).await;
        assert!(refused.is_err(), "{host}");
    }

    assert_eq!(canary.visits(), 0);
}

#[tokio::test]
async fn the_address_that_was_looked_at_is_the_one_connected_to() {
    let public = Canary::at("127.0.0.2:0", OK);
    let inner = Canary::at(&format!("127.0.0.1:{}", public.at.port()), OK);
    // It was public when it was looked at, and is not when anybody should look again.
    let lookup = Scripted::answering(&[&["127.0.0.2"], &["127.0.0.1"]]);
    let outside = Outside { is_allowed: second_loopback_is_public, lookup: lookup.clone() };
    let url = format!("http://rebinding.example:{}/", public.at.port());

    let first = get(&outside, &url).await.unwrap();
    let asked_once = lookup.asked.load(Ordering::SeqCst);
    let second = get(&outside, &url).await.unwrap_err();

    assert_eq!((first.status().as_u16(), asked_once), (200, 1));
    assert_eq!(first.remote_addr().map(|at| at.ip()), Some(public.at.ip()));
    assert_eq!(second.address, inner.at.ip());
    assert_eq!((public.visits(), inner.visits()), (1, 0));
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_leads_nowhere() {
    let metadata = Canary::at(
        "127.0.0.2:0",
        "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/meta-data\r\nContent-Length: 0\r\n\r\n",
    );
    let inner = Canary::at(&format!("127.0.0.1:{}", metadata.at.port()), OK);
    let lookup = Scripted::answering(&[&["127.0.0.2"], &["127.0.0.1"]]);
    let outside = Outside { is_allowed: second_loopback_is_public, lookup: lookup.clone() };

    let answer = get(&outside, &format!("http://a.example:{}/", metadata.at.port())).await.unwrap();

    assert_eq!(answer.status().as_u16(), 302);
    assert_eq!(lookup.asked.load(Ordering::SeqCst), 1);
    assert_eq!((metadata.visits(), inner.visits()), (1, 0));
}

#[test]
fn only_http_and_https_are_spoken() {
    let outside = Outside::reaching(true);

    for address in ["file:///etc/passwd", "ftp://a.example/", "gopher://a.example/", "data:,x"] {
        assert_eq!(outside.check(address), Err(Refused::Scheme), "{address}");
    }
    for address in ["", "a.example", "http://", "http://[::1", "/relative"] {
        assert!(matches!(outside.check(address), Err(Refused::Malformed { .. })), "{address:?}");
    }
    let long = format!("http://a.example/{}", "x".repeat(MAX_URL_BYTES));
    assert!(matches!(outside.check(&long), Err(Refused::Malformed { .. })));
    assert!(outside.check("https://a.example:8443/hook?x=1").is_ok(), "any port");
}

#[tokio::test]
async fn whoever_trusts_those_who_name_addresses_reaches_all() {
    let here = Canary::at("127.0.0.1:0", OK);

    let answer = get(&Outside::reaching(true), &format!("http://{}/", here.at)).await.unwrap();

    assert_eq!((answer.status().as_u16(), here.visits()), (200, 1));
}
