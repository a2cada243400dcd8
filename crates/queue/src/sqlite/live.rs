//! Files beside the database that tell who lives and who listens: `<database>-live/`.
//!
//! - `worker-N`: locked (flock) by the process of worker N for as long as it lives. The kernel drops the lock with the
//!   process, so others see a death within one look, without waiting for the lease.
//! - `bell-…`: a datagram socket per listening process. Whoever commits something sends a byte to each.
//!
//! Both are only short cuts: without them, leases and polling do the same later. Neither touches the database file:
//! closing any descriptor of that would drop SQLite's own locks.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use rusqlite::Connection;
use tokio::sync::watch;

use super::connect::open_again;
use crate::bell::{Bell, Ring};
use crate::error::{QueueError, Result};
use crate::queue::Wakes;
use crate::worker::WorkerId;

/// How often a listener looks for what no bell told it: changes by other processes (4 microseconds) and deaths.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Live {
    database: PathBuf,
    folder: PathBuf,
    /// Keeps a short path to the folder: a socket's address has at most 108 bytes.
    handle: File,
    bell: Arc<Bell>,
    own_bell: OnceLock<String>,
    locks: Mutex<HashMap<WorkerId, File>>,
    peers: Mutex<Peers>,
}

/// The other processes' bells, as of the folder's last change.
#[derive(Debug)]
struct Peers {
    socket: UnixDatagram,
    seen_at: Option<SystemTime>,
    names: Vec<String>,
}

