//! Where infected inputs go: out of every reader's way, and kept for a while for whoever has to look into it.
//!
//! ```text
//!   _quarantine/{tenant}/{run}            the bytes
//!   _quarantine/{tenant}/{run}.json       what was found in them: written first, so its age is that of the find
//! ```
//! No route, cache or sweep knows these keys but the one that removes them in the end. Files and buckets of others are
//! left as they are: they are not ours to move, and are scanned again with every run.

use futures_util::TryStreamExt;
use serde::Serialize;
use telecine_queue::Timestamp;

use crate::blobs::StoreError;
use crate::failure::{Attempted, Failed};
use crate::input::Input;
use crate::keys;
use crate::kinds::Attempt;
use crate::records::{SourceAt, TakenRecord};
use crate::source::{Source, condemn_upload};
use crate::workshop::Workshop;

/// What lies beside the bytes.
#[derive(Debug, Serialize)]
struct Find<'a> {
    signature: &'a str,
    /// As the caller named it.
    input: String,
    bytes: u64,
    sha256: &'a str,
    found_at: Timestamp,
}

/// Moves what a run took in out of everybody's way; done again, it goes on where it was.
pub(crate) async fn quarantine(
    attempt: &Attempt<'_>,
    input: &Input,
    taken: &TakenRecord,
    source: &Source,
    signature: &str,
) -> Attempted<()> {
    let (shop, tenant) = (attempt.shop, &attempt.job.tenant);
    if let SourceAt::Blob { key } = &taken.at {
        let (note, bytes) = keys::quarantined(tenant, attempt.run);
        let find = Find {
            signature,
            input: input.to_string(),
            bytes: taken.bytes,
            sha256: &taken.sha256,
            found_at: Timestamp::now(),
        };
        let find = serde_json::to_vec(&find).map_err(|error| Failed::unexpected(error.to_string()))?;
        shop.blobs.put_bytes(&note, find.into()).await?;
        shop.blobs.put_file(&bytes, source.path()).await?;
        if let Input::Upload(id) = input {
            condemn_upload(shop, tenant, id, signature).await?;
        }
        shop.blobs.delete(key).await?;
    }
    // Another run may have brought the same bytes here before they were known to be infected.
    shop.sources.forget(&taken.sha256);
    Ok(())
}

/// Removes what has been kept for long enough; says how many finds.
pub(crate) async fn sweep_quarantine(shop: &Workshop) -> Result<usize, StoreError> {
    let mut removed = 0;
    let mut kept = shop.blobs.entries(keys::QUARANTINE);
    while let Some(note) = kept.try_next().await? {
        let Some(bytes) = note.key.strip_suffix(".json") else { continue };
        if note.modified_at.elapsed().is_ok_and(|age| age > shop.keep_quarantine) {
            // The bytes first: what has no note any more would never be found again.
            shop.blobs.delete(bytes).await?;
            shop.blobs.delete(&note.key).await?;
            removed += 1;
        }
    }
    Ok(removed)
}
