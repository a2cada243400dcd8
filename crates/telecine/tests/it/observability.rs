//! What an operator sees of processes at work: traces, logs, figures, health.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::clips::film;
use crate::serve::Serving;
use crate::telecine::Place;

const PATIENCE: Duration = Duration::from_secs(180);

/// A collector that keeps what it is sent.
struct Collector {
    address: String,
    spans: Arc<Mutex<Vec<(String, Span)>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = format!("http://{}", listener.local_addr().expect("it listens"));
        let spans = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&spans);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || keep(&mut BufReader::new(stream), &kept));
            }
        });
        Self { address, spans }
    }

    /// Every span with the role of the process that sent it.
    fn spans(&self) -> Vec<(String, Span)> {
        self.spans.lock().expect("no sender panicked").clone()
    }
}

/// Answers requests on one connection until it is closed.
fn keep(stream: &mut BufReader<TcpStream>, kept: &Mutex<Vec<(String, Span)>>) {
    while let Some((head, body)) = request(stream) {
        assert!(head.starts_with("POST /v1/traces "), "{head}");
        let sent = ExportTraceServiceRequest::decode(body.as_slice()).expect("it is protobuf");
        for of_resource in sent.resource_spans {
            let resource = of_resource.resource.unwrap_or_default().attributes;
            let role = resource.iter().find(|attribute| attribute.key == "telecine.role");
            let role = role.and_then(|role| role.value.clone()?.value).map(text).unwrap_or_default();
            let spans = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            kept.lock().expect("no sender panicked").extend(spans.map(|span| (role.clone(), span)));
        }
        stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("it waits");
    }
}

fn request(stream: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        if let Some(said) = line.to_lowercase().strip_prefix("content-length:") {
            length = said.trim().parse().expect("a length");
        }
        head += &line;
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((head, body))
}

