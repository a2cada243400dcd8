//! One run: what its records say of its outputs, and what the store has of them.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::TryStreamExt;
use sha2::{Digest, Sha256};
use telecine_queue::{Run, RunState};

use crate::blobs::{Blobs, StoreError, hex};
use crate::failure::Attempted;
use crate::keys;
use crate::kinds::PUBLISH;
use crate::kinds::sweep::is_older;
use crate::kinds::sweep::runs::published;
use crate::lifetime::is_deleted;
use crate::records::{OutputRecord, StoredFile, read_all};
use crate::workshop::Workshop;

use super::copies;

/// Names of files in a message.
const NAMED: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Sight {
    pub(super) damage: Damage,
    /// `None`: there is nothing that the run does not publish.
    pub(super) leftovers: Option<Leftovers>,
}

/// Files of a run's outputs that are not as they were.
#[derive(Debug, Default)]
pub(super) struct Damage {
    pub(super) files: Vec<DamagedFile>,
}

#[derive(Clone, Debug)]
pub(super) struct DamagedFile {
    pub(super) step: String,
    pub(super) file: StoredFile,
    pub(super) fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Missing,
    OtherSize,
    OtherBytes,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leftovers {
    /// Old enough to be removed.
    pub(super) old: u64,
    young: u64,
    bytes: u64,
}

impl Leftovers {
    pub(super) fn counted(&self) -> String {
        format!("{} blobs, {} bytes", self.old + self.young, self.bytes)
    }
}

impl Damage {
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(super) fn steps(&self) -> Vec<String> {
        let steps: BTreeSet<&String> = self.files.iter().map(|file| &file.step).collect();
        steps.into_iter().cloned().collect()
    }

    /// Whether it is of files that lie under the run itself.
    pub(super) fn is_of(&self, run: &Run) -> bool {
        let own = format!("{}/", keys::of_run(&run.tenant, &run.id));
        self.files.iter().any(|file| file.file.key.starts_with(&own))
    }

    /// Whether all that is missing are copies of what is there.
    pub(super) fn is_of_copies(&self) -> bool {
        self.files.iter().all(|file| file.step == PUBLISH)
    }

