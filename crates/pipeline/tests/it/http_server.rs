//! Servers that answer as a test wants them to, and what stands between two ends of a connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// Answers each connection's one request by what the test wrote; it listens until the test binary ends.
pub(crate) struct HttpServer {
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl HttpServer {
    pub(crate) fn start(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (answer, told) = (Arc::new(answer), Arc::clone(&seen));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (answer, told) = (Arc::clone(&answer), Arc::clone(&told));
                thread::spawn(move || {
                    let mut stream = stream;
                    if let Some(request) = read_request(&stream) {
                        told.lock().unwrap().push(request.clone());
                        answer(&request, &mut stream);
                    }
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        });
        Self { port, seen }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let request = Request { method, target, headers };
    let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    reader.take(length).read_to_end(&mut Vec::new()).ok()?;
    Some(request)
}

/// A whole answer.
pub(crate) fn respond(stream: &mut TcpStream, status: &str, headers: &[(&str, &str)], body: &[u8]) {
    let mut head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    // Whoever asked may have gone.
    let _ = stream.write_all(&[head.as_bytes(), b"\r\n", body].concat());
}

/// Passes connections on, and changes what goes to the server.
pub(crate) fn meddle(to_port: u16, change: impl Fn(&mut [u8]) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let change = Arc::new(change);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", to_port)) else { continue };
            let (back_from, back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            let change = Arc::clone(&change);
            thread::spawn(move || pass(client, server, &*change));
            thread::spawn(move || pass(back_from, back_to, &|_| ()));
        }
    });
    port
}

fn pass(mut from: TcpStream, mut to: TcpStream, change: &dyn Fn(&mut [u8])) {
    let mut part = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut part) {
        change(&mut part[..read]);
        if to.write_all(&part[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
