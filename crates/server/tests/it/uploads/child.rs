//! A server in a process of its own, to be killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use telecine_media::{Confinement, Toolbox};
use telecine_pipeline::{Blobs, Recipes, Scratch, Workshop};
use telecine_server::{App, Server, ServerOptions};

const SERVER: &str = "play-server";

/// Plays the server, where this process was started as one.
pub(crate) fn main_if_server() -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [first, place] = arguments.as_slice() else { return None };
    if first != SERVER {
        return None;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(serve(Path::new(place)));
    Some(ExitCode::SUCCESS)
}

async fn serve(place: &Path) {
    let queue = telecine_queue::open(&format!("sqlite:{}", place.join("queue.db").display())).await.unwrap();
    let blobs = Blobs::in_folder(&place.join("store")).unwrap();
    let scratch = Scratch::open(&place.join("scratch")).unwrap();
    let shop = Workshop::new(queue, Toolbox::from_path(Confinement::launcher()), blobs, scratch);
    let app = App::new(Arc::new(shop), Recipes::built_in(), ServerOptions::default());
    let server = Server::start(&app, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    println!("http://{}", server.address());
    std::future::pending::<()>().await;
}

/// Killed when it is dropped.
pub(super) struct Child {
    process: std::process::Child,
    pub(super) base: String,
}

impl Child {
    pub(super) fn start(place: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .arg(SERVER)
            .arg(place)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut base = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut base).unwrap();
        Self { process, base: base.trim().to_owned() }
    }

    /// Without a chance to do anything.
    pub(super) fn kill(self) {
        drop(self);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
