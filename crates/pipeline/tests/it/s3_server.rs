//! A real S3 server of our own: s3s-fs or versitygw, on a temporary folder, on a free loopback port.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use telecine_pipeline::{Blobs, StoreOptions};

use crate::postgres_server::{free_port, spawn_for_life};

pub(crate) const BUCKET: &str = "films";
const ACCESS_KEY: &str = "TESTKEY";
const REGION: &str = "eu-central-1";
const SECRET_KEY: &str = "a-secret-that-no-message-shows";

pub(crate) struct S3Server {
    root: tempfile::TempDir,
    pub(crate) port: u16,
    asks_for_credentials: bool,
    program: &'static str,
    process: Mutex<Option<Child>>,
}

const S3S_FS: &str = "s3s-fs";
/// Another one, which also lists uploads that nobody ended.
const VERSITYGW: &str = "versitygw";

impl S3Server {
    pub(crate) const SECRET: &str = SECRET_KEY;

    pub(crate) fn start() -> Self {
        Self::start_as(S3S_FS, true)
    }

    pub(crate) fn has_versitygw() -> bool {
        tool(VERSITYGW).exists()
    }

    pub(crate) fn start_versitygw() -> Self {
        Self::start_as(VERSITYGW, true)
    }

    /// One that lets everybody in, so that what lies between may change requests.
    pub(crate) fn start_open() -> Self {
        Self::start_as(S3S_FS, false)
    }

    fn start_as(program: &'static str, asks_for_credentials: bool) -> Self {
        let root = tempfile::Builder::new().prefix("telecine-s3-").tempdir().unwrap();
        std::fs::create_dir(root.path().join(BUCKET)).unwrap();
        let server =
            Self { root, port: free_port(), asks_for_credentials, program, process: Mutex::new(None) };
        server.launch();
        server
    }

    /// Starts it again, on the same port and with what it had.
    pub(crate) fn launch(&self) {
        // setpriv lets it die with this process, however that ends.
        let mut command = Command::new("setpriv");
        let program = tool(self.program);
        assert!(program.exists(), "{} is missing (make setup)", program.display());
        command.args(["--pdeathsig", "KILL"]).arg(program);
        if self.program == VERSITYGW {
            command.args(["--access", ACCESS_KEY, "--secret", SECRET_KEY, "--region", REGION]);
            command.args(["--port", &format!("127.0.0.1:{}", self.port), "posix"]);
        } else {
            command.args(["--host", "127.0.0.1", "--port", &self.port.to_string()]);
            if self.asks_for_credentials {
                command.args(["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]);
            }
        }
        command.arg(self.root.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let until = Instant::now() + Duration::from_secs(60);
        let mut process = spawn_for_life(command);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(process.try_wait().unwrap().is_none(), "the S3 server has ended");
            assert!(Instant::now() < until, "the S3 server did not come up");
            std::thread::sleep(Duration::from_millis(10));
        }
        *self.process.lock().unwrap() = Some(process);
    }

    pub(crate) fn kill(&self) {
        if let Some(mut process) = self.process.lock().unwrap().take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Where it keeps an object.
    pub(crate) fn file(&self, key: &str) -> PathBuf {
        self.root.path().join(BUCKET).join(key)
    }

    /// What is left of uploads in parts.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        if self.program == VERSITYGW {
            // A folder for each key, in which there is one for each upload.
            let keys = names_in(&self.file(".sgwtmp/multipart"));
            let uploads = |key: &String| names_in(&self.file(&format!(".sgwtmp/multipart/{key}")));
            return keys.iter().flat_map(uploads).collect();
        }
        names_in(self.root.path()).into_iter().filter(|name| name.starts_with(".upload")).collect()
    }

    pub(crate) fn options(&self) -> StoreOptions {
        options_for(self.port, SECRET_KEY)
    }

    pub(crate) fn options_with_wrong_key(&self) -> StoreOptions {
        options_for(self.port, "some-other-secret")
    }

    /// By another port, behind which somebody passes on.
    pub(crate) fn open_through(&self, port: u16) -> Blobs {
        Blobs::open_with(&format!("s3://{BUCKET}"), &options_for(port, SECRET_KEY)).unwrap()
    }

    pub(crate) fn open(&self, prefix: &str) -> Blobs {
        Blobs::open_with(&format!("s3://{BUCKET}/{prefix}"), &self.options()).unwrap()
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Short of patience: a test that waits for a failure should not wait long.
pub(crate) fn options_for(port: u16, secret: &str) -> StoreOptions {
    let variables = [
        ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
        ("AWS_REGION", REGION.to_owned()),
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
    ];
    StoreOptions {
        variables: variables.map(|(name, value)| (name.to_owned(), value)).into(),
        connect_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(30),
        retry_for: Duration::from_secs(5),
        retries: 2,
    }
}

/// For a server that lets everybody in.
pub(crate) fn unsigned_options_for(port: u16) -> StoreOptions {
    let mut options = options_for(port, "");
    options.variables.retain(|name, _| !name.contains("ACCESS_KEY"));
    options.variables.insert("AWS_SKIP_SIGNATURE".into(), "true".into());
    options
}

fn tool(name: &str) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| Path::new(&std::env::var_os("HOME").unwrap()).join(".cache"));
    cache.join("telecine-tools/bin").join(name)
}

/// What a folder holds, if it is there.
fn names_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}
