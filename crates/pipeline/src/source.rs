//! The source of a run, as a file of this machine.
//!
//! Taking an input in reads every byte of it once and hashes them on the way. After that it is a blob of the run, or the
//! file it was, and every job that reads it finds the same bytes: a [`Source`].

mod cache;
mod file;
mod pull;
mod upload;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::blobs::{BlobMeta, Fetched, StoreError, hash_file};
use crate::failure::{Attempted, Failed, scratch_failed};
use crate::input::Input;
use crate::keys;
use crate::kinds::Attempt;
use crate::records::{InputRecord, SourceAt, TakenRecord};
use crate::scan::{ScanPolicy, ScanRules};
use crate::scratch::JobFolder;
use crate::workshop::Workshop;

use cache::{Held, Room, other_bytes};
use pull::{PullRules, pull};

pub use cache::CacheRoom;
pub(crate) use cache::SourceCache;
pub use pull::PullPatience;
pub(crate) use upload::condemn as condemn_upload;

/// An input that was taken in: every byte of it was read, and the same bytes will be found again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) at: SourceAt,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// A file to read, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    _held: Option<Held>,
}

/// Who may read an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    Everybody,
    /// Until a scan has let it through. What was scanned is what others then read: a copy that nobody else writes to, and
    /// that no worker keeps before.
    ScannerAlone,
}

impl Readers {
    pub(crate) fn under(rules: ScanRules) -> Self {
        match rules.scan {
            ScanPolicy::Off => Self::Everybody,
            ScanPolicy::Required | ScanPolicy::Optional => Self::ScannerAlone,
        }
    }
}

/// Takes an input in.
pub(crate) async fn take(
    attempt: &Attempt<'_>,
    input: &Input,
    readers: Readers,
) -> Attempted<(Taken, Source)> {
    let taking = async {
        match input {
            Input::Path(path) => file::take(attempt, path, readers).await,
            Input::Url(address) => take_url(attempt, address, readers).await,
            Input::S3(address) => take_s3(attempt, address, readers).await,
            Input::Upload(id) => upload::take(attempt, id, readers).await,
        }
    };
    stoppable(attempt, taking).await
}

/// Whether an input may be taken and is there, as far as that can be told without reading it. For whoever accepts runs.
pub(crate) async fn check_input(shop: &Workshop, tenant: &str, input: &Input) -> Attempted<()> {
    match input {
        Input::Path(path) => file::check(path, shop),
        Input::Url(address) => pull::check(address, pull_rules(shop)),
        Input::S3(address) => require_allowed_bucket(shop, address).map(drop),
        Input::Upload(id) => upload::check(shop, tenant, id).await,
    }
}

/// Whether the source of a run that has taken it in is still what it was, as far as that can be told without reading it;
/// or else why not.
pub(crate) async fn find_source(shop: &Workshop, input: &InputRecord) -> Attempted<Result<(), String>> {
    match &input.at {
        SourceAt::File { path, modified_ns, inode } => {
            let unchanged = require_unchanged(path, input.bytes, *modified_ns, *inode).await;
            Ok(unchanged.map_err(|failed| format!("its source is gone, too ({})", failed.message)))
        }
        SourceAt::Blob { key } => Ok(match shop.blobs.head(key).await? {
            Some(found) if found.bytes == input.bytes => Ok(()),
            Some(_) => Err(format!("its source {key} has another size than it had, too")),
            None => Err(format!("its source {key} is gone, too")),
        }),
    }
}

/// An input as a file of this machine, for a look at it.
#[derive(Debug)]
pub(crate) struct Peeked {
    path: PathBuf,
    /// Where it was fetched to; removed with it.
    _folder: Option<JobFolder>,
}

