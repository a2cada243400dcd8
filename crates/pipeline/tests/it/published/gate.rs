//! What lies between a worker and its bucket, and holds back the first put of one key.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) struct Gate {
    pub(super) port: u16,
    is_open: Arc<AtomicBool>,
    is_reached: Arc<AtomicBool>,
}

impl Gate {
    /// In front of the server of that port, closed for puts of keys that end like this.
    pub(super) fn before(server: u16, key: &'static str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (is_open, is_reached) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let gate = Self { port, is_open: Arc::clone(&is_open), is_reached: Arc::clone(&is_reached) };
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", server))) else {
                    continue;
                };
                let (is_open, is_reached) = (Arc::clone(&is_open), Arc::clone(&is_reached));
                let (answers, asked) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || {
                    pass(client, server, |part| {
                        let is_meant = part.starts_with("PUT ") && part.contains(&format!("{key} "));
                        if is_meant && !is_open.load(Ordering::SeqCst) {
                            is_reached.store(true, Ordering::SeqCst);
                            return false;
                        }
                        true
                    });
                });
                std::thread::spawn(move || pass(answers, asked, |_| true));
            }
        });
        gate
    }

    pub(super) async fn reached(&self) {
        let until = Instant::now() + Duration::from_secs(300);
        while !self.is_reached.load(Ordering::SeqCst) {
            assert!(Instant::now() < until, "nobody came to the gate");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(super) fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }
}

/// Until one of them has ended. What may not pass waits for the end of its sender.
fn pass(mut from: TcpStream, mut to: TcpStream, may: impl Fn(&str) -> bool) {
    let mut part = vec![0; 64 << 10];
    let mut is_held = false;
    while let Ok(read @ 1..) = from.read(&mut part) {
        is_held |= !may(&String::from_utf8_lossy(&part[..read.min(4 << 10)]));
        if !is_held && to.write_all(&part[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
