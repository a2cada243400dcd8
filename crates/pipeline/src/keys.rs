//! The keys of blobs: made here alone, deterministic, under their tenant and run.
//!
//! ```text
//!   _cache/{tenant}/{work}.json               which run did a piece of work
//!   _publications/{place}/{run}.json          what a run put below a prefix that its caller chose
//!   {tenant}/{run}/source
//!   _quarantine/{tenant}/{run}                an infected input, and beside it {run}.json, which tells what was found
//!   _uploads/{tenant}/{id}                    a complete upload, and beside it {id}.json, which tells its hash
//!   {tenant}/{run}/hls/master.m3u8            fixed: written once, by the fenced `package`
//!   {tenant}/{run}/hls/720p/00007-3f9a1c2b.m4s  a segment's key has its content in it: other bytes are another key
//! ```

use telecine_queue::RunId;

use crate::blobs::{hash_bytes, hex};
use crate::published::WITHIN;

/// Bytes of a tenant's folder. File systems allow 255 in a name.
const LONGEST: usize = 200;
/// The nameless tenant's folder. No tenant can be called so: a name in a key begins with a letter or a digit.
const NAMELESS: &str = "_";
/// Entries of the cache, of all tenants, lie below this.
pub(crate) const CACHE: &str = "_cache";
/// Lists of what was published, of all tenants, lie below this.
pub(crate) const PUBLICATIONS: &str = "_publications";
/// Infected inputs of all tenants lie below this. Nothing is ever served or read from there.
pub(crate) const QUARANTINE: &str = "_quarantine";
/// Uploads of all tenants lie below this.
pub(crate) const UPLOADS: &str = "_uploads";
const SIDECAR: &str = ".json";

/// Everything of a run lies under this.
pub fn of_run(tenant: &str, run: &RunId) -> String {
    format!("{}/{run}", tenant_folder(tenant))
}

pub fn source(tenant: &str, run: &RunId) -> String {
    format!("{}/source", of_run(tenant, run))
}

/// A complete upload. `None` for an id that none of ours can be.
///
/// Whoever takes uploads puts the bytes first and [`upload_sidecar`] last: what has no sidecar is not complete. The bytes
/// are never written to after that.
pub fn upload(tenant: &str, id: &str) -> Option<String> {
    let is_id = (1..=64).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    is_id.then(|| format!("{UPLOADS}/{}/{id}", tenant_folder(tenant)))
}

/// Says that a forgotten run's outputs are to stay.
pub(crate) fn kept(tenant: &str, run: &RunId) -> String {
    kept_below(&of_run(tenant, run))
}

/// Of a run that only its folder still tells of.
pub(crate) fn kept_below(folder: &str) -> String {
    format!("{folder}/_kept.json")
}

/// A [`crate::CompletedUpload`] as JSON.
pub fn upload_sidecar(tenant: &str, id: &str) -> Option<String> {
    upload(tenant, id).map(|key| sidecar_of(&key))
}

/// Beside the bytes of an upload. No id has a point in it.
pub(crate) fn sidecar_of(upload: &str) -> String {
    format!("{upload}{SIDECAR}")
}

/// Whose sidecar it is; `None`: it is none.
pub(crate) fn upload_of(sidecar: &str) -> Option<&str> {
    sidecar.strip_suffix(SIDECAR)
}

/// Where an infected input of a run goes: what is said of it, and its bytes.
pub(crate) fn quarantined(tenant: &str, run: &RunId) -> (String, String) {
    let bytes = format!("{QUARANTINE}/{}", of_run(tenant, run));
    (format!("{bytes}.json"), bytes)
}

/// A published file of a step. `path` is ours: a name from a plan, never a user's text.
pub fn output(tenant: &str, run: &RunId, step: &str, path: &str) -> String {
    format!("{}/{step}/{path}", of_run(tenant, run))
}

