//! A folder as it fills: which files are complete.
//!
//! It is listed again and again. Notifications of the kernel would not spare that: they tell nothing on network file
//! systems, can be lost when many come at once, and a file is complete only after a time in which nothing is told of it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// What others call a file that they have not finished yet.
const UNFINISHED: [&str; 6] = ["part", "tmp", "crdownload", "partial", "download", "filepart"];

#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    /// Where results go: they are no inputs.
    results: PathBuf,
    is_nested: bool,
    settle: Duration,
    seen: HashMap<PathBuf, Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    stamp: Stamp,
    since: Instant,
    is_told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    modified: SystemTime,
}

impl Folder {
    pub(super) fn new(root: PathBuf, results: PathBuf, is_nested: bool, settle: Duration) -> Self {
        Self { root, results, is_nested, settle, seen: HashMap::new() }
    }

    /// The files that have become complete since the last look: each once, and again when it was changed.
    pub(super) fn look(&mut self, now: Instant) -> io::Result<Vec<PathBuf>> {
        let mut there = Vec::new();
        self.list(&self.root, &mut there)?;
        let mut seen = HashMap::with_capacity(there.len());
        let mut complete = Vec::new();
        for (path, stamp) in there {
            let known = self.seen.get(&path).copied().filter(|known| known.stamp == stamp);
            let mut known = known.unwrap_or(Seen { stamp, since: now, is_told: false });
            if !known.is_told && now.duration_since(known.since) >= self.settle {
                known.is_told = true;
                complete.push(path.clone());
            }
            seen.insert(path, known);
        }
        self.seen = seen;
        complete.sort();
        Ok(complete)
    }

    /// The file is told of again, after it has not changed for a while once more.
    pub(super) fn forget(&mut self, path: &Path) {
        self.seen.remove(path);
    }

    fn list(&self, folder: &Path, there: &mut Vec<(PathBuf, Stamp)>) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            if is_unfinished(&entry.file_name()) || path == self.results {
                continue;
            }
            // What is gone by now is no file any more. Links are not followed: they may lead anywhere.
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            if meta.is_dir() && self.is_nested {
                // A folder inside that cannot be read must not keep the others from being seen.
                let _ = self.list(&path, there);
            } else if meta.is_file() {
                there.push((path, Stamp { bytes: meta.len(), modified: meta.modified()? }));
            }
        }
        Ok(())
    }
}

fn is_unfinished(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let extension = Path::new(&*name).extension().map(|extension| extension.to_string_lossy().to_lowercase());
    name.starts_with('.')
        || name.ends_with('~')
        || extension.is_some_and(|extension| UNFINISHED.contains(&extension.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_secs(5);

    struct Drop {
        place: tempfile::TempDir,
        folder: Folder,
        start: Instant,
    }

    impl Drop {
        fn new(is_nested: bool) -> Self {
            let place = tempfile::tempdir().expect("a folder");
            let root = place.path().to_owned();
            let folder = Folder::new(root.clone(), root.join("results"), is_nested, SETTLE);
            Self { place, folder, start: Instant::now() }
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.place.path().join(name);
            fs::create_dir_all(path.parent().expect("it lies in the folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }

        fn look(&mut self, second: u64) -> Vec<String> {
            let complete = self.folder.look(self.start + Duration::from_secs(second)).expect("it is there");
            let root = self.place.path();
            let names = complete.iter().map(|path| path.strip_prefix(root).expect("inside").display());
            names.map(|name| name.to_string()).collect()
        }
    }

    #[test]
    fn a_file_is_complete_once_it_has_not_changed_for_a_while() {
        let mut drop = Drop::new(false);
        drop.write("a.mp4", "1");
        assert!(drop.look(0).is_empty());

        drop.write("a.mp4", "12");
        assert!(drop.look(4).is_empty());
        assert!(drop.look(8).is_empty());

        assert_eq!(drop.look(9), ["a.mp4"]);
        assert!(drop.look(100).is_empty(), "each file once");
    }

    #[test]
    fn a_file_that_is_replaced_is_another_one() {
        let mut drop = Drop::new(false);
        drop.write("a.mp4", "1");
        drop.look(0);
        assert_eq!(drop.look(5), ["a.mp4"]);

        drop.write("a.mp4", "other");

        assert!(drop.look(6).is_empty());
        assert_eq!(drop.look(11), ["a.mp4"]);
    }

    #[test]
    fn what_is_still_being_written_hidden_or_a_result_is_no_input() {
        let mut drop = Drop::new(true);
        for name in
            ["a.mp4.part", "b.TMP", "c.crdownload", ".d.mp4", "e.mp4~", "results/a/mp4/video.mp4", "in/f.mp4"]
        {
            drop.write(name, "1");
        }
        std::os::unix::fs::symlink("/etc/passwd", drop.place.path().join("link.mp4")).expect("a link");

        drop.look(0);

        assert_eq!(drop.look(5), ["in/f.mp4"]);
    }

    #[test]
    fn folders_inside_are_looked_into_only_when_asked_for() {
        let mut drop = Drop::new(false);
        drop.write("in/f.mp4", "1");

        drop.look(0);

        assert!(drop.look(5).is_empty());
    }
}
