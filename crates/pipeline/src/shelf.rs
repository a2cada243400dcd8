//! The files of a run, by the names under which they are asked for: `{step}/{path}`.
//!
//! A name is looked up among those that the records tell of, and never becomes a key by itself: nobody can ask for what no
//! job of the run has stored.

use std::collections::HashMap;

use telecine_queue::{Queue, QueueError, Run, RunState, Timestamp};

use crate::records::{OutputRecord, SegmentRecord, SoundRecord, StoredFile, read_all};

/// Everything that can be asked for of one run, as it was.
#[derive(Clone, Debug)]
pub struct Shelf {
    of: Stamp,
    files: HashMap<String, StoredFile>,
}

/// A run that has ended stays as it is for as long as this is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    generation: u32,
    state: RunState,
    finished_at: Option<Timestamp>,
}

impl Stamp {
    fn of(run: &Run) -> Self {
        Self { generation: run.generation, state: run.state, finished_at: run.finished_at }
    }
}

impl Shelf {
    /// What is published; of a run that goes on, also the segments of films that are being made.
    pub async fn read(queue: &dyn Queue, run: &Run) -> Result<Self, QueueError> {
        let mut files = HashMap::new();
        // What a cancelled run had published does not count.
        if run.state != RunState::Cancelled {
            if run.finished_at.is_none() {
                put_unfinished(queue, run, &mut files).await?;
            }
            for (_, output) in read_all::<OutputRecord>(queue, &run.id).await? {
                put(&mut files, &output.step, output.files);
            }
        }
        Ok(Self { of: Stamp::of(run), files })
    }

    /// Whether the run is as it was then. What of a run that goes on was not there then may be there by now.
    pub fn is_of(&self, run: &Run) -> bool {
        self.of == Stamp::of(run)
    }

    pub fn get(&self, name: &str) -> Option<&StoredFile> {
        self.files.get(name)
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

async fn put_unfinished(
    queue: &dyn Queue,
    run: &Run,
    files: &mut HashMap<String, StoredFile>,
) -> Result<(), QueueError> {
    for (_, segment) in read_all::<SegmentRecord>(queue, &run.id).await? {
        let of_segment = segment.files.into_iter().flat_map(|rung| [rung.init, rung.file]);
        put(files, &segment.step, of_segment);
    }
    for (step, sound) in read_all::<SoundRecord>(queue, &run.id).await? {
        put(files, &step, std::iter::once(sound.init).chain(sound.segments));
    }
    Ok(())
}

fn put(files: &mut HashMap<String, StoredFile>, step: &str, of_step: impl IntoIterator<Item = StoredFile>) {
    files.extend(of_step.into_iter().map(|file| (format!("{step}/{}", file.path), file)));
}

impl StoredFile {
    /// Whether the name has the content in it, so that what lies under it is always the same.
    pub fn is_named_by_content(&self) -> bool {
        let stem = self.path.rsplit('/').next().and_then(|name| name.split('.').next()).unwrap_or_default();
        let hash = self.sha256.get(..8);
        hash.is_some_and(|hash| stem.strip_suffix(hash).is_some_and(|rest| rest.ends_with('-')))
    }
}

/// The step and the rendition of a playlist of a film that is being made; `None` where the name can be none of one.
pub fn live_name<'a>(run: &Run, name: &'a str) -> Option<(&'a str, &'a str)> {
    let (step, path) = name.split_once('/').filter(|_| run.finished_at.is_none())?;
    Some((step, path.strip_suffix(".m3u8")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_its_content_in_it_is_told_from_others() {
        let file = |path: &str| StoredFile {
            path: path.into(),
            key: String::new(),
            bytes: 1,
            sha256: "3f9a1c2b".repeat(8),
        };

        for named in ["720p/00007-3f9a1c2b.m4s", "720p/init-3f9a1c2b.mp4", "init-3f9a1c2b.mp4"] {
            assert!(file(named).is_named_by_content(), "{named}");
        }
        for fixed in
            ["master.m3u8", "720p/00007-3f9a1c2c.m4s", "3f9a1c2b.mp4", "a3f9a1c2b", "-3f9a1c2b/film.mp4"]
        {
            assert!(!file(fixed).is_named_by_content(), "{fixed}");
        }
    }
}
