//! The API as an operator starts it: alone or with a worker, with keys, to its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::telecine::{Place, until};

/// A process that serves, on a port of its own. Killed when the test ends early.
pub(crate) struct Serving {
    child: Child,
    talk: BufReader<std::process::ChildStderr>,
    /// As `127.0.0.1:PORT`.
    pub(crate) address: String,
}

impl Serving {
    /// `up` or `serve`, with more arguments as needed.
    pub(crate) fn start(place: &Place, arguments: &[&str]) -> Self {
        Self::start_with(place, arguments, "error", &[])
    }

    /// With a log and with variables. Nobody reads the log before the end: one that fills a pipe stops it.
    pub(crate) fn start_with(
        place: &Place,
        arguments: &[&str],
        log: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        let arguments = [arguments, &["--listen", "127.0.0.1:0", "--log", log]].concat();
        let mut child = place
            .command(&arguments)
            .env("TELECINE_SCRATCH", place.path("scratch"))
            .env("TELECINE_BEAT_MS", "100")
            .env("TELECINE_LEASE_MS", "10000")
            .envs(variables.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be started");
        let talk = BufReader::new(child.stderr.take().expect("stderr is a pipe"));
        let mut serving = Self { child, talk, address: String::new() };
        let said = serving.hears("http://");
        let rest = said.split("http://").nth(1).expect("an address is said");
        serving.address = rest.split_whitespace().next().expect("an address is said").to_owned();
        serving
    }

    /// The line that contains `expected`.
    pub(crate) fn hears(&mut self, expected: &str) -> String {
        let mut heard = String::new();
        loop {
            let mut line = String::new();
            let read = self.talk.read_line(&mut line).expect("stderr is text");
            assert!(read > 0, "it ended before it said {expected:?}: {heard}");
            if line.contains(expected) {
                return line;
            }
            heard += &line;
        }
    }

    /// One request on a connection of its own: the status, and the body as JSON (`null` when it has none).
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).expect("somebody listens");
        let key = key.map_or_else(String::new, |key| format!("authorization: Bearer {key}\r\n"));
        let body = body.map_or_else(String::new, Value::to_string);
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{key}\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .expect("a request can be sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer is text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, serde_json::from_str(body).unwrap_or_default())
    }