impl Peeked {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes an input a file to look at. Nothing of it is kept. Where everybody may read it, who changes a file meanwhile is
/// shown what it was changed to.
pub(crate) async fn peek(
    shop: &Workshop,
    tenant: &str,
    input: &Input,
    readers: Readers,
) -> Attempted<Peeked> {
    let key = match input {
        Input::Path(path) if readers == Readers::Everybody => {
            return Ok(Peeked { path: file::allowed(path, shop)?, _folder: None });
        }
        Input::Upload(id) => Some(upload::completed(shop, tenant, id).await?.0),
        Input::Path(_) | Input::Url(_) | Input::S3(_) => None,
    };
    if let Some(path) = key.as_deref().and_then(|key| shop.blobs.local_path(key)) {
        return Ok(Peeked { path, _folder: None });
    }
    let folder = shop.scratch.job().map_err(|error| scratch_failed("no folder can be made", &error))?;
    let into = folder.path().join("source");
    match (input, key) {
        (Input::Url(address), _) => drop(pull(address, &into, pull_rules(shop)).await?),
        (Input::S3(address), _) => drop(fetch_s3(shop, address, &into).await?),
        (Input::Path(path), _) => file::copy(path, shop, &into).await?,
        (Input::Upload(_), Some(key)) => {
            drop(shop.blobs.fetch_up_to(&key, &into, shop.limits.file_bytes).await?);
        }
        (Input::Upload(_), None) => {}
    }
    Ok(Peeked { path: into, _folder: Some(folder) })
}

async fn take_url(attempt: &Attempt<'_>, address: &str, readers: Readers) -> Attempted<(Taken, Source)> {
    let (shop, into) = (attempt.shop, attempt.folder.path().join("source"));
    let pulled = pull(address, &into, pull_rules(shop)).await?;
    store(attempt, &into, pulled, readers).await
}

fn pull_rules(shop: &Workshop) -> PullRules {
    PullRules {
        limit_bytes: shop.limits.file_bytes,
        allow_private: shop.allow_private_urls,
        patience: shop.pull_patience,
    }
}

async fn take_s3(attempt: &Attempt<'_>, address: &str, readers: Readers) -> Attempted<(Taken, Source)> {
    let into = attempt.folder.path().join("source");
    let fetched = fetch_s3(attempt.shop, address, &into).await?;
    store(attempt, &into, fetched, readers).await
}

async fn fetch_s3(shop: &Workshop, address: &str, into: &Path) -> Attempted<Fetched> {
    let (bucket, key) = require_allowed_bucket(shop, address)?;
    let store_of_input = shop.blobs.sibling(&format!("s3://{bucket}")).map_err(of_input)?;
    let fetched = store_of_input.fetch_up_to(key, into, shop.limits.file_bytes).await;
    fetched.map_err(|error| match error {
        crate::blobs::FetchError::Store(error) => of_input(error),
        other => other.into(),
    })
}

/// The bucket and the key, if inputs may come from there.
fn require_allowed_bucket<'a>(shop: &Workshop, address: &'a str) -> Attempted<(&'a str, &'a str)> {
    let denied = |message: String| {
        Failed::for_good("input_denied", message, "add its bucket to input_buckets, as s3://bucket/prefix")
    };
    let (bucket, key) = split_s3(address)?;
    // With our credentials, another tenant's blobs could be read.
    if shop.blobs.contains_url(address) {
        return Err(denied(format!("{address} is in the store itself")));
    }
    if !shop.input_buckets.iter().any(|allowed| is_below(address, allowed)) {
        return Err(denied(format!("{address} is in no bucket that inputs may come from")));
    }
    Ok((bucket, key))
}

fn split_s3(address: &str) -> Attempted<(&str, &str)> {
    let split = address.strip_prefix("s3://").and_then(|rest| rest.split_once('/'));
    split.filter(|(bucket, key)| !bucket.is_empty() && !key.is_empty()).ok_or_else(|| {
        let message = format!("{address} is not of the form s3://bucket/key");
        Failed::for_good("input_invalid", message, "correct the address")
    })
}

