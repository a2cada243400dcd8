//! An input that is a file of this machine.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Component, Path, PathBuf};

use super::{Readers, Source, Taken, fingerprint};
use crate::blobs::{hash_file, hash_opened, open_regular};
use crate::failure::{Attempted, Failed, scratch_failed};
use crate::keys;
use crate::kinds::Attempt;
use crate::records::SourceAt;
use crate::workshop::Workshop;

/// Where the store is a folder, all who work on the run see the file too: it stays where it is. One that awaits a scan
/// does not: whoever may write to it could put back the time that it had, and nobody would know.
pub(super) async fn take(attempt: &Attempt<'_>, path: &Path, readers: Readers) -> Attempted<(Taken, Source)> {
    let blobs = &attempt.shop.blobs;
    let Opened { file, path, meta } = open_allowed(path, attempt.shop)?;
    attempt.shop.limits.check_file_bytes(meta.len())?;
    let again = || file.try_clone().map_err(|error| unreadable(&path, &error));
    let key = keys::source(&attempt.job.tenant, attempt.run);
    let (at, copy) = if blobs.is_folder() && readers == Readers::Everybody {
        let (modified_ns, inode) = fingerprint(&meta);
        (SourceAt::File { path: path.clone(), modified_ns, inode }, None)
    } else {
        blobs.put_opened(&key, again()?).await?;
        (SourceAt::Blob { key: key.clone() }, blobs.local_path(&key))
    };
    // Of the bytes that will be read: those of the file may be others by now.
    let (sha256, bytes) = match &copy {
        Some(copy) => hash_file(copy).await?,
        None => hash_opened(again()?).await?,
    };
    let now = file.metadata().map_err(|error| unreadable(&path, &error))?;
    if (now.len(), fingerprint(&now)) != (bytes, fingerprint(&meta)) {
        let message = format!("{} is being written to", path.display());
        return Err(Failed::for_good("input_changed", message, "submit the file when it is complete"));
    }
    Ok((Taken { at, bytes, sha256 }, Source::at(copy.unwrap_or(path))))
}

/// Copies the file, if it may be taken. On a disk that can share blocks this writes none.
pub(super) async fn copy(path: &Path, shop: &Workshop, into: &Path) -> Attempted<()> {
    let Opened { mut file, meta, .. } = open_allowed(path, shop)?;
    shop.limits.check_file_bytes(meta.len())?;
    let into = into.to_owned();
    let copied = tokio::task::spawn_blocking(move || io::copy(&mut file, &mut File::create(into)?));
    let copied = copied.await.map_err(|error| Failed::unexpected(error.to_string()))?;
    copied.map(drop).map_err(|error| scratch_failed("the input cannot be copied", &error))
}

/// Whether the file may be taken, and is not too large.
pub(super) fn check(path: &Path, shop: &Workshop) -> Attempted<()> {
    allowed(path, shop).map(drop)
}

/// The file by the name that the kernel has for it, if it may be taken.
pub(super) fn allowed(path: &Path, shop: &Workshop) -> Attempted<PathBuf> {
    let opened = open_allowed(path, shop)?;
    shop.limits.check_file_bytes(opened.meta.len())?;
    Ok(opened.path)
}

struct Opened {
    file: File,
    path: PathBuf,
    meta: Metadata,
}

fn open_allowed(path: &Path, shop: &Workshop) -> Attempted<Opened> {
    open_within(path, &shop.input_folders, &shop.own_folders())
}

