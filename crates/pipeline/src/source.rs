//! The source of a run, as a file of this machine.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::blobs::{Blobs, hash_file};
use crate::failure::{Attempted, Failed, scratch_failed};
use crate::input::Input;
use crate::keys;
use crate::kinds::Attempt;
use crate::records::{InputRecord, SourceAt};

/// An input that was taken in: every byte of it was read, and the same bytes will be found again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) at: SourceAt,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// Takes an input in.
pub(crate) async fn take(attempt: &Attempt<'_>, input: &Input) -> Attempted<Taken> {
    match input {
        Input::Path(path) => take_file(attempt, path).await,
        Input::Url(_) | Input::S3(_) | Input::Upload(_) => Err(Failed::for_good(
            "input_unsupported",
            "this kind of input is not known yet",
            "name a local file",
        )),
    }
}

/// Where the store is a folder, all who work on the run see the file too: it stays where it is.
async fn take_file(attempt: &Attempt<'_>, path: &Path) -> Attempted<Taken> {
    let refused = |error: std::io::Error| {
        let message = format!("{}: {error}", path.display());
        Failed::for_good("input_not_found", message, "check the path and that the worker may read it")
    };
    let path = tokio::fs::canonicalize(path).await.map_err(refused)?;
    let meta = tokio::fs::metadata(&path).await.map_err(refused)?;
    let allowed = attempt.shop.input_folders.iter().any(|folder| path.starts_with(folder));
    if !allowed || !meta.is_file() {
        let message = format!("{} is no file in a folder that inputs may come from", path.display());
        return Err(Failed::for_good("input_denied", message, "add its folder to input_folders"));
    }
    let (modified_ns, inode) = fingerprint(&meta);
    let (sha256, bytes) = hash_file(&path).await?;
    let key = keys::source(&attempt.job.tenant, attempt.run);
    let at = match attempt.shop.blobs.local_path(&key) {
        Some(_) => SourceAt::File { path, modified_ns, inode },
        None => {
            attempt.shop.blobs.put_file(&key, &path).await?;
            SourceAt::Blob { key }
        }
    };
    Ok(Taken { at, bytes, sha256 })
}

/// A file to read, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
}

impl Source {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file itself, or the store's own, or a copy of it in the job's folder.
    pub(crate) async fn of(input: &InputRecord, blobs: &Blobs, folder: &Path) -> Attempted<Self> {
        let taken = Taken { at: input.at.clone(), bytes: input.bytes, sha256: input.sha256.clone() };
        Self::taken(&taken, blobs, folder).await
    }

    pub(crate) async fn taken(input: &Taken, blobs: &Blobs, folder: &Path) -> Attempted<Self> {
        match &input.at {
            SourceAt::File { path, modified_ns, inode } => {
                require_unchanged(path, input.bytes, *modified_ns, *inode).await?;
                Ok(Self { path: path.clone() })
            }
            SourceAt::Blob { key } => match blobs.local_path(key) {
                Some(path) => Ok(Self { path }),
                None => {
                    let path = folder.join("source");
                    let fetched = blobs.fetch(key, &path).await?;
                    if fetched.sha256 != input.sha256 {
                        return Err(Failed::for_now(
                            "storage_corrupt",
                            format!("{key} has other bytes than it had"),
                            "check the store",
                        ));
                    }
                    Ok(Self { path })
                }
            },
        }
    }
}

/// When it was last changed, and which file it is: what tells one that was replaced or written to.
pub(crate) fn fingerprint(meta: &std::fs::Metadata) -> (i128, u64) {
    (i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()), meta.ino())
}

async fn require_unchanged(path: &Path, bytes: u64, modified_ns: i128, inode: u64) -> Attempted<()> {
    let meta = tokio::fs::metadata(path).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failed::for_good(
            "input_not_found",
            format!("{} is gone", path.display()),
            "put the file back where it was and retry the run",
        ),
        _ => scratch_failed(&format!("{} cannot be read", path.display()), &error),
    })?;
    if meta.len() == bytes && fingerprint(&meta) == (modified_ns, inode) {
        return Ok(());
    }
    Err(Failed::for_good(
        "input_changed",
        format!("{} was changed after the run had begun", path.display()),
        "submit the file again",
    ))
}