/// Whether an input is in a bucket, or the part of one, that inputs may come from: `s3://in/a` is below `s3://in` and
/// `s3://in/a`, not below `s3://in/ab` nor `s3://i`.
pub fn is_below(address: &str, allowed: &str) -> bool {
    let rest = address.strip_prefix(allowed.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        && !address.split('/').any(|part| part == "..")
}

/// What goes wrong with the bucket of an input is no fault of the store.
fn of_input(error: StoreError) -> Failed {
    let (code, hint) = match &error {
        StoreError::NotFound { .. } => ("input_not_found", "check the bucket and the key"),
        StoreError::Denied { .. } => ("input_denied", "let the worker's credentials read that bucket"),
        StoreError::Invalid { .. } => ("input_invalid", "check the bucket and the key"),
        StoreError::Unavailable { .. } | StoreError::Full { .. } | StoreError::Corrupt { .. } => {
            ("input_unavailable", "check the bucket's server; the job tries again by itself")
        }
    };
    let retryable = matches!(code, "input_unavailable");
    Failed { retryable, ..Failed::for_good(code, error.to_string(), hint) }
}

/// Makes what was fetched a blob of the run.
async fn store(
    attempt: &Attempt<'_>,
    file: &Path,
    fetched: Fetched,
    readers: Readers,
) -> Attempted<(Taken, Source)> {
    let (shop, key) = (attempt.shop, keys::source(&attempt.job.tenant, attempt.run));
    shop.blobs.put_file(&key, file).await?;
    let source = match shop.blobs.local_path(&key) {
        Some(path) => Source::at(path),
        None if readers == Readers::ScannerAlone => Source::at(file.to_owned()),
        None => match shop.sources.take_in(file, &fetched, room(attempt))? {
            Some(held) => Source::held(held),
            None => Source::at(file.to_owned()),
        },
    };
    Ok((Taken { at: SourceAt::Blob { key }, bytes: fetched.bytes, sha256: fetched.sha256 }, source))
}

impl Source {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn at(path: PathBuf) -> Self {
        Self { path, _held: None }
    }

    fn held(held: Held) -> Self {
        Self { path: held.path().to_owned(), _held: Some(held) }
    }

    /// The file itself, or the store's own, or a copy that the worker keeps for all jobs that read it.
    pub(crate) async fn of(attempt: &Attempt<'_>, input: &InputRecord) -> Attempted<Self> {
        let taken = Taken { at: input.at.clone(), bytes: input.bytes, sha256: input.sha256.clone() };
        stoppable(attempt, Self::taken(attempt, &taken, Readers::Everybody)).await
    }

    /// Of an input that was taken in by another job.
    pub(crate) async fn taken_in(
        attempt: &Attempt<'_>,
        input: &TakenRecord,
        readers: Readers,
    ) -> Attempted<Self> {
        stoppable(attempt, Self::taken(attempt, &input.clone().into(), readers)).await
    }

    /// Keeps what was fetched for the scanner alone for those who may read it from now on.
    pub(crate) fn keep(self, attempt: &Attempt<'_>, input: TakenRecord) -> Attempted<()> {
        if self.path.starts_with(attempt.folder.path()) {
            attempt.shop.sources.take_in(&self.path, &wanted(&input.into()), room(attempt))?;
        }
        Ok(())
    }

    async fn taken(attempt: &Attempt<'_>, input: &Taken, readers: Readers) -> Attempted<Self> {
        let shop = attempt.shop;
        match &input.at {
            SourceAt::File { path, modified_ns, inode } => {
                require_unchanged(path, input.bytes, *modified_ns, *inode).await?;
                Ok(Self::at(path.clone()))
            }
            SourceAt::Blob { key } => match shop.blobs.local_path(key) {
                Some(path) => Self::in_store(attempt, key, path, input).await,
                None => Self::fetched(attempt, key, input, readers).await,
            },
        }
    }

    async fn in_store(attempt: &Attempt<'_>, key: &str, path: PathBuf, input: &Taken) -> Attempted<Self> {
        let found: Option<BlobMeta> = attempt.shop.blobs.head(key).await?;
        let found = found.ok_or_else(|| StoreError::NotFound { key: key.to_owned() })?;
        let wanted = wanted(input);
        let seen = format!("{key} {:?}", found.modified_at);
        if found.bytes != input.bytes {
            return Err(other_bytes(&wanted));
        }
        if !attempt.shop.sources.was_checked(&seen) {
            let (sha256, bytes) = hash_file(&path).await?;
            if (Fetched { bytes, sha256 }) != wanted {
                return Err(other_bytes(&wanted));
            }
            attempt.shop.sources.remember_checked(seen);
        }
        Ok(Self::at(path))
    }

    async fn fetched(attempt: &Attempt<'_>, key: &str, input: &Taken, readers: Readers) -> Attempted<Self> {
        let (shop, wanted) = (attempt.shop, wanted(input));
        let into = attempt.folder.path().join("source");
        let fetch = || async { Ok(shop.blobs.fetch(key, &into).await?) };
        if readers == Readers::Everybody
            && let Some(held) = shop.sources.get(&wanted, room(attempt), &into, fetch).await?
        {
            return Ok(Self::held(held));
        }
        // Not to be kept, or no room to keep it: a copy for this job alone.
        match fetch().await? == wanted {
            true => Ok(Self::at(into)),
            false => Err(other_bytes(&wanted)),
        }
    }
}

impl From<TakenRecord> for Taken {
    fn from(record: TakenRecord) -> Self {
        Self { at: record.at, bytes: record.bytes, sha256: record.sha256 }
    }
}

fn wanted(input: &Taken) -> Fetched {
    Fetched { bytes: input.bytes, sha256: input.sha256.clone() }
}

fn room(attempt: &Attempt<'_>) -> Room {
    Room { max_bytes: attempt.shop.source_cache.max_bytes, free_bytes: attempt.shop.scratch.free_bytes() }
}

/// Ends with the attempt: what is dropped half-way cleans up after itself.
pub(crate) async fn stoppable<T>(
    attempt: &Attempt<'_>,
    work: impl Future<Output = Attempted<T>>,
) -> Attempted<T> {
    // On the heap: what it awaits is large, and every kind awaits it.
    let stopped = attempt.cancel.run_until_cancelled(Box::pin(work)).await;
    stopped.unwrap_or_else(|| Err(Failed::for_now("cancelled", "the job was stopped", "")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_below_what_is_allowed_part_by_part() {
        assert!(is_below("s3://in/a/b.mov", "s3://in"));
        assert!(is_below("s3://in/a/b.mov", "s3://in/a/"));
        for allowed in ["s3://i", "s3://in/a/b", "s3://other", "s3://in/b"] {
            assert!(!is_below("s3://in/a/b.mov", allowed), "{allowed}");
        }
        assert!(!is_below("s3://in/a/../secret", "s3://in/a"));
    }
}