/// Where a segment lies in its step's folder. Segments are numbered from 0.
pub fn segment_path(rendition: &str, segment: u32, sha256: &str, extension: &str) -> String {
    format!("{rendition}/{segment:05}-{}.{extension}", &sha256[..8.min(sha256.len())])
}

/// Where the init segment of a rendition lies in its step's folder.
pub fn init_path(rendition: &str, sha256: &str) -> String {
    format!("{rendition}/init-{}.mp4", &sha256[..8.min(sha256.len())])
}

/// Says which run did a piece of work.
pub(crate) fn cache(tenant: &str, work: &str) -> String {
    format!("{CACHE}/{}/{work}.json", tenant_folder(tenant))
}

/// Lists of what was published at a place lie under this.
pub(crate) fn publications(place: &str) -> String {
    format!("{PUBLICATIONS}/{place}")
}

/// What one run put there.
pub(crate) fn publication(place: &str, run: &RunId) -> String {
    format!("{}/{run}.json", publications(place))
}

/// The run whose list it is; `None`: it is none.
pub(crate) fn publisher(list: &str) -> Option<RunId> {
    list.rsplit('/').next()?.strip_suffix(".json")?.parse().ok()
}

/// Whether runs of a tenant lie in a folder of that name: those of ours that are no tenant's begin with a line, too.
pub(crate) fn is_tenant_folder(name: &str) -> bool {
    name == NAMELESS || !name.starts_with('_')
}

/// Whether a key of a large file is one that is made here. Where the store is a whole bucket, others may have theirs in it.
pub(crate) fn is_ours(key: &str) -> bool {
    let mut parts = key.split('/');
    match parts.next() {
        Some(UPLOADS | QUARANTINE | WITHIN) => true,
        Some(folder) => {
            is_tenant_folder(folder) && parts.next().is_some_and(|run| run.parse::<RunId>().is_ok())
        }
        None => false,
    }
}

/// A tenant's name as one part of a key: what could be read as more than that is spelled out in hexadecimal digits, and
/// stands for itself by its hash where that would be longer than a folder's name may be.
pub(crate) fn tenant_folder(tenant: &str) -> String {
    let is_plain = tenant.starts_with(|first: char| first.is_ascii_alphanumeric())
        && tenant.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && !tenant.starts_with("x-")
        && !tenant.starts_with("h-");
    match tenant {
        "" => NAMELESS.to_owned(),
        _ if is_plain && tenant.len() <= LONGEST => tenant.to_owned(),
        _ if 2 * tenant.len() <= LONGEST => format!("x-{}", hex(tenant.as_bytes())),
        _ => format!("h-{}", hash_bytes(tenant.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_named_by_a_plain_id() {
        assert_eq!(upload("acme", "01J-x_9"), Some("_uploads/acme/01J-x_9".to_owned()));
        assert_eq!(upload_sidecar("", "a"), Some("_uploads/_/a.json".to_owned()));
        for id in ["", "..", "a/b", "a.json", "é", &"x".repeat(65)] {
            assert_eq!(upload("acme", id), None, "{id}");
        }
    }

    #[test]
    fn a_tenant_is_one_part_of_a_key_whatever_it_is_called() {
        let (plain, odd) = ("a".repeat(201), "/".repeat(120));
        let short = hash_bytes(odd.as_bytes());
        let names = ["", "acme", "..", "a/b", "x-61", "_", "é", &plain, &odd, &format!("h-{short}")];
        let folders: Vec<String> = names.map(tenant_folder).into();

        assert_eq!(folders[..2], ["_", "acme"]);
        assert!(folders.iter().all(|folder| !folder.contains('/') && folder.len() <= LONGEST + 2));
        assert!(folders[2..].iter().all(|folder| folder.starts_with("x-") || folder.starts_with("h-")));
        let different: std::collections::BTreeSet<_> = folders.iter().collect();
        assert_eq!(different.len(), folders.len());
    }
}
