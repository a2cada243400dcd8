//! From the store to the folder where a user looks: each file appears whole, and the one to begin with appears last.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use telecine_pipeline::Blobs;
use telecine_pipeline::records::{OutputRecord, StoredFile};

use super::place::{Stamp, put};

/// Bytes of a folder's name. File systems allow 255.
const LONGEST_NAME: usize = 200;

/// The folder of results, and what lies in it because of us.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    folder: PathBuf,
    /// A document for each input's folder.
    notes: PathBuf,
}

/// Whose folder it is and what was put there, by step: what a later run replaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    input: PathBuf,
    #[serde(default)]
    made: BTreeMap<String, BTreeMap<String, Stamp>>,
}

/// An output where its user finds it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Exported {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) step: String,
    /// The file to begin with.
    pub(crate) path: PathBuf,
    /// Of all its files.
    pub(crate) bytes: u64,
    pub(crate) files: usize,
    pub(crate) facts: serde_json::Value,
}

impl Results {
    pub(crate) fn open(folder: &Path, own: &Path) -> Result<Self> {
        let notes = own.join("results");
        fs::create_dir_all(&notes).with_context(|| format!("cannot make the folder {}", notes.display()))?;
        Ok(Self { folder: folder.to_owned(), notes })
    }

    /// The folder of an input: its name without the extension, or more of it where another input has that already.
    pub(crate) fn folder_of(&self, input: &Path) -> Result<PathBuf> {
        let [stem, name] =
            [input.file_stem(), input.file_name()].map(|name| visible(name.unwrap_or_default()));
        let digest = Sha256::digest(input.as_os_str().as_encoded_bytes());
        let unlike = format!("{stem}-{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3]);
        for candidate in [stem, name, unlike] {
            let folder = self.folder.join(&candidate);
            let is_free = folder.is_dir() || !folder.exists();
            if is_free && self.claim(&candidate, input)? {
                return Ok(folder);
            }
        }
        bail!(
            "no folder for the results of {} can be made in {}: files of those names are in the way\n\
             next: move them, or name another folder with --out",
            input.display(),
            self.folder.display()
        )
    }

    /// Whether the folder of that name belongs to the input, from now on at the latest.
    fn claim(&self, name: &str, input: &Path) -> Result<bool> {
        let note = Note { input: input.to_owned(), ..Note::default() };
        let path = self.note_of(name);
        // Written elsewhere first: two processes may want the same name, and each must find a whole document.
        let mut written = tempfile::NamedTempFile::new_in(&self.notes)?;
        written.write_all(&serde_json::to_vec_pretty(&note)?)?;
        match written.persist_noclobber(&path) {
            Ok(_) => Ok(true),
            Err(refused) if refused.error.kind() == ErrorKind::AlreadyExists => {
                Ok(read_note(&path)?.input == input)
            }
            Err(refused) => Err(refused.error.into()),
        }
    }

    fn note_of(&self, name: &str) -> PathBuf {
        self.notes.join(format!("{name}.json"))
    }

    /// Puts outputs of a run into the input's folder, and takes away what an earlier run had put there for the same steps.
    pub(crate) async fn export(
        &self,
        input: &Path,
        outputs: &[OutputRecord],
        blobs: &Blobs,
    ) -> Result<Vec<Exported>> {
        if outputs.is_empty() {
            return Ok(Vec::new());
        }
        let folder = self.folder_of(input)?;
        let before = read_note(&self.note_of_folder(&folder))?.made;
        let mut exported = Vec::with_capacity(outputs.len());
        let mut files: BTreeMap<String, BTreeMap<String, Stamp>> = BTreeMap::new();
        for output in outputs {
            let step = folder.join(&output.step);
            for file in main_last(output) {
                let stamp = before.get(&output.step).and_then(|files| files.get(&file.path));
                let stamp = put(file, &step.join(&file.path), stamp, blobs).await?;
                files.entry(output.step.clone()).or_default().insert(file.path.clone(), stamp);
            }
            exported.push(Exported {
                name: output.name.clone(),
                kind: output.kind.clone(),
                step: output.step.clone(),
                path: step.join(&output.main),
                bytes: output.files.iter().map(|file| file.bytes).sum(),
                files: output.files.len(),
                facts: output.facts.clone(),
            });
        }
        self.replace_note(&folder, files)?;
        Ok(exported)
    }

    fn note_of_folder(&self, folder: &Path) -> PathBuf {
        self.note_of(&folder.file_name().unwrap_or_default().to_string_lossy())
    }

    fn replace_note(&self, folder: &Path, files: BTreeMap<String, BTreeMap<String, Stamp>>) -> Result<()> {
        let path = self.note_of_folder(folder);
        let mut note = read_note(&path)?;
        for (step, now) in files {
            let before = note.made.insert(step.clone(), now.clone()).unwrap_or_default();
            for gone in before.keys().filter(|file| !now.contains_key(*file)) {
                remove_with_empty_folders(&folder.join(&step), gone);
            }
        }
        let mut written = tempfile::NamedTempFile::new_in(&self.notes)?;
        written.write_all(&serde_json::to_vec_pretty(&note)?)?;
        written.persist(&path)?;
        Ok(())
    }
}

/// A hidden file has results that can be seen; and a name leaves room for what is added to it.
fn visible(name: &OsStr) -> String {
    let name = name.to_string_lossy();
    let name = name.trim_start_matches('.');
    let name = &name[..name.floor_char_boundary(LONGEST_NAME.min(name.len()))];
    if name.is_empty() { "results".to_owned() } else { name.to_owned() }
}

fn read_note(path: &Path) -> Result<Note> {
    let unreadable = || format!("cannot read {}; if it is damaged, remove it", path.display());
    let text = fs::read(path).with_context(unreadable)?;
    serde_json::from_slice(&text).with_context(unreadable)
}

/// Somebody who looks at the first file finds all others there.
fn main_last(output: &OutputRecord) -> impl Iterator<Item = &StoredFile> {
    let (main, others): (Vec<_>, Vec<_>) = output.files.iter().partition(|file| file.path == output.main);
    others.into_iter().chain(main)
}

/// What is in the way of tidying up stays: it is not ours.
fn remove_with_empty_folders(root: &Path, file: &str) {
    let path = root.join(file);
    let _ = fs::remove_file(&path);
    for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(root)) {
        if fs::remove_dir(folder).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        folder: tempfile::TempDir,
        results: Results,
        blobs: Blobs,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let results =
                Results::open(&folder.path().join("out"), &folder.path().join("own")).expect("a folder");
            let blobs = Blobs::in_folder(&folder.path().join("store")).expect("a store");
            Self { folder, results, blobs }
        }

