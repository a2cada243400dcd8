//! Outputs under keys that callers choose: `u42/{media}/m7` becomes `u42/videos/m7/hls/master.m3u8`.
//!
//! The keys of a run are its own for good. A prefix that a caller chose is a place that one run after another may fill,
//! so there has to be an answer to whose it is ([`owner`]) and to what of it is whose ([`list`]):
//!
//! - An entry of the database names the run that a prefix belongs to: of two the one that was submitted later. Whoever
//!   takes it over waits until the job that wrote there before has ended, for a bucket knows no fence.
//! - Before anything is copied, a list of what will be is put into the store. What stands on older lists, and not on the
//!   owner's, is removed when all of the owner's files are there. Nothing else that lies there is ever touched.
//! - Files of a run are put over those of the run before, so until all are there the entry also names that one. If the
//!   later run comes to nothing, the earlier one's files are copied again from its outputs, and the others go
//!   (`kinds/settle_publication.rs`).

mod layout;
mod list;
mod owner;
mod settle;
mod write;

use crate::blobs::{Blobs, StoreError, hash_bytes};
use crate::failure::{Attempted, Failed};
use crate::keys;
use crate::media_type::MediaType;

pub(crate) use layout::{Copied, copies};
pub(crate) use list::Lists;
pub(crate) use owner::{Claimant, Holding, Standing, Taken};
pub(crate) use settle::{
    Found, Promised, find, is_as_promised, promised, remove_all_but, remove_unowned, settle_unfinished,
    unpublish,
};
pub(crate) use write::{Publication, sizes};

/// What `{media}` stands for is known when the input is.
const MEDIA: &str = "{media}";
const PREFIX_BYTES: usize = 512;
/// A file system takes 255 in a name.
const PART_BYTES: usize = 200;
/// Where the store itself keeps what is published, if nobody chose another place. No tenant's folder can have this name.
pub(crate) const WITHIN: &str = "_published";

/// The store that outputs are published in.
#[derive(Clone, Debug)]
pub struct Published {
    pub(crate) blobs: Blobs,
    /// Every key begins with it; empty where the whole place is for what is published.
    below: &'static str,
    /// Where the store of the runs lies in it, if it does.
    store_at: Option<String>,
}

/// A prefix of one publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// In the store that is published in, without a slash at its end.
    pub(crate) prefix: String,
    /// The same from the root of the bucket or folder.
    pub(crate) address: String,
    /// `s3://bucket`; `None` where it is a folder.
    pub(crate) bucket: Option<String>,
    /// Short, and the same for the same address.
    pub(crate) name: String,
}

impl Published {
    /// In the store of the runs itself, apart from them.
    pub fn within(store: &Blobs) -> Self {
        Self { blobs: store.clone(), below: WITHIN, store_at: None }
    }

    /// In a folder or `s3://bucket/prefix`, which a bucket of the runs may be a part of.
    pub fn in_place(url: &str, store: &Blobs) -> Result<Self, StoreError> {
        let blobs = store.sibling(url)?;
        if blobs.lies_in(store).is_some() {
            let reason = format!("{url} lies in the store of the runs, which keeps no keys of others");
            return Err(StoreError::Invalid { reason });
        }
        Ok(Self { store_at: store.lies_in(&blobs), blobs, below: "" })
    }

    /// Where a tenant's run publishes. Tenants with a name do so in a folder of their own.
    pub(crate) fn place(&self, prefix: &str, tenant: &str, media: Option<MediaType>) -> Attempted<Place> {
        if let Some(fault) = prefix_fault(prefix) {
            return Err(Failed::for_good("invalid_prefix", fault, "submit it again with another prefix"));
        }
        let folder = match media {
            Some(media) => media.folder(),
            None if prefix.contains(MEDIA) => {
                let message = format!("the input is neither seen nor heard, so {MEDIA} stands for nothing");
                return Err(Failed::for_good("unsupported_format", message, "name the folder in the prefix"));
            }
            None => "",
        };
        let own = (!tenant.is_empty()).then(|| keys::tenant_folder(tenant));
        let below = (!self.below.is_empty()).then(|| self.below.to_owned());
        let parts: Vec<String> =
            below.into_iter().chain(own).chain([prefix.replace(MEDIA, folder)]).collect();
        let prefix = parts.join("/");
        if self.store_at.as_ref().is_some_and(|at| is_or_holds(&prefix, at)) {
            let message = format!("below {prefix} lies the store of the runs");
            return Err(Failed::for_good("invalid_prefix", message, "submit it again with another prefix"));
        }
        Ok(self.at(prefix)?)
    }

