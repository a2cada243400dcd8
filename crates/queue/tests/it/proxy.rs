//! A TCP proxy in front of a real server that can lose the server's answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Proxy {
    pub(crate) port: u16,
    rules: Arc<Rules>,
}

#[derive(Default)]
struct Rules {
    lose_next_answer: AtomicBool,
    lost: AtomicU64,
    /// So many of the first connections pass nothing on any more, without closing.
    frozen: AtomicU64,
    opened: AtomicU64,
}

impl Proxy {
    pub(crate) async fn in_front_of(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let own = listener.local_addr().expect("bound").port();
        let rules = Arc::new(Rules::default());
        let shared = Arc::clone(&rules);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let rules = Arc::clone(&shared);
                tokio::spawn(async move { pass(client, port, &rules).await });
            }
        });
        Self { port: own, rules }
    }

    /// The next thing the server says is thrown away, and the connection with it: the request was carried out, and
    /// the client cannot know.
    pub(crate) fn lose_next_answer(&self) {
        self.rules.lose_next_answer.store(true, Ordering::SeqCst);
    }

    /// Everything on the connections that are open now goes nowhere from here on; new ones work.
    pub(crate) fn freeze_open_connections(&self) {
        self.rules.frozen.store(self.rules.opened.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    pub(crate) fn answers_lost(&self) -> u64 {
        self.rules.lost.load(Ordering::SeqCst)
    }
}

async fn pass(mut client: TcpStream, port: u16, rules: &Rules) {
    let number = rules.opened.fetch_add(1, Ordering::SeqCst);
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let (mut from_client, mut from_server) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => match read {
                Ok(bytes) if bytes > 0 => {
                    if number < rules.frozen.load(Ordering::SeqCst) {
                        continue;
                    }
                    if server.write_all(&from_client[..bytes]).await.is_err() { return }
                }
                _ => return,
            },
            read = server.read(&mut from_server) => match read {
                Ok(bytes) if bytes > 0 => {
                    if rules.lose_next_answer.swap(false, Ordering::SeqCst) {
                        rules.lost.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                    if client.write_all(&from_server[..bytes]).await.is_err() { return }
                }
                _ => return,
            },
        }
    }
}
