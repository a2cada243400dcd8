//! Moves an exact number of bytes from the decoder's pipe into an encoder's.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, splice};

use crate::tool::Activity;

/// As much as an unprivileged process may ask for; fewer wake-ups than with the usual 64 KiB.
const PIPE_BYTES: usize = 1 << 20;

/// How a pump ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pumped {
    /// Everything was moved.
    Full,
    /// The decoder had no more; so many bytes were moved.
    SourceEnded { bytes: u64 },
    /// The encoder does not listen any more.
    SinkClosed,
}

/// A pipe that holds more than the usual.
pub(super) fn wide_pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = std::io::pipe()?;
    let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
    // A machine that is short of pipe buffers gives the usual size, which works too.
    let _ = fcntl_setpipe_size(&writer, PIPE_BYTES);
    Ok((reader, writer))
}

/// Blocks until it is done; ends by itself when one of the two programs does. The pages move inside the kernel: nothing
/// is copied here.
pub(super) fn pump(
    source: &OwnedFd,
    sink: &OwnedFd,
    bytes: u64,
    moved: &Arc<AtomicU64>,
    alive: &[Activity],
) -> std::io::Result<Pumped> {
    let mut left = bytes;
    while left > 0 {
        let step = usize::try_from(left).unwrap_or(PIPE_BYTES).min(PIPE_BYTES);
        match splice(source, None, sink, None, step, SpliceFlags::MOVE) {
            Ok(0) => return Ok(Pumped::SourceEnded { bytes: bytes - left }),
            Ok(count) => {
                left -= count as u64;
                moved.fetch_add(count as u64, Ordering::Relaxed);
                alive.iter().for_each(Activity::advanced);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::PIPE) => return Ok(Pumped::SinkClosed),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Pumped::Full)
}

/// Whether the decoder has nothing more. Blocks until that is known.
pub(super) fn is_at_end(source: &OwnedFd) -> std::io::Result<bool> {
    let mut byte = [0u8; 1];
    Ok(rustix::io::retry_on_intr(|| rustix::io::read(source, &mut byte))? == 0)
}
