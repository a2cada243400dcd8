//! `backup`: a copy of the file while others work on it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::OpenFlags;

use super::connect::{db, open_file};
use super::sql;
use crate::error::{QueueError, Result};

/// The copy has its name only once it is whole: SQLite itself neither syncs it nor takes it back when it fails.
pub(super) fn backup(path: &Path, into: &Path) -> Result<()> {
    if into.exists() {
        return Err(QueueError::invalid(format!("{} is there already; name another file", into.display())));
    }
    let part = Part::beside(into).map_err(|error| cannot_write(into, &error))?;
    let connection = open_file(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.execute(sql!("backup"), [part.0.to_string_lossy()]).map_err(db)?;
    part.publish(into).map_err(|error| cannot_write(into, &error))
}

/// A file on its way, removed unless it gets there.
struct Part(PathBuf);

impl Part {
    fn beside(into: &Path) -> io::Result<Self> {
        let mut name = into.as_os_str().to_owned();
        name.push(format!(".{:08x}.part", fastrand::u32(..)));
        let part = PathBuf::from(name);
        // The copy holds what users uploaded, as the database does.
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
        Ok(Self(part))
    }

    fn publish(self, into: &Path) -> io::Result<()> {
        File::open(&self.0)?.sync_all()?;
        // A link and not a rename: what somebody else has put there meanwhile is not overwritten.
        fs::hard_link(&self.0, into)?;
        let folder = into.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It has another name by now, or is worth nothing.
        let _ = fs::remove_file(&self.0);
    }
}

fn cannot_write(into: &Path, error: &io::Error) -> QueueError {
    QueueError::Unsuitable {
        reason: format!("{} cannot be written: {error}", into.display()),
        next_step: "check that its folder exists, that this user may write there, and that there is room"
            .into(),
    }
}
