//! Where uploads are until they are whole: a folder with two files for each.
//!
//! ```text
//!   {id}.json     what was told when it was made; an upload is there when this is
//!   {id}.data     its bytes so far: the length of the file is the offset
//!   {name}.part   the body of a request that cannot go on later
//! ```
//! Who writes to an upload holds a lock on its data, which the kernel takes away from a process that is killed; so one
//! writes at a time, whatever process it is of. Everything here waits for the disk: call it where that is allowed.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock, statvfs};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

const TOLD: &str = "json";
const DATA: &str = "data";
const PART: &str = "part";
/// What is half made when its process dies is not touched while somebody could still be at it.
const STRAY_AFTER: Duration = Duration::from_hours(1);

/// The folder.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    folder: PathBuf,
    /// How long an upload to which nothing is added is kept.
    keep: Duration,
}

/// What is known of an upload beside its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) tenant: String,
    pub(super) length: u64,
    /// As the client sent it.
    pub(super) metadata: Option<String>,
    pub(super) name: Option<String>,
    /// What the whole has to have.
    pub(super) sha256: Option<String>,
    /// From here on, the bytes came with a checksum that nobody has compared yet.
    #[serde(default)]
    pub(super) unverified_from: Option<u64>,
}

/// An upload as it is at the moment.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) told: Told,
    /// So many bytes are on the disk.
    pub(super) offset: u64,
    pub(super) expires_at: SystemTime,
}

impl Seen {
    pub(super) fn is_whole(&self) -> bool {
        self.offset == self.told.length
    }

    pub(super) fn has_expired(&self) -> bool {
        // A whole one only waits for the store.
        !self.is_whole() && self.expires_at <= SystemTime::now()
    }
}

/// The right to write to an upload; nobody else has it at the same time.
#[derive(Debug)]
pub(super) struct Held {
    stage: Stage,
    pub(super) id: String,
    pub(super) told: Told,
    file: Arc<File>,
}

/// What came of asking for that right.
#[derive(Debug)]
pub(super) enum Hold {
    Held(Held),
    /// Somebody else writes.
    Busy,
    /// There is no such upload of this tenant.
    Missing,
}

impl Stage {
    pub(super) fn new(folder: PathBuf, keep: Duration) -> Self {
        Self { folder, keep }
    }

