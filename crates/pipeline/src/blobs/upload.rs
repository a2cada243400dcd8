//! A large file on its way into a bucket: in parts, side by side, and given up as a whole.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::aws::AmazonS3;
use object_store::client::{HttpRequest, HttpRequestBody};
use object_store::multipart::MultipartStore;
use object_store::path::Path as StorePath;
use object_store::signer::{SignedUrlOptions, Signer};
use object_store::{Error, ObjectStoreExt, PutPayload};
use serde::Deserialize;

use super::bucket::Bucket;
use super::{StoreError, Unfinished};
use crate::keys;

/// Up to here a file is one request.
const WHOLE_BYTES: u64 = 16 << 20;
const PART_BYTES: u64 = 8 << 20;
/// S3 takes no more parts than that.
const PARTS: u64 = 10_000;
/// With parts of 8 MiB, an upload holds 32 MiB of memory.
const PARTS_AT_ONCE: usize = 4;
const SIGNED_FOR: Duration = Duration::from_secs(60);

impl Bucket {
    /// Stores so many bytes of an opened file.
    pub(super) async fn put_opened(&self, key: &str, file: File, bytes: u64) -> Result<(), StoreError> {
        let (path, file) = (self.path(key)?, Arc::new(file));
        if bytes <= WHOLE_BYTES {
            let whole = read_part(&file, 0, bytes).await?;
            let put = self.s3.put(&path, PutPayload::from_bytes(whole)).await;
            return put.map(drop).map_err(|error| StoreError::of(key, &error));
        }
        let mut put = self.put_parts(key, &path, &file, bytes).await;
        if matches!(put, Err(StoreError::NotFound { .. })) {
            // Nobody knows the upload any more: it was ended and the answer was lost, or a sweep gave it up. Which of them
            // cannot be told from what is there now, so all of it is put again.
            put = self.put_parts(key, &path, &file, bytes).await;
        }
        put.map_err(|error| match error {
            StoreError::NotFound { key } => {
                StoreError::Unavailable { reason: format!("the upload of {key} was given up by the store") }
            }
            other => other,
        })?;
        let stored = self.s3.head(&path).await.map_err(|error| StoreError::of(key, &error))?;
        if stored.size == bytes {
            return Ok(());
        }
        let reason = format!("{bytes} bytes were put and {} are there", stored.size);
        Err(StoreError::Corrupt { key: key.to_owned(), reason })
    }

    async fn put_parts(
        &self,
        key: &str,
        path: &StorePath,
        file: &Arc<File>,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let refused = |error: Error| StoreError::of(key, &error);
        let part_bytes = part_bytes(bytes);
        let id = self.s3.create_multipart(path).await.map_err(refused)?;
        let upload = Upload { s3: self.s3.clone(), path: path.clone(), id: Some(id.clone()) };
        let parts = (0..bytes.div_ceil(part_bytes)).map(|number| {
            let (file, id) = (Arc::clone(file), &id);
            async move {
                let from = number * part_bytes;
                let part = read_part(&file, from, part_bytes.min(bytes - from)).await?;
                let index =
                    usize::try_from(number).map_err(|error| StoreError::invalid(error.to_string()))?;
                let put = self.s3.put_part(path, id, index, PutPayload::from_bytes(part)).await;
                put.map_err(|error| StoreError::of(key, &error))
            }
        });
        let sent = async {
            let parts = stream::iter(parts).buffered(PARTS_AT_ONCE).try_collect().await?;
            self.s3.complete_multipart(path, &id, parts).await.map_err(refused)
        };
        match sent.await {
            Ok(_) => {
                upload.completed();
                Ok(())
            }
            Err(error) => {
                upload.abort().await;
                Err(error)
            }
        }
    }

    /// The uploads of our keys below a prefix that were begun so long ago: says how many, and aborts them if asked to. Others
    /// may use the bucket as well, and take days for theirs.
    ///
    /// The store's client cannot list them, so the request is signed and sent here. A server that knows no such request
    /// has to clean up by itself, as a rule of the bucket's lifecycle does.
    pub(super) async fn unfinished_uploads(
        &self,
        below: &str,
        older_than: Duration,
        fate: Unfinished,
    ) -> Result<usize, StoreError> {
        let (mut found, mut from) = (0, Some((String::new(), String::new())));
        while let Some((key_marker, id_marker)) = from {
            let listed = self.list_uploads(below, &key_marker, &id_marker).await?;
            for upload in listed.uploads.iter().filter(|upload| upload.is_older(older_than)) {
                let Some(path) = self.own_path(&upload.key) else { continue };
                let is_there = match fate {
                    Unfinished::Count => true,
                    Unfinished::Remove => self.abort_upload(&path, upload).await?,
                };
                found += usize::from(is_there);
            }
            from = listed.is_truncated.then_some((listed.next_key_marker, listed.next_upload_id_marker));
        }
        Ok(found)
    }