    /// The body of a page.
    pub(crate) fn text(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("somebody listens");
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address)
            .expect("a request can be sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer is text");
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).expect("an answer has a head")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process has an id");
        kill_process(pid, signal).expect("it is still there");
    }

    /// Waits until it was killed.
    pub(crate) fn is_gone(&mut self) {
        self.child.wait().expect("the process can be waited for");
    }

    /// Waits for the end; the exit code and the rest of what it said.
    pub(crate) fn ends(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.talk.read_to_string(&mut rest).expect("stderr is text");
        let code = self.child.wait().expect("the process can be waited for").code();
        (code, rest)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn up_is_an_api_and_a_worker_and_drains_both() {
    let place = Place::new();
    let mut up = Serving::start(&place, &["up"]);
    assert!(up.hears("/v1/uploads").contains("curl -F file=@"), "it says how to begin");

    assert_eq!(up.ask("GET", "/health/live", None, None), (200, json!({"status": "ok"})));
    let (status, recipes) = up.ask("GET", "/v1/recipes", None, None);
    assert_eq!(status, 200, "{recipes}");
    place.run(&["jobs", "push", "pause", "--payload", r#"{"ms": 1500}"#]);
    until("the job runs", || place.json(&["jobs", "show", "1"])["state"] == "running");
    up.signal(Signal::TERM);
    let (code, talk) = up.ends();

    assert_eq!(code, Some(0), "{talk}");
    assert!(talk.contains("stopped: 1 completed"), "{talk}");
    assert_eq!(place.json(&["jobs", "show", "1"])["state"], "completed");
}

#[test]
fn serve_is_an_api_without_a_worker_and_stops_when_asked() {
    let place = Place::new();
    let serve = Serving::start(&place, &["serve"]);

    assert_eq!(serve.ask("GET", "/health/live", None, None).0, 200);
    assert_eq!(place.json(&["workers", "ls"])["data"], json!([]));
    serve.signal(Signal::INT);
    let (code, talk) = serve.ends();

    assert_eq!(code, Some(0), "{talk}");
    assert!(talk.contains("stopped"), "{talk}");
}

#[test]
fn an_open_connection_does_not_hold_up_the_end() {
    let place = Place::new();
    let serve = Serving::start(&place, &["serve"]);
    let mut half_open = TcpStream::connect(&serve.address).expect("somebody listens");
    half_open.write_all(b"GET /health").expect("a request can begin");

    let began = Instant::now();
    serve.signal(Signal::TERM);
    let (code, talk) = serve.ends();

    assert_eq!(code, Some(0), "{talk}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn a_second_signal_does_not_wait_for_requests() {
    let place = Place::new();
    let serve = Serving::start(&place, &["serve"]);
    let mut halfway = TcpStream::connect(&serve.address).expect("somebody listens");
    let head = "POST /v1/session HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                content-length: 100\r\nexpect: 100-continue\r\n\r\n";
    halfway.write_all(head.as_bytes()).expect("a request can begin");
    // It is asked for the body, so the request is under way.
    halfway.read_exact(&mut [0; 25]).expect("it is invited to go on");

    serve.signal(Signal::TERM);
    until("it listens no more", || TcpStream::connect(&serve.address).is_err());
    serve.signal(Signal::TERM);
    let (code, talk) = serve.ends();

    assert_eq!(code, Some(1), "{talk}");
    assert!(talk.contains("cut off"), "{talk}");
}

#[test]
fn a_request_that_outlasts_the_drain_is_cut_off_and_the_end_is_clean() {
    for command in ["serve", "up"] {
        let place = Place::new();
        place.write("telecine.toml", "drain_ms = 1500");
        let serving = Serving::start(&place, &[command]);
        let mut halfway = TcpStream::connect(&serving.address).expect("somebody listens");
        let head = "POST /v1/session HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                    content-length: 100\r\nexpect: 100-continue\r\n\r\n";
        halfway.write_all(head.as_bytes()).expect("a request can begin");
        halfway.read_exact(&mut [0; 25]).expect("it is invited to go on");

        serving.signal(Signal::TERM);
        let (code, talk) = serving.ends();

        assert_eq!(code, Some(0), "{command}: {talk}");
        assert!(talk.contains("cut off"), "{command}: {talk}");
    }
}

#[test]
fn a_key_is_shown_once_lets_in_and_is_revoked() {
    let place = Place::new();
    place.write("telecine.toml", "trust_loopback = false");
    let serve = Serving::start(&place, &["serve"]);

    let made = place.run(&["key", "new", "--tenant", "acme", "--name", "ours", "--scopes", "read"]);
    let key = made.stdout.trim();
    let listed = place.run(&["key", "ls", "--json"]);

    assert_eq!((made.code, made.stdout.lines().count()), (Some(0), 1), "{made:?}");
    assert!(key.starts_with("tk_") && made.stderr.contains("only time"), "{made:?}");
    assert!(!listed.stdout.contains(key.rsplit('_').next().expect("a secret")), "{listed:?}");
    let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let shown = &listed["data"][0];
    assert_eq!(
        (&shown["tenant"], &shown["name"], &shown["scopes"]),
        (&json!("acme"), &json!("ours"), &json!(["read"]))
    );
    assert_eq!(serve.ask("GET", "/v1/session", None, None).0, 401);
    let (status, session) = serve.ask("GET", "/v1/session", Some(key), None);
    assert_eq!((status, &session["tenant"]), (200, &json!("acme")));

    let id = shown["id"].as_str().expect("an id");
    assert_eq!(place.run(&["key", "revoke", id]).code, Some(0));
    until("the key is refused", || serve.ask("GET", "/v1/session", Some(key), None).0 == 401);
    assert!(place.json(&["key", "ls"])["data"][0]["revoked_at"].is_string());
    assert_eq!(place.run(&["key", "revoke", "nonesuch"]).code, Some(1));
    assert_eq!(place.run(&["key", "new", "--scopes", "everything"]).code, Some(2));
}

#[test]
fn a_key_as_json_has_its_secret_beside_what_is_listed() {
    let place = Place::new();

    let made = place.json(&["key", "new", "--scopes", "read,work"]);

    let id = made["id"].as_str().expect("an id");
    assert!(made["secret"].as_str().expect("a secret").starts_with(&format!("tk_{id}_")), "{made}");
    assert_eq!(made["scopes"], json!(["read", "work"]));
}

#[test]
fn other_machines_are_not_served_without_a_key() {
    let place = Place::new();

    let refused = place.run(&["serve", "--listen", "0.0.0.0:0"]);

    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.stderr.contains("telecine key new") && refused.stderr.contains("127.0.0.1"),
        "{refused:?}"
    );
}

#[test]
fn an_address_that_is_taken_is_said_and_leaves_no_worker_behind() {
    let place = Place::new();
    let serve = Serving::start(&place, &["serve"]);

    let refused = place.run(&["up", "--listen", &serve.address]);

    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("cannot listen") && refused.stderr.contains("--listen"), "{refused:?}");
    let workers = place.json(&["workers", "ls"]);
    assert!(
        workers["data"].as_array().expect("a list").iter().all(|worker| worker["alive"] == false),
        "{workers}"
    );
}

#[test]
fn the_description_is_printed_without_a_configuration() {
    let place = Place::new();
    place.write("telecine.toml", "this is no configuration");

    let printed = place.run(&["openapi"]);

    assert_eq!(printed.code, Some(0), "{printed:?}");
    let description: Value = serde_json::from_str(&printed.stdout).expect("JSON");
    assert!(description["paths"]["/v1/session"].is_object());
}

#[test]
fn programs_on_this_machine_need_no_key_until_there_is_one() {
    let place = Place::new();
    let mut serve = Serving::start(&place, &["serve"]);
    assert!(serve.hears("trust_loopback").contains("need no key"), "it says who needs one");
    assert_eq!(serve.ask("GET", "/v1/session", None, None).0, 200);

    let made = place.run(&["key", "new", "--scopes", "read"]);
    assert!(made.stderr.contains("trust_loopback"), "{made:?}");
    until("a key is needed", || serve.ask("GET", "/v1/session", None, None).0 == 401);
    assert_eq!(serve.ask("GET", "/v1/session", Some(made.stdout.trim()), None).0, 200);
    drop(serve);

    let mut serve = Serving::start(&place, &["serve"]);
    assert!(serve.hears("trust_loopback").contains("needs a key"), "it says who needs one");
    assert_eq!(serve.ask("GET", "/v1/session", None, None).0, 401);
    drop(serve);

    place.write("telecine.toml", "trust_loopback = true");
    let mut serve = Serving::start(&place, &["serve"]);
    assert!(serve.hears("trust_loopback").contains("need no key"), "whoever says so means it");
    assert_eq!(serve.ask("GET", "/v1/session", None, None).0, 200);
}

#[test]
fn no_kind_that_our_workers_run_can_be_pushed_or_claimed() {
    let place = Place::new();
    let serve = Serving::start(&place, &["serve"]);

    for kind in ["pause", "deliver_webhook", "ingest"] {
        let job = json!({"kind": kind, "payload": {"ms": 600_000}});
        assert_eq!(serve.ask("POST", "/v1/jobs", None, Some(&job)).0, 422, "{kind}");
        let claim = json!({"kinds": [kind]});
        assert_eq!(serve.ask("POST", "/v1/claims", None, Some(&claim)).0, 422, "{kind}");
    }
}
