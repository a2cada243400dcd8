//! Which system calls a tool may make.
//!
//! Three filters are in force at once, and the strictest answer counts. What is not on the list of the first is refused
//! with EPERM; what only an exploit asks for ends the process by SIGSYS, which [`crate::MediaError`] reports as
//! `input_hostile`; and `clone3`, whose arguments no filter can read, does not exist, so that the C library falls back
//! to `clone`.

pub(super) mod of_user;

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

type RulesOf = BTreeMap<c_long, Vec<SeccompRule>>;

/// Puts this thread, and the program it will become, under the filters. `pid` is its own, `executed_by` the descriptor
/// of that program.
pub(super) fn filter(pid: u32, executed_by: u32) -> Result<(), Error> {
    let refuse = |errno: i32| SeccompAction::Errno(errno.cast_unsigned());
    let allowed = allowed(pid, executed_by)?;
    let exploits: RulesOf = EXPLOITS.iter().map(|call| (*call, Vec::new())).collect();
    let absent: RulesOf = [(libc::SYS_clone3, Vec::new())].into();
    // The list comes last: it refuses to add further filters.
    let programs = [
        program(absent, SeccompAction::Allow, refuse(libc::ENOSYS))?,
        program(exploits, SeccompAction::Allow, SeccompAction::KillProcess)?,
        program(allowed, refuse(libc::EPERM), SeccompAction::Allow)?,
    ];
    programs.iter().try_for_each(|program| apply_filter(program))
}

fn program(rules: RulesOf, otherwise: SeccompAction, matched: SeccompAction) -> Result<BpfProgram, Error> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(rules, otherwise, matched, architecture)?;
    Ok(BpfProgram::try_from(filter)?)
}

fn allowed(pid: u32, executed_by: u32) -> Result<RulesOf, BackendError> {
    let mut rules: RulesOf = ALWAYS.iter().chain(OLD_NAMES).map(|call| (*call, Vec::new())).collect();
    // The descriptor closes with the first use, and the limit on descriptors lets no other have its number. With an
    // absolute path the kernel does not look at it, and no filter sees the path: that is for Landlock.
    let only_exec = [
        argument(0, SeccompCmpOp::Eq, executed_by.into())?,
        argument(4, SeccompCmpOp::Eq, libc::AT_EMPTY_PATH as u64)?,
    ];
    rules.insert(libc::SYS_execveat, vec![SeccompRule::new(only_exec.into())?]);
    // Here it is allowed, or this filter's error number would hide the other's.
    rules.insert(libc::SYS_clone3, Vec::new());
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![thread_and_nothing_else()?])?]);
    // A thread may signal its own process, as abort() does.
    rules.insert(libc::SYS_tgkill, any_of(0, &[pid.into()])?);
    rules.insert(libc::SYS_kill, any_of(0, &[pid.into()])?);
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(own_limits_unchanged()?)?]);
    rules.insert(libc::SYS_openat, opening(2)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, opening(1)?);
    rules.insert(libc::SYS_fcntl, any_of(1, FCNTL)?);
    rules.insert(libc::SYS_ioctl, any_of(1, IOCTL)?);
    rules.insert(libc::SYS_prctl, any_of(0, PRCTL)?);
    Ok(rules)
}

/// A compared argument of 32 bits, of which the kernel looks at no more either.
fn argument(index: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)
}

fn any_of(index: u8, values: &[u64]) -> Result<Vec<SeccompRule>, BackendError> {
    values.iter().map(|value| SeccompRule::new(vec![argument(index, SeccompCmpOp::Eq, *value)?])).collect()
}

/// A new thread, in the namespaces of the old one: no process.
fn thread_and_nothing_else() -> Result<SeccompCondition, BackendError> {
    let namespaces = libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWUTS;
    let looked_at = libc::CLONE_THREAD | libc::CLONE_PTRACE | namespaces;
    argument(0, SeccompCmpOp::MaskedEq(looked_at.cast_unsigned().into()), libc::CLONE_THREAD as u64)
}

/// `prlimit64(0, …, NULL, …)`: reading one's own, which is how the C library reads any limit.
fn own_limits_unchanged() -> Result<Vec<SeccompCondition>, BackendError> {
    let nothing_new = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
    Ok(vec![argument(0, SeccompCmpOp::Eq, 0)?, nothing_new])
}

/// Linux empties a file that is opened for reading with O_TRUNC, and Landlock before version 3 lets it.
fn opening(flags_index: u8) -> Result<Vec<SeccompRule>, BackendError> {
    let masked = |mask: i32, value: i32| {
        let operator = SeccompCmpOp::MaskedEq(mask.cast_unsigned().into());
        SeccompRule::new(vec![argument(flags_index, operator, value.cast_unsigned().into())?])
    };
    Ok(vec![
        masked(libc::O_TRUNC, 0)?,
        masked(libc::O_ACCMODE, libc::O_WRONLY)?,
        masked(libc::O_ACCMODE, libc::O_RDWR)?,
    ])
}

/// Not F_SETOWN and F_SETSIG, which send signals to others.
const FCNTL: &[u64] = &[
    libc::F_DUPFD as u64,
    libc::F_DUPFD_CLOEXEC as u64,
    libc::F_GETFD as u64,
    libc::F_SETFD as u64,
    libc::F_GETFL as u64,
    libc::F_SETFL as u64,
    libc::F_GETLK as u64,
    libc::F_SETLK as u64,
    libc::F_SETLKW as u64,
    libc::F_OFD_GETLK as u64,
    libc::F_OFD_SETLK as u64,
    libc::F_OFD_SETLKW as u64,
    libc::F_GETPIPE_SZ as u64,
    libc::F_SETPIPE_SZ as u64,
];

/// Is it a terminal, how much waits in it, may it block: no command to a device.
#[allow(clippy::unnecessary_cast, reason = "they have another type where the C library is musl")]
const IOCTL: &[u64] = &[
    libc::TCGETS as u64,
    libc::TCGETS2 as u64,
    libc::TIOCGWINSZ as u64,
    libc::FIONREAD as u64,
    libc::FIONBIO as u64,
    libc::FIOCLEX as u64,
    libc::FIONCLEX as u64,
];

/// Names of threads and of memory; not PR_SET_PDEATHSIG, which keeps a tool from outliving its parent.
const PRCTL: &[u64] = &[
    libc::PR_SET_NAME as u64,
    libc::PR_GET_NAME as u64,
    libc::PR_GET_DUMPABLE as u64,
    libc::PR_CAPBSET_READ as u64,
    libc::PR_SET_VMA as u64,
];

/// What computing on files takes. Absent on purpose: sockets, other processes, owners, modes and times of files (which
/// Landlock does not look at), links, shared memory, and every way to give more rights to oneself.
const ALWAYS: &[c_long] = &[
    // Descriptors.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    // Paths, within what Landlock allows.
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_umask,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_msync,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_membarrier,
    libc::SYS_mbind,
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy,
    // Threads of its own.
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_get_robust_list,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_getcpu,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    // Signals to itself.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // Time, chance, and who am I.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_delete,
    libc::SYS_times,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getpriority,
];

/// Older forms of the same calls, which static builds still use.
#[cfg(target_arch = "x86_64")]
const OLD_NAMES: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_alarm,
    libc::SYS_arch_prctl,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_sync_file_range,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_NAMES: &[c_long] = &[];

/// No decoder, encoder or library has a use for these.
const EXPLOITS: &[c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];
