//! `backup`: a copy of the file while others work on it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode, OpenFlags};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::connect::{db, open_file};
use super::sql;
use crate::error::{QueueError, Result};

/// The copy has its name only once it is whole: SQLite itself neither syncs it nor takes it back when it fails.
pub(super) fn backup(path: &Path, into: &Path) -> Result<()> {
    if into.exists() {
        return Err(QueueError::invalid(format!("{} is there already; name another file", into.display())));
    }
    let part = Part::beside(into).map_err(|error| cannot_write(into, &error))?;
    let name = part.0.to_str().ok_or_else(|| {
        QueueError::invalid(format!("{} is no UTF-8, which SQLite wants; name another file", into.display()))
    })?;
    let connection = open_file(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.execute(sql!("backup"), [name]).map_err(|error| match error.sqlite_error_code() {
        // Nothing else is written: it is the copy that has no room.
        Some(ErrorCode::DiskFull) => cannot_write(into, &error),
        _ => db(error),
    })?;
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
        // What somebody else has put there meanwhile is not overwritten.
        match renameat_with(CWD, &self.0, CWD, into, RenameFlags::NOREPLACE) {
            // A file system that cannot promise it, as NFS: then a link does, if there are any.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => fs::hard_link(&self.0, into)?,
            renamed => renamed?,
        }
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

fn cannot_write(into: &Path, error: &dyn std::error::Error) -> QueueError {
    QueueError::Unsuitable {
        reason: format!("{} cannot be written: {error}", into.display()),
        next_step: "check that its folder exists, that this user may write there, and that there is room"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_copy_gets_its_name_once_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let (database, copy) = (folder.path().join("queue.db"), folder.path().join("copy.db"));
        rusqlite::Connection::open(&database)
            .expect("open")
            .execute_batch("CREATE TABLE a (b)")
            .expect("make");
        let unnameable = folder.path().join(OsStr::from_bytes(b"\xff.db"));

        backup(&database, &copy).expect("a copy");

        let before = fs::read(&copy).expect("it is there");
        let late = Part::beside(&copy).expect("a part").publish(&copy).expect_err("it is there already");
        assert_eq!(late.kind(), io::ErrorKind::AlreadyExists);
        assert!(matches!(backup(&database, &unnameable), Err(QueueError::Invalid { .. })));
        assert_eq!(
            (fs::read(&copy).expect("still"), names(folder.path())),
            (before, vec!["copy.db".into(), "queue.db".into()])
        );
    }
}
