//! Sources that were fetched from a bucket, kept for the next job that reads them.
//!
//! ```text
//!   {scratch}/sources/{sha256}     whole and checked: it got its name after both
//! ```
//! One download serves all slots of a process, and later processes on the same scratch folder. Whoever reads a source
//! holds a shared lock on its file; what is evicted is locked alone first, so nothing is taken from under a reader, in
//! this process or another. The kernel drops locks with their process.

use std::collections::{HashMap, HashSet};
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};

use crate::blobs::{Fetched, hash_file};
use crate::failure::{Attempted, Failed, scratch_failed};
use crate::scratch::make_private;

const DEFAULT_BYTES: u64 = 20 << 30;

/// The sources that a worker keeps.
#[derive(Debug)]
pub(crate) struct SourceCache {
    folder: PathBuf,
    /// Those whose bytes this process has seen to be right.
    checked: Mutex<HashSet<String>>,
    /// One fetch at a time for each source.
    fetching: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// What is on its way.
    reserved_bytes: Arc<Mutex<u64>>,
}

/// What the cache may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRoom {
    pub max_bytes: u64,
}

impl Default for CacheRoom {
    fn default() -> Self {
        Self { max_bytes: DEFAULT_BYTES }
    }
}

/// A source that stays where it is for as long as this lives.
#[derive(Debug)]
pub(crate) struct Held {
    path: PathBuf,
    _lock: File,
}

impl Held {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl SourceCache {
    /// Nothing is made before the first source comes.
    pub(crate) fn in_scratch(root: &Path) -> Self {
        Self {
            folder: root.join("sources"),
            checked: Mutex::default(),
            fetching: Mutex::default(),
            reserved_bytes: Arc::default(),
        }
    }

    /// The source with that hash, fetched if it is not there. `None` where the cache has no room for it.
    pub(crate) async fn get<F: Future<Output = Attempted<Fetched>>>(
        &self,
        wanted: &Fetched,
        room: Room,
        into: &Path,
        fetch: impl FnOnce() -> F,
    ) -> Attempted<Option<Held>> {
        let turn = {
            let mut fetching = lock(&self.fetching);
            fetching.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(fetching.entry(wanted.sha256.clone()).or_default())
        };
        let _turn = turn.lock().await;
        if let Some(held) = self.find(wanted).await? {
            return Ok(Some(held));
        }
        let Some(_reserved) = self.make_room(wanted.bytes, room)? else { return Ok(None) };
        let fetched = fetch().await?;
        if fetched != *wanted {
            return Err(other_bytes(wanted));
        }
        self.adopt(into, &wanted.sha256).map(Some)
    }

    /// Takes a file whose hash is known to be that. `None` where the cache has no room for it.
    pub(crate) fn take_in(&self, file: &Path, of: &Fetched, room: Room) -> Attempted<Option<Held>> {
        match self.make_room(of.bytes, room)? {
            Some(_reserved) => self.adopt(file, &of.sha256).map(Some),
            None => Ok(None),
        }
    }

    /// What is there from before: after a loss of power a file may be torn, so each is read once by each process.
    async fn find(&self, wanted: &Fetched) -> Attempted<Option<Held>> {
        let Some(held) = self.hold(&wanted.sha256) else { return Ok(None) };
        if self.was_checked(&wanted.sha256) {
            return Ok(Some(held));
        }
        let (sha256, bytes) = hash_file(&held.path).await?;
        if (Fetched { bytes, sha256 }) == *wanted {
            self.remember_checked(wanted.sha256.clone());
            return Ok(Some(held));
        }
        tracing::warn!(path = %held.path.display(), "a kept source is damaged and is fetched again");
        std::fs::remove_file(&held.path).map_err(|error| scratch_failed("a damaged source stays", &error))?;
        Ok(None)
    }

