//! A file system that can be full.

use std::path::PathBuf;
use std::process::Command;

/// A disk of its own that can be full; only root can have one.
pub(crate) struct SmallDisk {
    pub(crate) path: PathBuf,
}

impl SmallDisk {
    pub(crate) fn mount(size: &str) -> Option<Self> {
        let path = tempfile::Builder::new().prefix("telecine-disk-").tempdir().unwrap().keep();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size},mode=0755"), "tmpfs"])
            .arg(&path)
            .output()
            .unwrap();
        if mounted.status.success() {
            return Some(Self { path });
        }
        eprintln!("SKIPPED: no small disk can be mounted: {}", String::from_utf8_lossy(&mounted.stderr));
        let _ = std::fs::remove_dir(&path);
        None
    }

    /// Leaves so many bytes.
    pub(crate) fn fill(&self, left: u64) {
        let disk = rustix::fs::statvfs(&self.path).unwrap();
        let free = disk.f_bavail * disk.f_frsize;
        let ballast = std::fs::File::create(self.path.join("ballast")).unwrap();
        rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, free - left).unwrap();
    }

    pub(crate) fn empty(&self) {
        std::fs::remove_file(self.path.join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
        let _ = std::fs::remove_dir(&self.path);
    }
}
