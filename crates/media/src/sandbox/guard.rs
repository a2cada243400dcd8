//! A guard: a small process of ours in the group of a user's own program, outside of its sandbox.
//!
//! The kernel kills the program with the worker, but not those that it started. The guard sleeps until the program or the
//! worker has ended, and then kills the group, itself included. Nobody in the sandbox can leave the group; nor signal the
//! guard, where Landlock knows signals.

use std::io;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpgrp, getpid, kill_process_group, pidfd_open, waitpid,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use super::raw;

/// Posts one in this process's group, of which this process is the leader.
pub(super) fn post(parent_pid: u32) -> io::Result<()> {
    let gone = || io::Error::other("the process that started it is gone");
    let parent = Pid::from_raw(parent_pid.cast_signed()).ok_or_else(gone)?;
    let awaited = [pidfd_open(getpid(), PidfdFlags::empty())?, pidfd_open(parent, PidfdFlags::empty())?];
    let Some(between) = raw::fork()? else {
        // The guard must not be a child of the program, which may wait for all of its children.
        let is_posted = match raw::fork() {
            Ok(None) => guard(awaited.each_ref().map(|ended| PollFd::new(ended, PollFlags::IN))),
            Ok(Some(_)) => true,
            Err(_) => false,
        };
        std::process::exit(i32::from(!is_posted));
    };
    let ended = waitpid(Some(between), WaitOptions::empty())?;
    match ended.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        _ => Err(io::Error::other("no guard can be started")),
    }
}

fn guard(mut awaited: [PollFd<'_>; 2]) -> bool {
    // Its copies of the program's pipes would keep their readers waiting.
    if let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()) {
        let _ = dup2_stdin(&null).and_then(|()| dup2_stdout(&null)).and_then(|()| dup2_stderr(&null));
    }
    while poll(&mut awaited, None) == Err(rustix::io::Errno::INTR) {}
    kill_process_group(getpgrp(), Signal::KILL).is_ok()
}
