//! The four system calls that no crate in use has a safe form of, and so the only `unsafe` of the project.
#![allow(unsafe_code, reason = "these system calls have no safe form in the crates in use")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::process::Pid;

/// Marks every descriptor from `first` on to be closed by the next `exec`.
pub(super) fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: the call takes three numbers and touches no memory; with this flag it closes nothing now, so no owner of
    // a descriptor is surprised.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Replaces this process by the program behind a descriptor. Returns only when that failed.
pub(super) fn execute(program: BorrowedFd<'_>, arguments: &[CString], variables: &[CString]) -> io::Error {
    let arguments = null_terminated(arguments);
    let variables = null_terminated(variables);
    // SAFETY: the path is a C string, both lists end with a null pointer and point to C strings that outlive the call,
    // and the kernel only reads them.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            arguments.as_ptr(),
            variables.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

/// Splits this process in two; `None` is said to the new one.
pub(super) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the launcher has one thread, so the new process is a whole copy of it: no lock is held by a thread that it
    // does not have.
    let new = unsafe { libc::fork() };
    if new < 0 { Err(io::Error::last_os_error()) } else { Ok(Pid::from_raw(new)) }
}

/// The version of Landlock's interface; `None` where the kernel has none or was told not to use it.
pub(super) fn landlock_abi() -> Option<u32> {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the kernel reads no attributes, and the size of none is 0.
    let abi = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<libc::c_void>(), 0_usize, VERSION)
    };
    u32::try_from(abi).ok().filter(|abi| *abi > 0)
}

fn null_terminated(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| CStr::as_ptr(text)).chain([ptr::null()]).collect()
}
