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
    /// Of the place, for whoever finds the list without it.
    #[serde(default)]
    prefix: String,
    keys: BTreeSet<String>,
}

/// The lists of a prefix, by their own keys.
#[derive(Debug)]
pub(crate) struct Lists<'a> {
    blobs: &'a Blobs,
    all: BTreeMap<String, BTreeSet<String>>,
    prefix: Option<String>,
}

impl<'a> Lists<'a> {
    pub(crate) async fn read(blobs: &'a Blobs, place: &Place) -> Attempted<Self> {
        Self::named(blobs, &place.name).await
    }

    /// Of a place that is only known by its name.
    pub(crate) async fn named(blobs: &'a Blobs, place: &str) -> Attempted<Self> {
        let (mut all, mut prefix) = (BTreeMap::new(), None);
        for key in blobs.list(&keys::publications(place)).await? {
            let list: List = serde_json::from_slice(&blobs.get_bytes(&key).await?).unwrap_or_default();
            all.insert(key, list.keys);
            prefix = Some(list.prefix).filter(|prefix| !prefix.is_empty()).or(prefix);
        }
        Ok(Self { blobs, all, prefix })
    }

    /// The prefix that they say they are of.
    pub(crate) fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }

    /// Adds what a run is about to put there.
    pub(crate) async fn add(&mut self, place: &Place, run: &RunId, keys: &BTreeSet<String>) -> Attempted<()> {
        let own = keys::publication(&place.name, run);
        let listed = self.all.entry(own.clone()).or_default();
        listed.extend(keys.iter().cloned());
        put(self.blobs, place, &own, listed).await
    }

    pub(crate) fn all_keys(&self) -> BTreeSet<String> {
        self.all.values().flatten().cloned().collect()
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
        put(self.blobs, place, &keys::publication(&place.name, run), keys).await?;
        self.remove_others(place, Some(run)).await
    }

    pub(crate) fn has(&self, place: &Place, run: &RunId) -> bool {
        self.all.contains_key(&keys::publication(&place.name, run))
    }

    /// Whether a key stands on one of them.
    pub(crate) fn have(&self, key: &str) -> bool {
        self.all.values().any(|keys| keys.contains(key))
    }

    /// What a run has put there.
    pub(crate) fn of(&self, place: &Place, run: &RunId) -> BTreeSet<String> {
        self.all.get(&keys::publication(&place.name, run)).cloned().unwrap_or_default()
    }

    /// The keys of all lists but one run's.
    pub(crate) fn others(&self, place: &Place, run: Option<&RunId>) -> Vec<String> {
        let own = run.map(|run| keys::publication(&place.name, run));
        self.all.keys().filter(|key| Some(*key) != own.as_ref()).cloned().collect()
    }

    /// The keys of some runs' lists, and what stands on no other.
    pub(crate) fn of_these_alone(&self, runs: &[RunId]) -> (Vec<String>, Vec<String>) {
        let is_theirs = |list: &str| keys::publisher(list).is_some_and(|run| runs.contains(&run));
        let (theirs, others): (Vec<_>, Vec<_>) = self.all.iter().partition(|(list, _)| is_theirs(list));
        let kept: BTreeSet<&String> = others.into_iter().flat_map(|(_, keys)| keys).collect();
        let files = theirs.iter().flat_map(|(_, keys)| *keys).filter(|key| !kept.contains(key));
        let files = files.cloned().collect();
        (theirs.into_iter().map(|(list, _)| list.clone()).collect(), files)
    }

    pub(crate) async fn remove_others(self, place: &Place, run: Option<&RunId>) -> Attempted<()> {
        Ok(self.blobs.delete_all(self.others(place, run)).await?)
    }
}

async fn put(blobs: &Blobs, place: &Place, key: &str, keys: &BTreeSet<String>) -> Attempted<()> {
    let list = List { prefix: place.prefix.clone(), keys: keys.clone() };
    let list = serde_json::to_vec(&list).expect("a list is plain data");
    Ok(blobs.put_bytes(key, list.into()).await?)
}
