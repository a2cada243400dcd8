//! A file that is read here and there, in small pieces.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const WINDOW_BYTES: usize = 16 << 10;

/// Keeps the piece that was read last, so that a walk over small parts is not a system call for each.
pub(super) struct Source {
    file: File,
    bytes: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl Source {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes, window: Vec::new(), window_at: 0 })
    }

    /// Of the whole file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// So many bytes from there on, or fewer where the file ends.
    pub(super) fn piece(&mut self, at: u64, count: usize) -> io::Result<&[u8]> {
        let left = usize::try_from(self.bytes.saturating_sub(at)).unwrap_or(usize::MAX);
        let count = count.min(left);
        let held = at.checked_sub(self.window_at).and_then(|skip| usize::try_from(skip).ok());
        let held = held.filter(|skip| skip.checked_add(count).is_some_and(|end| end <= self.window.len()));
        let skip = match held {
            Some(skip) => skip,
            None => {
                self.fill(at, count.max(WINDOW_BYTES).min(left))?;
                0
            }
        };
        Ok(&self.window[skip..(skip + count).min(self.window.len())])
    }

    /// Exactly so many bytes; `None` where the file ends before.
    pub(super) fn array<const BYTES: usize>(&mut self, at: u64) -> io::Result<Option<[u8; BYTES]>> {
        Ok(self.piece(at, BYTES)?.try_into().ok())
    }

    fn fill(&mut self, at: u64, count: usize) -> io::Result<()> {
        self.window.resize(count, 0);
        self.window_at = at;
        let mut filled = 0;
        while filled < count {
            match self.file.read_at(&mut self.window[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.window.clear();
                    return Err(error);
                }
            }
        }
        // It may have become shorter meanwhile.
        self.window.truncate(filled);
        Ok(())
    }
}
