//! Blobs: inputs and outputs, in a folder or in a bucket.
//!
//! A put is whole or not at all, and durable when it returns. Keys come from [`crate::keys`]; the prefix of a bucket is
//! no part of them.

mod bucket;
mod error;
mod folder;
mod hash;
mod upload;
mod wire;

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path as StorePath;
use object_store::signer::Signer;
use object_store::{Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;
use url::Url;

use crate::figures;
use bucket::Bucket;
use folder::{Folder, Readers};

pub use bucket::StoreOptions;
pub use error::StoreError;
pub(crate) use folder::open_regular;
pub(crate) use hash::{hash_bytes, hash_file, hash_opened, hex};

/// A bucket copies no more than that in one request.
const COPY_BYTES: u64 = 5 << 30;

/// A store that was opened.
#[derive(Clone, Debug)]
pub struct Blobs {
    place: Arc<Place>,
}

#[derive(Debug)]
enum Place {
    Folder(Folder),
    Bucket(Box<Bucket>),
}

/// What becomes of puts that never ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unfinished {
    Count,
    Remove,
}

/// What a fetch wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    pub bytes: u64,
    pub sha256: String,
}

/// What a store knows of a blob without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobMeta {
    pub key: String,
    pub bytes: u64,
    pub modified_at: SystemTime,
}

/// A part of a blob, as it arrives.
pub struct BlobReader {
    pub meta: BlobMeta,
    /// Which bytes of it come.
    pub range: Range<u64>,
    pub parts: BoxStream<'static, Result<Bytes, StoreError>>,
}

