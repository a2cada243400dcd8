//! Blobs: inputs and outputs, in a folder or in a bucket.
//!
//! A put is whole or not at all, and durable when it returns. Keys come from [`crate::keys`].

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path as StorePath;
use object_store::{Error, ObjectStore, ObjectStoreExt};
use sha2::{Digest, Sha256};
use telecine_queue::Timestamp;
use tokio::io::AsyncWriteExt;

use crate::failure::{Attempted, Failed, scratch_failed};

const HASH_PART_BYTES: usize = 1 << 20;

/// A store that was opened.
#[derive(Clone, Debug)]
pub struct Blobs {
    store: Arc<dyn ObjectStore>,
    /// Where the store is a folder of this machine.
    folder: Option<PathBuf>,
}

/// Why the store did not do it, by what its owner can do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such blob.
    #[error("{key} is not in the store")]
    NotFound { key: String },
    /// Correct the credentials or the rights.
    #[error("the store refuses {key}: {reason}")]
    Denied { key: String, reason: String },
    /// Free some space.
    #[error("the store is full: {reason}")]
    Full { reason: String },
    /// Try again later.
    #[error("the store cannot be reached: {reason}")]
    Unavailable { reason: String },
    /// Correct the configuration.
    #[error("{reason}")]
    Invalid { reason: String },
}

impl StoreError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "blob_not_found",
            Self::Denied { .. } => "storage_denied",
            Self::Full { .. } => "storage_full",
            Self::Unavailable { .. } => "storage_unavailable",
            Self::Invalid { .. } => "storage_invalid",
        }
    }

    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Full { .. } | Self::Unavailable { .. } | Self::Denied { .. } => true,
            Self::NotFound { .. } | Self::Invalid { .. } => false,
        }
    }

    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "it was deleted; retry the step that made it, or submit the input again",
            Self::Denied { .. } => "check the store's credentials and rights, then retry the run",
            Self::Full { .. } => "free some space in the store; the job tries again by itself",
            Self::Unavailable { .. } => {
                "check the store's address and that it runs; the job tries again by itself"
            }
            Self::Invalid { .. } => "correct the store's setting",
        }
    }
}

/// What a fetch wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    pub bytes: u64,
    pub sha256: String,
}

impl Blobs {
    /// A folder of this machine; it is made where it is missing.
    pub fn in_folder(folder: &Path) -> Result<Self, StoreError> {
        let invalid = |error: &dyn std::fmt::Display| StoreError::Invalid {
            reason: format!("the store's folder {}: {error}", folder.display()),
        };
        std::fs::create_dir_all(folder).map_err(|error| invalid(&error))?;
        let folder = folder.canonicalize().map_err(|error| invalid(&error))?;
        let store = LocalFileSystem::new_with_prefix(&folder).map_err(|error| invalid(&error))?;
        let store = store.with_fsync(true).with_automatic_cleanup(true);
        Ok(Self { store: Arc::new(store), folder: Some(folder) })
    }

    /// The file of a blob, where the store is a folder.
    pub fn local_path(&self, key: &str) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(key))
    }

    /// Stores a file. What is there under the key is replaced.
    pub async fn put_file(&self, key: &str, file: &Path) -> Result<(), StoreError> {
        let bytes =
            tokio::fs::read(file).await.map_err(|error| StoreError::Invalid { reason: error.to_string() })?;
        self.put_bytes(key, bytes.into()).await
    }

    pub async fn put_bytes(&self, key: &str, bytes: Bytes) -> Result<(), StoreError> {
        let path = StorePath::from(key);
        self.store.put(&path, bytes.into()).await.map(drop).map_err(|error| refused(key, error))
    }

    pub async fn get_bytes(&self, key: &str) -> Result<Bytes, StoreError> {
        let got = self.store.get(&StorePath::from(key)).await.map_err(|error| refused(key, error))?;
        got.bytes().await.map_err(|error| refused(key, error))
    }

    /// Writes a blob to a file.
    pub async fn fetch(&self, key: &str, into: &Path) -> Result<Fetched, StoreError> {
        let io = |error: std::io::Error| StoreError::Unavailable { reason: error.to_string() };
        let got = self.store.get(&StorePath::from(key)).await.map_err(|error| refused(key, error))?;
        let mut file = tokio::fs::File::create(into).await.map_err(io)?;
        let (mut stream, mut hash, mut bytes) = (got.into_stream(), Sha256::new(), 0);
        while let Some(part) = stream.try_next().await.map_err(|error| refused(key, error))? {
            hash.update(&part);
            bytes += part.len() as u64;
            file.write_all(&part).await.map_err(io)?;
        }
        file.flush().await.map_err(io)?;
        Ok(Fetched { bytes, sha256: hex(&hash.finalize()) })
    }

    /// The keys below a prefix, which ends a part of a key.
    pub async fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let found = self.store.list(Some(&StorePath::from(prefix)));
        let keys = found.map_ok(|meta| meta.location.to_string()).try_collect().await;
        keys.map_err(|error| refused(prefix, error))
    }

    /// The keys below a prefix, and when each was last written.
    pub(crate) async fn list_with_times(&self, prefix: &str) -> Result<Vec<(String, Timestamp)>, StoreError> {
        let found = self.store.list(Some(&StorePath::from(prefix)));
        let dated = found.map_ok(|meta| {
            (meta.location.to_string(), Timestamp::from_ms(meta.last_modified.timestamp_millis()))
        });
        dated.try_collect().await.map_err(|error| refused(prefix, error))
    }

    pub async fn exists(&self, key: &str) -> Result<bool, StoreError> {
        match self.store.head(&StorePath::from(key)).await {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(refused(key, error)),
        }
    }

    /// Removes a blob. One that is not there is no error.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        match self.store.delete(&StorePath::from(key)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(refused(key, error)),
        }
    }
}

fn refused(key: &str, error: Error) -> StoreError {
    match error {
        Error::NotFound { .. } => StoreError::NotFound { key: key.to_owned() },
        Error::PermissionDenied { source, .. } | Error::Unauthenticated { source, .. } => {
            StoreError::Denied { key: key.to_owned(), reason: source.to_string() }
        }
        other => StoreError::Unavailable { reason: other.to_string() },
    }
}

/// In lowercase hexadecimal digits.
pub(crate) fn hash_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The hash of a file and its length.
pub(crate) async fn hash_file(file: &Path) -> Attempted<(String, u64)> {
    let file = file.to_owned();
    let hashed = tokio::task::spawn_blocking(move || -> std::io::Result<(String, u64)> {
        let (mut hash, mut file, mut bytes) = (Sha256::new(), std::fs::File::open(file)?, 0);
        let mut part = vec![0; HASH_PART_BYTES];
        loop {
            match file.read(&mut part)? {
                0 => return Ok((hex(&hash.finalize()), bytes)),
                read => {
                    hash.update(&part[..read]);
                    bytes += read as u64;
                }
            }
        }
    });
    let hashed = hashed.await.map_err(|error| Failed::unexpected(error.to_string()))?;
    hashed.map_err(|error| scratch_failed("a file cannot be read", &error))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