    /// Makes the folder where it is missing.
    pub(super) fn open(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)
    }

    /// How much more could be written here.
    pub(super) fn left_bytes(&self) -> io::Result<u64> {
        self.open()?;
        let disk = statvfs(&self.folder)?;
        Ok(disk.f_bavail * disk.f_frsize)
    }

    /// Makes an upload without bytes. When it returns, it is there after a loss of power too.
    pub(super) fn create(&self, id: &str, told: Told) -> io::Result<Held> {
        self.open()?;
        let path = self.path(id, DATA);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.sync_all()?;
        let held = Held { stage: self.clone(), id: id.to_owned(), told, file: Arc::new(file) };
        held.write_told()?;
        Ok(held)
    }

    /// What there is of an upload, without hindering anybody. Its offset is what is on the disk.
    pub(super) fn look(&self, tenant: &str, id: &str) -> io::Result<Option<Seen>> {
        let Some(file) = found(File::open(self.path(id, DATA)))? else { return Ok(None) };
        let meta = file.metadata()?;
        let Some(told) = self.told(id)?.filter(|told| told.tenant == tenant) else { return Ok(None) };
        file.sync_data()?;
        let offset = told.unverified_from.unwrap_or(meta.len()).min(meta.len());
        Ok(Some(Seen { told, offset, expires_at: meta.modified()? + self.keep }))
    }

    /// The right to write to an upload. What no checksum was compared with is cut off first.
    pub(super) fn hold(&self, tenant: &str, id: &str) -> io::Result<Hold> {
        let path = self.path(id, DATA);
        let Some(file) = found(OpenOptions::new().read(true).write(true).open(&path))? else {
            return Ok(Hold::Missing);
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Hold::Busy),
            locked => locked?,
        }
        // It may have been removed between opening and locking.
        let (Some(now), opened) = (found(std::fs::metadata(&path))?, file.metadata()?) else {
            return Ok(Hold::Missing);
        };
        let told = self.told(id)?.filter(|told| told.tenant == tenant && now.ino() == opened.ino());
        let Some(told) = told else { return Ok(Hold::Missing) };
        let mut held = Held { stage: self.clone(), id: id.to_owned(), told, file: Arc::new(file) };
        if let Some(verified) = held.told.unverified_from {
            held.cut(verified)?;
            held.verified()?;
        }
        Ok(Hold::Held(held))
    }

    /// Of all tenants. What cannot be read is told of, and keeps nobody from the rest.
    pub(super) fn list(&self) -> io::Result<Vec<(String, Told)>> {
        let mut listed = Vec::new();
        for path in self.files()? {
            let id = path.file_stem().and_then(|id| id.to_str()).unwrap_or_default();
            if !has_extension(&path, TOLD) {
                continue;
            }
            match self.told(id) {
                Ok(told) => listed.extend(told.map(|told| (id.to_owned(), told))),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "what is known of an upload cannot be read")
                }
            }
        }
        Ok(listed)
    }

    /// Removes what dead processes left half made, and says how many files that were.
    pub(super) fn remove_strays(&self) -> io::Result<usize> {
        let mut removed = 0;
        for path in self.files()? {
            let is_whole = has_extension(&path, TOLD) && path.with_extension(DATA).exists()
                || has_extension(&path, DATA) && path.with_extension(TOLD).exists();
            if is_whole {
                continue;
            }
            match remove_if_left_alone(&path) {
                Ok(is_removed) => removed += usize::from(is_removed),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "what was left half made cannot be removed")
                }
            }
        }
        Ok(removed)
    }

    /// A file for the body of one request, gone when it is dropped.
    pub(super) fn part(&self) -> io::Result<NamedTempFile> {
        self.open()?;
        tempfile::Builder::new().prefix("body-").suffix(&format!(".{PART}")).tempfile_in(&self.folder)
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        match found(std::fs::read_dir(&self.folder))? {
            Some(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
            None => Ok(Vec::new()),
        }
    }

    fn told(&self, id: &str) -> io::Result<Option<Told>> {
        let Some(text) = found(std::fs::read(self.path(id, TOLD)))? else { return Ok(None) };
        serde_json::from_slice(&text).map(Some).map_err(io::Error::other)
    }

    fn path(&self, id: &str, extension: &str) -> PathBuf {
        self.folder.join(format!("{id}.{extension}"))
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

impl Held {
    pub(super) fn data_path(&self) -> PathBuf {
        self.stage.path(&self.id, DATA)
    }

    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(super) fn offset(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// As [`Seen::is_whole`], and nobody can change it while it is held.
    pub(super) fn is_whole(&self) -> io::Result<bool> {
        Ok(self.offset()? == self.told.length)
    }

    pub(super) fn expires_at(&self) -> io::Result<SystemTime> {
        Ok(self.file.metadata()?.modified()? + self.stage.keep)
    }

    /// As [`Seen::has_expired`].
    pub(super) fn has_expired(&self) -> io::Result<bool> {
        Ok(self.offset()? < self.told.length && self.expires_at()? <= SystemTime::now())
    }

    /// From here on, bytes do not count until [`Held::verified`] is called, also if this process dies before.
    pub(super) fn unverified(&mut self, from: u64) -> io::Result<()> {
        self.told.unverified_from = Some(from);
        self.write_told()
    }

    /// All that is there counts.
    pub(super) fn verified(&mut self) -> io::Result<()> {
        self.told.unverified_from = None;
        self.write_told()
    }

    /// Takes back what lies behind.
    pub(super) fn cut(&self, offset: u64) -> io::Result<()> {
        self.file.set_len(offset)?;
        self.file.sync_all()
    }

    /// From here on it is not there.
    pub(super) fn remove(self) -> io::Result<()> {
        found(std::fs::remove_file(self.stage.path(&self.id, TOLD)))?;
        found(std::fs::remove_file(self.data_path()))?;
        self.stage.sync_folder()
    }

    fn write_told(&self) -> io::Result<()> {
        let mut file = NamedTempFile::new_in(&self.stage.folder)?;
        file.write_all(&serde_json::to_vec(&self.told)?)?;
        file.as_file().sync_all()?;
        file.persist(self.stage.path(&self.id, TOLD))?;
        self.stage.sync_folder()
    }
}

/// Writes parts one after the other; says where they end.
pub(super) fn write_at(file: &File, mut at: u64, parts: &[bytes::Bytes]) -> io::Result<u64> {
    for part in parts {
        file.write_all_at(part, at)?;
        at += part.len() as u64;
    }
    Ok(at)
}

fn remove_if_left_alone(path: &Path) -> io::Result<bool> {
    let is_left_alone = is_left_alone(path)?;
    if is_left_alone {
        found(std::fs::remove_file(path))?;
    }
    Ok(is_left_alone)
}

/// Nobody holds it, and nobody has touched it for long.
fn is_left_alone(path: &Path) -> io::Result<bool> {
    let Some(file) = found(File::open(path))? else { return Ok(false) };
    let is_old = file.metadata()?.modified()?.elapsed().is_ok_and(|age| age > STRAY_AFTER);
    Ok(is_old && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// What is not there is no error.
fn found<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage() -> (tempfile::TempDir, Stage) {
        let folder = tempfile::tempdir().unwrap();
        let stage = Stage::new(folder.path().join("uploads"), Duration::from_hours(1));
        (folder, stage)
    }

    fn told(tenant: &str) -> Told {
        Told {
            tenant: tenant.into(),
            length: 10,
            metadata: None,
            name: None,
            sha256: None,
            unverified_from: None,
        }
    }

    #[test]
    fn one_writes_at_a_time_and_everybody_may_look() {
        let (_folder, stage) = stage();
        let held = stage.create("a", told("acme")).unwrap();
        write_at(held.file(), 0, &["abc".into(), "de".into()]).unwrap();

        assert!(matches!(stage.hold("acme", "a").unwrap(), Hold::Busy));
        assert_eq!(stage.look("acme", "a").unwrap().unwrap().offset, 5);
        drop(held);

        assert!(matches!(stage.hold("acme", "a").unwrap(), Hold::Held(_)));
    }

    #[test]
    fn what_is_of_another_tenant_is_not_there() {
        let (_folder, stage) = stage();
        drop(stage.create("a", told("acme")).unwrap());

        assert!(stage.look("other", "a").unwrap().is_none());
        assert!(matches!(stage.hold("other", "a").unwrap(), Hold::Missing));
    }

    #[test]
    fn bytes_whose_checksum_was_never_compared_are_cut_off() {
        let (_folder, stage) = stage();
        let mut held = stage.create("a", told("acme")).unwrap();
        write_at(held.file(), 0, &["abc".into()]).unwrap();
        held.unverified(3).unwrap();
        write_at(held.file(), 3, &["wrong".into()]).unwrap();
        drop(held);

        assert_eq!(stage.look("acme", "a").unwrap().unwrap().offset, 3);
        let Hold::Held(held) = stage.hold("acme", "a").unwrap() else { panic!("it is free") };

        assert_eq!((held.offset().unwrap(), held.told.unverified_from), (3, None));
    }

    #[test]
    fn what_was_removed_cannot_be_held() {
        let (_folder, stage) = stage();
        stage.create("a", told("acme")).unwrap().remove().unwrap();

        assert!(matches!(stage.hold("acme", "a").unwrap(), Hold::Missing));
        assert_eq!(stage.list().unwrap(), []);
    }

    #[test]
    fn only_old_strays_are_removed() {
        let (_folder, stage) = stage();
        drop(stage.create("kept", told("acme")).unwrap());
        let old = SystemTime::now() - 2 * STRAY_AFTER;
        for (name, is_old) in [("a.data", true), ("b.part", true), ("c.part", false), (".tmp1", true)] {
            let file = File::create(stage.folder.join(name)).unwrap();
            file.set_modified(if is_old { old } else { SystemTime::now() }).unwrap();
        }
        File::open(stage.path("kept", DATA)).unwrap().set_modified(old).unwrap();

        assert_eq!(stage.remove_strays().unwrap(), 3);
        assert_eq!(stage.files().unwrap().len(), 3);
    }
}
