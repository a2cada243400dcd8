//! An upload that is whole is hashed and put into the store; from then on a run can name it, on any worker.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use telecine_pipeline::{BlobMeta, Blobs, CompletedUpload, StoreError, keys};
use tokio_util::sync::CancellationToken;

use super::headers::hex;
use super::receive::on_disk;
use crate::problem::{Code, Problem};

const PART_BYTES: usize = 1 << 20;

/// A file whose bytes are all there.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    pub(super) tenant: String,
    pub(super) id: String,
    pub(super) file: PathBuf,
    pub(super) name: Option<String>,
    /// What it has to have.
    pub(super) sha256: Option<String>,
}

/// Its keys; `None` for an id that none of ours can be.
fn keys_of(tenant: &str, id: &str) -> Option<(String, String)> {
    keys::upload(tenant, id).zip(keys::upload_sidecar(tenant, id))
}

/// Hashes it and puts it into the store: the bytes first, and last what makes them an upload. May be done again.
pub(super) async fn store(
    blobs: &Blobs,
    whole: Whole,
    stopping: &CancellationToken,
) -> Result<CompletedUpload, Problem> {
    let (key, sidecar) = keys_of(&whole.tenant, &whole.id).ok_or_else(|| Problem::not_found("upload"))?;
    if let Some((completed, _)) = completed(blobs, &whole.tenant, &whole.id).await? {
        return Ok(completed);
    }
    let (file, stop) = (whole.file.clone(), stopping.clone());
    let (sha256, bytes) = on_disk(move || hash(&file, &stop)).await?;
    if let Some(wanted) = whole.sha256.filter(|wanted| *wanted != sha256) {
        let detail = format!("the file has the SHA-256 {sha256}, not {wanted}; upload it again");
        return Err(Problem::new(Code::ChecksumMismatch, detail));
    }
    blobs.put_file(&key, &whole.file).await.map_err(refused)?;
    let completed = CompletedUpload { bytes, sha256, name: whole.name, infected: None };
    let document = serde_json::to_vec(&completed).map_err(io::Error::other);
    let document = document.map_err(|error| super::receive::unwritable(&error))?;
    blobs.put_bytes(&sidecar, document.into()).await.map_err(refused)?;
    tracing::info!(upload = whole.id, bytes, "upload complete");
    Ok(completed)
}

/// An upload that is complete, and when it was.
pub(super) async fn completed(
    blobs: &Blobs,
    tenant: &str,
    id: &str,
) -> Result<Option<(CompletedUpload, BlobMeta)>, Problem> {
    let Some((_, sidecar)) = keys_of(tenant, id) else { return Ok(None) };
    let Some(meta) = blobs.head(&sidecar).await.map_err(refused)? else { return Ok(None) };
    match blobs.get_bytes(&sidecar).await {
        Ok(document) => {
            let completed = serde_json::from_slice(&document).map_err(io::Error::other);
            let completed = completed.map_err(|error| super::receive::unwritable(&error))?;
            Ok(Some((completed, meta)))
        }
        // Removed just now.
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(refused(error)),
    }
}

/// Removes a complete upload; runs that have taken it in have their own copy.
pub(super) async fn remove(blobs: &Blobs, tenant: &str, id: &str) -> Result<(), Problem> {
    let Some((key, sidecar)) = keys_of(tenant, id) else { return Ok(()) };
    // From here on nobody finds it.
    blobs.delete(&sidecar).await.map_err(refused)?;
    blobs.delete(&key).await.map_err(refused)
}

fn hash(file: &Path, stopping: &CancellationToken) -> io::Result<(String, u64)> {
    let mut file = File::open(file)?;
    let (mut hash, mut bytes, mut part) = (Sha256::new(), 0, vec![0; PART_BYTES]);
    loop {
        // A large file takes minutes; what is not hashed now is hashed by the next process.
        if stopping.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match file.read(&mut part)? {
            0 => return Ok((hex(&hash.finalize()), bytes)),
            read => {
                hash.update(&part[..read]);
                bytes += read as u64;
            }
        }
    }
}

/// What the store refuses is not the caller's doing.
fn refused(error: StoreError) -> Problem {
    tracing::error!(%error, "the store did not take or give an upload");
    match error {
        StoreError::Full { .. } => {
            Problem::new(Code::StorageFull, "there is no room in the store at the moment; try again later")
        }
        _ => Problem::new(Code::Unavailable, "the store does not answer; try again")
            .retry_after(Duration::from_secs(5)),
    }
}
