//! Becomes a program of the user's own, which may start others.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::thread::set_no_new_privs;

use super::{Failure, KernelFeature, Never, confine_paths, die_with_parent, step};
use crate::sandbox::{capabilities, guard, limits, raw, syscalls};
use crate::tool::{Rules, UserProgram};

/// Since this version Landlock keeps signals inside.
const ABI_OF_SIGNALS: u32 = 6;

pub(super) fn become_program(
    rules: &Rules,
    may: &UserProgram,
    arguments: &[CString],
) -> Result<Never, Failure> {
    step("no guard", guard::post(rules.parent_pid))?;
    step("no_new_privs", set_no_new_privs(true))?;
    step("capabilities cannot be given up", capabilities::give_up())?;
    step("resource limits", limits::set(rules))?;
    let signals_stay_inside = raw::landlock_abi().is_some_and(|abi| abi >= ABI_OF_SIGNALS);
    confine_paths(rules)?;
    // A change of credentials forgets it, and the steps above may have been one.
    die_with_parent(rules.parent_pid)?;
    syscalls::of_user::filter(may.network, signals_stay_inside)
        .map_err(|error| Failure::Missing { feature: KernelFeature::Seccomp, reason: error.to_string() })?;

    let is_named = |name: &OsStr| rules.variables.iter().any(|kept| OsStr::new(kept) == name);
    let error = Command::new(&rules.program)
        .args(arguments.iter().skip(1).map(|argument| OsStr::from_bytes(argument.as_bytes())))
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| is_named(name)))
        .exec();
    Err(Failure::Failed(format!("{} cannot be executed: {error}", rules.program.display())))
}
