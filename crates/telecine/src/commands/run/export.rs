//! From the store to the folder where a user looks: by hard link where the file system allows, else by copy; each file
//! appears whole, and the one to begin with appears last.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use telecine_pipeline::Blobs;
use telecine_pipeline::records::{OutputRecord, StoredFile};

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
    files: BTreeMap<String, Vec<String>>,
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
        let stem = input.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = input.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let digest = Sha256::digest(input.as_os_str().as_encoded_bytes());
        let unlike = format!("{stem}-{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3]);
        for candidate in [stem, name, unlike] {
            let folder = self.folder.join(&candidate);
            let is_free = !candidate.starts_with('.') && (folder.is_dir() || !folder.exists());
            if is_free && self.claim(&candidate, input)? {
                return Ok(folder);
            }
        }
        bail!("no folder for the results of {} can be made in {}", input.display(), self.folder.display())
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
        let mut exported = Vec::with_capacity(outputs.len());
        let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for output in outputs {
            let step = folder.join(&output.step);
            for file in main_last(output) {
                put(file, &step.join(&file.path), blobs).await?;
                files.entry(output.step.clone()).or_default().push(file.path.clone());
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

    fn replace_note(&self, folder: &Path, files: BTreeMap<String, Vec<String>>) -> Result<()> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let path = self.note_of(&name);
        let mut note = read_note(&path)?;
        for (step, now) in files {
            let before = note.files.insert(step.clone(), now.clone()).unwrap_or_default();
            for gone in before.iter().filter(|file| !now.contains(file)) {
                remove_with_empty_folders(&folder.join(&step), gone);
            }
        }
        let mut written = tempfile::NamedTempFile::new_in(&self.notes)?;
        written.write_all(&serde_json::to_vec_pretty(&note)?)?;
        written.persist(&path)?;
        Ok(())
    }
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

async fn put(file: &StoredFile, target: &Path, blobs: &Blobs) -> Result<()> {
    let folder = target.parent().unwrap_or(Path::new("."));
    let cannot = || format!("cannot write {}", target.display());
    fs::create_dir_all(folder).with_context(cannot)?;
    match blobs.local_path(&file.key) {
        Some(blob) => {
            let (file, target) = (file.clone(), target.to_owned());
            tokio::task::spawn_blocking(move || link_or_copy(&file, &blob, &target))
                .await?
                .with_context(cannot)
        }
        None if has_content_of(file, target).with_context(cannot)? => Ok(()),
        None => {
            let part = tempfile::Builder::new().prefix(".part-").tempfile_in(folder).with_context(cannot)?;
            blobs.fetch(&file.key, part.path()).await?;
            readable_by_others(part.as_file()).with_context(cannot)?;
            part.persist(target).map(drop).map_err(|refused| refused.error).with_context(cannot)
        }
    }
}

fn link_or_copy(file: &StoredFile, blob: &Path, target: &Path) -> io::Result<()> {
    if is_there_already(file, blob, target)? {
        return Ok(());
    }
    let folder = target.parent().unwrap_or(Path::new("."));
    // A name that nobody has: a link cannot replace a file, but a rename can.
    let part = tempfile::Builder::new().prefix(".part-").tempfile_in(folder)?.into_temp_path();
    fs::remove_file(&part)?;
    if fs::hard_link(blob, &part).is_err() {
        fs::copy(blob, &part)?;
        readable_by_others(&File::options().write(true).open(&part)?)?;
    }
    part.persist(target).map_err(|refused| refused.error)
}

/// The same file by another name, or a copy.
fn is_there_already(file: &StoredFile, blob: &Path, target: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let blob = fs::metadata(blob)?;
    let is_same = fs::symlink_metadata(target)
        .is_ok_and(|there| (there.dev(), there.ino()) == (blob.dev(), blob.ino()));
    Ok(is_same || has_content_of(file, target)?)
}

/// Times and lengths can agree by chance; hashes do not.
fn has_content_of(file: &StoredFile, target: &Path) -> io::Result<bool> {
    if !fs::symlink_metadata(target).is_ok_and(|there| there.is_file() && there.len() == file.bytes) {
        return Ok(false);
    }
    let mut hash = HashWriter(Sha256::new());
    io::copy(&mut File::open(target)?, &mut hash)?;
    let hex: String = hash.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(hex == file.sha256)
}

struct HashWriter(Sha256);

impl Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Temporary files are for their owner alone; results are for whoever may look into the folder.
fn readable_by_others(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(0o644))
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
    async fn putting_the_same_there_again_changes_nothing_and_leaves_nothing_behind() {
        let place = Place::new();
        let output = [place.output("mp4", "one", &["video.mp4"]).await];

        place.export("/a/film.mov", &output).await;
        place.export("/a/film.mov", &output).await;

        let left: Vec<_> = fs::read_dir(place.out("film/mp4")).expect("a folder").collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[tokio::test]
    async fn a_copy_is_known_again_and_another_file_of_the_same_length_is_replaced() {
        let place = Place::new();
        let output = [place.output("mp4", "one", &["video.mp4"]).await];
        let exported = place.export("/a/film.mov", &output).await.remove(0).path;
        let file = &output[0].files[0];
        let blob = place.blobs.local_path(&file.key).expect("the store is a folder");
        let copied = place.out("copy");
        fs::copy(&blob, &copied).expect("a copy");

        assert!(is_there_already(file, &blob, &copied).expect("readable"));
        fs::remove_file(&exported).expect("it was there");
        fs::write(&exported, "x".repeat(file.bytes as usize)).expect("another file");
        place.export("/a/film.mov", &output).await;

        assert_eq!(fs::read(&exported).expect("readable"), fs::read(&blob).expect("readable"));
    }
}
