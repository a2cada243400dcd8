//! A real Postgres of our own: a fresh cluster in a temporary folder, on a free loopback port; and on request a real
//! PgBouncer in front of it.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

#[derive(Clone)]
pub(crate) struct PostgresServer(Arc<Inner>);

struct Inner {
    bin: PathBuf,
    folder: PathBuf,
    /// The same folder, if it is to go with the server.
    _temporary: Option<TempDir>,
    port: u16,
    settings: Vec<String>,
    process: Mutex<Option<Child>>,
    databases: AtomicU32,
    bouncer: OnceLock<Bouncer>,
}

/// PgBouncer in transaction mode, as a package installs it but for what a test needs to be quick.
struct Bouncer {
    port: u16,
    process: Mutex<Child>,
}

impl PostgresServer {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server with extra settings, such as `fsync=off`.
    pub(crate) fn start_with(settings: &[&str]) -> Self {
        let folder =
            tempfile::Builder::new().prefix("telecine-postgres-").tempdir().expect("a temporary folder");
        make_cluster(folder.path(), &["--no-sync"]);
        Self::launch_in(folder.path().to_owned(), Some(folder), settings)
    }

    /// A new cluster in a folder that outlives it, safely on the disk.
    pub(crate) fn start_in(folder: &Path) -> Self {
        make_cluster(folder, &[]);
        Self::launch_in(folder.to_owned(), None, &[])
    }

    /// A server of its own on the copy of another's folder, as after a loss of power.
    pub(crate) fn resume_in(folder: &Path) -> Self {
        // The process that it names is of another boot; here it may be alive, and is not ours.
        let _ = std::fs::remove_file(folder.join("data/postmaster.pid"));
        Self::launch_in(folder.to_owned(), None, &[])
    }

    fn launch_in(folder: PathBuf, temporary: Option<TempDir>, settings: &[&str]) -> Self {
        let server = Self(Arc::new(Inner {
            bin: newest_binaries(),
            folder,
            _temporary: temporary,
            port: free_port(),
            settings: settings.iter().map(ToString::to_string).collect(),
            process: Mutex::new(None),
            databases: AtomicU32::new(0),
            bouncer: OnceLock::new(),
        }));
        server.launch();
        server
    }