        async fn output(&self, step: &str, run: &str, files: &[&str]) -> OutputRecord {
            let mut stored = Vec::new();
            for path in files {
                let key = format!("_/{run}/{step}/{path}");
                let bytes = format!("{run} {path}");
                self.blobs.put_bytes(&key, bytes.clone().into()).await.expect("stored");
                let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
                let bytes = bytes.len() as u64;
                stored.push(StoredFile { path: (*path).to_owned(), key, bytes, sha256 });
            }
            OutputRecord {
                name: step.to_owned(),
                kind: step.to_owned(),
                step: step.to_owned(),
                main: files[0].to_owned(),
                files: stored,
                facts: serde_json::Value::Null,
            }
        }

        async fn export(&self, input: &str, outputs: &[OutputRecord]) -> Vec<Exported> {
            self.results.export(Path::new(input), outputs, &self.blobs).await.expect("exported")
        }

        fn out(&self, path: &str) -> PathBuf {
            self.folder.path().join("out").join(path)
        }
    }

    #[tokio::test]
    async fn a_later_run_replaces_what_an_earlier_one_made_of_the_same_step_alone() {
        let place = Place::new();
        let first = [
            place.output("hls", "one", &["master.m3u8", "720p/old.m4s"]).await,
            place.output("mp4", "one", &["video.mp4"]).await,
        ];
        place.export("/in/film.mov", &first).await;
        fs::write(place.out("film/hls/notes.txt"), "mine").expect("a file of the user's own");

        let second = [place.output("hls", "two", &["master.m3u8", "480p/new.m4s"]).await];
        place.export("/in/film.mov", &second).await;

        let read = |path: &str| fs::read_to_string(place.out(path)).ok();
        assert_eq!(read("film/hls/master.m3u8").as_deref(), Some("two master.m3u8"));
        assert_eq!(read("film/hls/480p/new.m4s").as_deref(), Some("two 480p/new.m4s"));
        assert!(!place.out("film/hls/720p").exists(), "what nothing names any more is gone");
        assert_eq!(read("film/hls/notes.txt").as_deref(), Some("mine"));
        assert_eq!(read("film/mp4/video.mp4").as_deref(), Some("one video.mp4"));
    }

    #[tokio::test]
    async fn two_inputs_of_one_name_have_folders_of_their_own_for_good() {
        let place = Place::new();
        let output = [place.output("hls", "one", &["master.m3u8"]).await];

        let mut folders = Vec::new();
        for input in ["/a/film.mov", "/a/film.mp4", "/b/film.mov", "/a/film.mp4"] {
            folders.push(place.export(input, &output).await.remove(0).path);
        }

        assert_eq!(folders[0], place.out("film/hls/master.m3u8"));
        assert_eq!(folders[1], place.out("film.mp4/hls/master.m3u8"));
        assert!(folders[2] != folders[0] && folders[2] != folders[1], "{folders:?}");
        assert_eq!(folders[3], folders[1]);
    }

    #[tokio::test]
    async fn names_that_are_hidden_or_very_long_have_folders_like_others() {
        let place = Place::new();
        let output = [place.output("hls", "one", &["master.m3u8"]).await];
        let long = "ä".repeat(125);

        let mut folders = Vec::new();
        for input in ["/a/.film.mov", "/a/..mov", "/a/film.mov", &format!("/a/{long}.mp4")] {
            folders.push(place.export(input, &output).await.remove(0).path);
        }

        assert_eq!(folders[0], place.out("film/hls/master.m3u8"));
        assert_eq!(folders[1], place.out("results/hls/master.m3u8"));
        assert_eq!(folders[2], place.out("film.mov/hls/master.m3u8"));
        assert!(folders[3].starts_with(place.out(&"ä".repeat(100))), "{folders:?}");
    }

    #[tokio::test]
    async fn putting_the_same_there_again_changes_nothing_and_leaves_nothing_behind() {
        let place = Place::new();
        let output = [place.output("mp4", "one", &["video.mp4"]).await];

        place.export("/a/film.mov", &output).await;
        place.export("/a/film.mov", &output).await;

        let left: Vec<_> = fs::read_dir(place.out("film/mp4")).expect("a folder").collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