fn text(value: Attribute) -> String {
    match value {
        Attribute::StringValue(text) => text,
        Attribute::BoolValue(truth) => truth.to_string(),
        Attribute::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn attributes(span: &Span) -> BTreeMap<String, String> {
    let known =
        span.attributes.iter().filter_map(|said| Some((said.key.clone(), said.value.clone()?.value?)));
    known.map(|(key, value)| (key, text(value))).collect()
}

/// A worker of its own process, on the database of the place.
struct Worker {
    child: Child,
    talk: BufReader<std::process::ChildStderr>,
}

impl Worker {
    fn start(place: &Place, log: &str) -> Self {
        let mut child = place
            .command(&["worker", "--log", log])
            .env("TELECINE_SCRATCH", place.path("scratch-of-worker"))
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be started");
        let talk = BufReader::new(child.stderr.take().expect("stderr is a pipe"));
        Self { child, talk }
    }

    fn hears(&mut self, expected: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.talk.read_line(&mut line).expect("stderr is text");
            assert!(read > 0, "it ended before it said {expected:?}");
            if line.contains(expected) {
                return line;
            }
        }
    }

    /// Asks it to leave; what it said since.
    fn leaves(mut self) -> String {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process has an id");
        kill_process(pid, Signal::TERM).expect("it is still there");
        let mut rest = String::new();
        self.talk.read_to_string(&mut rest).expect("stderr is text");
        assert!(self.child.wait().expect("it ends").success(), "{rest}");
        rest
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: never");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Configured to take files from the place itself, and with more lines as needed.
fn place_with(lines: &str) -> Place {
    let place = Place::new();
    let folder = place.path("");
    place.write("telecine.toml", &format!("input_folders = [{:?}]\nstore = \"store\"\n{lines}", folder));
    place
}

/// Submits a film and waits until its run has ended.
fn run_film(place: &Place, serve: &Serving, traceparent: Option<&str>) -> Value {
    film(2, &place.path("a.mp4"));
    let body = json!({
        "recipe": "mp4", "input": {"path": place.path("a.mp4")}
    });
    let traceparent = traceparent.map(|value| format!("traceparent: {value}\r\n")).unwrap_or_default();
    let mut stream = TcpStream::connect(&serve.address).expect("somebody listens");
    let body = body.to_string();
    write!(
        stream,
        "POST /v1/runs HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{traceparent}\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        serve.address,
        body.len()
    )
    .expect("a request can be sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer is text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    assert!(head.starts_with("HTTP/1.1 201"), "{answer}");
    let run: Value = serde_json::from_str(body).expect("JSON");
    let path = format!("/v1/runs/{}", run["id"].as_str().expect("an id"));
    until("the run ends", || {
        let (_, now) = serve.ask("GET", &path, None, None);
        now["finished_at"].is_string().then_some(now)
    })
}

#[test]
fn a_run_over_two_processes_is_one_trace() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const CALLER: &str = "b7ad6b7169203331";
    let collector = Collector::start();
    let place = place_with(&format!("otlp_endpoint = {:?}", collector.address));
    let serve = Serving::start(&place, &["serve"]);
    let worker = Worker::start(&place, "error");

    let run = run_film(&place, &serve, Some(&format!("00-{TRACE}-{CALLER}-01")));
    // What is sent last is sent on the way out.
    worker.leaves();
    serve.signal(Signal::TERM);
    let (code, talk) = serve.ends();

    assert_eq!((code, &run["status"]), (Some(0), &json!("succeeded")), "{talk} {run}");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let spans: Vec<_> =
        collector.spans().into_iter().filter(|(_, span)| hex(&span.trace_id) == TRACE).collect();
    let named =
        |name: &str| -> Vec<&(String, Span)> { spans.iter().filter(|(_, span)| span.name == name).collect() };
    let id = run["id"].as_str().expect("an id");

    let [(role, request)] = named("http.request")[..] else { panic!("{:?}", named("http.request")) };
    assert_eq!((role.as_str(), hex(&request.parent_span_id).as_str()), ("serve", CALLER));
    let [(role, of_run)] = named("run")[..] else { panic!("{:?}", named("run")) };
    assert_eq!((role.as_str(), &of_run.parent_span_id), ("worker", &request.span_id));
    let said = attributes(of_run);
    assert_eq!((said["run.id"].as_str(), said["run.state"].as_str()), (id, "succeeded"));
    let jobs = named("job.run");
    assert!(jobs.len() >= 3, "{}", jobs.len());
    for (role, job) in &jobs {
        let said = attributes(job);
        assert_eq!((role.as_str(), &job.parent_span_id), ("worker", &of_run.span_id), "{said:?}");
        assert_eq!((said["run.id"].as_str(), said["job.retry_count"].as_str()), (id, "0"));
        assert_eq!(said["processing.success"], "true", "{said:?}");
        assert!(job.start_time_unix_nano >= of_run.start_time_unix_nano, "{said:?}");
        // To the millisecond, in which the database counts.
        assert!(job.end_time_unix_nano <= of_run.end_time_unix_nano + 1_000_000_000, "{said:?}");
    }
    let ingest =
        jobs.iter().map(|(_, job)| (job, attributes(job))).find(|(_, said)| said["job.kind"] == "ingest");
    let (ingest, said) = ingest.expect("every run has one");
    assert_eq!(said["media.type"], "Video");
    assert!(said["input.key"].contains("a.mp4") || said["input.key"].contains("input"), "{said:?}");
    let media: Vec<_> = spans.iter().filter(|(_, span)| span.name.starts_with("media.")).collect();
    assert!(media.iter().any(|(_, span)| span.parent_span_id == ingest.span_id), "its probe");
    let of_jobs = |span: &Span| jobs.iter().any(|(_, job)| job.span_id == span.parent_span_id);
    assert!(media.iter().all(|(_, span)| of_jobs(span)), "{media:?}");
}

#[test]
fn a_collector_that_never_answers_delays_nothing() {
    // It accepts and says nothing, for as long as the test runs.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = silent.local_addr().expect("it listens");
    let place = place_with(&format!("otlp_endpoint = \"http://{address}\"\nslots = {{ cpu = 200 }}"));
    let up = Serving::start(&place, &["up"]);

    let pushed = place.run(&["jobs", "push", "pause", "--payload", r#"{"ms": 0}"#, "--count", "2000"]);
    assert_eq!(pushed.code, Some(0), "{pushed:?}");
    until("all are done", || {
        let counts = place.json(&["counts"]);
        let done = counts["data"].as_array()?.iter().find(|count| count["state"] == "completed")?;
        (done["jobs"] == 2000).then_some(())
    });
    let began = Instant::now();
    up.signal(Signal::TERM);
    let (code, talk) = up.ends();

    assert_eq!(code, Some(0), "{talk}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn lines_of_the_log_say_which_job_and_run_they_are_of() {
    for log in ["json", "pretty"] {
        let place = place_with("");
        let serve = Serving::start(&place, &["serve"]);
        let worker = Worker::start(&place, log);

        let run = run_film(&place, &serve, None);
        let said = worker.leaves();

        let id = run["id"].as_str().expect("an id");
        let of_program = |line: &&str| line.contains("segment encoded");
        let lines: Vec<&str> = said.lines().filter(of_program).collect();
        assert!(!lines.is_empty(), "{said}");
        for line in lines {
            if log == "pretty" {
                assert!(
                    line.contains("job.run{job.id=") && line.contains(&format!("run.id=\"{id}\"")),
                    "{line}"
                );
                continue;
            }
            let line: Value = serde_json::from_str(line).expect("JSON");
            let spans = line["spans"].as_array().expect("spans");
            let job = spans.iter().find(|span| span["name"] == "job.run").expect("of a job");
            assert_eq!((&job["run.id"], job["job.id"].is_u64()), (&json!(id), true), "{line}");
        }
    }
}

#[test]
fn a_lone_worker_shows_its_health_and_figures() {
    let place = place_with("metrics_listen = \"127.0.0.1:0\"\nslots = { cpu = 2, io = 3 }");
    let mut worker = Worker::start(&place, "error");
    let said = worker.hears("health and figures are on http://");
    let address = said.trim().rsplit("http://").next().expect("an address").to_owned();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&address).expect("somebody listens");
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        answer
    };
    place.run(&["jobs", "push", "pause", "--payload", r#"{"ms": 0}"#]);
    until("the job is counted", || {
        let counted = "telecine_queue_outcomes_total{kind=\"pause\",outcome=\"completed\"} 1";
        get("/metrics").contains(counted).then_some(())
    });

    let (live, ready, figures, api) =
        (get("/health/live"), get("/health/ready"), get("/metrics"), get("/v1/jobs"));

    assert!(live.starts_with("HTTP/1.1 200"), "{live}");
    assert!(ready.starts_with("HTTP/1.1 200") && ready.contains("scratch"), "{ready}");
    assert!(figures.contains("telecine_worker_slots{lane=\"cpu\"} 2"), "{figures}");
    assert!(figures.contains("telecine_workers 1"), "{figures}");
    assert!(api.starts_with("HTTP/1.1 404"), "{api}");
    worker.leaves();
}
