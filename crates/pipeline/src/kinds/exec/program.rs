//! Which program a command means, and what comes with it.

use std::env;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::failure::Failed;

/// Where programs look for others, as only those are allowed to be executed.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command whose program this machine does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the program `{program}` {reason}")]
pub struct NoProgram {
    program: String,
    reason: &'static str,
}

impl NoProgram {
    /// A stable word for APIs, logs and tests.
    pub const CODE: &'static str = "exec_not_found";
}

impl From<NoProgram> for Failed {
    fn from(error: NoProgram) -> Self {
        let hint = "install it on every worker, make it executable, or correct `command` in the recipe";
        Self::for_good(NoProgram::CODE, error.to_string(), hint)
    }
}

/// By its absolute path, or by its name in `PATH`. (`./NAME` in a recipe's file was made absolute when it was read.)
pub(crate) fn find_program(command: &[String]) -> Result<PathBuf, NoProgram> {
    let program = command.first().map(String::as_str).unwrap_or_default();
    let refused = |reason| NoProgram { program: program.to_owned(), reason };
    let path = Path::new(program);
    if path.is_absolute() {
        return match path.metadata() {
            Ok(meta) if !meta.is_file() => Err(refused("is no file")),
            Ok(_) if !is_executable(path) => Err(refused("is not executable")),
            Ok(_) => Ok(path.to_owned()),
            Err(_) => Err(refused("does not exist")),
        };
    }
    if program.contains('/') {
        return Err(refused("is neither an absolute path, nor a name, nor `./…` in the file of a recipe"));
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&folders).filter(|folder| folder.is_absolute()).map(|it| it.join(program));
    found.into_iter().find(|file| is_executable(file)).ok_or_else(|| refused("is not in PATH"))
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

/// The folder that a program was installed into. Not one in which all kinds of things lie: a folder of the root, such as
/// `/root` and `/tmp`, and nobody's home.
pub(super) fn own_folder(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?;
    let is_home = folder.parent() == Some(Path::new("/home"))
        || env::var_os("HOME").is_some_and(|home| folder == Path::new(&home));
    let depth = folder.components().count();
    (depth > 2 && !is_home).then(|| folder.to_owned())
}

/// A script is usually an argument of its interpreter: whatever file the command names may be read.
pub(super) fn named_files(command: &[String]) -> impl Iterator<Item = PathBuf> {
    let paths = command.iter().skip(1).map(PathBuf::from);
    paths.filter(|path| path.is_absolute() && path.is_file())
}

pub(super) fn search_path(own_folder: Option<&Path>) -> String {
    match own_folder.and_then(Path::to_str) {
        Some(own) if !own.contains(':') && !SYSTEM_PATH.split(':').any(|folder| folder == own) => {
            format!("{own}:{SYSTEM_PATH}")
        }
        _ => SYSTEM_PATH.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(program: &str) -> &'static str {
        find_program(&[program.to_owned()]).unwrap_err().reason
    }

    #[test]
    fn a_program_is_found_by_its_path_or_its_name() {
        assert_eq!(find_program(&["/bin/sh".into()]), Ok("/bin/sh".into()));
        assert!(find_program(&["sh".into(), "-c".into()]).unwrap().ends_with("sh"));

        assert_eq!(reason("/bin"), "is no file");
        let plain = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(reason(plain.path().to_str().unwrap()), "is not executable");
        assert_eq!(reason("/nowhere/sh"), "does not exist");
        assert_eq!(reason("no-such-program"), "is not in PATH");
        assert!(reason("bin/sh").starts_with("is neither"));
    }

    #[test]
    fn a_folder_of_all_kinds_of_things_does_not_come_with_a_program() {
        let own = |program: &str| own_folder(Path::new(program));
        assert_eq!(own("/srv/steps/label"), Some("/srv/steps".into()));
        assert_eq!(own("/home/ann/steps/label"), Some("/home/ann/steps".into()));
        for program in ["/label", "/tmp/label", "/root/label", "/home/ann/label"] {
            assert_eq!(own(program), None, "{program}");
        }
    }

    #[test]
    fn a_programs_own_folder_comes_first() {
        assert_eq!(search_path(Some(Path::new("/usr/bin"))), SYSTEM_PATH);
        assert_eq!(search_path(Some(Path::new("/srv/steps"))), format!("/srv/steps:{SYSTEM_PATH}"));
        assert_eq!(search_path(None), SYSTEM_PATH);
    }
}
