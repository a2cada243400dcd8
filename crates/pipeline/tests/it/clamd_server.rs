//! A real clamd with one signature, that of the EICAR test file, for the tests of this process.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use telecine_pipeline::{Clamd, ClamdAddress};

const UP_WITHIN: Duration = Duration::from_secs(60);
const SIGNATURE: &str = "Eicar-Test-Signature";
/// What clamd calls it: signatures that are not its maker's get a suffix.
pub(crate) const FOUND: &str = "Eicar-Test-Signature.UNOFFICIAL";
/// What clamd takes and looks at, in mebibytes.
pub(crate) const STREAM_MB: u64 = 1;

/// The file that every scanner knows and that harms nobody. In two halves, or scanners would find this file.
pub(crate) fn eicar() -> Vec<u8> {
    [r"X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR-STANDARD", "-ANTIVIRUS-TEST-FILE!$H+H*"].concat().into_bytes()
}

/// Where a clamd runs or will run.
pub(crate) struct ClamdServer {
    folder: tempfile::TempDir,
    port: u16,
    process: Option<Child>,
}

impl ClamdServer {
    pub(crate) fn start() -> Self {
        let mut server = Self::stopped("");
        server.go();
        server
    }

    /// With more lines in its configuration.
    pub(crate) fn with(settings: &str) -> Self {
        let mut server = Self::stopped(settings);
        server.go();
        server
    }

    /// One whose address is known and that does not run yet.
    pub(crate) fn stopped(settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let signatures = folder.path().join("signatures");
        std::fs::create_dir(&signatures).unwrap();
        let hex: String = eicar().iter().map(|byte| format!("{byte:02x}")).collect();
        std::fs::write(signatures.join("local.ndb"), format!("{SIGNATURE}:0:*:{hex}\n")).unwrap();
        let conf = format!(
            "Foreground yes\nLocalSocket {}\nTCPAddr 127.0.0.1\nTCPSocket {port}\nDatabaseDirectory {}\n\
             TemporaryDirectory {}\nStreamMaxLength {STREAM_MB}M\n{settings}\n",
            folder.path().join("clamd.ctl").display(),
            signatures.display(),
            folder.path().display(),
        );
        std::fs::write(folder.path().join("clamd.conf"), conf).unwrap();
        Self { folder, port, process: None }
    }

    /// Starts it, and waits until it answers.
    pub(crate) fn go(&mut self) {
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        let started = Command::new(program())
            .arg(format!("--config-file={}", self.folder.path().join("clamd.conf").display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("clamd cannot be started: {error}; next: scripts/setup"));
        self.process = Some(started);
        let until = Instant::now() + UP_WITHIN;
        while !self.answers() {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            let ended = self.process.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < until, "clamd does not answer: {ended:?}\n{log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn answers(&self) -> bool {
        let ask = |mut stream: Box<dyn ReadWrite>| {
            let mut said = Vec::new();
            stream.write_all(b"zPING\0").is_ok()
                && stream.read_to_end(&mut said).is_ok()
                && said.starts_with(b"PONG")
        };
        let by_unix = UnixStream::connect(self.socket()).ok().map(|stream| Box::new(stream) as Box<_>);
        let by_tcp =
            TcpStream::connect(("127.0.0.1", self.port)).ok().map(|stream| Box::new(stream) as Box<_>);
        by_unix.is_some_and(ask) && by_tcp.is_some_and(ask)
    }

    pub(crate) fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("clamd.ctl")
    }

    pub(crate) fn by_unix(&self) -> Clamd {
        clamd(ClamdAddress::Unix(self.socket()))
    }

    pub(crate) fn by_tcp(&self) -> Clamd {
        clamd(ClamdAddress::Tcp(format!("127.0.0.1:{}", self.port)))
    }
}

impl Drop for ClamdServer {
    fn drop(&mut self) {
        self.stop();
    }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// Patient enough for a busy machine.
pub(crate) fn clamd(address: ClamdAddress) -> Clamd {
    Clamd { max_bytes: STREAM_MB << 20, within: Duration::from_mins(2), ..Clamd::at(address) }
}

/// Not in the path of those who are not root.
fn program() -> &'static str {
    if Path::new("/usr/sbin/clamd").exists() { "/usr/sbin/clamd" } else { "clamd" }
}
