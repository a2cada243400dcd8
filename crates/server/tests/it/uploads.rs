//! Uploads: what is answered is on the disk, what is cut goes on, what is whole can be a run, and nothing else can.

mod child;
mod cut;
mod faults;
mod in_one_request;
mod protocol;
mod real_client;

use libtest_mimic::Trial;
use reqwest::{Client, Method, RequestBuilder, Response};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::{Served, client};

pub(crate) use child::main_if_server;

pub(crate) fn trials() -> Vec<Trial> {
    [protocol::trials(), cut::trials(), faults::trials(), in_one_request::trials(), real_client::trials()]
        .into_iter()
        .flatten()
        .collect()
}

/// A client of tus that does as it is told.
#[derive(Clone)]
struct Tus {
    base: String,
    client: Client,
}

impl Tus {
    fn of(served: &Served) -> Self {
        Self { base: served.base.clone(), client: served.client.clone() }
    }

    fn at(base: &str) -> Self {
        Self { base: base.to_owned(), client: client() }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base)).header("Tus-Resumable", "1.0.0")
    }

    /// Where the new upload is.
    async fn create(&self, length: usize) -> String {
        self.create_with(length, |request| request).await
    }

    async fn create_with(
        &self,
        length: usize,
        more: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> String {
        let request = self.request(Method::POST, "/v1/uploads").header("Upload-Length", length);
        let made = more(request).send().await.unwrap();
        assert_eq!(made.status(), 201, "{}", made.text().await.unwrap());
        assert_eq!(made.headers()["tus-resumable"], "1.0.0");
        assert!(made.headers().contains_key("upload-expires"));
        header(&made, "location")
    }

    fn patch(&self, path: &str, offset: usize, bytes: &[u8]) -> RequestBuilder {
        self.request(Method::PATCH, path)
            .header("Upload-Offset", offset)
            .header("Content-Type", "application/offset+octet-stream")
            .body(bytes.to_vec())
    }

    /// Adds bytes that must be taken; says where they end.
    async fn add(&self, path: &str, offset: usize, bytes: &[u8]) -> u64 {
        let added = self.patch(path, offset, bytes).send().await.unwrap();
        assert_eq!(added.status(), 204, "{}", added.text().await.unwrap());
        header(&added, "upload-offset").parse().unwrap()
    }

    async fn head(&self, path: &str) -> Response {
        self.request(Method::HEAD, path).send().await.unwrap()
    }

    async fn offset(&self, path: &str) -> u64 {
        let seen = self.head(path).await;
        assert_eq!(seen.status(), 200);
        assert_eq!(seen.headers()["cache-control"], "no-store");
        header(&seen, "upload-offset").parse().unwrap()
    }

    async fn document(&self, path: &str) -> serde_json::Value {
        let shown = self.client.get(format!("{}{path}", self.base)).send().await.unwrap();
        assert_eq!(shown.status(), 200);
        shown.json().await.unwrap()
    }

    /// A request that says it will send so many bytes, and has sent only these.
    async fn begin(&self, path: &str, offset: usize, says: usize, bytes: &[u8], more: &str) -> TcpStream {
        let address = self.base.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "PATCH {path} HTTP/1.1\r\nHost: {address}\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: {offset}\r\n\
             Content-Type: application/offset+octet-stream\r\nContent-Length: {says}\r\n{more}\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.flush().await.unwrap();
        stream
    }
}

fn header(response: &Response, name: &str) -> String {
    let value = response.headers().get(name).unwrap_or_else(|| panic!("no {name}: {response:?}"));
    value.to_str().unwrap().to_owned()
}

/// The same each time, and like nothing that compresses.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..bytes).map(|_| next()).collect()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn id_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

/// The names of all files below the folder of uploads.
fn staged(served: &Served) -> Vec<String> {
    let folder = served.shop.scratch.root().join("uploads");
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// The keys of all uploads in the store.
async fn stored(served: &Served) -> Vec<String> {
    served.shop.blobs.list("_uploads").await.unwrap()
}
