//! One file from the store to where its user finds it, whole or not at all.
//!
//! What is put there is the user's own: a clone that shares its blocks with the store until either is written to, where the
//! file system can do that (Btrfs, XFS), or else a copy. A hard link would let whoever edits a result in place damage the
//! store, and every other run that has borrowed the file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::ioctl_ficlone;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use telecine_pipeline::Blobs;
use telecine_pipeline::records::StoredFile;

/// By which a file that was put somewhere is known again without reading it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    sha256: String,
    bytes: u64,
    modified_ns: i64,
    inode: u64,
}

impl Stamp {
    /// `None` where there is no such file.
    fn of(target: &Path, sha256: &str) -> Option<Self> {
        let there = fs::symlink_metadata(target).ok().filter(fs::Metadata::is_file)?;
        Some(Self {
            sha256: sha256.to_owned(),
            bytes: there.len(),
            modified_ns: there.mtime().saturating_mul(1_000_000_000).saturating_add(there.mtime_nsec()),
            inode: there.ino(),
        })
    }
}

/// Puts a file there, unless it is what `before` says, or has the same content.
pub(super) async fn put(
    file: &StoredFile,
    target: &Path,
    before: Option<&Stamp>,
    blobs: &Blobs,
) -> Result<Stamp> {
    let now = Stamp::of(target, &file.sha256);
    if let Some(now) = now.filter(|now| before == Some(now)) {
        return Ok(now);
    }
    let cannot = || format!("cannot write {}", target.display());
    let folder = target.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(cannot)?;
    match blobs.local_path(&file.key) {
        Some(blob) => {
            let (file, target) = (file.clone(), target.to_owned());
            let put = tokio::task::spawn_blocking(move || clone_or_copy(&file, &blob, &target));
            put.await?.with_context(cannot)?;
        }
        None if has_content_of(file, target).with_context(cannot)? => {}
        None => {
            let part = part_in(folder).with_context(cannot)?;
            let fetched = blobs.fetch(&file.key, part.path()).await?;
            ensure!(fetched.sha256 == file.sha256, "{} has other bytes than were stored", file.key);
            publish(part, target).with_context(cannot)?;
        }
    }
    Stamp::of(target, &file.sha256).with_context(|| format!("{} is gone again", target.display()))
}

fn clone_or_copy(file: &StoredFile, blob: &Path, target: &Path) -> io::Result<()> {
    let mut blob = File::open(blob)?;
    if !is_same_file(&blob, target)? && has_content_of(file, target)? {
        return Ok(());
    }
    let mut part = part_in(target.parent().unwrap_or(Path::new(".")))?;
    if ioctl_ficlone(&part, &blob).is_err() {
        io::copy(&mut blob, &mut part)?;
    }
    publish(part, target)
}

/// Another name of the blob: earlier versions exported so.
fn is_same_file(blob: &File, target: &Path) -> io::Result<bool> {
    let blob = blob.metadata()?;
    let target = fs::symlink_metadata(target);
    Ok(target.is_ok_and(|there| (there.dev(), there.ino()) == (blob.dev(), blob.ino())))
}

fn part_in(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new().prefix(".part-").tempfile_in(folder)
}

/// Temporary files are for their owner alone; results are for whoever may look into the folder.
fn publish(part: tempfile::NamedTempFile, target: &Path) -> io::Result<()> {
    part.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
    part.persist(target).map(drop).map_err(|refused| refused.error)
}

/// Times and lengths can agree by chance; hashes do not.
fn has_content_of(file: &StoredFile, target: &Path) -> io::Result<bool> {
    if !fs::symlink_metadata(target).is_ok_and(|there| there.is_file() && there.len() == file.bytes) {
        return Ok(false);
    }
    let mut hash = HashWriter(Sha256::new());
    io::copy(&mut File::open(target)?, &mut hash)?;
    let hex: String = hash.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(hex == file.sha256)
}

struct HashWriter(Sha256);

impl Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        folder: tempfile::TempDir,
        blobs: Blobs,
        file: StoredFile,
    }

    impl Place {
        async fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let blobs = Blobs::in_folder(&folder.path().join("store")).expect("a store");
            let (text, key) = ("a film", "_/run/mp4/video.mp4".to_owned());
            blobs.put_bytes(&key, text.into()).await.expect("stored");
            let sha256 = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
            let file = StoredFile { path: "video.mp4".into(), key, bytes: text.len() as u64, sha256 };
            Self { folder, blobs, file }
        }

        fn target(&self) -> std::path::PathBuf {
            self.folder.path().join("out/video.mp4")
        }

        async fn put(&self, before: Option<&Stamp>) -> Stamp {
            put(&self.file, &self.target(), before, &self.blobs).await.expect("put")
        }

        fn blob(&self) -> String {
            let path = self.blobs.local_path(&self.file.key).expect("the store is a folder");
            fs::read_to_string(path).expect("readable")
        }

        fn exported(&self) -> String {
            fs::read_to_string(self.target()).expect("readable")
        }
    }

    #[tokio::test]
    async fn who_edits_a_result_in_place_changes_nothing_in_the_store() {
        let place = Place::new().await;
        let stamp = place.put(None).await;

        let mut result = File::options().append(true).open(place.target()).expect("a file of the user's own");
        result.write_all(b" with a tag").expect("written");

        assert_eq!(place.blob(), "a film");
        assert_eq!(place.exported(), "a film with a tag");
        place.put(Some(&stamp)).await;
        assert_eq!(place.exported(), "a film", "what was changed is put back");
    }

    #[tokio::test]
    async fn what_is_there_already_is_left_alone() {
        let place = Place::new().await;
        let stamp = place.put(None).await;

        assert_eq!(place.put(Some(&stamp)).await, stamp, "known by its stamp");
        assert_eq!(place.put(None).await, stamp, "known by its content");
        fs::write(place.target(), "x".repeat(6)).expect("another file of the same length");
        place.put(None).await;
        assert_eq!(place.exported(), "a film");
    }

    #[tokio::test]
    async fn a_link_into_the_store_becomes_a_file_of_its_own() {
        let place = Place::new().await;
        let blob = place.blobs.local_path(&place.file.key).expect("the store is a folder");
        fs::create_dir_all(place.target().parent().expect("a folder")).expect("made");
        fs::hard_link(&blob, place.target()).expect("a link");

        place.put(None).await;

        let inode = |path: &Path| fs::metadata(path).expect("there").ino();
        assert_ne!(inode(&place.target()), inode(&blob));
        assert_eq!(place.exported(), "a film");
    }
}