    /// Lets go of a source that nobody should read any more. One that somebody still holds stays until it is evicted.
    pub(crate) fn forget(&self, sha256: &str) {
        let kept = self.kept().unwrap_or_default();
        let is_gone = kept.iter().filter(|source| source.path.ends_with(sha256)).all(Kept::evict);
        if !is_gone {
            tracing::warn!(sha256, "a source that should go is still read by somebody");
        }
    }

    /// Whether this process has seen that these bytes are right.
    pub(crate) fn was_checked(&self, what: &str) -> bool {
        lock(&self.checked).contains(what)
    }

    pub(crate) fn remember_checked(&self, what: String) {
        lock(&self.checked).insert(what);
    }

    fn hold(&self, sha256: &str) -> Option<Held> {
        let path = self.folder.join(sha256);
        let file = File::open(&path).ok()?;
        flock(&file, FlockOperation::NonBlockingLockShared).ok()?;
        // It may have been evicted between the opening and the lock.
        let is_still_there = file.metadata().ok()?.ino() == path.metadata().ok()?.ino();
        // The oldest is evicted first. If this fails, it is only evicted too early.
        let _ = file.set_modified(SystemTime::now());
        is_still_there.then_some(Held { path, _lock: file })
    }

    fn adopt(&self, file: &Path, sha256: &str) -> Attempted<Held> {
        let adopted = || -> io::Result<()> {
            make_private(&self.folder)?;
            std::fs::set_permissions(file, Permissions::from_mode(0o400))?;
            std::fs::rename(file, self.folder.join(sha256))
        };
        adopted().map_err(|error| scratch_failed("a source cannot be kept", &error))?;
        self.remember_checked(sha256.to_owned());
        // Another process may evict it at once; the next attempt fetches it again.
        self.hold(sha256).ok_or_else(|| Failed::for_now("io_failed", "a source was evicted at once", ""))
    }

    /// Evicts until so much more fits, oldest first, and nothing that is held.
    ///
    /// A disk that is short of space is a reason to evict, not to do without: a copy for each job would need more of it.
    fn make_room(&self, bytes: u64, room: Room) -> Attempted<Option<Reserved>> {
        let mut reserved = lock(&self.reserved_bytes);
        let mut kept = self.kept().map_err(|error| scratch_failed("the kept sources", &error))?;
        kept.sort_by_key(|source| source.used_at);
        let mut total: u64 = kept.iter().map(|source| source.bytes).sum();
        let mut free = room.free_bytes;
        for source in &kept {
            let needed = *reserved + bytes;
            if total + needed <= room.max_bytes && needed <= free {
                break;
            }
            if source.evict() {
                total -= source.bytes;
                free += source.bytes;
                tracing::info!(path = %source.path.display(), bytes = source.bytes, "source evicted");
            }
        }
        if total + *reserved + bytes > room.max_bytes {
            return Ok(None);
        }
        *reserved += bytes;
        Ok(Some(Reserved { bytes, of: Arc::clone(&self.reserved_bytes) }))
    }

    fn kept(&self) -> io::Result<Vec<Kept>> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut kept = Vec::new();
        for entry in entries {
            let entry = entry?;
            // Another process may have evicted it since.
            if let Ok(meta) = entry.metadata() {
                kept.push(Kept { path: entry.path(), bytes: meta.len(), used_at: meta.modified()? });
            }
        }
        Ok(kept)
    }
}

/// The bounds at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) max_bytes: u64,
    /// What jobs may use of the disk.
    pub(crate) free_bytes: u64,
}

struct Kept {
    path: PathBuf,
    bytes: u64,
    used_at: SystemTime,
}

impl Kept {
    /// Whether nobody held it.
    fn evict(&self) -> bool {
        let Ok(file) = File::open(&self.path) else { return false };
        flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && std::fs::remove_file(&self.path).is_ok()
    }
}

