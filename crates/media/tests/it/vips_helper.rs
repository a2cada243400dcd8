//! The program that holds libvips, built when the first test needs it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// `telecine-vips` is a package of its own, which Cargo does not build for the tests of this one.
pub(crate) fn vips_helper() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let us = std::env::current_exe().unwrap();
        let profile_folder = us.parent().unwrap().parent().unwrap().to_owned();
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--quiet", "--locked", "-p", "telecine-vips"]);
        command.arg("--target-dir").arg(profile_folder.parent().unwrap());
        if profile_folder.ends_with("release") {
            command.arg("--release");
        }
        let done = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        profile_folder.join("telecine-vips")
    };
    BUILT.get_or_init(build).clone()
}
