//! Endpoints as they are: some take what they are sent, some do not.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use serde_json::Value;

#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) at: Instant,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn id(&self) -> &str {
        self.header("webhook-id")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn event(&self) -> String {
        self.json()["type"].as_str().unwrap().to_owned()
    }

    pub(crate) fn seq(&self) -> u64 {
        self.json()["data"]["seq"].as_u64().unwrap()
    }

    pub(crate) fn run(&self) -> String {
        self.json()["data"]["run_id"].as_str().unwrap().to_owned()
    }
}

/// Answers each request by what the test wrote, given the how manieth it is from 0; listens until the binary ends.
pub(crate) struct Receiver {
    port: u16,
    seen: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    pub(crate) fn start(answer: impl Fn(usize, &Received, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (answer, told) = (Arc::new(answer), Arc::clone(&seen));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (answer, told) = (Arc::clone(&answer), Arc::clone(&told));
                thread::spawn(move || {
                    let mut stream = stream;
                    let Some(received) = read(&stream) else { return };
                    let nth = {
                        let mut told = told.lock().unwrap();
                        told.push(received.clone());
                        told.len() - 1
                    };
                    answer(nth, &received, &mut stream);
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        });
        Self { port, seen }
    }

    /// Takes everything.
    pub(crate) fn taking() -> Self {
        Self::start(|_, _, stream| respond(stream, 200, &[], "thanks"))
    }

    /// Reads what it is sent and never says a word.
    pub(crate) fn hanging() -> Self {
        Self::start(|_, _, stream| hang(stream))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn seen(&self) -> Vec<Received> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

fn read(stream: &TcpStream) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let received = Received { method, path, headers, body: String::new(), at: Instant::now() };
    let mut body = vec![0; received.header("content-length").parse().unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(Received { body: String::from_utf8(body).ok()?, ..received })
}

/// A whole answer.
pub(crate) fn respond(stream: &mut TcpStream, status: u16, headers: &[(&str, &str)], body: &str) {
    let mut head =
        format!("HTTP/1.1 {status} Told\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    // Whoever asked may have gone.
    let _ = stream.write_all(format!("{head}\r\n{body}").as_bytes());
}

/// Until the other end leaves.
pub(crate) fn hang(stream: &mut TcpStream) {
    let _ = stream.read(&mut [0]);
}
