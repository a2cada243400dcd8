//! Files as inputs: what is wrong with one is said before anything is started.

use std::fmt;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use sha2::{Digest, Sha256};
use telecine_media::sniff_file;
use telecine_pipeline::Recipe;

/// A file that looks like media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InputFile {
    /// Absolute, without links.
    pub(crate) path: PathBuf,
    /// As its user calls it.
    pub(crate) shown: String,
    bytes: u64,
    modified_ns: i128,
}

/// Why a file is no input, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfit {
    pub(crate) shown: String,
    pub(crate) problem: String,
    pub(crate) next: String,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.shown, self.problem, self.next)
    }
}

impl InputFile {
    pub(crate) async fn look_at(typed: &Path) -> Result<Self, Unfit> {
        let shown = typed.display().to_string();
        let unfit =
            |problem: String, next: &str| Unfit { shown: shown.clone(), problem, next: next.to_owned() };
        let unreadable = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => unfit("there is no such file".into(), "check the path"),
            ErrorKind::PermissionDenied => {
                unfit("this user may not read it".into(), "change its permissions, or run as another user")
            }
            _ => unfit(error.to_string(), "check the path and its disk"),
        };
        let path = tokio::fs::canonicalize(typed).await.map_err(unreadable)?;
        let meta = tokio::fs::metadata(&path).await.map_err(unreadable)?;
        if meta.is_dir() {
            let next = "name the files in it, or process whatever appears there with `telecine watch`";
            return Err(unfit("it is a folder".into(), next));
        }
        if !meta.is_file() {
            return Err(unfit("it is no regular file".into(), "name a file"));
        }
        if path.to_str().is_none() {
            return Err(unfit("its name is no text in UTF-8".into(), "rename it, or its folder"));
        }
        tokio::fs::File::open(&path).await.map_err(unreadable)?;
        sniff_file(&path).await.map_err(|error| unfit(format!("{error}"), error.hint()))?;
        let modified_ns = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        Ok(Self { path, bytes: meta.len(), modified_ns, shown })
    }

    /// The same for the same file, unchanged, the same recipe and prefix: what was begun under it is taken up again.
    pub(crate) fn key(&self, recipe: &Recipe, publish_to: Option<&str>) -> String {
        // A recipe names the pictures that it lays over a film; what they show is in their files.
        let marks = recipe.enabled_steps().filter_map(|step| step.does.media()?.video?.watermark);
        let marks: Vec<Option<(u64, i64, i64)>> = marks
            .map(|mark| std::fs::metadata(mark.image).ok())
            .map(|meta| meta.map(|meta| (meta.len(), meta.mtime(), meta.mtime_nsec())))
            .collect();
        let identity = json!([self.path, self.bytes, self.modified_ns.to_string(), recipe, marks]);
        let digest = Sha256::digest(format!("{identity}{}", publish_to.unwrap_or_default()));
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: u64, modified_ns: i128) -> InputFile {
        InputFile { path: "/a/b.mp4".into(), shown: "b.mp4".into(), bytes, modified_ns }
    }

    fn recipe(name: &str) -> Recipe {
        Recipe::new(name, Vec::new())
    }

    #[test]
    fn a_file_that_was_changed_or_is_wanted_otherwise_is_another_run() {
        let key = file(1, 2).key(&recipe("mp4"), None);

        assert_eq!(file(1, 2).key(&recipe("mp4"), None), key);
        for other in [
            file(2, 2).key(&recipe("mp4"), None),
            file(1, 3).key(&recipe("mp4"), None),
            file(1, 2).key(&recipe("hls"), None),
            file(1, 2).key(&recipe("mp4"), Some("u42")),
        ] {
            assert_ne!(other, key);
        }
    }

    #[tokio::test]
    async fn what_is_no_media_file_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = folder.path().join("notes.mp4");
        std::fs::write(&text, "these are notes").expect("a file");
        std::fs::write(folder.path().join("empty.mp4"), "").expect("a file");

        for (path, problem) in [
            (folder.path().join("missing.mp4"), "there is no such file"),
            (folder.path().to_owned(), "it is a folder"),
            (text, "no known type"),
            (folder.path().join("empty.mp4"), "no bytes"),
        ] {
            let unfit = InputFile::look_at(&path).await.expect_err("it is no media file");
            assert!(unfit.problem.contains(problem), "{unfit}");
            assert!(!unfit.next.is_empty(), "{unfit}");
        }
    }
}
