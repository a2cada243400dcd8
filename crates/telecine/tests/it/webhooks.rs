//! A worker tells of runs, and goes on telling where another was killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

use crate::telecine::Place;

const PATIENCE: Duration = Duration::from_secs(120);
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// One request: its head, its body, and the connection to answer on.
struct Told {
    id: String,
    signature: String,
    body: Value,
    stream: TcpStream,
}

impl Told {
    fn take(mut self) -> (String, Value) {
        self.stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").expect("it listens");
        (self.id, self.body)
    }
}

/// An endpoint whose requests are the test's to answer.
fn listen() -> (String, Receiver<Told>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
    let (sender, told) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let Some(received) = read(stream) else { continue };
            if sender.send(received).is_err() {
                return;
            }
        }
    });
    (url, told)
}

fn read(stream: TcpStream) -> Option<Told> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut id, mut signature, mut length) = (String::new(), String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            match line.trim_end().is_empty() {
                true => break,
                false => continue,
            }
        };
        match name {
            "webhook-id" => id = value.to_owned(),
            "webhook-signature" => signature = value.to_owned(),
            "content-length" => length = value.parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Told { id, signature, body: serde_json::from_slice(&body).ok()?, stream })
}

struct Worker(Child);

impl Worker {
    fn start(place: &Place) -> Self {
        let mut command = place.command(&["worker", "--log", "error"]);
        command.env("TELECINE_BEAT_MS", "100").env("TELECINE_LEASE_MS", "2000");
        Self(command.stderr(Stdio::null()).spawn().expect("the binary can be started"))
    }

    fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn configured(url: &str) -> Place {
    let place = Place::new();
    place.write(
        "telecine.toml",
        &format!(
            "allow_private_urls = true\ninput_folders = [\".\"]\n\
             [[webhooks]]\nurl = \"{url}\"\nsecret = \"{SECRET}\"\nevents = [\"run.failed\"]"
        ),
    );
    place.write("film.mp4", "no film at all");
    place
}

#[test]
fn an_endpoint_of_the_configuration_is_told_also_if_a_worker_is_killed_meanwhile() {
    let (url, told) = listen();
    let place = configured(&url);

    let submitted = place.run(&["submit", "film.mp4"]);
    let first = Worker::start(&place);
    let unanswered = told.recv_timeout(PATIENCE).expect("it is told");
    first.kill();
    let _second = Worker::start(&place);
    let again = told.recv_timeout(PATIENCE).expect("it is told again");

    assert_eq!(submitted.code, Some(0), "{submitted:?}");
    assert_eq!((&again.id, &again.body), (&unanswered.id, &unanswered.body));
    assert!(again.signature.starts_with("v1,"), "{}", again.signature);
    let (id, body) = again.take();
    assert!(id.starts_with("evt_"), "{id}");
    assert_eq!((&body["type"], &body["data"]["run"]["status"]), (&"run.failed".into(), &"failed".into()));
    assert_eq!(body["data"]["run"]["error"]["step"], "ingest");
}

#[test]
fn secrets_of_webhooks_are_not_shown() {
    let place = configured("https://hooks.example/path-that-is-secret?too=yes");

    let shown = place.run(&["config", "show"]);

    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains("https://hooks.example"), "{shown:?}");
    assert!(!shown.stdout.contains("whsec_") && !shown.stdout.contains("secret"), "{shown:?}");
}

#[test]
fn a_webhook_that_cannot_be_used_keeps_a_worker_from_starting() {
    let place = configured("http://169.254.169.254/latest");
    let config = std::fs::read_to_string(place.path("telecine.toml")).expect("it is there");
    place.write("telecine.toml", &config.replace("allow_private_urls = true\n", ""));

    let refused = place.run(&["worker"]);

    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("169.254.169.254"), "{refused:?}");
    assert!(refused.stderr.contains("telecine.toml:2:"), "{refused:?}");
}