impl Blobs {
    /// A folder, a `file:` URL or `s3://bucket/prefix`; a bucket is reached as the `AWS_…` variables of the process say.
    ///
    /// Asks nothing of a bucket's server: [`Blobs::check`] does.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        Self::open_with(url, &StoreOptions::from_env())
    }

    pub fn open_with(url: &str, options: &StoreOptions) -> Result<Self, StoreError> {
        Self::open_for(url, options, Readers::Ourselves)
    }

    fn open_for(url: &str, options: &StoreOptions, readers: Readers) -> Result<Self, StoreError> {
        if url.starts_with("s3://") {
            let bucket = Bucket::open(url, options)?;
            return Ok(Self { place: Arc::new(Place::Bucket(Box::new(bucket))) });
        }
        match url.split_once(':') {
            Some(("file", _)) => {
                let path = Url::parse(url).ok().and_then(|url| url.to_file_path().ok());
                let path = path.ok_or_else(|| StoreError::invalid(format!("{url} names no folder here")))?;
                Self::in_folder_for(&path, readers)
            }
            Some((_, rest)) if rest.starts_with("//") => {
                let scheme = url.split(':').next().unwrap_or_default();
                let reason = format!("a store is a folder or s3://bucket/prefix; {scheme} is not known");
                Err(StoreError::invalid(reason))
            }
            _ => Self::in_folder_for(Path::new(url), readers),
        }
    }

    /// A folder of this machine; it is made where it is missing.
    pub fn in_folder(folder: &Path) -> Result<Self, StoreError> {
        Self::in_folder_for(folder, Readers::Ourselves)
    }

    fn in_folder_for(folder: &Path, readers: Readers) -> Result<Self, StoreError> {
        Ok(Self { place: Arc::new(Place::Folder(Folder::open(folder, readers)?)) })
    }

    /// Another bucket, or another part of this one, reached the same way; or a folder that others serve.
    pub(crate) fn sibling(&self, url: &str) -> Result<Self, StoreError> {
        match &*self.place {
            Place::Bucket(bucket) => Self::open_for(url, &bucket.options, Readers::Everybody),
            Place::Folder(_) => Self::open_for(url, &StoreOptions::from_env(), Readers::Everybody),
        }
    }

    /// Whether the store can be reached, lets us in and can be written to. For the start of a worker.
    pub async fn check(&self) -> Result<(), StoreError> {
        match &*self.place {
            Place::Folder(folder) => {
                let probe = tempfile::Builder::new().suffix("#0").tempfile_in(&folder.root);
                probe.map(drop).map_err(|error| StoreError::of_io("the folder", &error))
            }
            Place::Bucket(bucket) => {
                bucket.require_credentials().await?;
                bucket.refuses_to_overwrite().await.map(drop)
            }
        }
    }

    /// Whether blobs are files of this machine.
    pub(crate) fn is_folder(&self) -> bool {
        self.folder().is_some()
    }

    /// The folder that the store is, if it is one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match &*self.place {
            Place::Folder(folder) => Some(&folder.root),
            Place::Bucket(_) => None,
        }
    }

    /// The file of a blob, where the store is a folder.
    pub fn local_path(&self, key: &str) -> Option<PathBuf> {
        match &*self.place {
            Place::Folder(folder) => Some(folder.root.join(StorePath::parse(key).ok()?.as_ref())),
            Place::Bucket(_) => None,
        }
    }

    /// Whether `s3://bucket/key` is something of this store, under whatever tenant.
    pub(crate) fn contains_url(&self, url: &str) -> bool {
        match (&*self.place, bucket::split_url(url)) {
            (Place::Bucket(own), Ok((name, key))) => {
                own.name == name && StorePath::from(key).prefix_matches(&StorePath::from(own.prefix.as_str()))
            }
            (Place::Bucket(_) | Place::Folder(_), _) => false,
        }
    }

    /// Stores a file of ours that is never written to again. What is there under the key is replaced.
    pub async fn put_file(&self, key: &str, file: &Path) -> Result<(), StoreError> {
        let opened = open_regular(file)
            .map_err(|error| StoreError::invalid(format!("{} cannot be stored: {error}", file.display())))?;
        self.put(key, opened, Some(file.to_owned())).await
    }

    /// Stores an opened file, which may be anybody's.
    pub(crate) async fn put_opened(&self, key: &str, file: File) -> Result<(), StoreError> {
        self.put(key, file, None).await
    }

    async fn put(&self, key: &str, file: File, linkable: Option<PathBuf>) -> Result<(), StoreError> {
        let bytes = file.metadata().map_or(0, |meta| meta.len());
        let put = self.put_uncounted(key, file, linkable).await;
        figures::put(bytes, &put);
        put
    }

    async fn put_uncounted(
        &self,
        key: &str,
        file: File,
        linkable: Option<PathBuf>,
    ) -> Result<(), StoreError> {
        match &*self.place {
            Place::Folder(folder) => {
                let (folder, destination) = (folder.clone(), self.path(key)?);
                let destination = folder.root.join(destination.as_ref());
                let published = tokio::task::spawn_blocking(move || {
                    folder.publish(&destination, linkable.as_deref(), &file)
                });
                let published =
                    published.await.map_err(|error| StoreError::Unavailable { reason: error.to_string() })?;
                published.map_err(|error| StoreError::of_io(key, &error))
            }
            Place::Bucket(bucket) => {
                let bytes = file.metadata().map_err(|error| StoreError::of_io(key, &error))?.len();
                bucket.put_opened(key, file, bytes).await
            }
        }
    }

    pub async fn put_bytes(&self, key: &str, bytes: Bytes) -> Result<(), StoreError> {
        let length = bytes.len() as u64;
        let put = match &*self.place {
            Place::Folder(folder) => self.write(folder, key, bytes, false).await.map(drop),
            Place::Bucket(bucket) => {
                let put = bucket.s3.put(&self.path(key)?, PutPayload::from_bytes(bytes)).await;
                put.map(drop).map_err(|error| StoreError::of(key, &error))
            }
        };
        figures::put(length, &put);
        put
    }

    async fn write(
        &self,
        folder: &Folder,
        key: &str,
        bytes: Bytes,
        only_new: bool,
    ) -> Result<bool, StoreError> {
        let (folder, destination) = (folder.clone(), folder.root.join(self.path(key)?.as_ref()));
        let written = tokio::task::spawn_blocking(move || folder.write(&destination, &bytes, only_new));
        let written = written.await.map_err(|error| StoreError::Unavailable { reason: error.to_string() })?;
        written.map_err(|error| StoreError::of_io(key, &error))
    }

    /// Stores it unless there is something under the key; says whether it did.
    ///
    /// After a lost answer it may say `false` of one's own bytes: who needs to know reads what is there.
    pub async fn put_new(&self, key: &str, bytes: Bytes) -> Result<bool, StoreError> {
        match &*self.place {
            Place::Bucket(bucket) => bucket.put_new(key, bytes).await,
            Place::Folder(folder) => self.write(folder, key, bytes, true).await,
        }
    }

    /// Stores a copy of a blob, without its bytes passing through here where the store can do that.
    pub(crate) async fn copy(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.copy_into(self, from, to).await
    }

    /// Whether [`Blobs::copy`] takes one of that size.
    pub(crate) fn can_copy(&self, bytes: u64) -> bool {
        self.can_copy_into(self, bytes)
    }

    /// Stores a copy of a blob in another store that [`Blobs::can_copy_into`] says yes to.
    pub(crate) async fn copy_into(&self, other: &Self, from: &str, to: &str) -> Result<(), StoreError> {
        let source = self.path(from)?;
        match &*self.place {
            Place::Folder(folder) => {
                let file = folder.root.join(source.as_ref());
                let opened = open_regular(&file).map_err(|error| StoreError::of_io(from, &error))?;
                other.put(to, opened, Some(file)).await
            }
            Place::Bucket(bucket) => {
                let copied = bucket.s3.copy(&source, &other.path(to)?).await;
                copied.map_err(|error| StoreError::of(from, &error))
            }
        }
    }

    /// Whether a blob of that size gets into another store without a detour through scratch.
    pub(crate) fn can_copy_into(&self, other: &Self, bytes: u64) -> bool {
        match (&*self.place, &*other.place) {
            (Place::Folder(_), _) => true,
            (Place::Bucket(own), Place::Bucket(other)) => own.name == other.name && bytes <= COPY_BYTES,
            (Place::Bucket(_), Place::Folder(_)) => false,
        }
    }

    /// Where this store lies in another one, empty where both are the same; `None`: it lies elsewhere.
    pub(crate) fn lies_in(&self, other: &Self) -> Option<String> {
        match (&*self.place, &*other.place) {
            (Place::Folder(own), Place::Folder(other)) => {
                let rest = own.root.strip_prefix(&other.root).ok()?;
                rest.to_str().map(str::to_owned)
            }
            (Place::Bucket(own), Place::Bucket(other)) if own.name == other.name => {
                let (own, other) =
                    (StorePath::from(own.prefix.as_str()), StorePath::from(other.prefix.as_str()));
                let rest: Vec<String> =
                    own.prefix_match(&other)?.map(|part| part.as_ref().to_owned()).collect();
                Some(rest.join("/"))
            }
            (Place::Folder(_) | Place::Bucket(_), _) => None,
        }
    }

    /// `s3://bucket`, and the whole key in it; in a folder the key alone.
    pub(crate) fn address_of(&self, key: &str) -> Result<(Option<String>, String), StoreError> {
        let bucket = match &*self.place {
            Place::Folder(_) => None,
            Place::Bucket(bucket) => Some(format!("s3://{}", bucket.name)),
        };
        Ok((bucket, self.path(key)?.to_string()))
    }

    pub async fn get_bytes(&self, key: &str) -> Result<Bytes, StoreError> {
        let refused = |error: Error| {
            let error = StoreError::of(key, &error);
            figures::get_failed(&error);
            error
        };
        let got = self.store().get(&self.path(key)?).await.map_err(refused)?;
        let bytes = got.bytes().await.map_err(refused)?;
        figures::bytes_in().increment(bytes.len() as u64);
        Ok(bytes)
    }

    /// A part of a blob; one that ends behind the blob's end is cut short.
    pub async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let reader = self.read(key, Some(range)).await?;
        let parts: Vec<Bytes> = reader.parts.try_collect().await?;
        Ok(parts.concat().into())
    }

    /// A blob, or a part of it, as it arrives.
    pub async fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<BlobReader, StoreError> {
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let got = self.store().get_opts(&self.path(key)?, options).await;
        let got = got.map_err(|error| StoreError::of(key, &error)).inspect_err(figures::get_failed)?;
        let (meta, range, of) = (self.meta(&got.meta), got.range.clone(), key.to_owned());
        let bytes_in = figures::bytes_in();
        let parts = got.into_stream().inspect_ok(move |part| bytes_in.increment(part.len() as u64));
        let parts = parts.map_err(move |error| StoreError::of(&of, &error));
        let parts = parts.inspect_err(figures::get_failed).boxed();
        Ok(BlobReader { meta, range, parts })
    }

    /// Writes a blob to a file.
    pub async fn fetch(&self, key: &str, into: &Path) -> Result<Fetched, FetchError> {
        self.fetch_up_to(key, into, u64::MAX).await
    }

    /// As [`Blobs::fetch`], but no more than so many bytes are written.
    pub(crate) async fn fetch_up_to(
        &self,
        key: &str,
        into: &Path,
        limit: u64,
    ) -> Result<Fetched, FetchError> {
        let mut reader = self.read(key, None).await?;
        if reader.meta.bytes > limit {
            return Err(FetchError::TooLarge { bytes: reader.meta.bytes });
        }
        let mut file = tokio::fs::File::create(into).await?;
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        while let Some(part) = reader.parts.try_next().await? {
            hash.update(&part);
            bytes += part.len() as u64;
            file.write_all(&part).await?;
        }
        file.flush().await?;
        if bytes == reader.meta.bytes {
            return Ok(Fetched { bytes, sha256: hex(&hash.finalize()) });
        }
        let reason = format!("{bytes} of {} bytes came", reader.meta.bytes);
        Err(StoreError::Corrupt { key: key.to_owned(), reason }.into())
    }

    /// What is known of a blob; `None` where there is none.
    pub async fn head(&self, key: &str) -> Result<Option<BlobMeta>, StoreError> {
        match self.store().head(&self.path(key)?).await {
            Ok(meta) => Ok(Some(self.meta(&meta))),
            Err(error) => match StoreError::of(key, &error) {
                StoreError::NotFound { .. } => Ok(None),
                other => Err(other),
            },
        }
    }

    /// An address at which anybody can read the blob for so long. A folder has none.
    pub async fn presigned(&self, key: &str, valid_for: Duration) -> Result<Option<Url>, StoreError> {
        match &*self.place {
            Place::Folder(_) => Ok(None),
            Place::Bucket(bucket) => {
                let signed = bucket.s3.signed_url(reqwest::Method::GET, &bucket.path(key)?, valid_for).await;
                signed.map(Some).map_err(|error| StoreError::of(key, &error))
            }
        }
    }

    /// The keys below a prefix, which ends a part of a key.
    pub async fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.entries(prefix).map_ok(|meta| meta.key).try_collect().await
    }

    /// What lies below a prefix, as it is found.
    pub fn entries(&self, prefix: &str) -> BoxStream<'static, Result<BlobMeta, StoreError>> {
        let path = match self.path(prefix) {
            Ok(path) => path,
            Err(error) => return stream::iter([Err(error)]).boxed(),
        };
        let (this, of) = (self.clone(), prefix.to_owned());
        let found = self.store().list(Some(&path));
        found
            .map(move |meta| meta.map(|meta| this.meta(&meta)).map_err(|error| StoreError::of(&of, &error)))
            .boxed()
    }

    /// Names of the folders directly below a prefix, behind one of them, in the order of `name/`, as many as asked for.
    pub(crate) async fn folders(
        &self,
        below: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        match &*self.place {
            Place::Bucket(bucket) => bucket.folders(below, after, limit).await,
            Place::Folder(folder) => {
                let (folder, path, after) = (folder.clone(), self.path(below)?, after.map(str::to_owned));
                let listed = tokio::task::spawn_blocking(move || {
                    folder.folders(path.as_ref(), after.as_deref(), limit)
                });
                let listed =
                    listed.await.map_err(|error| StoreError::Unavailable { reason: error.to_string() })?;
                listed.map_err(|error| StoreError::of_io(below, &error))
            }
        }
    }

    pub async fn exists(&self, key: &str) -> Result<bool, StoreError> {
        Ok(self.head(key).await?.is_some())
    }

    /// Removes a blob. One that is not there is no error.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.delete_all([key.to_owned()]).await
    }

    /// Removes blobs, in a bucket up to a thousand with one request. Those that are not there are no error.
    pub async fn delete_all(&self, keys: impl IntoIterator<Item = String>) -> Result<(), StoreError> {
        let paths: Vec<StorePath> =
            keys.into_iter().map(|key| self.path(&key)).collect::<Result<_, StoreError>>()?;
        let mut deleted = self.store().delete_stream(stream::iter(paths.into_iter().map(Ok)).boxed());
        let mut failed = None;
        while let Some(outcome) = deleted.next().await {
            match outcome {
                Ok(_) | Err(Error::NotFound { .. }) => (),
                Err(error) => failed = Some(StoreError::of("what should be deleted", &error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Removes what puts that never ended have left: staged files in a folder, parts of uploads in a bucket.
    pub async fn sweep_unfinished(&self, older_than: Duration) -> Result<usize, StoreError> {
        self.unfinished_below("", older_than, Unfinished::Remove).await
    }

    /// Removes staged files of these keys, for whoever alone writes them. In a bucket that is for a rule of its lifecycle.
    pub(crate) async fn remove_staged_of(&self, keys: BTreeSet<String>) -> Result<(), StoreError> {
        let Place::Folder(folder) = &*self.place else { return Ok(()) };
        let folder = folder.clone();
        let removed = tokio::task::spawn_blocking(move || folder.remove_staged_of(&keys)).await;
        let removed = removed.map_err(|error| StoreError::Unavailable { reason: error.to_string() })?;
        removed.map_err(|error| StoreError::of_io("staged files", &error))
    }

    /// How many of those there are.
    pub(crate) async fn count_unfinished(&self, older_than: Duration) -> Result<usize, StoreError> {
        self.unfinished_below("", older_than, Unfinished::Count).await
    }

    /// Removes those of keys below a prefix.
    pub(crate) async fn sweep_unfinished_below(
        &self,
        prefix: &str,
        older_than: Duration,
    ) -> Result<usize, StoreError> {
        self.unfinished_below(prefix, older_than, Unfinished::Remove).await
    }

    async fn unfinished_below(
        &self,
        prefix: &str,
        older_than: Duration,
        fate: Unfinished,
    ) -> Result<usize, StoreError> {
        match &*self.place {
            Place::Bucket(bucket) => bucket.unfinished_uploads(prefix, older_than, fate).await,
            Place::Folder(folder) => {
                let (folder, prefix) = (folder.clone(), prefix.to_owned());
                let swept =
                    tokio::task::spawn_blocking(move || folder.staged(&prefix, older_than, fate)).await;
                let swept = swept.map_err(|error| StoreError::Unavailable { reason: error.to_string() })?;
                swept.map_err(|error| StoreError::of_io("staged files", &error))
            }
        }
    }

    fn store(&self) -> &dyn ObjectStore {
        match &*self.place {
            Place::Folder(folder) => &folder.files,
            Place::Bucket(bucket) => &bucket.s3,
        }
    }

    fn path(&self, key: &str) -> Result<StorePath, StoreError> {
        match &*self.place {
            Place::Folder(_) => StorePath::parse(key).map_err(|error| StoreError::invalid(error.to_string())),
            Place::Bucket(bucket) => bucket.path(key),
        }
    }

    fn meta(&self, meta: &ObjectMeta) -> BlobMeta {
        let key = match &*self.place {
            Place::Folder(_) => meta.location.to_string(),
            Place::Bucket(bucket) => bucket.key(&meta.location),
        };
        BlobMeta { key, bytes: meta.size, modified_at: meta.last_modified.into() }
    }
}

/// Why a blob did not become a file here.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It could not be written.
    #[error("a blob cannot be written to scratch: {0}")]
    Scratch(#[from] std::io::Error),
    #[error("{bytes} bytes are more than are allowed")]
    TooLarge { bytes: u64 },
}

impl std::fmt::Debug for BlobReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobReader")
            .field("meta", &self.meta)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}
