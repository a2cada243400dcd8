//! An input that was uploaded: complete, not expired, and not known to be infected.

use std::time::SystemTime;

use super::{Readers, Source, Taken};
use crate::blobs::StoreError;
use crate::failure::{Attempted, Failed};
use crate::input::CompletedUpload;
use crate::keys;
use crate::kinds::Attempt;
use crate::records::SourceAt;
use crate::workshop::Workshop;

/// An upload stays where it is until it expires; the run has a copy of its own.
pub(super) async fn take(attempt: &Attempt<'_>, id: &str, readers: Readers) -> Attempted<(Taken, Source)> {
    let (blobs, tenant) = (&attempt.shop.blobs, &attempt.job.tenant);
    let (upload, said) = completed(attempt.shop, tenant, id).await?;
    attempt.shop.limits.check_file_bytes(said.bytes)?;
    let key = keys::source(tenant, attempt.run);
    let taken = Taken { at: SourceAt::Blob { key: key.clone() }, bytes: said.bytes, sha256: said.sha256 };
    let from = Taken { at: SourceAt::Blob { key: upload.clone() }, ..taken.clone() };
    let source = Source::taken(attempt, &from, readers).await?;
    if blobs.can_copy(said.bytes) {
        blobs.copy(&upload, &key).await?;
    } else {
        blobs.put_file(&key, source.path()).await?;
    }
    Ok((taken, source))
}

/// Whether it may be taken.
pub(super) async fn check(shop: &Workshop, tenant: &str, id: &str) -> Attempted<()> {
    let (key, upload) = completed(shop, tenant, id).await?;
    require_unexpired(shop, id, &key).await?;
    Ok(shop.limits.check_file_bytes(upload.bytes)?)
}

/// The key of an upload that is complete, and what is known of it.
pub(super) async fn completed(
    shop: &Workshop,
    tenant: &str,
    id: &str,
) -> Attempted<(String, CompletedUpload)> {
    let unknown = || {
        let hint = "complete the upload first; one that nobody uses expires";
        Failed::for_good("input_not_found", format!("there is no complete upload {id}"), hint)
    };
    let (upload, sidecar) =
        keys::upload(tenant, id).zip(keys::upload_sidecar(tenant, id)).ok_or_else(unknown)?;
    let said = shop.blobs.get_bytes(&sidecar).await.map_err(|error| match error {
        StoreError::NotFound { .. } => unknown(),
        other => other.into(),
    })?;
    let said: CompletedUpload = serde_json::from_slice(&said)
        .map_err(|error| Failed::unexpected(format!("{sidecar} is not as known: {error}")))?;
    if let Some(signature) = &said.infected {
        let message = format!("a scanner found {signature} in the upload {id}");
        return Err(Failed::for_good("infected", message, "do not open it; upload another file"));
    }
    Ok((upload, said))
}

/// A sweep spares what an accepted run names; so nothing is accepted that a sweep may just be removing.
async fn require_unexpired(shop: &Workshop, id: &str, key: &str) -> Attempted<()> {
    let completed_at = shop.blobs.head(&keys::sidecar_of(key)).await?.map(|sidecar| sidecar.modified_at);
    let is_young = |at: SystemTime| at.elapsed().map_or(true, |age| age <= shop.keep_uploads);
    match completed_at.is_some_and(is_young) {
        true => Ok(()),
        false => Err(Failed::for_good(
            "input_not_found",
            format!("the upload {id} has expired"),
            "upload the file again",
        )),
    }
}

/// Says of an upload that it is infected, so that no later run takes it, and removes its bytes.
pub(crate) async fn condemn(shop: &Workshop, tenant: &str, id: &str, signature: &str) -> Attempted<()> {
    let Some((upload, sidecar)) = keys::upload(tenant, id).zip(keys::upload_sidecar(tenant, id)) else {
        return Ok(());
    };
    match completed(shop, tenant, id).await {
        Ok((_, said)) => {
            let said = CompletedUpload { infected: Some(signature.to_owned()), ..said };
            let said = serde_json::to_vec(&said).map_err(|error| Failed::unexpected(error.to_string()))?;
            shop.blobs.put_bytes(&sidecar, said.into()).await?;
        }
        Err(failed) if failed.retryable => return Err(failed),
        // It has expired, or another run has found the same.
        Err(_) => {}
    }
    Ok(shop.blobs.delete(&upload).await?)
}
