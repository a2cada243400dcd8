//! Things that nobody may touch, and that notice when somebody does.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use tempfile::TempDir;

const SECRET: &[u8] = b"secret that must not leave this file\n";

/// A folder with a watched file in it, and servers for TCP, UDP and Unix sockets.
pub(crate) struct Canary {
    folder: TempDir,
    watch: OwnedFd,
    tcp: TcpListener,
    udp: UdpSocket,
    unix: UnixListener,
    abstract_unix: UnixListener,
    abstract_name: String,
}

impl Canary {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret.ts");
        std::fs::write(&file, SECRET).unwrap();
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let touched = WatchFlags::ACCESS
            | WatchFlags::ATTRIB
            | WatchFlags::MODIFY
            | WatchFlags::OPEN
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE;
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let unix = UnixListener::bind(folder.path().join("socket")).unwrap();
        let abstract_name =
            format!("telecine-canary-{}-{}", std::process::id(), tcp.local_addr().unwrap().port());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let abstract_unix = UnixListener::bind_addr(&address).unwrap();
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        unix.set_nonblocking(true).unwrap();
        abstract_unix.set_nonblocking(true).unwrap();
        // Last, so that what was done above is not seen.
        inotify::add_watch(&watch, folder.path(), touched).unwrap();
        inotify::add_watch(&watch, &file, touched).unwrap();
        Self { folder, watch, tcp, udp, unix, abstract_unix, abstract_name }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("secret.ts")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub(crate) fn abstract_name(&self) -> &str {
        &self.abstract_name
    }

    pub(crate) fn tcp_port(&self) -> u16 {
        self.tcp.local_addr().unwrap().port()
    }

    pub(crate) fn udp_port(&self) -> u16 {
        self.udp.local_addr().unwrap().port()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/secret.ts", self.tcp_port())
    }

    /// What was noticed since the last time.
    pub(crate) fn hits(&self) -> Vec<String> {
        let mut hits = Vec::new();
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.watch, &mut buffer);
        while let Ok(event) = events.next() {
            hits.push(format!("file {:?} {:?}", event.events(), event.file_name()));
        }
        while let Ok((mut stream, _)) = self.tcp.accept() {
            let mut request = [0; 256];
            stream.set_nonblocking(true).unwrap();
            let read = stream.read(&mut request).unwrap_or(0);
            hits.push(format!("tcp {}", String::from_utf8_lossy(&request[..read])));
        }
        while self.udp.recv(&mut [0; 64]).is_ok() {
            hits.push("udp".into());
        }
        for (name, listener) in [("unix", &self.unix), ("abstract", &self.abstract_unix)] {
            match listener.accept() {
                Ok(_) => hits.push(name.into()),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        hits
    }

    #[track_caller]
    pub(crate) fn assert_untouched(&self) {
        assert_eq!(self.hits(), Vec::<String>::new());
    }
}

/// A canary that sleeps proves nothing.
#[test]
fn the_canary_notices_every_visit() {
    let canary = Canary::new();
    canary.assert_untouched();

    std::fs::read(canary.file()).unwrap();
    assert!(canary.hits().iter().any(|hit| hit.contains("OPEN")));
    std::fs::write(canary.folder().join("new"), "").unwrap();
    assert!(canary.hits().iter().any(|hit| hit.contains("CREATE")));
    let _tcp = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, canary.tcp_port())).unwrap();
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    udp.send_to(b"x", (Ipv4Addr::LOCALHOST, canary.udp_port())).unwrap();
    let _unix = std::os::unix::net::UnixStream::connect(canary.socket()).unwrap();
    let name = SocketAddr::from_abstract_name(canary.abstract_name()).unwrap();
    let _abstract = std::os::unix::net::UnixStream::connect_addr(&name).unwrap();
    let hits = canary.hits();
    for visit in ["tcp", "udp", "unix", "abstract"] {
        assert!(hits.iter().any(|hit| hit.starts_with(visit)), "{visit}: {hits:?}");
    }
}