/// Opens a regular file in one of the folders, and in none of our own, where other tenants' files are. What is checked is the
/// file that was opened, by the name the kernel has for it: a link that is put into its path between two looks leads
/// nowhere.
fn open_within(path: &Path, folders: &[PathBuf], own: &[PathBuf]) -> Attempted<Opened> {
    let real = |folders: &[PathBuf]| -> Vec<PathBuf> {
        folders.iter().filter_map(|folder| folder.canonicalize().ok()).collect()
    };
    let (folders, own) = (real(folders), real(own));
    let lies_in = |path: &Path, folders: &[PathBuf]| folders.iter().any(|folder| path.starts_with(folder));
    let is_allowed = |path: &Path| lies_in(path, &folders) && !lies_in(path, &own);
    let canonical = match path.canonicalize() {
        Ok(canonical) => canonical,
        // Whether there is anything outside of the folders is nobody's business.
        Err(error) if is_plain(path) && is_allowed(path) => return Err(unreadable(path, &error)),
        Err(_) => return Err(denied(path)),
    };
    if !is_allowed(&canonical) {
        return Err(denied(path));
    }
    let file = open_regular(&canonical).map_err(|error| unreadable(path, &error))?;
    let opened = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .map_err(|error| unreadable(path, &error))?;
    let meta = file.metadata().map_err(|error| unreadable(path, &error))?;
    match is_allowed(&opened) {
        true => Ok(Opened { file, path: opened, meta }),
        false => Err(denied(path)),
    }
}

fn is_plain(path: &Path) -> bool {
    path.components().all(|part| !matches!(part, Component::ParentDir | Component::CurDir))
}

fn denied(path: &Path) -> Failed {
    let message = format!("{} is no file in a folder that inputs may come from", path.display());
    let hint = "add its folder to input_folders; those of the store, of uploads and of scratch stay closed";
    Failed::for_good("input_denied", message, hint)
}

fn unreadable(path: &Path, error: &io::Error) -> Failed {
    let message = format!("{}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::InvalidInput => Failed::for_good("input_denied", message, "name a regular file"),
        _ => Failed::for_good("input_not_found", message, "check the path and that the worker may read it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(path: &Path, folder: &Path) -> Result<PathBuf, String> {
        let own = [folder.join("own")];
        open_within(path, &[folder.to_owned()], &own).map(|opened| opened.path).map_err(|failed| failed.code)
    }

    #[test]
    fn only_regular_files_in_the_folders_are_taken() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (folder, outside) = (root.join("inputs"), root.join("inputs-of-others"));
        std::fs::create_dir_all(folder.join("deep")).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::create_dir_all(folder.join("own/store")).unwrap();
        for file in ["deep/film", "own/store/blob", "owned-by-others"] {
            std::fs::write(folder.join(file), "x").unwrap();
        }
        std::os::unix::fs::symlink(folder.join("own/store"), folder.join("into-own")).unwrap();
        std::fs::write(outside.join("secret"), "x").unwrap();
        std::os::unix::fs::symlink(outside.join("secret"), folder.join("link")).unwrap();
        std::os::unix::fs::symlink(&outside, folder.join("folder-link")).unwrap();
        std::os::unix::fs::symlink(folder.join("deep/film"), folder.join("inner-link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, folder.join("fifo"), rustix::fs::Mode::RUSR).unwrap();
        let denied = Err("input_denied".to_owned());

        assert_eq!(outcome(&folder.join("deep/film"), &folder), Ok(folder.join("deep/film")));
        assert_eq!(outcome(&folder.join("inner-link"), &folder), Ok(folder.join("deep/film")));
        assert!(outcome(&folder.join("owned-by-others"), &folder).is_ok());
        for path in ["link", "folder-link/secret", "fifo", "deep", "../inputs-of-others/secret", ""] {
            assert_eq!(outcome(&folder.join(path), &folder), denied, "{path}");
        }
        for path in ["own/store/blob", "into-own/blob", "own/none"] {
            assert_eq!(outcome(&folder.join(path), &folder), denied, "{path}");
        }
        for path in ["/etc/passwd", "/dev/zero", "/proc/self/environ", "/nothing/here", "inputs/film"] {
            assert_eq!(outcome(Path::new(path), &folder), denied, "{path}");
        }
        assert_eq!(outcome(&folder.join("none"), &folder), Err("input_not_found".to_owned()));
        assert_eq!(outcome(&folder.join("deep/../../x"), &folder), denied);
    }
}
