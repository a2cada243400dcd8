//! Confines this process step by step, and then becomes the tool.

mod of_user;

use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::ExitCode;

use landlock::RulesetStatus;
use rustix::fs::{Mode, OFlags};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{
    Signal, getpgrp, getpid, getppid, nice, set_parent_process_death_signal, setpgid, umask,
};
use rustix::thread::set_no_new_privs;

use super::{KernelFeature, capabilities, limits, paths, raw, syscalls};
use crate::tool::Rules;

/// Exit codes and a first word that tell the launcher's own failures from the tool's.
const EXIT_MISSING: u8 = 125;
const EXIT_FAILED: u8 = 126;
const SIGN: &str = "sandbox-exec:";

/// Of 1000: when memory runs out, a tool goes before the process that started it.
const OOM_SCORE: i32 = 500;
const OOM_SCORE_FILE: &str = "/proc/self/oom_score_adj";
/// Behind the process that started it, which has leases to renew.
const NICE: i32 = 5;

/// Acts as the launcher: `RULES -- TOOL ARGS…` follow the name of the mode. Returns only when the tool was not started.
pub fn launch(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let failure = match become_tool(arguments.into_iter().collect()) {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    let _ = writeln!(std::io::stderr(), "{SIGN} {failure}");
    ExitCode::from(match failure {
        Failure::Missing { .. } => EXIT_MISSING,
        Failure::Failed(_) => EXIT_FAILED,
    })
}

#[derive(Debug)]
enum Failure {
    Missing { feature: KernelFeature, reason: String },
    Failed(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { feature, reason } => {
                write!(f, "missing {feature}: {reason}; {}", feature.next_step())
            }
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

/// Names the step in the error.
fn step<T, E: fmt::Display>(what: &str, done: Result<T, E>) -> Result<T, Failure> {
    done.map_err(|error| Failure::Failed(format!("{what}: {error}")))
}

enum Never {}

fn become_tool(arguments: Vec<OsString>) -> Result<Never, Failure> {
    let (rules, tool_arguments) = understood(&arguments)?;
    die_with_parent(rules.parent_pid)?;
    if getpgrp() != getpid() {
        step("no process group of its own", setpgid(None, None))?;
    }
    umask(Mode::RWXG | Mode::RWXO);
    step("its priority cannot be lowered", nice(NICE))?;
    raise_oom_score();
    step("descriptors cannot be closed", raw::close_on_exec_from(3))?;
    if let Some(may) = &rules.user_program {
        return of_user::become_program(&rules, may, &tool_arguments);
    }
    let program = opened_above_limit(&rules.program)?;
    let variables = kept_variables(&rules.variables)?;

    step("no_new_privs", set_no_new_privs(true))?;
    step("capabilities cannot be given up", capabilities::give_up())?;
    step("resource limits", limits::set(&rules))?;
    confine_paths(&rules)?;
    // A change of credentials forgets it, and the steps above may have been one.
    die_with_parent(rules.parent_pid)?;
    filter_syscalls(&program)?;

    let error = raw::execute(program.as_fd(), &tool_arguments, &variables);
    Err(Failure::Failed(format!("{} cannot be executed: {error}", rules.program.display())))
}

/// `RULES -- TOOL ARGS…`: the rules, and the tool's arguments from its own name on.
fn understood(arguments: &[OsString]) -> Result<(Rules, Vec<CString>), Failure> {
    let [rules, dashes, tool @ ..] = arguments else {
        return Err(Failure::Failed("it is started by telecine itself, as RULES -- TOOL ARGS…".into()));
    };
    if dashes != "--" || tool.is_empty() {
        return Err(Failure::Failed("no tool follows the rules".into()));
    }
    let rules = step("the rules are not as known", serde_json::from_slice(rules.as_bytes()))?;
    let tool = tool.iter().map(|text| c_string(text.clone().into_vec())).collect::<Result<_, _>>()?;
    Ok((rules, tool))
}

fn c_string(bytes: Vec<u8>) -> Result<CString, Failure> {
    step("an argument cannot be passed on", CString::new(bytes))
}

/// From now on the kernel kills this process with its parent; unless the parent went before that was said.
fn die_with_parent(parent_pid: u32) -> Result<(), Failure> {
    step("its death with its parent", set_parent_process_death_signal(Some(Signal::KILL)))?;
    let parent = getppid().map_or(0, |parent| parent.as_raw_nonzero().get().cast_unsigned());
    if parent == parent_pid {
        return Ok(());
    }
    Err(Failure::Failed(format!("process {parent_pid}, which started it, is gone")))
}

/// Never lowers it: containers that are first to go begin at 1000, and lowering needs a capability. Where `/proc` cannot
/// be written to, the score stays what it is, which keeps no tool from its work.
fn raise_oom_score() {
    let present = std::fs::read_to_string(OOM_SCORE_FILE).ok().and_then(|score| score.trim().parse().ok());
    if present.is_none_or(|present: i32| present < OOM_SCORE) {
        let _ = std::fs::write(OOM_SCORE_FILE, OOM_SCORE.to_string());
    }
}

/// The tool, at the first number that its limit on descriptors will never give out again.
fn opened_above_limit(program: &Path) -> Result<OwnedFd, Failure> {
    let cannot = format!("{} cannot be opened", program.display());
    let opened = step(&cannot, rustix::fs::open(program, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()))?;
    let mut start = [0; 2];
    // One that may be executed but not read is no script.
    let is_script = std::fs::File::open(program)
        .and_then(|mut file| file.read_exact(&mut start))
        .is_ok_and(|()| &start == b"#!");
    if is_script {
        let reason =
            format!("{} is a script: the sandbox starts one program, no interpreter", program.display());
        return Err(Failure::Failed(reason));
    }
    step("too few descriptors are allowed (`ulimit -Hn`)", limits::allow_one_file_more())?;
    let number = i32::try_from(limits::FILES).unwrap_or(i32::MAX);
    let moved = step(&cannot, fcntl_dupfd_cloexec(&opened, number))?;
    if moved.as_raw_fd() != number {
        return Err(Failure::Failed(format!("descriptor {number} is taken")));
    }
    Ok(moved)
}

/// Of this process's environment, what the rules name.
fn kept_variables(names: &[String]) -> Result<Vec<CString>, Failure> {
    let is_named = |name: &OsStr| names.iter().any(|kept| OsStr::new(kept) == name);
    let kept = std::env::vars_os().filter(|(name, _)| is_named(name));
    kept.map(|(name, value)| c_string([name.as_bytes(), b"=", value.as_bytes()].concat())).collect()
}

fn confine_paths(rules: &Rules) -> Result<(), Failure> {
    let missing = |reason: String| Failure::Missing { feature: KernelFeature::Landlock, reason };
    if raw::landlock_abi().is_none() {
        return Err(missing("this kernel does not confine files by path".into()));
    }
    let status = step("landlock", paths::confine(rules))?;
    match status.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => Err(missing("this kernel did not take the rules".into())),
    }
}

fn filter_syscalls(program: &OwnedFd) -> Result<(), Failure> {
    let pid = getpid().as_raw_nonzero().get().cast_unsigned();
    syscalls::filter(pid, program.as_raw_fd().cast_unsigned())
        .map_err(|error| Failure::Missing { feature: KernelFeature::Seccomp, reason: error.to_string() })
}

/// What a launcher said that did not become the tool.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Missing(KernelFeature),
    Failed,
}

/// Recognises the launcher's own end. A tool could imitate it, and would only spoil its own work.
pub(crate) fn refusal(exit_code: Option<i32>, stderr: &str) -> Option<Refusal> {
    let said = stderr.lines().find_map(|line| line.strip_prefix(SIGN))?;
    let code = exit_code?;
    if code == i32::from(EXIT_FAILED) {
        return Some(Refusal::Failed);
    }
    let feature = said.trim_start().strip_prefix("missing ")?;
    let feature = KernelFeature::ALL.into_iter().find(|known| feature.starts_with(known.name()))?;
    (code == i32::from(EXIT_MISSING)).then_some(Refusal::Missing(feature))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launchers_own_failures_are_told_from_the_tools() {
        let missing = Failure::Missing { feature: KernelFeature::Landlock, reason: "it is not there".into() };
        let line = format!("{SIGN} {missing}\n");

        assert_eq!(refusal(Some(125), &line), Some(Refusal::Missing(KernelFeature::Landlock)));
        assert_eq!(refusal(Some(126), "sandbox-exec: no tool follows\n"), Some(Refusal::Failed));
        assert_eq!(refusal(Some(1), &line), None);
        assert_eq!(refusal(Some(125), "Conversion failed!\n"), None);
    }
}
