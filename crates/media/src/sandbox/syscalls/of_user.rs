//! Which system calls a program of the user's own may make, beyond those of a tool.
//!
//! It may start processes, and that makes interpreters, shells and their scripts work. What they often do and nobody
//! should, such as changing the owner of a file, which Landlock does not look at, is answered so that they go on:
//! modes, owners and times are said to be changed and are not; what newer programs only try does not exist.

use libc::c_long;
use seccompiler::{
    BackendError, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule,
    apply_filter,
};

use super::{ALWAYS, FCNTL, IOCTL, OLD_NAMES, PRCTL, RulesOf, any_of, argument, opening, program};

/// Puts this thread, and all that it will start, under the filters.
pub(in crate::sandbox) fn filter(network: bool, signals_stay_inside: bool) -> Result<(), Error> {
    let answered = |errno: i32| SeccompAction::Errno(errno.cast_unsigned());
    let only = |calls: &[&[c_long]]| -> RulesOf {
        calls.iter().copied().flatten().map(|call| (*call, Vec::new())).collect()
    };
    let allowed = allowed(network, signals_stay_inside)?;
    // The list comes last: it refuses to add further filters.
    let programs = [
        program(only(&[ABSENT]), SeccompAction::Allow, answered(libc::ENOSYS))?,
        program(only(&[UNSUPPORTED]), SeccompAction::Allow, answered(libc::EOPNOTSUPP))?,
        program(only(&[WITHOUT_EFFECT, OLD_WITHOUT_EFFECT]), SeccompAction::Allow, answered(0))?,
        program(allowed, answered(libc::EPERM), SeccompAction::Allow)?,
    ];
    programs.iter().try_for_each(|program| apply_filter(program))
}

fn allowed(network: bool, signals_stay_inside: bool) -> Result<RulesOf, BackendError> {
    // What the other filters answer is allowed here, or this filter's error number would hide theirs.
    let lists = [
        ALWAYS,
        OLD_NAMES,
        ALSO,
        ALSO_OLD_NAMES,
        ABSENT,
        UNSUPPORTED,
        WITHOUT_EFFECT,
        OLD_WITHOUT_EFFECT,
        if network { NETWORK } else { &[] },
        if signals_stay_inside { SIGNALS } else { &[] },
    ];
    let mut rules: RulesOf = lists.into_iter().flatten().map(|call| (*call, Vec::new())).collect();
    if !signals_stay_inside {
        // To its own group, which is what 0 says.
        rules.insert(libc::SYS_kill, any_of(0, &[0])?);
    }
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![no_new_rights()?])?]);
    rules.insert(libc::SYS_prlimit64, any_of(0, &[0])?);
    rules.insert(
        libc::SYS_setpriority,
        vec![SeccompRule::new(vec![argument(0, SeccompCmpOp::Eq, 0)?, argument(1, SeccompCmpOp::Eq, 0)?])?],
    );
    rules.insert(libc::SYS_sched_setaffinity, any_of(0, &[0])?);
    rules.insert(libc::SYS_openat, opening(2)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, opening(1)?);
    rules.insert(libc::SYS_fcntl, any_of(1, &[FCNTL, ALSO_FCNTL].concat())?);
    rules.insert(libc::SYS_ioctl, any_of(1, &[IOCTL, ALSO_IOCTL].concat())?);
    rules.insert(libc::SYS_prctl, any_of(0, &[PRCTL, ALSO_PRCTL].concat())?);
    rules.insert(
        libc::SYS_socketpair,
        vec![SeccompRule::new(vec![
            argument(0, SeccompCmpOp::Eq, libc::AF_UNIX as u64)?,
            of_type(libc::SOCK_STREAM)?,
        ])?],
    );
    if network {
        rules.insert(libc::SYS_socket, sockets()?);
    }
    Ok(rules)
}

/// A thread or a process of its own: in the same namespaces, traced by nobody, and no child of the worker.
fn no_new_rights() -> Result<SeccompCondition, BackendError> {
    let refused = libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWUTS
        | libc::CLONE_PARENT
        | libc::CLONE_PTRACE;
    argument(0, SeccompCmpOp::MaskedEq(refused.cast_unsigned().into()), 0)
}

