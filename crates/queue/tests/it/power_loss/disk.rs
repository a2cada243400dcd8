//! A disk that can be copied as a loss of power would leave it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// An ext4 file system in an image file, mounted for as long as this lives.
pub(super) struct Disk {
    /// Such as `loop0`.
    device: String,
    image: PathBuf,
    mounted_at: PathBuf,
    _folder: TempDir,
}

impl Disk {
    pub(super) fn new(size_mb: u64) -> Self {
        Self::mount_image(|image| {
            let file = fs::File::create(image).expect("an image file");
            file.set_len(size_mb << 20).expect("a sparse file");
            // Nothing is left for the kernel to initialize later, so the device is idle when nobody writes.
            call("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"], image);
        })
    }

    fn mount_image(make: impl FnOnce(&Path)) -> Self {
        // Postgres runs as a user of its own, who must be let through.
        let folder = tempfile::Builder::new()
            .prefix("telecine-disk-")
            .permissions(fs::Permissions::from_mode(0o711))
            .tempdir()
            .expect("a temporary folder");
        let (image, mounted_at) = (folder.path().join("image"), folder.path().join("mounted"));
        fs::create_dir(&mounted_at).expect("mkdir");
        make(&image);
        // By `mount` itself, whose device goes with the mount. The journal is committed when asked for, not every 5 s.
        let options = ["-t", "ext4", "-o", "loop,commit=600"].map(OsStr::new);
        call("mount", &[&options, [image.as_os_str()].as_slice()].concat(), &mounted_at);
        // From here on dropping unmounts it.
        let mut disk = Self { device: String::new(), image, mounted_at, _folder: folder };
        let device =
            call("findmnt", &["--noheadings", "--output", "SOURCE", "--mountpoint"], &disk.mounted_at);
        // What the device has completed is then in the file, and an `fsync` above costs one on the disk below.
        call("losetup", &["--direct-io=on"], Path::new(&device));
        disk.device = device.trim_start_matches("/dev/").to_owned();
        disk
    }

    pub(super) fn folder(&self) -> &Path {
        &self.mounted_at
    }

    /// The disk as it would be found if power were lost now. Whoever writes to it must have been stopped.
    pub(super) fn copy(&self) -> Self {
        Self::mount_image(|copy| {
            let until = Instant::now() + PATIENCE;
            loop {
                let before = self.writes();
                call("cp", &["--sparse=always".as_ref(), self.image.as_os_str()], copy);
                // The kernel may write back old pages at any time; a copy that mixes before and after is no moment.
                if before.in_flight == 0 && before == self.writes() {
                    return;
                }
                assert!(Instant::now() < until, "{} does not come to rest", self.device);
            }
        })
    }

    /// See `Documentation/block/stat.rst` of the kernel.
    fn writes(&self) -> Writes {
        let stat = fs::read_to_string(format!("/sys/block/{}/stat", self.device)).expect("a block device");
        let fields: Vec<u64> =
            stat.split_whitespace().map(|field| field.parse().expect("a number")).collect();
        Writes { completed: fields[4], sectors: fields[6], in_flight: fields[8] }
    }
}

#[derive(PartialEq, Eq)]
struct Writes {
    completed: u64,
    sectors: u64,
    in_flight: u64,
}

impl Drop for Disk {
    fn drop(&mut self) {
        let until = Instant::now() + Duration::from_secs(10);
        // Processes that were killed a moment ago may still hold files open.
        while try_call("umount", &[] as &[&str], &self.mounted_at).is_err() {
            if Instant::now() > until {
                let _ = try_call("umount", &["--lazy"], &self.mounted_at);
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Processes that stand still for as long as this lives.
pub(super) struct Stopped(Vec<Pid>);

impl Stopped {
    /// Stops a pusher, and a server with all its children.
    pub(super) fn all(pusher: Pid, server: Option<Pid>) -> Self {
        let mut stopped = Self(Vec::new());
        stopped.signal(pusher);
        if let Some(server) = server {
            stopped.signal(server);
            // Once it stands still it starts no more children.
            wait_until_still(server);
            children(server).into_iter().for_each(|child| stopped.signal(child));
        }
        stopped.0.iter().copied().for_each(wait_until_still);
        stopped
    }

    fn signal(&mut self, process: Pid) {
        // One that has ended meanwhile writes no more.
        if kill_process(process, Signal::STOP).is_ok() {
            self.0.push(process);
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for process in &self.0 {
            let _ = kill_process(*process, Signal::CONT);
        }
    }
}

/// A thread stops when its system call ends, so an `fsync` under way is waited for.
fn wait_until_still(process: Pid) {
    let until = Instant::now() + PATIENCE;
    let still = || {
        let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
        threads.flatten().all(|thread| {
            stat_fields(&thread.path()).is_none_or(|fields| ["T", "Z", "X"].contains(&fields[0].as_str()))
        })
    };
    while !still() {
        assert!(Instant::now() < until, "process {process} does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn children(parent: Pid) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    processes
        .filter(|process| stat_fields(&process.path()).is_some_and(|fields| fields[1] == parent.to_string()))
        .filter_map(|process| Pid::from_raw(process.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// State, parent and the rest: what follows the name, which may itself hold spaces and brackets.
fn stat_fields(process: &Path) -> Option<Vec<String>> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect())
}

fn call(program: &str, arguments: &[impl AsRef<OsStr>], path: &Path) -> String {
    try_call(program, arguments, path).unwrap_or_else(|error| panic!("{error}"))
}

/// What it printed, or its complaint.
fn try_call(program: &str, arguments: &[impl AsRef<OsStr>], path: &Path) -> Result<String, String> {
    let output = Command::new(program).args(arguments).arg(path).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{program} {}: {}", path.display(), String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
