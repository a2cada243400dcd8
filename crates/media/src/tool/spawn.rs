//! Starting a child from a thread that lives as long as the child does.
//!
//! A child that is to die with its parent dies, as the kernel counts, with the *thread* that started it. A runtime's
//! threads come and go, so each child gets one of its own, which sleeps until the child has been seen to its end.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use tokio::process::{Child, Command};
use tokio::runtime::Handle;

/// Keeps the thread that started a child. Dropping it lets the thread, and with it a confined child, end.
#[derive(Debug)]
pub(super) struct Anchor {
    _until_dropped: Option<Sender<()>>,
}

pub(super) fn here(mut command: Command) -> io::Result<(Child, Anchor)> {
    // The parent's copies of the pipe ends live in the command: it goes out of scope here, or a reader would never see
    // their end.
    command.spawn().map(|child| (child, Anchor { _until_dropped: None }))
}

pub(super) fn anchored(mut command: Command) -> io::Result<(Child, Anchor)> {
    let runtime = Handle::current();
    let (tell, told) = channel();
    let (anchor, dropped) = channel::<()>();
    thread::Builder::new().name("tool".into()).stack_size(256 << 10).spawn(move || {
        let spawned = {
            let _entered = runtime.enter();
            command.spawn()
        };
        drop((command, runtime));
        let started = spawned.is_ok();
        if tell.send(spawned).is_ok() && started {
            // Nothing is ever sent: this ends when the anchor is dropped.
            let _ = dropped.recv();
        }
    })?;
    let child = told.recv().map_err(|_| io::Error::other("the thread that starts the child ended"))??;
    Ok((child, Anchor { _until_dropped: Some(anchor) }))
}