    /// The same of a prefix that was resolved before.
    pub(crate) fn at(&self, prefix: String) -> Result<Place, StoreError> {
        let (bucket, address) = self.blobs.address_of(&prefix)?;
        let name = hash_bytes(format!("{}/{address}", bucket.as_deref().unwrap_or_default()).as_bytes());
        Ok(Place { prefix, address, bucket, name })
    }
}

/// Whether one of two keys is a part of the other.
fn is_or_holds(one: &str, other: &str) -> bool {
    let holds = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    holds(one, other) || holds(other, one)
}

/// What is wrong with a prefix that somebody wants to publish under; `None`: nothing.
pub fn prefix_fault(prefix: &str) -> Option<&'static str> {
    let is_plain = |part: &str| {
        (1..=PART_BYTES).contains(&part.len())
            && !part.starts_with('.')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._=@-".contains(&byte))
    };
    let is_proper = (1..=PREFIX_BYTES).contains(&prefix.len())
        && prefix.split('/').all(|part| part == MEDIA || is_plain(part));
    (!is_proper).then_some(
        "a prefix is made of parts such as u42/{media}/m7: letters, digits and . _ = @ -, none empty or with a dot first, \
         200 bytes each and 512 in all",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_leads_nowhere_else() {
        for proper in ["u42", "u42/{media}/m7", "{media}", "a@b.example/x=1/_y", &"a".repeat(200)] {
            assert_eq!(prefix_fault(proper), None, "{proper}");
        }
        for wrong in [
            "",
            "/u42",
            "u42/",
            "u42//m7",
            "..",
            "u42/../m7",
            ".hidden",
            "a b",
            "ü",
            "x{media}",
            "a#1",
            "a\\b",
            "a%2e",
        ] {
            assert!(prefix_fault(wrong).is_some(), "{wrong}");
        }
        assert!(prefix_fault(&"a".repeat(201)).is_some());
        assert!(prefix_fault(&["a".repeat(171), "b".repeat(171), "c".repeat(169)].join("/")).is_some());
    }

    #[test]
    fn tenants_publish_apart() {
        let folder = tempfile::tempdir().unwrap();
        let store = Blobs::in_folder(&folder.path().join("store")).unwrap();
        let published = Published::within(&store);
        let place =
            |tenant: &str| published.place("u42/{media}/m7", tenant, Some(MediaType::Video)).unwrap().prefix;

        assert_eq!(place(""), "_published/u42/videos/m7");
        assert_eq!(place("acme"), "_published/acme/u42/videos/m7");
        assert_eq!(place("../x"), "_published/x-2e2e2f78/u42/videos/m7");
    }

    #[test]
    fn the_store_of_the_runs_is_no_place_to_publish_in() {
        let folder = tempfile::tempdir().unwrap();
        let store = Blobs::in_folder(&folder.path().join("media/store")).unwrap();
        let at = |path: &str| folder.path().join(path).display().to_string();

        let around = Published::in_place(&at("media"), &store).unwrap();

        assert!(Published::in_place(&at("media/store"), &store).is_err());
        assert!(Published::in_place(&at("media/store/public"), &store).is_err());
        for (prefix, is_free) in [("u42", true), ("stores", true), ("store", false), ("store/_", false)] {
            assert_eq!(around.place(prefix, "", Some(MediaType::Image)).is_ok(), is_free, "{prefix}");
        }
        assert!(around.place("{media}", "", None).is_err());
    }
}