    /// `None`: the key is none that we make.
    fn own_path(&self, key: &str) -> Option<StorePath> {
        let path = StorePath::parse(key).ok()?;
        keys::is_ours(&self.key(&path)).then_some(path)
    }

    /// Says whether it was still there.
    async fn abort_upload(&self, path: &StorePath, upload: &BegunUpload) -> Result<bool, StoreError> {
        match self.s3.abort_multipart(path, &upload.upload_id).await {
            Ok(()) => Ok(true),
            // Completed or aborted meanwhile.
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(StoreError::of(&upload.key, &error)),
        }
    }

    async fn list_uploads(
        &self,
        below: &str,
        key_marker: &str,
        id_marker: &str,
    ) -> Result<ListedUploads, StoreError> {
        let parts = [self.prefix.to_string(), below.to_owned()];
        let prefix: String =
            parts.iter().filter(|part| !part.is_empty()).map(|part| format!("{part}/")).collect();
        let mut query = vec![("uploads", ""), ("prefix", &prefix)];
        if !key_marker.is_empty() {
            query.extend([("key-marker", key_marker), ("upload-id-marker", id_marker)]);
        }
        let options = SignedUrlOptions::new().with_query(query);
        let refused = |error: Error| StoreError::of("the list of uploads", &error);
        let signed =
            self.s3.signed_url_opts(reqwest::Method::GET, &StorePath::default(), SIGNED_FOR, &options).await;
        let url = signed.map_err(refused)?;
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() =
            url.as_str().parse().map_err(|_| StoreError::invalid("the store's address is no URI"))?;
        let failed = |error| refused(Error::Generic { store: "S3", source: Box::new(error) });
        let answer = self.http.execute(request).await.map_err(failed)?;
        let body = answer.into_body().bytes().await.map_err(failed)?;
        let unread = |error: &dyn std::fmt::Display| StoreError::Unavailable {
            reason: format!("the list of uploads cannot be read: {error}"),
        };
        let text = std::str::from_utf8(&body).map_err(|error| unread(&error))?;
        quick_xml::de::from_str(text).map_err(|error| unread(&error))
    }
}

fn part_bytes(bytes: u64) -> u64 {
    PART_BYTES.max(bytes.div_ceil(PARTS))
}

async fn read_part(file: &Arc<File>, from: u64, bytes: u64) -> Result<Bytes, StoreError> {
    let file = Arc::clone(file);
    let read = tokio::task::spawn_blocking(move || -> std::io::Result<Bytes> {
        let length = usize::try_from(bytes).map_err(std::io::Error::other)?;
        let mut part = vec![0; length];
        file.read_exact_at(&mut part, from)?;
        Ok(part.into())
    });
    let read = read.await.map_err(|error| StoreError::Unavailable { reason: error.to_string() })?;
    read.map_err(|error| StoreError::invalid(format!("the file to be stored cannot be read: {error}")))
}

/// An upload that was begun. One that is dropped before it is complete is aborted.
struct Upload {
    s3: AmazonS3,
    path: StorePath,
    id: Option<String>,
}

impl Upload {
    fn completed(mut self) {
        self.id = None;
    }

    async fn abort(mut self) {
        if let Some(id) = self.id.take() {
            give_up(&self.s3, &self.path, &id).await;
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (s3, path) = (self.s3.clone(), self.path.clone());
            runtime.spawn(async move { give_up(&s3, &path, &id).await });
        }
    }
}

async fn give_up(s3: &AmazonS3, path: &StorePath, id: &String) {
    match s3.abort_multipart(path, id).await {
        Ok(()) | Err(Error::NotFound { .. }) => (),
        // A sweep finds it.
        Err(error) => tracing::warn!(%path, %error, "an upload was left in parts"),
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedUploads {
    #[serde(default)]
    is_truncated: bool,
    #[serde(default)]
    next_key_marker: String,
    #[serde(default)]
    next_upload_id_marker: String,
    #[serde(default, rename = "Upload")]
    uploads: Vec<BegunUpload>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BegunUpload {
    key: String,
    upload_id: String,
    initiated: String,
}

impl BegunUpload {
    fn is_older(&self, than: Duration) -> bool {
        let format = &time::format_description::well_known::Rfc3339;
        let begun = time::OffsetDateTime::parse(&self.initiated, format);
        begun.is_ok_and(|at| SystemTime::from(at).elapsed().is_ok_and(|age| age >= than))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_needs_more_parts_than_a_store_takes() {
        for bytes in [WHOLE_BYTES + 1, 80 << 30, 5 << 40] {
            assert!(bytes.div_ceil(part_bytes(bytes)) <= PARTS, "{bytes}");
            assert!(part_bytes(bytes) >= PART_BYTES);
        }
    }
}
