//! A scanner that misbehaves, which no real one does when asked to. It answers PING as it should.

use telecine_pipeline::{Clamd, ClamdAddress};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::clamd_server::clamd;

/// What comes of a file that is about to be sent is the test's to say. It lives as long as the test's runtime.
pub(super) async fn odd_clamd<F: Future<Output = ()> + Send + 'static>(
    conduct: impl Fn(TcpStream) -> F + Clone + Send + 'static,
) -> Clamd {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = ClamdAddress::Tcp(listener.local_addr().unwrap().to_string());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let conduct = conduct.clone();
            tokio::spawn(async move {
                match command(&mut stream).await.as_slice() {
                    b"zPING\0" => stream.write_all(b"PONG\0").await.unwrap(),
                    _ => conduct(stream).await,
                }
            });
        }
    });
    clamd(address)
}

async fn command(stream: &mut TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    while !said.ends_with(&[0]) {
        said.push(stream.read_u8().await.unwrap());
    }
    said
}

/// All of a file, up to the chunk without a length, or until whoever sends it gives up.
pub(super) async fn take_all(stream: &mut TcpStream) {
    while let Ok(bytes @ 1..) = stream.read_u32().await {
        let mut chunk = vec![0; bytes as usize];
        if stream.read_exact(&mut chunk).await.is_err() {
            return;
        }
    }
}