    /// `2 files are missing, 1 has another size: hls/180p/00001-3f9a1c2b.m4s, …`
    pub(super) fn told(&self) -> String {
        let count = |fault: Fault| self.files.iter().filter(|file| file.fault == fault).count();
        let counts = [
            (count(Fault::Missing), "missing"),
            (count(Fault::OtherSize), "of another size"),
            (count(Fault::OtherBytes), "of other bytes"),
        ];
        let counts = counts.iter().filter(|(files, _)| *files > 0);
        let counts: Vec<String> = counts.map(|(files, what)| format!("{files} {what}")).collect();
        let name = |file: &DamagedFile| match file.step.as_str() {
            PUBLISH => file.file.key.clone(),
            step => format!("{step}/{}", file.file.path),
        };
        let named = self.files.iter().take(NAMED).map(name);
        let more = if self.files.len() > NAMED { ", …" } else { "" };
        format!("files: {}: {}{more}", counts.join(", "), named.collect::<Vec<_>>().join(", "))
    }
}

/// What is to be said of a run that has ended.
pub(super) async fn look(shop: &Workshop, run: &Run, deep: bool) -> Attempted<Sight> {
    // One that was deleted lives on for its borrowers, or goes with a sweep.
    if is_deleted(&*shop.queue, &run.id).await? {
        return Ok(Sight::default());
    }
    let mut expected = match run.state {
        RunState::Succeeded | RunState::Partial => expected_of(shop, run).await?,
        // What is not over, or came to nothing, promises nothing.
        RunState::Failed | RunState::Cancelled | RunState::Queued | RunState::Running => BTreeMap::new(),
    };
    let named = published(shop, run).await?;
    let own = keys::of_run(&run.tenant, &run.id);
    let prefixes: BTreeSet<String> =
        expected.keys().filter_map(|key| prefix_of(key)).chain([own.clone()]).collect();
    let (mut damage, mut leftovers) = (Damage::default(), Leftovers::default());
    for prefix in prefixes {
        let mut stored = shop.blobs.entries(&prefix);
        while let Some(blob) = stored.try_next().await? {
            match expected.remove(&blob.key) {
                Some((step, file)) => {
                    let fault = match blob.bytes == file.bytes {
                        false => Some(Fault::OtherSize),
                        true if deep => fault_of(&shop.blobs, &file).await?,
                        true => None,
                    };
                    damage.files.extend(fault.map(|fault| DamagedFile { step, file, fault }));
                }
                None if prefix == own && !named.contains(&blob.key) => {
                    let is_old = blob.modified_at.elapsed().is_ok_and(|age| age >= shop.keep_unpublished);
                    leftovers.old += u64::from(is_old);
                    leftovers.young += u64::from(!is_old);
                    leftovers.bytes += blob.bytes;
                }
                None => {}
            }
        }
    }
    let missing = expected.into_values();
    damage.files.extend(missing.map(|(step, file)| DamagedFile { step, file, fault: Fault::Missing }));
    // Who makes an output again also copies it again.
    let promises = matches!(run.state, RunState::Succeeded | RunState::Partial);
    if promises && damage.is_empty() {
        damage.files = copies::damaged(shop, run).await?;
    }
    // A retry may still use what a run has stored that ended lately.
    let is_over = run.finished_at.is_some_and(|at| is_older(at, shop.keep_unpublished));
    let leftovers = (is_over && leftovers.old + leftovers.young > 0).then_some(leftovers);
    Ok(Sight { damage, leftovers })
}

/// Every file that the run publishes, with its step, by key.
async fn expected_of(shop: &Workshop, run: &Run) -> Attempted<BTreeMap<String, (String, StoredFile)>> {
    let outputs = read_all::<OutputRecord>(&*shop.queue, &run.id).await?;
    let files = outputs.into_iter().flat_map(|(_, output)| {
        output.files.into_iter().map(move |file| (file.key.clone(), (output.step.clone(), file)))
    });
    Ok(files.collect())
}

/// `{tenant}/{run}`, under which a key of a run lies.
fn prefix_of(key: &str) -> Option<String> {
    let (tenant, rest) = key.split_once('/')?;
    let (run, _) = rest.split_once('/')?;
    Some(format!("{tenant}/{run}"))
}

/// What is wrong with a file, found out by reading it; `None`: nothing.
pub(super) async fn fault_of(blobs: &Blobs, file: &StoredFile) -> Result<Option<Fault>, StoreError> {
    let mut reader = match blobs.read(&file.key, None).await {
        Ok(reader) => reader,
        Err(StoreError::NotFound { .. }) => return Ok(Some(Fault::Missing)),
        Err(error) => return Err(error),
    };
    if reader.meta.bytes != file.bytes {
        return Ok(Some(Fault::OtherSize));
    }
    let mut hash = Sha256::new();
    while let Some(part) = reader.parts.try_next().await? {
        hash.update(&part);
    }
    Ok((hex(&hash.finalize()) != file.sha256).then_some(Fault::OtherBytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_told_with_its_first_files() {
        let damaged = |number: u32, fault| DamagedFile {
            step: "hls".into(),
            file: StoredFile {
                path: format!("180p/{number}.m4s"),
                key: format!("_/run_1/hls/180p/{number}.m4s"),
                bytes: 1,
                sha256: String::new(),
            },
            fault,
        };
        let files = vec![
            damaged(1, Fault::Missing),
            damaged(2, Fault::Missing),
            damaged(3, Fault::OtherSize),
            damaged(4, Fault::OtherBytes),
        ];

        let damage = Damage { files };

        assert_eq!(
            damage.told(),
            "files: 2 missing, 1 of another size, 1 of other bytes: hls/180p/1.m4s, hls/180p/2.m4s, \
             hls/180p/3.m4s, …"
        );
        assert_eq!(damage.steps(), ["hls"]);
        assert_eq!(prefix_of("_/run_1/hls/180p/1.m4s"), Some("_/run_1".into()));
    }
}
