//! What runs have put below a prefix: one list for each, in the store of the runs.
//!
//! A list is there before the first file that stands on it, and goes after the last.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use telecine_queue::RunId;

use super::Place;
use crate::blobs::Blobs;
use crate::failure::Attempted;
use crate::keys;

#[derive(Debug, Default, Serialize, Deserialize)]
struct List {
    keys: BTreeSet<String>,
}

/// The lists of a prefix, by their own keys.
#[derive(Debug)]
pub(crate) struct Lists<'a> {
    blobs: &'a Blobs,
    all: BTreeMap<String, BTreeSet<String>>,
}

impl<'a> Lists<'a> {
    pub(crate) async fn read(blobs: &'a Blobs, place: &Place) -> Attempted<Self> {
        let mut all = BTreeMap::new();
        for key in blobs.list(&keys::publications(&place.name)).await? {
            let list: List = serde_json::from_slice(&blobs.get_bytes(&key).await?).unwrap_or_default();
            all.insert(key, list.keys);
        }
        Ok(Self { blobs, all })
    }

    /// Adds what a run is about to put there.
    pub(crate) async fn add(&mut self, place: &Place, run: &RunId, keys: &BTreeSet<String>) -> Attempted<()> {
        let own = keys::publication(&place.name, run);
        let listed = self.all.entry(own.clone()).or_default();
        listed.extend(keys.iter().cloned());
        put(self.blobs, &own, listed).await
    }

    /// What nobody needs when these are all that there is.
    pub(crate) fn others_than(&self, keys: &BTreeSet<String>) -> Vec<String> {
        self.all.values().flatten().filter(|key| !keys.contains(*key)).cloned().collect()
    }

    /// From now on a run has put there these, and no other run anything.
    pub(crate) async fn leave_only(
        self,
        place: &Place,
        run: &RunId,
        keys: &BTreeSet<String>,
    ) -> Attempted<()> {
        let own = keys::publication(&place.name, run);
        put(self.blobs, &own, keys).await?;
        Ok(self.blobs.delete_all(self.all.into_keys().filter(|key| *key != own)).await?)
    }

    pub(crate) async fn remove(self) -> Attempted<()> {
        Ok(self.blobs.delete_all(self.all.into_keys()).await?)
    }
}

async fn put(blobs: &Blobs, key: &str, keys: &BTreeSet<String>) -> Attempted<()> {
    let list = serde_json::to_vec(&List { keys: keys.clone() }).expect("a list is plain data");
    Ok(blobs.put_bytes(key, list.into()).await?)
}
