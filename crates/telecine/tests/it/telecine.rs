//! Runs the binary in a folder of its own.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// A folder with at most one SQLite database in it.
pub(crate) struct Place {
    folder: TempDir,
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder can be made") }
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        self.write_bytes(name, text.as_bytes());
    }

    pub(crate) fn write_bytes(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.folder.path().join(name), bytes).expect("a file can be written");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn holds(&self, name: &str) -> bool {
        self.folder.path().join(name).exists()
    }

    /// The command, without this process's own settings.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_telecine"));
        for (variable, _) in std::env::vars_os() {
            if variable.to_str().is_some_and(|name| name.starts_with("TELECINE_") || name == "RUST_LOG") {
                command.env_remove(variable);
            }
        }
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.command(arguments).output().expect("the binary can be started").into()
    }

    /// Runs a command that must succeed and print JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        self.json_of(arguments, 0)
    }

    /// Runs a command that must end with a code and print JSON.
    pub(crate) fn json_of(&self, arguments: &[&str], code: i32) -> Value {
        let ended = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:?}");
        serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {ended:?}"))
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Waits for a condition, for as long as a busy machine may need.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: never");
        std::thread::sleep(Duration::from_millis(20));
    }
}
