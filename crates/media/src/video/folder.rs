//! Where finished segments appear, until nobody waits for them any more.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{InitFile, STEP};
use crate::digest::sha256_hex;
use crate::error::{MediaError, Result};
use crate::fresh;

/// A thread that stores a segment cannot be stopped, only kept out.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    is_closed: Mutex<bool>,
}

/// Dropping it closes the folder: after that nothing appears in it.
#[derive(Debug)]
pub(super) struct OpenFolder(Arc<Folder>);

impl OpenFolder {
    pub(super) fn at(path: &Path) -> Self {
        Self(Arc::new(Folder { path: path.to_owned(), is_closed: Mutex::new(false) }))
    }

    pub(super) fn folder(&self) -> Arc<Folder> {
        Arc::clone(&self.0)
    }
}

impl Drop for OpenFolder {
    fn drop(&mut self) {
        *self.0.is_closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

impl Folder {
    /// Whole or not at all.
    pub(super) fn put(&self, name: &str, part: &str, content: &[u8]) -> Result<InitFile> {
        // Held while it is written: whoever closes the folder waits for the few megabytes in hand.
        let is_closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_closed {
            return Err(MediaError::Cancelled { step: STEP.into() });
        }
        let cannot = |what: &'static str| move |error: std::io::Error| MediaError::io(STEP, what, &error);
        let (path, part) = (self.path.join(name), self.path.join(part));
        fresh::write(&part, content).map_err(cannot("a segment cannot be written"))?;
        std::fs::rename(&part, &path).map_err(cannot("a segment cannot be named"))?;
        Ok(InitFile { path, bytes: content.len() as u64, sha256: sha256_hex(content) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_a_tool_left_are_not_followed() {
        let (place, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let victim = elsewhere.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        for name in ["first", "first.part"] {
            std::os::unix::fs::symlink(&victim, place.path().join(name)).unwrap();
        }

        let open = OpenFolder::at(place.path());
        open.folder().put("first", "first.part", b"1").unwrap();

        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        assert!(std::fs::symlink_metadata(place.path().join("first")).unwrap().is_file());
    }

    #[test]
    fn nothing_appears_once_nobody_waits_any_more() {
        let place = tempfile::tempdir().unwrap();
        let open = OpenFolder::at(place.path());
        let thread_of_its_own = open.folder();
        thread_of_its_own.put("first", "first.part", b"1").unwrap();

        drop(open);

        assert_eq!(thread_of_its_own.put("second", "second.part", b"2").unwrap_err().code(), "cancelled");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