/// Room for a source on its way.
struct Reserved {
    bytes: u64,
    of: Arc<Mutex<u64>>,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        *lock(&self.of) -= self.bytes;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn other_bytes(wanted: &Fetched) -> Failed {
    Failed::for_now(
        "storage_corrupt",
        format!("the source in the store does not have the hash {}", wanted.sha256),
        "check the store's disks; submit the input again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    use crate::blobs::hash_bytes;

    const ROOMY: Room = Room { max_bytes: 25, free_bytes: 1 << 40 };

    struct Place {
        root: tempfile::TempDir,
        cache: SourceCache,
        fetches: AtomicU32,
    }

    impl Place {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            Self { cache: SourceCache::in_scratch(root.path()), root, fetches: AtomicU32::new(0) }
        }

        async fn get(&self, content: &str, room: Room) -> Attempted<Option<Held>> {
            let wanted = described(content);
            let into = self.root.path().join(format!("job-{}", fastrand::u64(..)));
            let fetch = || async {
                self.fetches.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                std::fs::write(&into, content).unwrap();
                Ok(described(content))
            };
            self.cache.get(&wanted, room, &into, fetch).await
        }

        fn fetches(&self) -> u32 {
            self.fetches.load(Ordering::SeqCst)
        }

        fn has(&self, content: &str) -> bool {
            self.cache.folder.join(described(content).sha256).exists()
        }
    }

    fn described(content: &str) -> Fetched {
        Fetched { bytes: content.len() as u64, sha256: hash_bytes(content.as_bytes()) }
    }

    #[tokio::test]
    async fn one_fetch_serves_all_who_ask_at_once() {
        let place = Place::new();

        let all = futures_util::future::join_all((0..8).map(|_| place.get("the source", ROOMY))).await;

        assert!(all.into_iter().all(|held| {
            let held = held.unwrap().unwrap();
            std::fs::read(held.path()).unwrap() == b"the source"
        }));
        assert_eq!(place.fetches(), 1);
    }

    #[tokio::test]
    async fn the_longest_unused_goes_first_and_never_one_that_is_held() {
        let place = Place::new();
        let first = place.get("aaaaaaaaaa", ROOMY).await.unwrap().unwrap();
        drop(place.get("bbbbbbbbbb", ROOMY).await.unwrap());

        let third = place.get("cccccccccc", ROOMY).await.unwrap().unwrap();
        assert!(place.has("aaaaaaaaaa") && !place.has("bbbbbbbbbb") && place.has("cccccccccc"));
        assert!(
            place.get("dddddddddd", ROOMY).await.unwrap().is_none(),
            "there is no room beside those held"
        );
        drop(first);

        assert!(place.get("dddddddddd", ROOMY).await.unwrap().is_some());
        assert!(!place.has("aaaaaaaaaa") && place.has("cccccccccc"));
        drop(third);
    }

    #[tokio::test]
    async fn a_full_disk_makes_room_too() {
        let place = Place::new();
        drop(place.get("aaaaaaaaaa", ROOMY).await.unwrap());

        let tight = Room { free_bytes: 5, ..ROOMY };

        assert!(place.get("bbbbbbbbbb", tight).await.unwrap().is_some());
        assert!(!place.has("aaaaaaaaaa"));
    }

    #[tokio::test]
    async fn a_source_that_was_damaged_meanwhile_is_fetched_again() {
        let place = Place::new();
        let path = place.get("the source", ROOMY).await.unwrap().unwrap().path().to_owned();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "the sourcf").unwrap();

        let later = Place { cache: SourceCache::in_scratch(place.root.path()), ..place };
        let held = later.get("the source", ROOMY).await.unwrap().unwrap();

        assert_eq!(std::fs::read(held.path()).unwrap(), b"the source");
        assert_eq!(later.fetches(), 2);
    }

    #[tokio::test]
    async fn other_bytes_than_were_promised_are_not_kept() {
        let place = Place::new();
        let into = place.root.path().join("job");
        let fetch = || async {
            std::fs::write(&into, "else").unwrap();
            Ok(described("else"))
        };

        let failed = place.cache.get(&described("the source"), ROOMY, &into, fetch).await.unwrap_err();

        assert_eq!(failed.code, "storage_corrupt");
        assert!(!place.has("the source") && !place.has("else"));
    }
}