impl Live {
    pub(super) fn new(database: &Path, bell: Arc<Bell>) -> Result<Self> {
        let mut folder = database.as_os_str().to_owned();
        folder.push("-live");
        let folder = PathBuf::from(folder);
        let unusable = |error: std::io::Error| QueueError::Unsuitable {
            reason: format!("cannot use the folder {}: {error}", folder.display()),
            next_step: "let this user write beside the database".into(),
        };
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(unusable(error)),
            _ => {}
        }
        let handle = File::open(&folder).map_err(unusable)?;
        let socket = UnixDatagram::unbound().map_err(unusable)?;
        socket.set_nonblocking(true).map_err(unusable)?;
        Ok(Self {
            database: database.to_path_buf(),
            folder,
            handle,
            bell,
            own_bell: OnceLock::new(),
            locks: Mutex::default(),
            peers: Mutex::new(Peers { socket, seen_at: None, names: Vec::new() }),
        })
    }

    /// Wakes whoever waits, here and in other processes.
    pub(super) fn ring(&self, ring: Ring) {
        if ring.is_silent() {
            return;
        }
        self.bell.ring(ring);
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut peers);
        let Peers { socket, names, .. } = &*peers;
        for name in names {
            match socket.send_to(&[ring.to_byte()], self.address(name)) {
                // Its process is gone; a full buffer (WouldBlock) is fine: it has enough to wake up to.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    let _ = fs::remove_file(self.folder.join(name));
                }
                _ => {}
            }
        }
    }

    /// Lists the bells again when the folder has changed.
    fn refresh(&self, peers: &mut Peers) {
        let changed_at = self.handle.metadata().and_then(|folder| folder.modified()).ok();
        if changed_at.is_some() && changed_at == peers.seen_at {
            return;
        }
        let own = self.own_bell.get();
        let names = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        peers.names = names
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with("bell-") && Some(name) != own)
            .collect();
        peers.seen_at = changed_at;
    }

    fn address(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.handle.as_raw_fd()))
    }

    /// Takes the lock that shows a worker to be alive.
    pub(super) fn join(&self, id: WorkerId) -> Result<()> {
        let failed = |error: &dyn std::fmt::Display| QueueError::unexpected(format!("worker lock: {error}"));
        let hidden = self.folder.join(format!(".worker-{id}-{}", std::process::id()));
        let file = File::create(&hidden).map_err(|error| failed(&error))?;
        file.try_lock().map_err(|error| failed(&error))?;
        fs::rename(&hidden, self.lock_path(id)).map_err(|error| failed(&error))?;
        self.locks.lock().unwrap_or_else(PoisonError::into_inner).insert(id, file);
        Ok(())
    }

    /// Gives the lock up.
    pub(super) fn leave(&self, id: WorkerId) {
        self.bury(id);
        self.locks.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// Whether the process of a worker has ended without a word. A missing lock proves nothing.
    pub(super) fn has_died(&self, id: WorkerId) -> bool {
        File::open(self.lock_path(id)).is_ok_and(|file| file.try_lock().is_ok())
    }

    /// Removes what a dead worker left.
    pub(super) fn bury(&self, id: WorkerId) {
        let _ = fs::remove_file(self.lock_path(id));
    }

    /// Removes locks that nobody holds and that no living worker owns: left by a process that died between two steps.
    pub(super) fn bury_unknown(&self, mut lives: impl FnMut(WorkerId) -> Result<bool>) -> Result<()> {
        for id in self.locked_workers() {
            if self.has_died(id) && !lives(id)? {
                self.bury(id);
            }
        }
        Ok(())
    }

    fn locked_workers(&self) -> impl Iterator<Item = WorkerId> + use<> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| {
            entry.file_name().to_str()?.strip_prefix("worker-")?.parse().ok().map(WorkerId)
        })
    }

    fn lock_path(&self, id: WorkerId) -> PathBuf {
        self.folder.join(format!("worker-{id}"))
    }

    /// Starts listening with the first call.
    pub(super) fn listen(self: &Arc<Self>) -> watch::Receiver<Wakes> {
        let wakes = self.bell.listen();
        self.own_bell.get_or_init(|| {
            let name = format!("bell-{}-{}", std::process::id(), ulid::Ulid::generate());
            if let Err(error) = self.spawn_listener(&name) {
                tracing::warn!(%error, "no doorbell: other processes are noticed by polling only");
            }
            name
        });
        wakes
    }

    fn spawn_listener(self: &Arc<Self>, name: &str) -> Result<()> {
        let socket = UnixDatagram::bind(self.address(name)).map_err(QueueError::unexpected)?;
        socket.set_read_timeout(Some(LOOK_EVERY)).map_err(QueueError::unexpected)?;
        let watcher = open_again(&self.database, LOOK_EVERY)?;
        let (live, path) = (Arc::downgrade(self), self.folder.join(name));
        std::thread::Builder::new()
            .name("queue-bell".into())
            .spawn(move || {
                listen_until_closed(&socket, &watcher, &live);
                let _ = fs::remove_file(path);
            })
            .map_err(QueueError::unexpected)?;
        Ok(())
    }

    fn sees_a_death(&self) -> bool {
        let own = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        self.locked_workers().any(|id| !own.contains_key(&id) && self.has_died(id))
    }
}

fn listen_until_closed(socket: &UnixDatagram, watcher: &Connection, live: &Weak<Live>) {
    let mut version = data_version(watcher);
    let mut look_at = Instant::now() + LOOK_EVERY;
    let mut byte = [0];
    loop {
        let heard = socket.recv(&mut byte);
        let Some(live) = live.upgrade() else { return };
        if heard.is_ok() {
            live.bell.ring(Ring::from_byte(byte[0]));
        }
        if Instant::now() < look_at {
            continue;
        }
        look_at = Instant::now() + LOOK_EVERY;
        let now = data_version(watcher);
        if now != version {
            version = now;
            // Not `revoked`: every beat of every worker changes the file, and would make all others beat.
            live.bell.ring(Ring { ready: true, scheduled: true, ..Ring::default() });
        }
        if live.sees_a_death() {
            live.bell.ring(Ring { died: true, ..Ring::default() });
        }
    }
}

/// Changes when another connection has committed.
fn data_version(connection: &Connection) -> Option<i64> {
    connection
        .prepare_cached("PRAGMA data_version")
        .and_then(|mut look| look.query_row([], |row| row.get(0)))
        .ok()
}
