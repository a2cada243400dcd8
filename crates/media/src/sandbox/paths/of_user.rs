//! What a program of the user's own may read, write and execute.

use landlock::{Access, AccessFs, AccessNet, RestrictionStatus, Ruleset, RulesetAttr, RulesetError, Scope};

use super::{KNOWN, READ_BY_LIBRARIES, allow, libraries_beside, scratch};
use crate::tool::{Rules, UserProgram};

/// Programs, their libraries and their data.
const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// What interpreters and libraries read that tools of ours do not. None of it tells about anybody: of `/etc/ssl`, not
/// the private keys.
const READ_BY_PROGRAMS: &[&str] = &[
    "/etc/ImageMagick-6",
    "/etc/ImageMagick-7",
    "/etc/ca-certificates",
    "/etc/fonts",
    "/etc/ld.so.preload",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/proc/loadavg",
    "/proc/stat",
    "/proc/sys/kernel/random",
    "/proc/sys/vm/overcommit_memory",
    "/proc/uptime",
    "/proc/version",
    "/dev/full",
];

/// Who is where.
const READ_FOR_NETWORK: &[&str] = &[
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
];

pub(super) fn confine(rules: &Rules, may: &UserProgram) -> Result<RestrictionStatus, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let execute = read | AccessFs::Execute;
    let ruleset = Ruleset::default().handle_access(AccessFs::from_all(KNOWN))?;
    let ruleset = if may.network { ruleset } else { ruleset.handle_access(AccessNet::from_all(KNOWN))? };
    let ruleset = ruleset.scope(Scope::from_all(KNOWN))?.create()?;
    let ruleset = allow(ruleset, SYSTEM, execute)?;
    let ruleset = allow(ruleset, libraries_beside(&rules.program), execute)?;
    let ruleset = allow(ruleset, [&rules.program], execute)?;
    let ruleset = allow(ruleset, &may.executable, execute)?;
    let ruleset = allow(ruleset, READ_BY_LIBRARIES, read)?;
    let ruleset = allow(ruleset, READ_BY_PROGRAMS, read)?;
    let ruleset = if may.network { allow(ruleset, READ_FOR_NETWORK, read)? } else { ruleset };
    let ruleset = allow(ruleset, ["/dev/null"], AccessFs::ReadFile | AccessFs::WriteFile)?;
    let ruleset = allow(ruleset, &rules.readable, read)?;
    let ruleset = allow(ruleset, &rules.scratch, scratch() | AccessFs::MakeSym | AccessFs::MakeFifo)?;
    ruleset.restrict_self()
}
