//! Scratch space: a private folder per job, removed however the job ends, and swept of what dead processes left.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock, statvfs};
use tempfile::TempDir;

/// A tenth of the disk stays free, and of a large one this much.
const KEPT_FREE: u64 = 10;
const KEPT_FREE_BYTES: u64 = 2 << 30;
const LOCK: &str = "lock";

/// The scratch folder of one process. Its lock tells others that it lives.
#[derive(Debug)]
pub struct Scratch {
    /// Removed with the process; where that is killed, by the next one's sweep.
    own: TempDir,
    root: PathBuf,
    _lock: File,
}

/// The private folder of one attempt of a job.
#[derive(Debug)]
pub struct JobFolder {
    folder: TempDir,
}

impl Scratch {
    /// Makes the root where it is missing, removes what dead processes left, and a folder for this one.
    pub fn open(root: &Path) -> io::Result<Self> {
        make_private(root)?;
        let root = root.canonicalize()?;
        // One process at a time sweeps and makes its folder: none sees another's half made, and takes it for left behind.
        let alone = File::open(&root)?;
        flock(&alone, FlockOperation::LockExclusive)?;
        sweep(&root)?;
        let own = private_folder("w-", &root)?;
        let lock = File::create(own.path().join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { own, root, _lock: lock })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn job(&self) -> io::Result<JobFolder> {
        let folder = private_folder("job-", self.own.path())?;
        Ok(JobFolder { folder })
    }

    /// What jobs may use: not all, for a disk that is full to the brim is slow, and others write there too.
    pub fn free_bytes(&self) -> u64 {
        let Ok(disk) = statvfs(&self.root) else { return 0 };
        let (free, total) = (disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize);
        free.saturating_sub((total / KEPT_FREE).min(KEPT_FREE_BYTES))
    }

    /// What could be written at all: more than this cannot end well.
    pub(crate) fn left_bytes(&self) -> u64 {
        statvfs(&self.root).map_or(0, |disk| disk.f_bavail * disk.f_frsize)
    }
}

impl JobFolder {
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A folder in it.
    pub fn subfolder(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.path().join(name);
        make_private(&folder)?;
        Ok(folder)
    }
}

/// Makes a folder into which nobody else looks. One that is there stays as it is, and those above it are as usual.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    if let Some(above) = folder.parent() {
        std::fs::create_dir_all(above)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        made => made,
    }
}

fn private_folder(prefix: &str, below: &Path) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(0o700)).tempdir_in(below)
}

/// Removes the folders of processes that no longer hold their lock.
fn sweep(root: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(root)? {
        let folder = entry?.path();
        let is_ours = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("w-"));
        if is_ours && is_left_behind(&folder) {
            tracing::info!(folder = %folder.display(), "removing scratch of a process that is gone");
            match std::fs::remove_dir_all(&folder) {
                // Its process was just leaving.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
    }
    Ok(())
}

fn is_left_behind(folder: &Path) -> bool {
    match File::open(folder.join(LOCK)) {
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
        // It is being made or removed right now, unless it is old.
        Err(_) => folder
            .metadata()
            .and_then(|meta| meta.modified())
            .is_ok_and(|at| at.elapsed().is_ok_and(|age| age.as_secs() > 60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn nobody_else_looks_into_scratch() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("deep/scratch");

        let scratch = Scratch::open(&root).unwrap();
        let job = scratch.job().unwrap();

        for private in [&root, scratch.own.path(), job.path(), &job.subfolder("in").unwrap()] {
            assert_eq!(mode(private), 0o700, "{}", private.display());
        }
    }

    #[test]
    fn a_folder_that_is_there_stays_as_its_owner_made_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("scratch");
        DirBuilder::new().create(&root).unwrap();
        std::fs::set_permissions(&root, Permissions::from_mode(0o750)).unwrap();

        drop(Scratch::open(&root).unwrap());

        assert_eq!(mode(&root), 0o750);
    }
}
