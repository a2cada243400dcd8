//! Files that this process itself writes, into folders where tools write, too.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Writes a file that is new in any case. Whatever has the name is removed first, so a link that somebody left there
/// leads nowhere: this process is not confined, and may write where no tool may.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    File::create_new(path)?.write_all(bytes.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_place_of_a_file_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, path) = (folder.path().join("victim"), folder.path().join("segment"));
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();

        write(&path, "made").unwrap();
        write(&path, "made again").unwrap();

        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        assert_eq!(std::fs::read(&path).unwrap(), b"made again");
        assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
    }
}