    /// Starts the server's process on the cluster, as after a crash.
    pub(crate) fn launch(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        let mut postmaster = self.spawn();
        while !self.psql("postgres", "SELECT 1").status.success() {
            assert!(Instant::now() < until, "Postgres did not come up: {}", self.log());
            // After a crash it refuses to start until the last child of the old one has noticed.
            if postmaster.try_wait().expect("our own child").is_some() {
                postmaster = self.spawn();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        *self.0.process.lock().expect("no test panics here") = Some(postmaster);
    }

    fn spawn(&self) -> Child {
        let inner = &self.0;
        let mut command = as_postgres(&inner.bin.join("postgres"));
        command.arg("-D").arg(inner.folder.join("data"));
        command.args([
            "-p",
            &inner.port.to_string(),
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "max_connections=200",
        ]);
        command.arg("-k").arg(&inner.folder);
        for setting in &inner.settings {
            command.args(["-c", setting]);
        }
        let log = std::fs::File::create(inner.folder.join("log")).expect("a log file");
        command.stdout(Stdio::null()).stderr(log);
        spawn_for_life(command)
    }

    /// The whole server dies at once, as with the machine. Backends would notice the postmaster's death by themselves, but
    /// may answer a query that comes first.
    pub(crate) fn kill(&self) {
        let mut process = self.0.process.lock().expect("no test panics here");
        if let Some(mut postmaster) = process.take() {
            let id = Pid::from_child(&postmaster);
            // Standing still, it starts no more of them.
            let _ = kill_process(id, Signal::STOP);
            let backends = children_of(id);
            let _ = postmaster.kill();
            for backend in backends {
                let _ = kill_process(backend, Signal::KILL);
            }
            let _ = postmaster.wait();
        }
    }

    pub(crate) fn stop(&self) {
        if let Some(bouncer) = self.0.bouncer.get() {
            bouncer.stop();
        }
        let stopped = as_postgres(&self.0.bin.join("pg_ctl"))
            .arg("-D")
            .arg(self.0.folder.join("data"))
            .args(["-m", "immediate", "-w", "stop"])
            .output();
        drop(stopped);
        if let Some(mut postmaster) = self.0.process.lock().expect("no test panics here").take() {
            let _ = postmaster.wait();
        }
    }

    /// The URL of a new, empty database.
    pub(crate) fn new_database(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{}", self.0.port, self.make_database())
    }

    /// The URL of a new, empty database behind PgBouncer.
    pub(crate) fn new_database_behind_bouncer(&self) -> String {
        let port = self.bouncer_port();
        format!("postgres://postgres@127.0.0.1:{port}/{}?pgbouncer=true", self.make_database())
    }

    /// Where PgBouncer listens, which is started for whoever asks first.
    pub(crate) fn bouncer_port(&self) -> u16 {
        self.0.bouncer.get_or_init(|| Bouncer::start(&self.0.folder, self.0.port)).port
    }

    fn make_database(&self) -> String {
        let name = format!("t{}", self.0.databases.fetch_add(1, Ordering::Relaxed));
        let made = self.psql("postgres", &format!("CREATE DATABASE {name}"));
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        name
    }

    /// The process whose children are the server's other processes.
    pub(crate) fn id(&self) -> rustix::process::Pid {
        let process = self.0.process.lock().expect("no test panics here");
        rustix::process::Pid::from_child(process.as_ref().expect("the server runs"))
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.port
    }

    /// One of those that come with the server.
    pub(crate) fn program(&self, name: &str) -> Command {
        Command::new(self.0.bin.join(name))
    }

    pub(crate) fn psql(&self, database: &str, sql: &str) -> std::process::Output {
        self.program("psql")
            .args(["-h", "127.0.0.1", "-p", &self.0.port.to_string(), "-U", "postgres", "-d", database])
            .args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .output()
            .expect("psql runs")
    }

    /// The schema of a database as `pg_dump` tells it, without what varies between runs.
    pub(crate) fn dump_schema(&self, url: &str) -> String {
        let dump = self
            .program("pg_dump")
            .args(["--schema-only", "--no-owner", "--no-privileges", "--schema=telecine", "-d", url])
            .output()
            .expect("pg_dump runs");
        assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
        let text = String::from_utf8(dump.stdout).expect("UTF-8");
        let kept = text.lines().filter(|line| {
            !line.is_empty()
                && !line.starts_with("--")
                && !line.starts_with("SET ")
                && !line.starts_with("SELECT pg_catalog")
                && !line.starts_with('\\')
        });
        kept.collect::<Vec<_>>().join("\n") + "\n"
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.0.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Ok(mut process) = self.process.lock()
            && let Some(mut postmaster) = process.take()
        {
            let _ = postmaster.kill();
            let _ = postmaster.wait();
        }
    }
}

impl Bouncer {
    fn start(folder: &Path, postgres_port: u16) -> Self {
        let (config, users, port) = (folder.join("bouncer.ini"), folder.join("users.txt"), free_port());
        std::fs::write(&users, "\"postgres\" \"\"\n").expect("a list of users");
        let settings = format!(
            "[databases]\n\
             * = host=127.0.0.1 port={postgres_port}\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir =\n\
             auth_type = trust\n\
             auth_file = {users}\n\
             pool_mode = transaction\n\
             ; few, so that server connections are shared\n\
             default_pool_size = 8\n\
             max_client_conn = 2000\n\
             ; every test has a database of its own, and Postgres takes 200 connections in all\n\
             server_idle_timeout = 3\n\
             ; how long a server that was down is not tried again: 15 s by default\n\
             server_login_retry = 0.2\n\
             log_connections = 0\n\
             log_disconnections = 0\n",
            users = users.display()
        );
        std::fs::write(&config, settings).expect("a configuration");
        let mut command = as_postgres(Path::new("/usr/sbin/pgbouncer"));
        let log = std::fs::File::create(folder.join("bouncer.log")).expect("a log file");
        command.arg(&config).stdout(Stdio::null()).stderr(log);
        let mut process = spawn_for_life(command);
        let until = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = process.try_wait().expect("our own child").is_some();
            let log = || std::fs::read_to_string(folder.join("bouncer.log")).unwrap_or_default();
            assert!(
                !ended && Instant::now() < until,
                "PgBouncer did not come up (is it installed? run scripts/setup): {}",
                log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { port, process: Mutex::new(process) }
    }

    fn stop(&self) {
        let mut process = self.process.lock().expect("no test panics here");
        let _ = process.kill();
        let _ = process.wait();
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").port()
}

fn make_cluster(folder: &Path, options: &[&str]) {
    give_to_postgres(folder);
    let made = as_postgres(&newest_binaries().join("initdb"))
        .arg("-D")
        .arg(folder.join("data"))
        .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"])
        .args(options)
        .output()
        .expect("initdb runs");
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
}

fn newest_binaries() -> PathBuf {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .expect("Postgres is installed: run scripts/setup")
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|bin| bin.join("initdb").exists())
        .collect();
    versions.sort();
    versions.pop().expect("a Postgres server is installed: run scripts/setup")
}

/// Starts a process from a thread that never ends: a process that dies with its parent dies with the parent's thread.
pub(crate) fn spawn_for_life(command: Command) -> Child {
    type Order = (Command, Sender<Child>);
    static SPAWNER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, inbox) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, reply) in inbox {
                let _ = reply.send(command.spawn().expect("the program starts"));
            }
        });
        Mutex::new(orders)
    });
    let (reply, answer) = channel();
    spawner.lock().expect("no panic while ordering").send((command, reply)).expect("the spawner lives");
    answer.recv().expect("the program starts")
}

/// Postgres refuses to run as root; the command dies with the thread that starts it.
fn as_postgres(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=KILL");
    if rustix::process::geteuid().is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    }
    command.arg(program).current_dir("/");
    command
}

fn give_to_postgres(folder: &Path) {
    if rustix::process::geteuid().is_root() {
        let given = Command::new("chown").arg("postgres:postgres").arg(folder).status().expect("chown runs");
        assert!(given.success());
    }
}

fn children_of(parent: Pid) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").expect("Linux").filter_map(|entry| {
        let id = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name, in parentheses, may hold anything; the state and the parent follow it.
        let of: i32 = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        (of == parent.as_raw_nonzero().get()).then(|| Pid::from_raw(id))?
    });
    processes.collect()
}
