//! An upload as its tenant sees it.

use std::time::SystemTime;

use serde::Serialize;
use telecine_queue::Timestamp;
use utoipa::ToSchema;

use super::receive::on_disk;
use super::whole;
use crate::app::App;
use crate::problem::Problem;

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Upload)]
pub(super) struct UploadDocument {
    /// What a run names it by.
    #[schema(pattern = "^[0-9A-Za-z_-]{1,64}$")]
    id: String,
    #[schema(inline)]
    object: UploadObject,
    state: UploadState,
    /// So many bytes are there.
    offset: u64,
    /// So many it will have.
    length: u64,
    /// Of a complete one, in hexadecimal digits.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    sha256: Option<String>,
    /// As the caller named the file.
    name: Option<String>,
    /// When it is removed if nothing is added to it; a complete one, whether a run has used it or not.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum UploadObject {
    Upload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum UploadState {
    /// It has not all of its bytes.
    Receiving,
    /// It has, and is being hashed and stored.
    Storing,
    /// A run can name it.
    Complete,
}

/// The upload of a tenant by its id; there is none of anybody else's.
pub(super) async fn of(app: &App, tenant: &str, id: &str) -> Result<UploadDocument, Problem> {
    let id = super::tus::proper(tenant, id)?;
    let (stage, of, named) = (app.uploads.stage.clone(), tenant.to_owned(), id.to_owned());
    let Some(seen) = on_disk(move || stage.look(&of, &named)).await? else {
        let completed = whole::completed(app.blobs(), tenant, id).await?;
        let (completed, stored) = completed.ok_or_else(|| Problem::not_found("upload"))?;
        return Ok(UploadDocument {
            id: id.to_owned(),
            object: UploadObject::Upload,
            state: UploadState::Complete,
            offset: completed.bytes,
            length: completed.bytes,
            sha256: Some(completed.sha256),
            name: completed.name,
            expires_at: timestamp(stored.modified_at + app.shop.keep_uploads),
        });
    };
    if seen.has_expired() {
        return Err(super::tus::expired());
    }
    Ok(UploadDocument {
        id: id.to_owned(),
        object: UploadObject::Upload,
        state: if seen.is_whole() { UploadState::Storing } else { UploadState::Receiving },
        offset: seen.offset,
        length: seen.told.length,
        sha256: None,
        name: seen.told.name,
        expires_at: timestamp(seen.expires_at),
    })
}

fn timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
