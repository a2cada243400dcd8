//! A launcher on a kernel that lacks a system call: a filter answers as such a kernel does.

use std::ffi::OsString;
use std::process::ExitCode;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
use telecine_media::sandbox;

/// `landlock` or `seccomp`, then what a launcher gets.
pub(crate) fn launch(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let lacking = match arguments.next().as_ref().and_then(|name| name.to_str()) {
        Some("landlock") => libc::SYS_landlock_create_ruleset,
        Some("seccomp") => libc::SYS_seccomp,
        _ => return ExitCode::from(64),
    };
    let absent = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let program: Option<BpfProgram> = TargetArch::try_from(std::env::consts::ARCH)
        .and_then(|arch| SeccompFilter::new([(lacking, vec![])].into(), SeccompAction::Allow, absent, arch))
        .and_then(BpfProgram::try_from)
        .ok();
    match program.map(|program| apply_filter(&program)) {
        Some(Ok(())) => sandbox::launch(arguments),
        _ => ExitCode::from(65),
    }
}