/// A pair of stream sockets is a pipe with two directions. Of other types, one end could send to sockets elsewhere.
fn of_type(wanted: i32) -> Result<SeccompCondition, BackendError> {
    const TYPE: u64 = 0xf;
    argument(1, SeccompCmpOp::MaskedEq(TYPE), wanted.cast_unsigned().into())
}

/// The internet, and what the kernel tells about routes. Unix sockets are those of other programs on this machine, and
/// Landlock before version 9 does not look at their paths.
fn sockets() -> Result<Vec<SeccompRule>, BackendError> {
    let mut rules = Vec::new();
    for domain in [libc::AF_INET, libc::AF_INET6] {
        for of_kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
            let domain = argument(0, SeccompCmpOp::Eq, domain.cast_unsigned().into())?;
            rules.push(SeccompRule::new(vec![domain, of_type(of_kind)?])?);
        }
    }
    let routes = SeccompCondition::new(
        2,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Eq,
        libc::NETLINK_ROUTE.cast_unsigned().into(),
    )?;
    let netlink = argument(0, SeccompCmpOp::Eq, libc::AF_NETLINK.cast_unsigned().into())?;
    rules.push(SeccompRule::new(vec![netlink, routes])?);
    Ok(rules)
}

/// Processes of its own, what they copy and tell each other. Absent on purpose: `setsid` and `setpgid`, which leave the
/// group that is killed in the end; sockets; shared memory by name; tracing; namespaces.
const ALSO: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_capget,
    libc::SYS_copy_file_range,
    libc::SYS_getgroups,
    libc::SYS_getpeername,
    libc::SYS_getrlimit,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_linkat,
    libc::SYS_memfd_create,
    libc::SYS_mknodat,
    libc::SYS_pidfd_open,
    libc::SYS_readahead,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_renameat,
    libc::SYS_sched_getattr,
    libc::SYS_sendfile,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setrlimit,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_signalfd4,
    libc::SYS_splice,
    libc::SYS_symlinkat,
    libc::SYS_sync_file_range,
    libc::SYS_tee,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_timer_getoverrun,
    libc::SYS_vmsplice,
];

#[cfg(target_arch = "x86_64")]
const ALSO_OLD_NAMES: &[c_long] = &[
    libc::SYS_creat,
    libc::SYS_fork,
    libc::SYS_link,
    libc::SYS_mknod,
    libc::SYS_pause,
    libc::SYS_signalfd,
    libc::SYS_symlink,
    libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
const ALSO_OLD_NAMES: &[c_long] = &[];

/// To whomever Landlock lets it.
const SIGNALS: &[c_long] = &[libc::SYS_kill, libc::SYS_tgkill, libc::SYS_tkill, libc::SYS_pidfd_send_signal];

const NETWORK: &[c_long] = &[
    libc::SYS_accept4,
    libc::SYS_accept,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
];

/// Programs try these and have another way. The arguments of the first two are in memory, which no filter reads.
const ABSENT: &[c_long] = &[
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

const UNSUPPORTED: &[c_long] = &[
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_lremovexattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_setxattr,
];

/// Of any file, also of those that may not be written to: so nothing happens.
const WITHOUT_EFFECT: &[c_long] =
    &[libc::SYS_fchmod, libc::SYS_fchmodat, libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_utimensat];

#[cfg(target_arch = "x86_64")]
const OLD_WITHOUT_EFFECT: &[c_long] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_futimesat,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_WITHOUT_EFFECT: &[c_long] = &[];

const ALSO_FCNTL: &[u64] = &[libc::F_ADD_SEALS as u64, libc::F_GET_SEALS as u64, libc::F_GETOWN as u64];

/// Two files that share their bytes until one of them changes.
#[allow(clippy::unnecessary_cast, reason = "they have another type where the C library is musl")]
const ALSO_IOCTL: &[u64] = &[libc::FICLONE as u64, libc::FICLONERANGE as u64];

const ALSO_PRCTL: &[u64] = &[
    libc::PR_GET_NO_NEW_PRIVS as u64,
    libc::PR_GET_PDEATHSIG as u64,
    libc::PR_SET_DUMPABLE as u64,
    libc::PR_SET_NO_NEW_PRIVS as u64,
];
