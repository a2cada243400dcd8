//! What may be read, written and executed, by Landlock.

mod of_user;

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};

use super::interpreter;
use crate::tool::Rules;

/// The newest version whose every right was looked at. Older kernels enforce what they know of it.
const KNOWN: ABI = ABI::V9;

/// Where programs have their libraries. What is not there is passed over.
const LIBRARIES: &[&str] =
    &["/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib"];

/// What libraries read when they start: none of it tells about anybody.
const READ_BY_LIBRARIES: &[&str] = &[
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/meminfo",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/dev/urandom",
    "/dev/random",
    "/dev/zero",
];

/// Confines this thread to the paths of the rules, for good; all network, and signals and sockets out of the sandbox,
/// are refused where this kernel's Landlock can.
pub(super) fn confine(rules: &Rules) -> Result<RestrictionStatus, RulesetError> {
    if let Some(may) = &rules.user_program {
        return of_user::confine(rules, may);
    }
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    // Mapping a library is reading it. The kernel starts the tool through its interpreter, so both can be executed.
    let execute = AccessFs::ReadFile | AccessFs::Execute;
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::from_all(KNOWN))?
        .create()?;
    let ruleset = allow(ruleset, LIBRARIES, read)?;
    let ruleset = allow(ruleset, libraries_beside(&rules.program), read)?;
    let ruleset = allow(ruleset, [&rules.program], execute)?;
    let ruleset = allow(ruleset, interpreter::of(&rules.program), execute)?;
    let ruleset = allow(ruleset, READ_BY_LIBRARIES, read)?;
    let ruleset = allow(ruleset, ["/dev/null"], AccessFs::ReadFile | AccessFs::WriteFile)?;
    let ruleset = allow(ruleset, &rules.readable, read)?;
    let ruleset = allow(ruleset, &rules.scratch, scratch())?;
    ruleset.restrict_self()
}

fn allow(
    ruleset: RulesetCreated,
    paths: impl IntoIterator<Item = impl AsRef<Path>>,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    ruleset.add_rules(path_beneath_rules(paths, access))
}

/// Files and folders, but no devices, sockets, pipes or links, and nothing that could be executed.
fn scratch() -> BitFlags<AccessFs> {
    AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer
}

/// For a tool that is not the system's own, as `…/bin/ffmpeg`: `…/lib`, or the whole of a store in which every package
/// has a folder of its own.
fn libraries_beside(program: &Path) -> Vec<PathBuf> {
    let Ok(program) = program.canonicalize() else { return Vec::new() };
    let store = ["/nix/store", "/gnu/store"].into_iter().find(|store| program.starts_with(store));
    if let Some(store) = store {
        return vec![store.into()];
    }
    let prefix = program.parent().filter(|folder| folder.ends_with("bin")).and_then(Path::parent);
    prefix.map(|prefix| vec![prefix.join("lib"), prefix.join("lib64")]).unwrap_or_default()
}
